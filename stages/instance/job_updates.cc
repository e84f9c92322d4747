#include "stages/instance/job_updates.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {

v1::WorkHolder HolderAt(const node::Routing& table, const message::Header& header,
                        const v1::Endpoint& endpoint, std::uint32_t attempt) {
  v1::WorkHolder holder;
  holder.set_node_id(endpoint.node_id());
  holder.set_incarnation(endpoint.incarnation());
  holder.set_stage(header.stage);
  holder.set_stage_index(table.StageIndex(header.app, header.stage).value_or(0));
  holder.set_attempt(attempt);
  holder.set_from(header.from);
  holder.set_run(header.run);
  holder.set_keeper(header.keeper);
  holder.set_keeper_incarnation(header.keeper_incarnation);
  // The last stage has no successors, but it hands its result on to a database.
  const auto next = table.GraphOf(header.app).Successors(header.stage).size();
  holder.set_successors(std::max(1, static_cast<int>(next)));
  // The sender's table may be newer than this node's, which then need not name the holder yet.
  holder.set_routing_epoch(std::max(table.epoch(), header.routing_epoch));
  return holder;
}

JobUpdates::JobUpdates(std::string node_id, const node::ClusterView& view, JobReporter& reporter,
                       const std::atomic<bool>& leaving)
    : node_id_(std::move(node_id)), view_(view), reporter_(reporter), leaving_(leaving) {}

void JobUpdates::Placed(const message::Header& header) {
  v1::UpdateJobRequest placed;
  *placed.add_placed() = HolderAt(*view_.routing(), header, view_.self(), header.attempt);
  reporter_.Report(header.uid, std::move(placed));
}

void JobUpdates::Progressed(const message::Header& header, int step, int steps) {
  v1::JobProgress progress;
  *progress.mutable_holder() = HolderAt(*view_.routing(), header, view_.self(), header.attempt);
  progress.set_step(step);
  progress.set_steps(steps);
  reporter_.ReportProgress(header.uid, std::move(progress));
}

void JobUpdates::Fail(const message::Header& header, const absl::Status& status) {
  v1::UpdateJobRequest request;
  request.set_run(header.run);
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

void JobUpdates::Report(const base::Uid& uid, v1::UpdateJobRequest update) {
  reporter_.Report(uid, std::move(update));
}

}  // namespace onepiece::instance
