// The use that devices report: CUDA devices through their driver's library (NVML, which is loaded
// when it is installed), and the host through /proc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace onepiece::device {

/// The use of a device, by all processes where nothing else is said. A number is absent when the
/// device does not have it or does not report it now; unknown is never 0.
struct DeviceReading {
  std::string product;  ///< "NVIDIA H100 80GB HBM3"; empty when unknown.
  /// Shares of the time since the last reading, from 0 to 1.
  std::optional<double> sm_active;      ///< Multiprocessors active.
  std::optional<double> kernel_active;  ///< Any kernel running: coarse.
  std::optional<double> memory_active;  ///< Device memory read or written.
  std::optional<std::int64_t> memory_used_bytes, memory_bytes;
  std::optional<double> power_w, power_limit_w, temperature_c;
  /// The share of the time since the last reading in which kernels of this process ran. It is
  /// absent until the driver has once named this process: in a container it may know the process by
  /// another number, and would then always say nothing.
  std::optional<double> process_active;
  bool is_shared = false;  ///< Other processes use the device too, as far as the driver says.
};

/// Reads one device through NVML. When that is impossible (no driver, no such device), readings are
/// empty, and the reason is logged once.
///
/// Ownership: owns its NVML session.
/// Threading: externally synchronised.
class DeviceMeter {
 public:
  /// `pci_bus_id` is what PciBusId returns.
  explicit DeviceMeter(const std::string& pci_bus_id,
                       const std::string& library = "libnvidia-ml.so.1");
  ~DeviceMeter();
  DeviceMeter(const DeviceMeter&) = delete;
  DeviceMeter& operator=(const DeviceMeter&) = delete;

  /// Reads the device. sm_active is counted between two readings, so it is absent in the first one.
  /// It is also absent after several readings in a row in which nothing could be counted.
  DeviceReading Read();
  /// Returns whether the device counts sm_active. Otherwise kernel_active is the best number.
  [[nodiscard]] bool counts_multiprocessors() const;

 private:
  class Session;
  std::unique_ptr<Session> session_;  // Null when NVML or the device is not available.
};

/// Reads the host's processor and memory. `proc` is where procfs is mounted. Thread-safe.
DeviceReading ReadHost(const std::string& proc = "/proc");

}  // namespace onepiece::device
