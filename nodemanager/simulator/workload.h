// The workload of a simulation: when jobs arrive. It is made from a seed, or read from a file.
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
  double units = 1;  ///< Its cost in every stage. 1 is an average job.
  friend bool operator==(const Arrival&, const Arrival&) = default;
};

inline constexpr std::size_t kMaxArrivals = 10'000'000;

/// The rate that the settings offer on average, in jobs/s.
double OfferedRate(const System& system, const v1::SimulationConfig& settings);

/// Makes arrivals in order of time, and draws their applications by share. `kind` is "poisson",
/// "bursty" (a Poisson process of two rates, MMPP-2) or "diurnal" (a Poisson process whose rate is
/// a sine).
/// Errors: INVALID_ARGUMENT (WORKLOAD_UNKNOWN, TOO_MANY_JOBS).
absl::StatusOr<std::vector<Arrival>> MakeWorkload(std::string_view kind, const System& system,
                                                  const v1::SimulationConfig& settings);

/// Reads a trace: CSV in order of time with the header "time_s,app,units", where "units" may be
/// left out.
/// Errors: INVALID_ARGUMENT (BAD_TRACE), whose message is "name:line: what".
absl::StatusOr<std::vector<Arrival>> ParseTrace(std::string_view text, std::string_view name,
                                                const System& system);
/// The arrivals as a trace for ParseTrace(), which gets the same numbers back.
std::string TraceText(const System& system, const std::vector<Arrival>& arrivals);

}  // namespace onepiece::simulator
