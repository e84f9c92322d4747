#include "stages/runtime/stage_runner.h"

#include <exception>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::runtime {
namespace {

class RunnerContext final : public sdk::StageContext {
 public:
  RunnerContext(const message::Message& message, const RunOptions& options)
      : message_(message), options_(options) {}

  const base::Uid& uid() const override { return message_.header.uid; }
  const sdk::Parameters& parameters() const override { return message_.parameters; }

  absl::Status Progress(int step, int steps) override {
    if (options_.progress) options_.progress(step, steps);
    return Check();
  }

  absl::Status Checkpoint(int step, int steps, const SaveState& save) override {
    // Handing over is asked for before cancellation. Once the scheduler is closed, every job counts
    // as cancelled, and Check would throw away work that can go on elsewhere.
    if (!options_.hand_over || !options_.hand_over(step)) return Progress(step, steps);
    if (options_.progress) options_.progress(step, steps);
    ONEPIECE_ASSIGN_OR_RETURN(*options_.saved, save());
    return base::MakeError(absl::StatusCode::kAborted, kHandedOver,
                           "the work goes on elsewhere from step " + std::to_string(step));
  }

  sdk::Collaboration collaboration() override {
    return options_.collaboration ? options_.collaboration() : sdk::Collaboration();
  }

  absl::Status Check() const override {
    if (options_.cancelled && options_.cancelled()) {
      return base::MakeError(absl::StatusCode::kCancelled, "CANCELLED", "the job was cancelled");
    }
    if (options_.clock->Now() >= message_.header.deadline) {
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                             "the job's deadline passed");
    }
    return absl::OkStatus();
  }

 private:
  const message::Message& message_;
  const RunOptions& options_;
};

absl::Status CheckPresent(const std::vector<std::string>& names,
                          const std::vector<message::Artifact>& artifacts, absl::StatusCode code,
                          const std::string& what) {
  for (const auto& name : names) {
    if (message::FindArtifact(artifacts, name) == nullptr) {
      return base::MakeError(code, "MISSING_ARTIFACT", what + " '" + name + "' is missing",
                             {{"artifact", name}});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<message::Artifact>> RunStage(sdk::Stage& stage,
                                                        const message::Message& message,
                                                        const RunOptions& options) {
  try {
    const sdk::StageInfo info = stage.Info();
    ONEPIECE_RETURN_IF_ERROR(CheckPresent(info.inputs, message.artifacts,
                                          absl::StatusCode::kInvalidArgument,
                                          "input of stage " + info.name));
    RunnerContext context(message, options);
    // A job may have been cancelled, or have run out of time, while it was queued.
    ONEPIECE_RETURN_IF_ERROR(context.Check());
    ONEPIECE_ASSIGN_OR_RETURN(auto outputs, stage.Run(context, message.artifacts));
    ONEPIECE_RETURN_IF_ERROR(CheckPresent(info.outputs, outputs, absl::StatusCode::kInternal,
                                          "output of stage " + info.name));
    return outputs;
  } catch (const std::exception& error) {
    return base::MakeError(absl::StatusCode::kInternal, "STAGE_FAILED",
                           message.header.stage + ": " + error.what());
  }
}

}  // namespace onepiece::runtime
