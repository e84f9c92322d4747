// How the instance itself uses its device: it pins the memory that messages arrive in, and reports
// the device's load.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/node/block_pool.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/node_manager.pb.h"
#include "stages/device/device.h"
#include "stages/device/device_meter.h"

namespace onepiece::instance {

/// Returns a hook for InboxOptions::block_hook that pins blocks for "cuda:N", or nullptr for cpu. A
/// block that cannot be pinned is used too, but copies from it are slower. The first one is logged.
node::BlockHook PinBlocks(const std::string& device);

/// Returns the device's memory and its use by all processes for "cuda:N". For cpu, returns the
/// host's memory and the use by this process.
///
/// Errors: those of device::DeviceMemory.
absl::StatusOr<device::MemoryUse> MemoryOf(const std::string& device);

/// Returns the meter of "cuda:N". Returns nullptr for cpu, and when the PCI address of the device
/// is unknown.
std::unique_ptr<device::DeviceMeter> MeterOf(const std::string& device);

/// What the device itself says of how busy this instance is, and where that comes from.
struct DeviceBusy {
  double share = 0;
  v1::UtilizationSource source = v1::UTILIZATION_SOURCE_UNSPECIFIED;
};
/// Returns it, or nullopt when the workers' own time is the best number. On a device that other
/// processes use too, the device's own numbers would make a quiet instance look as busy as its
/// neighbours, so only what this process does counts. `fine`: the device counts its
/// multiprocessors.
std::optional<DeviceBusy> BusyOf(const device::DeviceReading& reading, bool fine);

/// Describes the device for the NodeManager, as far as it is known.
v1::Device DescribeDevice(const std::string& device);

/// Makes the device's part of the load report. `reading` comes from the meter of "cuda:N", or from
/// device::ReadHost() for cpu.
v1::DeviceLoad MakeDeviceLoad(const std::string& device, const device::DeviceReading& reading);

/// Sets onepiece_device_memory_bytes{device,kind} for the kinds used and total; NaN when the device
/// does not answer.
void ExportDeviceMemory(const std::string& device, telemetry::Metrics& metrics);

}  // namespace onepiece::instance
