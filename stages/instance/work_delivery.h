// WorkDelivery: sends finished work to the next stage or to a database, and unfinished work to
// another instance of its stage.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/job_records.h"
#include "cluster/node/outbox.h"
#include "cluster/node/routing.h"
#include "cluster/telemetry/spans.h"
#include "cluster/values/remote_values.h"
#include "onepiece/v1/database.pb.h"
#include "stages/instance/drain.h"
#include "stages/instance/former_set.h"
#include "stages/instance/job_updates.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// Settles the fate of every item: it is delivered, returned to the queue, or its job fails.
///
/// Ownership: borrows everything that it is given.
/// Threading: Deliver runs on the deliverer's thread. SendLeft may run beside it on another thread,
/// with other items.
/// Blocking: a delivery looks for a taker for about a second. A large result has 5 s more for each
/// database (DeliverResult).
class WorkDelivery {
 public:
  struct Parts {
    const node::ClusterView& view;
    node::Outbox& outbox;
    values::ValuePeers& values;
    node::JobRecords& records;
    runtime::RequestScheduler& scheduler;
    const Drain& drain;
    FormerSetFilter& former_set;
    JobUpdates& updates;
    telemetry::Spans& spans;
    base::Clock& clock;
    const std::atomic<bool>& leaving;  ///< The instance leaves: nothing stays here.
  };
  /// Returns whether this instance has the model with which it serves the application's stage.
  using ServesHere = std::function<bool(const std::string& stage, const std::string& app)>;

  WorkDelivery(std::string node_id, Parts parts, ServesHere serves_here);

  /// Delivers an item, for runtime::ResultDeliver. Returns the item when nobody took it yet.
  std::optional<runtime::FinishedWork> Deliver(runtime::FinishedWork work);
  /// Sends work that nobody has begun to another instance of its stage. Jobs fail when there is
  /// none, and when a share of the time that leaving may take is over.
  void SendLeft(const std::vector<runtime::WorkItem>& left);

 private:
  bool StaysHere(const message::Header& header) const;
  absl::Status Forward(const runtime::WorkItem& item);
  absl::Status HandOn(runtime::FinishedWork& work);
  absl::Status SendToSuccessors(message::Message& message, runtime::FinishedWork& work,
                                std::span<const std::string> successors,
                                v1::UpdateJobRequest update);
  absl::StatusOr<v1::WorkHolder> SendToStage(const message::Message& message);
  absl::Status SendToDatabase(message::Message message, const v1::UpdateJobRequest& timing);
  // The job's deadline on the monotonic clock.

  const std::string node_id_;
  const Parts parts_;
  const ServesHere serves_here_;
};

}  // namespace onepiece::instance
