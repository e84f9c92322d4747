// Profiles and settings for the simulator's tests.
#pragma once

#include <string>
#include <vector>

#include "nodemanager/simulator/simulation.h"

namespace onepiece::simulator {

/// One application with a chain of stages "s0", "s1", …, each in a pool of its own.
inline v1::SimulationProfile Chain(const std::vector<double>& seconds, double load_s = 1) {
  v1::SimulationProfile profile;
  auto& app = *profile.add_apps();
  app.set_app_id("app");
  for (std::size_t s = 0; s < seconds.size(); ++s) {
    auto& stage = *app.add_stages();
    stage.set_stage("s" + std::to_string(s));
    stage.set_seconds_per_unit(seconds[s]);
    auto& pool = *profile.add_pools();
    pool.set_pool(stage.stage());
    pool.set_load_s(load_s);
  }
  return profile;
}

/// Complete settings without admission, so that every job enters.
inline v1::SimulationConfig Settings(double duration_s, double rate, int devices) {
  v1::SimulationConfig settings;
  settings.set_duration_s(duration_s);
  settings.set_rate(rate);
  settings.set_devices(devices);
  settings.set_admission(false);
  return *CompleteSettings(settings);
}

inline SimulationResult Run(const System& system, const v1::SimulationConfig& settings,
                            const std::string& workload, const std::vector<int>& placement,
                            const std::string& policy = "static") {
  const auto arrivals = MakeWorkload(workload, system, settings);
  return *Simulate(system, settings, *arrivals, {.policy = policy, .placement = placement});
}

}  // namespace onepiece::simulator
