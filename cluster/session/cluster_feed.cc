// Follows the cluster by one stream of the NodeManager's events, which it opens again and again.
// Unlike client::Client::WatchCluster it reports every loss immediately, because people look at it.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/replicas.h"
#include "cluster/session/feeds.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::session {
namespace {

using Stub = v1::NodeManagerService::Stub;
using base::Duration;
using base::MonotonicTime;

constexpr std::chrono::milliseconds kMinPublishInterval(
    100);  // Publishes at most ten times a second.
constexpr std::chrono::seconds kFirstAnswer(5);
// Even old servers send something every 5 s.
constexpr std::chrono::seconds kSilence(10);
// The feed asks for the whole cluster this often, because the stream may have lost a change.
constexpr std::chrono::seconds kCompare(60);
// A server that sends no telemetry within this time is an old one that has none. The feed polls it
// instead.
constexpr std::chrono::seconds kNoTelemetry(2);

MonotonicTime Now() { return base::SystemClock().Now(); }

absl::Status Unavailable(std::string_view reason, std::string_view message) {
  return base::MakeError(absl::StatusCode::kUnavailable, reason, message);
}

/// The cluster, put together from events.
///
/// Threading: needs external synchronisation.
class Picture {
 public:
  /// Forgets which revision and cluster it has seen, and believes whatever comes next.
  void Forget() { seen_ = false; }
  [[nodiscard]] bool other_cluster() const { return other_cluster_; }
  [[nodiscard]] const v1::Cluster& cluster() const { return cluster_; }

  /// Applies an event. Returns true when it brought something new.
  ///
  /// Errors: UNAVAILABLE (HISTORY_LOST).
  absl::StatusOr<bool> Apply(v1::ClusterEvent& event) {
    if (event.has_snapshot()) return Take(std::move(*event.mutable_snapshot()), event.revision());
    if (event.revision() < cluster_.revision()) return HistoryLost(event.revision());
    if (event.has_telemetry()) return Merge(*event.mutable_telemetry());
    if (event.change_case() == v1::ClusterEvent::CHANGE_NOT_SET) return false;
    if (event.revision() == cluster_.revision()) return false;
    cluster_.set_revision(event.revision());
    if (event.has_node()) SetNode(std::move(*event.mutable_node()));
    if (event.has_workflow()) SetWorkflow(std::move(*event.mutable_workflow()));
    if (event.change_case() == v1::ClusterEvent::kWorkflowDeleted)
      EraseWorkflow(event.workflow_deleted());
    return true;
  }

  /// Replaces everything.
  ///
  /// Errors: as Apply().
  absl::StatusOr<bool> Take(v1::Cluster snapshot, std::uint64_t revision) {
    if (snapshot.revision() == 0) snapshot.set_revision(revision);
    other_cluster_ = seen_ && snapshot.cluster_id() != cluster_.cluster_id();
    if (seen_ && !other_cluster_ && snapshot.revision() < cluster_.revision())
      return HistoryLost(snapshot.revision());
    seen_ = true;
    cluster_ = std::move(snapshot);
    index_.clear();
    for (int i = 0; i < cluster_.nodes_size(); ++i) index_[cluster_.nodes(i).node_id()] = i;
    return true;
  }

 private:
  absl::Status HistoryLost(std::uint64_t now) const {
    return Unavailable(
        "HISTORY_LOST",
        "the NodeManager is at revision " + std::to_string(now) + ", before " +
            std::to_string(cluster_.revision()) +
            ", which was seen: its data was lost or is old (a resync takes it as it is)");
  }
  absl::StatusOr<bool> Merge(v1::Telemetry& telemetry) {
    for (v1::Telemetry::Entry& entry : *telemetry.mutable_nodes()) {
      const auto at = index_.find(entry.node_id());
      if (at == index_.end()) continue;
      v1::Node& node = *cluster_.mutable_nodes(at->second);
      node.set_activity(entry.activity());
      node.set_detail(std::move(*entry.mutable_detail()));
      if (entry.has_last_report_time())
        *node.mutable_last_report_time() = std::move(*entry.mutable_last_report_time());
      if (entry.has_load()) *node.mutable_load() = std::move(*entry.mutable_load());
    }
    return true;
  }
  void SetNode(v1::Node node) {
    const auto [at, added] = index_.try_emplace(node.node_id(), cluster_.nodes_size());
    if (added) {
      *cluster_.add_nodes() = std::move(node);
      return;
    }
    v1::Node& known = *cluster_.mutable_nodes(at->second);
    // A change of state may come without telemetry. The known telemetry is of the same process and
    // stays.
    if (!node.has_load() && known.has_load() && node.incarnation() == known.incarnation()) {
      *node.mutable_load() = std::move(*known.mutable_load());
      if (!node.has_last_report_time())
        *node.mutable_last_report_time() = std::move(*known.mutable_last_report_time());
    }
    known = std::move(node);
  }
  void SetWorkflow(v1::Workflow workflow) {
    for (v1::Workflow& known : *cluster_.mutable_workflows()) {
      if (known.app_id() != workflow.app_id()) continue;
      known = std::move(workflow);
      return;
    }
    *cluster_.add_workflows() = std::move(workflow);
  }
  void EraseWorkflow(const std::string& app_id) {
    auto& all = *cluster_.mutable_workflows();
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const v1::Workflow& one) { return one.app_id() == app_id; }),
              all.end());
  }

  v1::Cluster cluster_;
  std::unordered_map<std::string, int> index_;  // Of the nodes, by node id.
  bool seen_ = false;
  bool other_cluster_ = false;  // The last snapshot was of another cluster.
};

