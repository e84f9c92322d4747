#include "stages/instance/device_use.h"

#include <unistd.h>

#include <atomic>
#include <limits>
#include <memory>

#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "spdlog/spdlog.h"
#include "stages/sdk/device_name.h"

namespace onepiece::instance {
namespace {

constexpr std::size_t kMaxProduct = 128;

}  // namespace

node::BlockHook PinBlocks(const std::string& device) {
  const auto index = sdk::CudaIndex(device);
  if (!index) return nullptr;
  auto warned = std::make_shared<std::atomic<bool>>(false);
  return [index = *index, warned](std::span<std::byte> block) -> std::shared_ptr<const void> {
    auto pinned = device::PinHostMemory(index, block);
    if (pinned.ok()) return *std::move(pinned);
    if (!warned->exchange(true)) {
      spdlog::warn(
          "messages arrive in memory that is not pinned, copies to the device are slower: {}",
          base::Message(pinned.status()));
    }
    return nullptr;
  };
}

absl::StatusOr<device::MemoryUse> MemoryOf(const std::string& device) {
  if (const auto index = sdk::CudaIndex(device)) return device::DeviceMemory(*index);
  return device::MemoryUse{
      .used_bytes = static_cast<std::int64_t>(telemetry::ResidentBytes()),
      .total_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE)};
}

std::unique_ptr<device::DeviceMeter> MeterOf(const std::string& device) {
  const auto index = sdk::CudaIndex(device);
  if (!index) return nullptr;
  const auto bus_id = device::PciBusId(*index);
  if (!bus_id.ok()) {
    spdlog::warn("the use of {} is not measured, that of the workers is: {}", device,
                 base::Message(bus_id.status()));
    return nullptr;
  }
  return std::make_unique<device::DeviceMeter>(*bus_id);
}

std::optional<DeviceBusy> BusyOf(const device::DeviceReading& reading, bool fine) {
  // NVML counts per process when any of its kernels runs, which is as coarse as for a device.
  if (reading.is_shared) {
    if (!reading.process_active) return std::nullopt;
    return DeviceBusy{*reading.process_active, v1::GPU_COARSE};
  }
  const std::optional<double> busy = fine ? reading.sm_active : reading.kernel_active;
  if (!busy) return std::nullopt;
  return DeviceBusy{*busy, fine ? v1::SM_ACTIVE : v1::GPU_COARSE};
}

v1::Device DescribeDevice(const std::string& device) {
  v1::Device described;
  described.set_device(device);
  described.set_kind(sdk::CudaIndex(device) ? "cuda" : device);
  if (const auto memory = MemoryOf(device); memory.ok())
    described.set_memory_bytes(memory->total_bytes);
  if (device == "cpu") {
    described.set_product(base::ToUtf8(device::ReadHost().product, kMaxProduct));
  } else if (const auto meter = MeterOf(device); meter != nullptr) {
    described.set_product(base::ToUtf8(meter->Read().product, kMaxProduct));
  }
  return described;
}

v1::DeviceLoad MakeDeviceLoad(const std::string& device, const device::DeviceReading& reading) {
  v1::DeviceLoad load;
  load.set_device(device);
  load.set_product(base::ToUtf8(reading.product, kMaxProduct));
  if (reading.sm_active) load.set_sm_active(*reading.sm_active);
  if (reading.kernel_active) load.set_kernel_active(*reading.kernel_active);
  if (reading.memory_active) load.set_memory_active(*reading.memory_active);
  if (reading.process_active) load.set_process_active(*reading.process_active);
  if (reading.memory_used_bytes) load.set_memory_used_bytes(*reading.memory_used_bytes);
  if (reading.memory_bytes) load.set_memory_bytes(*reading.memory_bytes);
  if (reading.power_w) load.set_power_w(*reading.power_w);
  if (reading.power_limit_w) load.set_power_limit_w(*reading.power_limit_w);
  if (reading.temperature_c) load.set_temperature_c(*reading.temperature_c);
  return load;
}

void ExportDeviceMemory(const std::string& device, telemetry::Metrics& metrics) {
  const auto memory = MemoryOf(device);
  // NaN tells "unknown" from a device that is empty. A gauge that kept its last value would hide a
  // device that has failed.
  const auto set = [&](const char* kind, std::int64_t device::MemoryUse::*bytes) {
    metrics
        .Gauge("onepiece_device_memory_bytes",
               "Memory of the instance's device; of cpu, used is what the process has resident",
               {{"device", device}, {"kind", kind}})
        .Set(memory.ok() ? static_cast<double>((*memory).*bytes)
                         : std::numeric_limits<double>::quiet_NaN());
  };
  set("used", &device::MemoryUse::used_bytes);
  set("total", &device::MemoryUse::total_bytes);
}

}  // namespace onepiece::instance
