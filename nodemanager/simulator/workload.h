// When jobs come: made from a seed, or read from a file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/system.h"

namespace onepiece::simulator {

struct Arrival {
  double time_s = 0;
  int app = 0;       ///< Index in System::apps.
  double units = 1;  ///< Of its cost in every stage: 1 is an average job.
  friend bool operator==(const Arrival&, const Arrival&) = default;
};

inline constexpr std::size_t kMaxArrivals = 10'000'000;

/// Jobs/s that the settings offer on average.
double OfferedRate(const System& system, const v1::SimulationConfig& settings);

/// `kind`: "poisson"; "bursty", a Poisson process of two rates (MMPP-2); "diurnal", one whose rate
/// is a sine. The applications are drawn by their shares. In order of time. Errors:
/// INVALID_ARGUMENT (WORKLOAD_UNKNOWN), (TOO_MANY_JOBS).
absl::StatusOr<std::vector<Arrival>> MakeWorkload(std::string_view kind, const System& system,
                                                  const v1::SimulationConfig& settings);

/// A trace: CSV with the header "time_s,app,units" ("units" may be left out), in order of time.
/// Errors: INVALID_ARGUMENT (BAD_TRACE): "name:line: what".
absl::StatusOr<std::vector<Arrival>> ParseTrace(std::string_view text, std::string_view name,
                                                const System& system);
std::string TraceText(const System& system, const std::vector<Arrival>& arrivals);

}  // namespace onepiece::simulator