/// The present stream and the picture that it has given. One thread reads the stream, and another
/// one watches it.
class ClusterFeed {
 public:
  explicit ClusterFeed(Feeds& feeds)
      : feeds_(feeds),
        replicas_(feeds.target.nodemanagers, feeds.options.user_agent),
        search_(replicas_) {}

  void Run(const std::stop_token& stop) {
    Duration pause = feeds_.options.first_backoff;
    while (!stop.stop_requested()) {
      feeds_.board.Trying();
      const rpc::Replica replica = search_.Next();
      // The feed decides when to try again, so the channel must not pause on its own.
      grpc::experimental::ChannelResetConnectionBackoff(replica.channel.get());
      absl::Status status = Follow(replica, stop);
      if (base::GetReason(status).reason == "MISSING_SCOPE") {
        status = FollowWithoutRead(feeds_, replica, status, stop);
        resync_ = status.ok();
      }
      if (stop.stop_requested()) return;
      if (resync_) continue;
      if (heard()) pause = feeds_.options.first_backoff;
      // The next replica, or the one that a follower names, is asked immediately.
      if (rpc::IsAboutTheReplica(status) && search_.Failed(status) == Duration::zero()) continue;
      feeds_.board.Lost(status, pause);
      feeds_.board.Fail(&Snapshot::cluster, Explain(status));
      if (!feeds_.board.Sleep(pause, stop, wakes_)) return;
      pause = std::min(pause * 2, feeds_.options.max_backoff);
    }
  }

 private:
  /// Follows one stream to its end. Returns why it ended.
  absl::Status Follow(const rpc::Replica& replica, const std::stop_token& stop) {
    grpc::ClientContext context;
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    {
      const base::MutexLock lock(mutex_);
      heard_ = telemetry_ = ended_ = false;
      opened_ = last_heard_ = Now();
      next_compare_ = opened_ + kNoTelemetry;
      // Somebody may have asked for a resync during the pause.
      const Turns turns = feeds_.board.turns();
      if (turns.resyncs != turns_.resyncs) picture_.Forget();
      turns_ = turns;
      resync_ = false;
      end_ = absl::OkStatus();
    }
    std::jthread reader([&] { Read(replica, context); });
    const absl::Status why = Watch(replica, stop);
    context.TryCancel();
    reader.join();
    Publish();
    const base::MutexLock lock(mutex_);
    return why.ok() ? end_ : why;
  }
  bool heard() {
    const base::MutexLock lock(mutex_);
    return heard_;
  }

  void Read(const rpc::Replica& replica, grpc::ClientContext& context) {
    v1::WatchClusterRequest request;
    request.set_telemetry_interval_ms(static_cast<std::int32_t>(feeds_.options.telemetry_interval /
                                                                std::chrono::milliseconds(1)));
    Stub stub(replica.channel);
    const auto reader = stub.WatchCluster(&context, request);
    v1::ClusterEvent event;
    absl::Status status;
    while (status.ok() && reader->Read(&event)) {
      const base::MutexLock lock(mutex_);
      status = Note(event);
      condition_.NotifyAll();
    }
    if (!status.ok()) context.TryCancel();
    const absl::Status end = rpc::FromGrpc(reader->Finish());
    const base::MutexLock lock(mutex_);
    if (status.ok()) status = end;
    end_ =
        status.ok() ? Unavailable("STREAM_ENDED", "the NodeManager has ended the stream") : status;
    ended_ = true;
    condition_.NotifyAll();
  }

