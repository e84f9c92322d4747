// Turns the results of `onepiece simulate` into JSON and text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/terminal/json.h"
#include "nodemanager/simulator/experiment.h"
#include "nodemanager/simulator/oracle.h"
#include "nodemanager/simulator/partition.h"
#include "nodemanager/simulator/recorded.h"

namespace onepiece::simulator {

/// What was simulated.
struct SimulatedCase {
  const v1::SimulationProfile& profile;
  const v1::SimulationConfig& settings;
  const System& system;  ///< Disaggregated.
  std::string workload;
  std::size_t jobs = 0;
  const RecordedCase* recorded = nullptr;  ///< Where it comes from, or null.
};

/// The oracle's result, or why it has none. It is nullopt when nobody asked the oracle.
using OracleAnswer = std::optional<absl::StatusOr<OracleResult>>;

terminal::Json SimulationJson(const SimulatedCase& what, const std::vector<Outcome>& outcomes,
                              const OracleAnswer& oracle);
std::string SimulationText(const SimulatedCase& what, const std::vector<Outcome>& outcomes,
                           const OracleAnswer& oracle);

terminal::Json PartitionJson(const SimulatedCase& what, const std::string& app,
                             const Partition& partition);
std::string PartitionText(const SimulatedCase& what, const std::string& app,
                          const Partition& partition);

}  // namespace onepiece::simulator
