#include "stages/runtime/fused_workflow.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "stages/runtime/join.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::runtime {

absl::StatusOr<FusedWorkflow> FusedWorkflow::Load(const std::vector<StagePlan>& stages,
                                                  const TaskManager::StageSource& source) {
  FusedWorkflow workflow;
  for (const auto& [assignment, predecessors] : stages) {
    ONEPIECE_ASSIGN_OR_RETURN(auto stage, source(assignment.plugin, assignment.stage));
    ONEPIECE_RETURN_IF_ERROR(
        base::Annotate(stage->Load(assignment.load), "stage " + assignment.stage));
    workflow.stages_.push_back({assignment.stage, predecessors, std::move(stage)});
  }
  return workflow;
}

// Takes the outputs of the stage's predecessors, and drops those that no later stage takes.
absl::StatusOr<std::vector<message::Artifact>> FusedWorkflow::TakeInputs(std::size_t index,
                                                                         Outputs& outputs) const {
  std::vector<Branch> branches;
  for (const std::string& from : stages_[index].predecessors)
    branches.push_back({from, outputs[from]});
  absl::StatusOr<std::vector<message::Artifact>> inputs = Unite(branches);
  for (const std::string& from : stages_[index].predecessors) {
    const bool wanted = std::any_of(
        stages_.begin() + static_cast<std::ptrdiff_t>(index) + 1, stages_.end(),
        [&](const Loaded& later) { return std::ranges::count(later.predecessors, from) > 0; });
    // A process that runs a whole workflow holds all weights, so it keeps no artifact for longer
    // than it must.
    if (!wanted) outputs.erase(from);
  }
  return inputs;
}

absl::StatusOr<FusedWorkflow::RunResult> FusedWorkflow::Run(
    const message::Parameters& parameters, const std::vector<message::Artifact>& inputs,
    base::MonotonicTime deadline, const Progress& progress, base::Clock& clock) {
  message::Message message;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.deadline = deadline;
  message.parameters = parameters;
  RunResult result;
  Outputs outputs;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const std::string& name = stages_[i].name;
    if (stages_[i].predecessors.empty()) {
      message.artifacts = inputs;
    } else {
      ONEPIECE_ASSIGN_OR_RETURN(message.artifacts, TakeInputs(i, outputs));
    }
    const RunOptions options = {
        .clock = &clock, .cancelled = {}, .progress = [&](int step, int steps) {
          if (progress) progress(name, static_cast<int>(i), step, steps);
        }};
    const auto start = clock.Now();
    ONEPIECE_ASSIGN_OR_RETURN(outputs[name], RunStage(*stages_[i].stage, message, options));
    result.times.push_back({name, clock.Now() - start});
  }
  if (!stages_.empty()) result.artifacts = std::move(outputs[stages_.back().name]);
  return result;
}

}  // namespace onepiece::runtime
