// Fused mode: a whole workflow in one process, stage after stage, with no cluster around it
// (docs/wan.md, "Fused mode"). Branches run one after the other, in the order of the workflow. The
// baseline that a disaggregated cluster must beat, and the simplest way to run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/artifact.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::runtime {

/// Ownership: owns the loaded stages.
/// Threading: used by one thread.
class FusedWorkflow {
 public:
  /// Called at every step with the stage's name and place in the workflow (from 0), and with the
  /// step and the number of steps.
  using Progress =
      std::function<void(const std::string& stage, int stage_index, int step, int steps)>;
  struct StageTime {
    std::string stage;
    base::Duration compute{};
  };
  struct RunResult {
    std::vector<message::Artifact> artifacts;  ///< The outputs of the last stage.
    std::vector<StageTime> times;
  };

  struct StagePlan {
    StageAssignment assignment;
    std::vector<std::string> predecessors;  ///< Earlier stages whose outputs it takes.
  };

  /// Loads every stage, in the order of the workflow.
  ///
  /// Errors: those of `source` and of Stage::Load.
  static absl::StatusOr<FusedWorkflow> Load(const std::vector<StagePlan>& stages,
                                            const TaskManager::StageSource& source);

  /// Runs one job through all stages. Stages without predecessors get `inputs`, the files that the
  /// job brings.
  ///
  /// Blocking: for the whole computation.
  /// Errors: those of the stages and of Unite.
  absl::StatusOr<RunResult> Run(const message::Parameters& parameters,
                                const std::vector<message::Artifact>& inputs,
                                base::MonotonicTime deadline, const Progress& progress,
                                base::Clock& clock = base::SystemClock());

 private:
  struct Loaded {
    std::string name;
    std::vector<std::string> predecessors;
    std::unique_ptr<sdk::Stage> stage;
  };
  using Outputs = std::map<std::string, std::vector<message::Artifact>>;  // By stage.

  absl::StatusOr<std::vector<message::Artifact>> TakeInputs(std::size_t index,
                                                            Outputs& outputs) const;

  std::vector<Loaded> stages_;
};

}  // namespace onepiece::runtime
