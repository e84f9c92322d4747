// Runs one stage on one job, with the input check, exceptions, deadline and cancellation. Task
// workers and fused mode share it, so that both treat a stage alike.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "stages/sdk/stage.h"

namespace onepiece::runtime {

/// The reason of a run that RunOptions::hand_over ended.
inline constexpr char kHandedOver[] = "HANDED_OVER";

/// The reason of a run whose worker process ended or stopped answering (stages/worker). Nothing
/// says that the job is to blame, so it is computed again.
inline constexpr char kWorkerLost[] = "WORKER_LOST";

struct RunOptions {
  base::Clock* clock = &base::SystemClock();
  /// Called at every step boundary; may be empty.
  std::function<bool()> cancelled;
  /// Called with every step; may be empty.
  std::function<void(int step, int steps)> progress;
  /// Called at the step boundaries of a stage that can go on elsewhere. When it returns true, the
  /// run ends there with ABORTED (kHandedOver). May be empty.
  std::function<bool(int step)> hand_over;
  /// Answers sdk::StageContext::collaboration; empty for a worker that computes alone.
  std::function<sdk::Collaboration()> collaboration;
  /// Takes the saved state of a run that hand_over ended. With this state among its inputs the
  /// stage goes on from there. It must be set when hand_over is.
  std::vector<message::Artifact>* saved = nullptr;
};

/// Runs `stage` on the artifacts of `message`, until the deadline of its header. Checks that all
/// declared inputs and outputs are there.
///
/// Blocking: for the whole computation.
/// Errors: those of the stage; INTERNAL (STAGE_FAILED) when the stage throws.
absl::StatusOr<std::vector<message::Artifact>> RunStage(sdk::Stage& stage,
                                                        const message::Message& message,
                                                        const RunOptions& options);

}  // namespace onepiece::runtime