  absl::Status Note(v1::ClusterEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    telemetry_ |= event.has_telemetry();
    ONEPIECE_ASSIGN_OR_RETURN(const bool fresh, picture_.Apply(event));
    other_cluster_ |= event.has_snapshot() && picture_.other_cluster();
    updates_ += fresh ? 1 : 0;
    TellHeard(event.server_unix_ms());
    return absl::OkStatus();
  }
  void TellHeard(std::int64_t server_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!heard_) {
      search_.Answered();
      LearnReplicas();
    }
    heard_ = as_of_moved_ = true;
    last_heard_ = Now();
    feeds_.board.Heard(server_ms, picture_.cluster().api_version());
  }
  void LearnReplicas() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> addresses;
    for (const v1::Node& node : picture_.cluster().nodes()) {
      if (node.role() == v1::NODE_MANAGER) addresses.push_back(node.address());
    }
    replicas_.Learn(addresses);
  }

  /// Publishes while the stream lives. Returns an error to end a stream that has not ended by
  /// itself.
  absl::Status Watch(const rpc::Replica& replica, const std::stop_token& stop) {
    base::MutexLock lock(mutex_);
    while (!ended_ && !stop.stop_requested()) {
      base::SystemClock().WaitUntil(condition_, lock, stop, last_publish_ + kMinPublishInterval,
                                    [this]()
                                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; });
      if (ended_) break;
      const Turns turns = feeds_.board.turns();
      resync_ = turns.resyncs != turns_.resyncs;
      if (resync_) return absl::CancelledError("everything is asked for anew");
      const MonotonicTime now = Now();
      if (!heard_ && now - opened_ > kFirstAnswer)
        return Unavailable("NO_ANSWER", replica.address + " does not answer");
      if (now - last_heard_ > kSilence)
        return Unavailable("SILENT", replica.address + " has said nothing for 10 s");
      const bool compares = heard_ && now >= next_compare_;
      lock.Unlock();
      Publish();
      if (compares) Compare(replica, stop);
      lock.Lock();
    }
    return absl::OkStatus();
  }

  void Publish() {
    const base::MutexLock lock(mutex_);
    last_publish_ = Now();
    if (!as_of_moved_ || (published_ == nullptr && updates_ == 0)) return;
    const bool first = published_ == nullptr;
    if (updates_ > 0) published_ = std::make_shared<const v1::Cluster>(picture_.cluster());
    feeds_.board.Put(&Snapshot::cluster, published_, {}, std::max<std::uint64_t>(updates_, 1));
    if (first) feeds_.board.Wake();  // The other feeds know now whom to ask.
    // This comes after Put(), so that feeds which begin anew find the new cluster's nodes.
    if (std::exchange(other_cluster_, false)) feeds_.board.OtherCluster();
    updates_ = 0;
    as_of_moved_ = false;
  }

  /// Asks for the whole cluster and takes it, unless the stream has told newer things.
  void Compare(const rpc::Replica& replica, const std::stop_token& stop) {
    Stub stub(replica.channel);
    auto answer = Ask(stub, &Stub::GetCluster, {}, kReadTimeout, stop);
    const base::MutexLock lock(mutex_);
    next_compare_ = Now() + (telemetry_ ? Duration(kCompare) : feeds_.options.poll_interval);
    if (!answer.ok() || answer->revision() < picture_.cluster().revision()) return;
    // If another cluster answers now, the next stream will tell.
    if (answer->cluster_id() != picture_.cluster().cluster_id()) return;
    if (!picture_.Take(*std::move(answer), 0).ok()) return;
    ++updates_;
    // The stream of an old server may say nothing for 5 s. Without this, the connection would look
    // like Lagging again and again.
    if (!telemetry_) TellHeard(0);
  }

  Feeds& feeds_;
  rpc::Replicas replicas_;
  rpc::LeaderSearch search_;
  std::uint64_t wakes_ = 0;
  std::shared_ptr<const v1::Cluster> published_;
  bool resync_ = false;
  Turns turns_;  // As they were when the stream was opened.

  base::Mutex mutex_;
  base::CondVar condition_;
  Picture picture_ ABSL_GUARDED_BY(mutex_);
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  bool telemetry_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool as_of_moved_ ABSL_GUARDED_BY(mutex_) = false;
  bool other_cluster_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;  // Updates that are not published yet.
  MonotonicTime opened_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime last_heard_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime next_compare_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime last_publish_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void FollowCluster(Feeds& feeds, const std::stop_token& stop) {
  if (feeds.target.nodemanagers.empty()) {
    const absl::Status none = base::MakeError(absl::StatusCode::kInvalidArgument, "NO_NODEMANAGER",
                                              "no NodeManager address is given");
    feeds.board.Lost(none, Duration::zero());
    feeds.board.Fail(&Snapshot::cluster, Explain(none));
    return;
  }
  ClusterFeed(feeds).Run(stop);
}

}  // namespace onepiece::session
