#include "stages/instance/former_set.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/message/sender_name.h"
#include "cluster/node/work_holder.h"
#include "spdlog/spdlog.h"
#include "stages/instance/keepers.h"

namespace onepiece::instance {
namespace {

bool Knows(const node::Routing& table, const std::string& sender) {
  return std::ranges::any_of(table.table().alive(), [&](const v1::Endpoint& node) {
    return message::SenderName(node.node_id()) == sender;
  });
}

}  // namespace

absl::Status WorkflowSetLeft(const std::string& workflow_set) {
  return base::MakeError(
      absl::StatusCode::kAborted, kWorkflowSetLeft,
      "the instance has left workflow set '" + workflow_set + "'; submit the job again");
}

FormerSet::FormerSet(std::shared_ptr<const node::Routing> table, base::Clock& clock)
    : table_(std::move(table)),
      records_(view_),
      reporter_([this](const v1::UpdateJobRequest& request) { return records_.Update(request); },
                [](const base::Uid&) {}, clock) {
  // The reporter has its own view: the instance's view will show the databases of the new set.
  view_.SetRouting(table_);
}

bool FormerSet::Sent(const message::Header& header, const node::Routing& now) const {
  // A node may have moved to the new set too. What it sends from there is good.
  return Knows(*table_, header.sender) && !Knows(now, header.sender);
}

void FormerSet::Fail(const runtime::WorkItem& item, const std::string& node_id) {
  const message::Header& header = item.message.header;
  const absl::Status why = WorkflowSetLeft(table_->table().workflow_set());
  if (IsKept(item, *table_, node_id)) {
    spdlog::info("uid={} stage={} is left to whoever keeps it: {}", header.uid.ToString(),
                 header.stage, base::Message(why));
    return;
  }
  spdlog::warn("uid={} stage={} from {} failed: {}", header.uid.ToString(), header.stage,
               header.sender, base::Message(why));
  v1::UpdateJobRequest request;
  *request.mutable_ended_by() = node::HolderAt(*table_, header, {}, header.attempt);
  request.mutable_failed()->set_reason(kWorkflowSetLeft);
  request.mutable_failed()->set_message("stage " + header.stage + " on " + node_id + ": " +
                                        base::Message(why));
  reporter_.Report(header.uid, std::move(request));
}

FormerSetFilter::FormerSetFilter(std::string node_id, const node::ClusterView& view)
    : node_id_(std::move(node_id)), view_(view) {}

bool FormerSetFilter::FailIfLate(const runtime::WorkItem& item) {
  const base::MutexLock lock(mutex_);
  if (!former_ || !former_->Sent(item.message.header, *view_.routing())) return false;
  former_->Fail(item, node_id_);
  return true;
}

void FormerSetFilter::Replace(std::shared_ptr<FormerSet> former) {
  // The set before it is destroyed outside the lock: it still sends its last reports then.
  const base::MutexLock lock(mutex_);
  former_.swap(former);
}

}  // namespace onepiece::instance
