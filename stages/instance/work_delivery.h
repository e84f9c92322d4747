// WorkDelivery: sends finished work to the next stage or to a database, and unfinished work to
// another instance of its stage.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
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
#include "cluster/node/kept_work.h"
#include "cluster/node/outbox.h"
#include "cluster/node/routing.h"
#include "cluster/node/settler.h"
#include "cluster/telemetry/spans.h"
#include "cluster/values/remote_values.h"
#include "onepiece/v1/database.pb.h"
#include "stages/instance/drain.h"
#include "stages/instance/former_set.h"
#include "stages/instance/job_updates.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// Settles the fate of every item: it is delivered, returned to the queue, or its job fails. What
/// an instance that leaves cannot deliver is left to its keepers, if it has any.
///
/// Ownership: borrows everything that it is given.
/// Threading: thread-safe, for different items.
/// Blocking: a delivery looks for a taker for about a second. A large result has 5 s more for each
/// database (DeliverResult). When the outcome of a send is unknown it comes back as well, with the
/// send still open in FinishedWork::open, and is continued later.
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
    node::KeptWork& kept;
    node::Settler& settler;
    telemetry::Spans& spans;
    base::Clock& clock;
    const std::atomic<bool>& leaving;  ///< The instance leaves: nothing stays here.
  };
  /// Returns whether this instance has the model with which it serves the application's stage.
  using ServesHere = std::function<bool(const std::string& stage, const std::string& app)>;

  WorkDelivery(std::string node_id, Parts parts, ServesHere serves_here);

  /// Names where an item goes, for runtime::ResultDeliver: the next stages, or the job's database.
  /// What goes to the meeting point of a join goes to one instance.
  std::string DestinationOf(const runtime::FinishedWork& work) const;
  /// Delivers an item, for runtime::ResultDeliver. Returns the item when nobody took it yet.
  std::optional<runtime::FinishedWork> Deliver(runtime::FinishedWork work);
  /// Sends work that nobody has begun to another instance of its stage. When there is none, and
  /// when a share of the time that leaving may take is over, its keepers are left to send it
  /// (IsKept). Jobs whose work nobody keeps fail.
  void SendLeft(const std::vector<runtime::WorkItem>& left);
  /// Gives kept work to another candidate, for node::KeptWork: looks for a taker for a moment.
  absl::StatusOr<node::Delivered> SendKept(const message::Message& message);

 private:
  bool StaysHere(const message::Header& header) const;
  bool IsLeft(const runtime::WorkItem& item) const;
  std::string PlaceOf(const message::Header& header, const std::string& stage) const;
  using Open = std::map<std::string, std::shared_ptr<void>>;
  absl::Status Forward(const runtime::WorkItem& item, Open& open);
  absl::Status HandOn(runtime::FinishedWork& work);
  void Completed(const runtime::WorkItem& item);
  absl::Status SendToSuccessors(message::Message& message, runtime::FinishedWork& work,
                                std::span<const std::string> successors,
                                v1::UpdateJobRequest update);
  absl::StatusOr<v1::WorkHolder> SendToStage(const message::Message& message, Open& open);
  absl::Status SendToDatabase(message::Message message, const v1::UpdateJobRequest& timing,
                              Open& open);
  // Sends a message, or goes on with a send of `open`.
  absl::StatusOr<node::Delivered> Send(const message::Message& message, node::Destination target,
                                       Open& open);

  const std::string node_id_;
  const Parts parts_;
  const ServesHere serves_here_;
};

}  // namespace onepiece::instance
