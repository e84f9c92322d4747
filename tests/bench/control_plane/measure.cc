#include "tests/bench/control_plane/measure.h"

#include <algorithm>
#include <cstdio>

#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "tests/bench/control_plane/process_use.h"

namespace onepiece::bench {

absl::Status MeasureRest(Side& side, const ControlPlan& plan, ControlNumbers& numbers) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, side.group().WaitUntilSettled());
  base::Clock& clock = base::SystemClock();
  const double cpu = CpuSeconds(side.group().pid(leader));
  const base::MonotonicTime start = clock.Now();
  if (!clock.Pause(plan.stop, plan.window)) return Interrupted();
  numbers.leader_cores =
      (CpuSeconds(side.group().pid(leader)) - cpu) / base::ToSeconds(clock.Now() - start);
  return absl::OkStatus();
}

absl::Status MeasureWatch(Side& side, const ControlPlan& plan, std::int64_t& version,
                          ControlNumbers& numbers) {
  base::Clock& clock = base::SystemClock();
  for (int i = 0; i < plan.changes; ++i) {
    if (!clock.Pause(plan.stop, BetweenChanges(plan.nodes))) return Interrupted();
    const base::MonotonicTime start = clock.Now();
    ONEPIECE_RETURN_IF_ERROR(side.Change(++version));
    ONEPIECE_ASSIGN_OR_RETURN(const base::MonotonicTime last,
                              side.crowd().WaitForTables(version, kCrowdLimit));
    numbers.watch_s.push_back(base::ToSeconds(last - start));
  }
  return absl::OkStatus();
}

absl::Status MeasureStorm(Side& side, std::int64_t& version, ControlNumbers& numbers) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::size_t leader, side.group().WaitUntilSettled());
  const base::MonotonicTime start = base::SystemClock().Now();
  side.group().KillMember(leader);
  ONEPIECE_RETURN_IF_ERROR(side.Change(++version));
  ONEPIECE_ASSIGN_OR_RETURN(const base::MonotonicTime told,
                            side.crowd().WaitForTables(version, kCrowdLimit));
  ONEPIECE_ASSIGN_OR_RETURN(const base::MonotonicTime heard, side.WaitForHeartbeats(start));
  numbers.storm_s = base::ToSeconds(std::max(told, heard) - start);
  ONEPIECE_RETURN_IF_ERROR(side.group().StartMember(leader));
  return side.group().WaitUntilSettled().status();
}

void Progress(const ControlPlan& plan, const char* side, const std::string& text) {
  std::fprintf(stderr, "control: %zu nodes, %s: %s\n", plan.nodes, side, text.c_str());
}

}  // namespace onepiece::bench
