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

struct RunOptions {
  base::Clock* clock = &base::SystemClock();
  /// Asked at every step boundary; may be empty.
  std::function<bool()> cancelled;
  /// Told of every step; may be empty.
  std::function<void(int step, int steps)> progress;
};

/// Calls stage.Run for `message` (its deadline counts, its artifacts are the inputs) and checks
/// that all declared inputs and outputs are there. A stage that throws gives INTERNAL with reason
/// STAGE_FAILED. Blocks for the whole computation.
absl::StatusOr<std::vector<message::Artifact>> RunStage(sdk::Stage& stage,
                                                        const message::Message& message,
                                                        const RunOptions& options);

}  // namespace onepiece::runtime
