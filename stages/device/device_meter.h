// What devices say of themselves: CUDA ones through their driver (NVML, loaded when it is there),
// the host through /proc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace onepiece::device {

/// A number that is absent is one that the device does not have, or does not tell now; never 0 for
/// unknown. All processes' use.
struct DeviceReading {
  std::string product;  ///< "NVIDIA H100 80GB HBM3"; empty: unknown.
  /// Shares of the time since the last reading, 0 to 1.
  std::optional<double> sm_active;      ///< Multiprocessors active.
  std::optional<double> kernel_active;  ///< Any kernel running: coarse.
  std::optional<double> memory_active;  ///< Device memory read or written.
  std::optional<std::int64_t> memory_used_bytes, memory_bytes;
  std::optional<double> power_w, power_limit_w, temperature_c;
};

/// Opens NVML's library for one device. Where it cannot (no driver, no such device) a reading is
/// empty, and the reason is logged once.
///
/// Ownership: Owns its NVML session.
/// Threading: Externally synchronised.
class DeviceMeter {
 public:
  /// `pci_bus_id` as PciBusId gives it.
  explicit DeviceMeter(const std::string& pci_bus_id,
                       const std::string& library = "libnvidia-ml.so.1");
  ~DeviceMeter();
  DeviceMeter(const DeviceMeter&) = delete;
  DeviceMeter& operator=(const DeviceMeter&) = delete;

  /// sm_active is counted between two readings: it is absent in the first, and when nothing could
  /// be counted several times in a row.
  DeviceReading Read();
  /// Whether the device counts sm_active; else kernel_active is the best there is.
  [[nodiscard]] bool counts_multiprocessors() const;

 private:
  class Session;
  std::unique_ptr<Session> session_;  // Null: not available.
};

/// The host's processor and memory; `proc` is where procfs is mounted. Thread-safe.
DeviceReading ReadHost(const std::string& proc = "/proc");

}  // namespace onepiece::device
