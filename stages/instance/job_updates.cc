#include "stages/instance/job_updates.h"

#include <utility>

#include "cluster/base/status.h"
#include "cluster/node/work_holder.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {

namespace {

// How long a computation waits for a database to know that it has begun; scaled.
constexpr auto kBegunLimit = std::chrono::seconds(1);

}  // namespace

JobUpdates::JobUpdates(std::string node_id, const node::ClusterView& view, JobReporter& reporter,
                       const std::atomic<bool>& leaving)
    : node_id_(std::move(node_id)), view_(view), reporter_(reporter), leaving_(leaving) {}

void JobUpdates::Placed(const message::Header& header) {
  v1::UpdateJobRequest placed;
  *placed.add_placed() = node::HolderAt(*view_.routing(), header, view_.self(), header.attempt);
  reporter_.Report(header.uid, std::move(placed));
}

void JobUpdates::Progressed(const message::Header& header, int step, int steps) {
  v1::JobProgress progress;
  *progress.mutable_holder() =
      node::HolderAt(*view_.routing(), header, view_.self(), header.attempt);
  progress.mutable_holder()->set_begun(true);
  progress.set_step(step);
  progress.set_steps(steps);
  reporter_.ReportProgress(header.uid, std::move(progress));
}

void JobUpdates::Begun(const message::Header& header, std::span<const message::Message> parts) {
  Progressed(header, 0, 0);
  if (header.attempt == 0 && parts.empty()) return;
  v1::UpdateJobRequest begun;
  const auto add = [&](const message::Header& message) {
    v1::WorkHolder& holder = *begun.add_placed();
    holder = node::HolderAt(*view_.routing(), message, view_.self(), message.attempt);
    holder.set_begun(true);
  };
  for (const message::Message& part : parts) add(part.header);
  if (parts.empty()) add(header);
  reporter_.Report(header.uid, std::move(begun));
  if (header.attempt > 0) reporter_.AwaitSent(header.uid, base::Scaled(kBegunLimit));
}

void JobUpdates::Fail(const message::Header& header, const absl::Status& status) {
  v1::UpdateJobRequest request;
  *request.mutable_ended_by() =
      node::HolderAt(*view_.routing(), header, view_.self(), header.attempt);
  auto* error = request.mutable_failed();
  const std::string reason = base::GetReason(status).reason;
  if (absl::IsCancelled(status) && leaving_) {
    error->set_reason("INSTANCE_STOPPED");
    error->set_message("instance " + node_id_ + " was stopped while it computed stage " +
                       header.stage);
  } else if (absl::IsCancelled(status)) {
    request.clear_failed();
    request.set_cancelled(true);
  } else {
    error->set_reason(reason.empty() ? "STAGE_FAILED" : reason);
    error->set_message("stage " + header.stage + " on " + node_id_ + ": " + base::Message(status));
  }
  spdlog::info("uid={} stage={} ended: {}", header.uid.ToString(), header.stage,
               base::Message(status));
  reporter_.Report(header.uid, std::move(request));
}

void JobUpdates::FailStopped(const message::Header& header) {
  Fail(header, absl::CancelledError("the instance was stopped"));
}

void JobUpdates::WhenAnswered(const base::Uid& uid, std::function<void()> then) {
  reporter_.WhenAnswered(uid, std::move(then));
}

void JobUpdates::Report(const base::Uid& uid, v1::UpdateJobRequest update) {
  reporter_.Report(uid, std::move(update));
}

}  // namespace onepiece::instance
