// How busy a CUDA device is, as its driver counts (NVML, loaded when it is there).
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace onepiece::device {

struct BusyShare {
  double share = 0;     ///< Of the time since the last Take, 0 to 1; all processes'.
  bool coarse = false;  ///< Time in which any kernel ran; else multiprocessors that were active.
};

/// Opens NVML's library for one device. Where it cannot (no driver, no such device) Take answers
/// nothing, and the reason is logged once.
///
/// Ownership  Owns its NVML session.
/// Threading  Externally synchronised.
class UtilizationMeter {
 public:
  /// `pci_bus_id` as PciBusId gives it.
  explicit UtilizationMeter(const std::string& pci_bus_id,
                            const std::string& library = "libnvidia-ml.so.1");
  ~UtilizationMeter();
  UtilizationMeter(const UtilizationMeter&) = delete;
  UtilizationMeter& operator=(const UtilizationMeter&) = delete;

  /// The share since the last call. nullopt at the first one where it is counted between two, and
  /// when the device does not answer, or has said nothing for several calls.
  std::optional<BusyShare> Take();

 private:
  class Session;
  std::unique_ptr<Session> session_;  // Null: not available.
};

}  // namespace onepiece::device
