#include "stages/runtime/fused_pipeline.h"

#include <utility>

#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::runtime {

absl::StatusOr<FusedPipeline> FusedPipeline::Load(const std::vector<StageAssignment>& stages,
                                                  const TaskManager::StageSource& source) {
  FusedPipeline pipeline;
  for (const auto& assignment : stages) {
    ONEPIECE_ASSIGN_OR_RETURN(auto stage, source(assignment.plugin, assignment.stage));
    ONEPIECE_RETURN_IF_ERROR(
        base::Annotate(stage->Load(assignment.load), "stage " + assignment.stage));
    pipeline.stages_.push_back(std::move(stage));
  }
  return pipeline;
}

absl::StatusOr<FusedPipeline::Result> FusedPipeline::Run(const message::Parameters& parameters,
                                                         base::WallTime deadline,
                                                         const Progress& progress) {
  base::Clock& clock = base::SystemClock();
  message::Message message;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.deadline = deadline;
  message.parameters = parameters;
  Result result;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const std::string name = stages_[i]->Info().name;
    const RunOptions options = {
        .clock = &clock, .cancelled = {}, .progress = [&](int step, int steps) {
          if (progress) progress(name, static_cast<int>(i), step, steps);
        }};
    const auto start = clock.Now();
    ONEPIECE_ASSIGN_OR_RETURN(message.artifacts, RunStage(*stages_[i], message, options));
    result.times.push_back({name, clock.Now() - start});
  }
  result.artifacts = std::move(message.artifacts);
  return result;
}

}  // namespace onepiece::runtime
