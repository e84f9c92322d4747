// What the instance itself does with its device: pins the memory that messages arrive in, and tells
// what the device says of itself.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/node/block_pool.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/node_manager.pb.h"
#include "stages/device/device.h"
#include "stages/device/device_meter.h"

namespace onepiece::instance {

/// For InboxOptions::block_hook: pins blocks when `device` is "cuda:N", else none. A block that
/// cannot be pinned is used all the same, copies from it are slower; the first is logged.
node::BlockHook PinBlocks(const std::string& device);

/// Of "cuda:N" the device's memory (all processes'), else this process's resident memory in that of
/// the host.
/// Errors: those of device::DeviceMemory.
absl::StatusOr<device::MemoryUse> MemoryOf(const std::string& device);

/// For "cuda:N"; nullptr for cpu, and when the device does not say where it sits.
std::unique_ptr<device::DeviceMeter> MeterOf(const std::string& device);

/// For the load report. `reading` is the meter's of "cuda:N", device::ReadHost() of cpu.
v1::DeviceLoad MakeDeviceLoad(const std::string& device, const device::DeviceReading& reading);

/// Sets onepiece_device_memory_bytes{device,kind}: used and total; NaN when the device does not
/// answer.
void ExportDeviceMemory(const std::string& device, telemetry::Metrics& metrics);

}  // namespace onepiece::instance
