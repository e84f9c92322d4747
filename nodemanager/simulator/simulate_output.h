// How `onepiece simulate` tells what came out.
#pragma once

#include <string>
#include <vector>

#include "cluster/cli/context.h"
#include "nodemanager/simulator/experiment.h"
#include "nodemanager/simulator/oracle.h"
#include "nodemanager/simulator/partition.h"

namespace onepiece::cli {

/// What was simulated.
struct SimulatedCase {
  const v1::SimulationProfile& profile;
  const v1::SimulationConfig& settings;
  const simulator::System& system;  ///< Disaggregated.
  std::string workload;
  std::size_t jobs = 0;
};

/// The oracle beside them, or why there is none.
using OracleAnswer = std::optional<absl::StatusOr<simulator::OracleResult>>;

Json SimulationJson(const SimulatedCase& what, const std::vector<simulator::Outcome>& outcomes,
                    const OracleAnswer& oracle);
std::string SimulationText(const SimulatedCase& what,
                           const std::vector<simulator::Outcome>& outcomes,
                           const OracleAnswer& oracle);

Json PartitionJson(const SimulatedCase& what, const std::string& app,
                   const simulator::Partition& partition);
std::string PartitionText(const SimulatedCase& what, const std::string& app,
                          const simulator::Partition& partition);

}  // namespace onepiece::cli
