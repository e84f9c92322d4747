// Runs one stage on one job: input check, exceptions, deadline and cancellation. Shared by task
// workers and fused mode, so that both treat a stage alike.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "stages/sdk/stage.h"

namespace onepiece::runtime {

/// Reason of a run that RunOptions::hand_over ended.
inline constexpr char kHandedOver[] = "HANDED_OVER";

struct RunOptions {
  base::Clock* clock = &base::SystemClock();
  /// Asked at every step boundary; may be empty.
  std::function<bool()> cancelled;
  /// Told of every step; may be empty.
  std::function<void(int step, int steps)> progress;
  /// Asked at the step boundaries of a stage that can go on elsewhere: true ends the run there with
  /// ABORTED kHandedOver. May be empty.
  std::function<bool(int step)> hand_over;
  /// Takes the state of a run that hand_over ended: with it among its inputs the stage goes on. Set
  /// when hand_over is.
  std::vector<message::Artifact>* saved = nullptr;
};

/// Calls stage.Run for `message` (its deadline counts, its artifacts are the inputs) and checks
/// that all declared inputs and outputs are there. A stage that throws gives INTERNAL with reason
/// STAGE_FAILED. Blocks for the whole computation.
absl::StatusOr<std::vector<message::Artifact>> RunStage(sdk::Stage& stage,
                                                        const message::Message& message,
                                                        const RunOptions& options);

}  // namespace onepiece::runtime
