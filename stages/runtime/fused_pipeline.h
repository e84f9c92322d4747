// Fused mode: a whole workflow in one process, stage after stage, with no cluster around it (DESIGN
// §10). The baseline that a disaggregated cluster must beat, and the simplest way to run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/artifact.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::runtime {

/// Owns the loaded stages. Thread-confined.
class FusedPipeline {
 public:
  /// Called at every step: stage name, its place in the chain (0-based), step of steps.
  using Progress =
      std::function<void(const std::string& stage, int stage_index, int step, int steps)>;
  struct StageTime {
    std::string stage;
    base::Duration compute{};
  };
  struct Result {
    std::vector<message::Artifact> artifacts;  ///< Of the last stage.
    std::vector<StageTime> times;
  };

  /// Loads every stage. Errors: those of `source` and of Stage::Load.
  static absl::StatusOr<FusedPipeline> Load(const std::vector<StageAssignment>& stages,
                                            const TaskManager::StageSource& source);

  /// Runs one job through all stages. Blocks for the whole computation.
  absl::StatusOr<Result> Run(const message::Parameters& parameters, base::WallTime deadline,
                             const Progress& progress);

 private:
  std::vector<std::unique_ptr<sdk::Stage>> stages_;
};

}  // namespace onepiece::runtime
