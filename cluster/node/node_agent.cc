#include "cluster/node/node_agent.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/check.h"
#include "cluster/base/generation.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/node/backoff.h"
#include "cluster/node/identity_upkeep.h"
#include "cluster/node/refusals.h"
#include "cluster/node/scrape.h"
#include "cluster/node/shared_routings.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/limits.h"
#include "cluster/rpc/replicas.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

using NodeManagerStub = v1::NodeManagerService::Stub;

constexpr base::Duration kGoodbyeTimeout = std::chrono::seconds(1);
// The first limit for one of several replicas (Impl::attempt_limit_). It is short enough for
// a round over five silent replicas to end before the NodeManager declares this node dead (3 s).
constexpr base::Duration kFirstAttempt = std::chrono::milliseconds(400);
// The pauses between attempts that the leader itself refuses.
constexpr base::Duration kFirstPause = std::chrono::milliseconds(50);
constexpr base::Duration kMaxPause = std::chrono::seconds(2);
// How long a stream that has lost its replica leaves the search for the leader to the reports.
constexpr base::Duration kStreamPatience = std::chrono::milliseconds(500);
constexpr base::Duration kLongestRoundTrip = std::chrono::milliseconds(500);
// Reports come up to a tenth sooner than they must, so that nodes which begin together, or come to
// a new leader together, do not stay in step.
constexpr int kReportSpread = 10;

// The clock only makes a good first guess, which saves a refusal: the NodeManager refuses whatever
// is not greater than what it knows, and names that (KnownIncarnation).
std::uint64_t NextIncarnation(const base::Clock& clock, std::uint64_t last) {
  // A clock before 1970 must not wrap around to the greatest incarnation that there can be.
  const auto now = std::max<std::int64_t>(0, clock.WallNow().time_since_epoch().count());
  return std::max(static_cast<std::uint64_t>(now), last + 1);
}

}  // namespace

class NodeAgent::Impl {
 public:
  Impl(NodeAgentOptions options, ClusterView& view, base::Clock& clock);
  void Start();
  absl::Status WaitReady(base::Duration limit);
  void SetState(NodeStatus status);
  std::optional<base::Duration> clock_skew() const;
  void Stop();

  // Constant after Start().
  RoutingCallback on_routing;
  AssignmentCallback on_assignment;
  CapacityCallback on_capacity;
  LimitsCallback on_limits;
  LoadSource load_source;
  UseSource use_source;

 private:
  enum class Stream : std::uint8_t { kNone, kRouting, kAssignment };

  /// A call that can be cancelled: by Stop(), or by a change that makes its stream stale.
  struct Call {
    Call(Impl& impl, Stream stream, std::string address);
    ~Call();
    grpc::ClientContext context;
    Impl& owner;
    const Stream kind;
    const std::string address;
  };

  /// When the request was sent that got the answer, by both clocks, and how long that took.
  struct RoundTrip {
    base::WallTime sent_wall;
    base::MonotonicTime sent;
    base::Duration took{};
  };

  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(const std::stop_token& stop, std::string_view what,
                               grpc::Status (NodeManagerStub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                               const Request& request, RoundTrip* trip = nullptr);
  void TakeServerTime(std::int64_t server_unix_ms, const RoundTrip& trip);
  void ReportLoop(const std::stop_token& stop);
  absl::Status Register(const std::stop_token& stop);
  v1::RegisterNodeRequest Registration() const;
  void TakeReportInterval(int interval_ms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeRegistration(const v1::RegisterNodeResponse& response);
  absl::Status Report(const std::stop_token& stop);
  void FillIn(v1::ReportNodeRequest& request);
  void TakeAnswer(const v1::ReportNodeResponse& response);
  void Unregister(const absl::Status& why);
  void RoutingLoop(const std::stop_token& stop);
  void AssignmentLoop(const std::stop_token& stop);
  template <typename Item, typename Open, typename Take>
  void ReadStream(const std::stop_token& stop, Stream kind, rpc::LeaderSearch& search,
                  Backoff& backoff, std::string_view what, Open open, Take take);
  void LetReportsSearch(const std::stop_token& stop, base::Duration limit, std::uint64_t found);
  std::uint64_t KnownEpoch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const Routing> MakeRouting(const Routing& known, v1::RoutingTable table) const;
  std::optional<bool> IsNext(const v1::RoutingTable& table, const Routing& known)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeRouting(v1::RoutingTable table, const std::string& of_set);
  void Follow(const std::string& workflow_set);
  void CancelStreams(Stream kind);
  void LeaveOthers(const std::string& leader);
  bool Pause(const std::stop_token& stop, base::Duration limit, std::uint64_t found);
  void NoteError(std::string_view what, const absl::Status& status);
  void Deregister();
  void BeginIncarnation(std::uint64_t last);

  const NodeAgentOptions options_;
  // Written under mutex_ alone, so that what is read here fits together.
  ClusterView& view_;
  base::Clock& clock_;
  rpc::Replicas replicas_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_registered_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_routing_ ABSL_GUARDED_BY(mutex_) = false;
  // The next routing stream is of another cluster than the last.
  bool other_cluster_ ABSL_GUARDED_BY(mutex_) = false;
  // The next table may be older than ours, because its cluster is another.
  bool any_epoch_ ABSL_GUARDED_BY(mutex_) = true;
  // Logged once until a good table comes.
  bool refused_older_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool report_now_ ABSL_GUARDED_BY(mutex_) = false;
  NodeStatus status_ ABSL_GUARDED_BY(mutex_);
  // The workflow set whose routing is watched.
  std::string followed_set_ ABSL_GUARDED_BY(mutex_);
  base::Duration report_interval_ ABSL_GUARDED_BY(mutex_) = std::chrono::milliseconds(500);
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  std::optional<base::Duration> clock_skew_ ABSL_GUARDED_BY(mutex_);
  // The calls under way, and whether each was cancelled so that its stream begins anew.
  std::map<Call*, bool> calls_ ABSL_GUARDED_BY(mutex_);

  // The limits that were told last. The reporting thread's alone.
  std::string limits_;
  // Uses that no answer has confirmed yet. The reporting thread's alone.
  std::vector<v1::TenantUse> unconfirmed_uses_;

  // The limit of the next call to one of several replicas. It doubles with every round until a call
  // succeeds. A refusal does not reset it: a leader with so much to do that it refuses some nodes
  // needs longer for the others too. The reporting thread's alone.
  base::Duration attempt_limit_ = kFirstAttempt;

  const std::unique_ptr<IdentityUpkeep> identity_;  // Null: the node is insecure.
  std::vector<std::jthread> threads_;
  const ScrapeHook scrape_;  // Reads the members above.
};

NodeAgent::Impl::Impl(NodeAgentOptions options, ClusterView& view, base::Clock& clock)
    : options_(std::move(options)),
      view_(view),
      clock_(clock),
      replicas_(options_.nodemanagers),
      followed_set_(options_.workflow_set),
      identity_(options_.door == nullptr ? nullptr
                                         : std::make_unique<IdentityUpkeep>(
                                               *options_.door, options_.identity,
                                               IdentityCallsTo(replicas_, options_.call_timeout),
                                               options_.metrics, clock)),
      scrape_(options_.metrics, [this](telemetry::Metrics& metrics) {
        const std::optional<base::Duration> skew = clock_skew();
        metrics
            .Gauge("onepiece_clock_skew_seconds",
                   "The wall clock here minus that of the NodeManager that leads")
            .Set(skew ? base::ToSeconds(*skew) : std::numeric_limits<double>::quiet_NaN());
      }) {
  ONEPIECE_CHECK(!options_.nodemanagers.empty());
  BeginIncarnation(0);
}

// `last`: the greatest incarnation that this node is known to have had.
void NodeAgent::Impl::BeginIncarnation(std::uint64_t last) {
  v1::Endpoint self;
  self.set_node_id(options_.node_id);
  self.set_address(options_.address);
  self.set_incarnation(NextIncarnation(clock_, last));
  view_.SetSelf(std::move(self));
}

NodeAgent::Impl::Call::Call(Impl& impl, Stream stream, std::string where)
    : owner(impl), kind(stream), address(std::move(where)) {
  const base::MutexLock lock(owner.mutex_);
  owner.calls_.emplace(this, false);
  // Stop() cancels the calls that it finds. This call came too late for that.
  if (owner.stopping_) context.TryCancel();
  // Only a stream that begins now is the new cluster's. A table of an older stream must not pass as
  // the first one of the new cluster.
  if (kind == Stream::kRouting && owner.other_cluster_) {
    owner.other_cluster_ = false;
    owner.any_epoch_ = true;
  }
}

NodeAgent::Impl::Call::~Call() {
  const base::MutexLock lock(owner.mutex_);
  owner.calls_.erase(this);
}

void NodeAgent::Impl::Start() {
  ONEPIECE_CHECK(threads_.empty());
  threads_.emplace_back([this](const std::stop_token& stop) { ReportLoop(stop); });
  threads_.emplace_back([this](const std::stop_token& stop) { RoutingLoop(stop); });
  if (on_assignment) {
    threads_.emplace_back([this](const std::stop_token& stop) { AssignmentLoop(stop); });
  }
  if (identity_ != nullptr) identity_->Start();
}

absl::Status NodeAgent::Impl::WaitReady(base::Duration limit) {
  base::MutexLock lock(mutex_);
  const bool ready = clock_.WaitUntil(changed_, lock, {}, clock_.Now() + limit,
                                      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                        return stopping_ || (registered_ && has_routing_);
                                      });
  if (stopping_)
    return base::MakeError(absl::StatusCode::kCancelled, "STOPPED", "the node agent was stopped");
  if (ready) return absl::OkStatus();
  const std::string cause =
      last_error_.ok() ? std::string("no answer yet") : base::Message(last_error_);
  return base::MakeError(absl::StatusCode::kDeadlineExceeded, "NOT_REGISTERED",
                         "not registered: " + cause);
}

void NodeAgent::Impl::SetState(NodeStatus status) {
  const base::MutexLock lock(mutex_);
  status_ = std::move(status);
  report_now_ = true;
  changed_.NotifyAll();
}

void NodeAgent::Impl::Stop() {
  {
    const base::MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    for (const auto& [call, stale] : calls_) call->context.TryCancel();
    changed_.NotifyAll();
  }
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();  // Joins.
  if (identity_ != nullptr) identity_->Stop();
  // The goodbye comes after the threads: a later report would register the node again.
  Deregister();
}

// Asks until a leader answers. Every attempt sends the same request (with the same request_id), so
// the NodeManager does not do again what an earlier attempt has done.
template <typename Request, typename Response>
absl::StatusOr<Response> NodeAgent::Impl::Ask(
    const std::stop_token& stop, std::string_view what,
    grpc::Status (NodeManagerStub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, RoundTrip* trip) {
  rpc::LeaderSearch search(replicas_);
  if (replicas_.addresses().size() <= 1) attempt_limit_ = options_.call_timeout;
  for (;;) {
    const base::Duration limit = std::min(attempt_limit_, options_.call_timeout);
    const std::uint64_t found = replicas_.found();
    const rpc::Replica replica = search.Next();
    NodeManagerStub stub(replica.channel);
    Response response;
    absl::Status status;
    {
      Call call(*this, Stream::kNone, replica.address);
      rpc::SetTimeout(call.context, limit);
      const RoundTrip begun{.sent_wall = clock_.WallNow(), .sent = clock_.Now()};
      status = rpc::FromGrpc((stub.*method)(&call.context, request, &response));
      if (trip != nullptr) {
        *trip = begun;
        trip->took = clock_.Now() - begun.sent;
      }
    }
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    if (!rpc::IsAboutTheReplica(status)) {
      search.Answered();
      LeaveOthers(replica.address);
      if (!status.ok()) return status;
      attempt_limit_ = kFirstAttempt;
      return response;
    }
    const base::Duration pause = search.Failed(status);
    if (pause == base::Duration::zero()) continue;
    attempt_limit_ = std::min(limit * 2, options_.call_timeout);
    NoteError(what, status);
    if (!Pause(stop, pause, found)) return absl::CancelledError("stopped");
  }
}

void NodeAgent::Impl::ReportLoop(const std::stop_token& stop) {
  Backoff backoff(kFirstPause, kMaxPause);
  while (!stop.stop_requested()) {
    bool known = false;
    {
      const base::MutexLock lock(mutex_);
      known = registered_;
    }
    const absl::Status status = known ? Report(stop) : Register(stop);
    if (stop.stop_requested()) return;
    if (status.ok()) {
      backoff.Reset();
      continue;
    }
    NoteError(known ? "report" : "register", status);
    Pause(stop, std::max(backoff.Next(), RetryAfter(status, kMaxPause)), replicas_.found());
  }
}

v1::RegisterNodeRequest NodeAgent::Impl::Registration() const {
  v1::RegisterNodeRequest request;
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  v1::Node& node = *request.mutable_node();
  node.set_name("nodes/" + options_.node_id);
  node.set_node_id(options_.node_id);
  node.set_role(options_.role);
  node.set_address(options_.address);
  node.set_metrics_address(options_.metrics_address);
  node.set_pid(getpid());
  node.set_workflow_set(options_.workflow_set);
  node.set_pinned_stage(options_.pinned_stage);
  node.set_version(options_.version);
  node.set_build(options_.build);
  node.set_zone(options_.zone);
  node.set_host(options_.host);
  node.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
  node.mutable_devices()->Add(options_.devices.begin(), options_.devices.end());
  const base::MutexLock lock(mutex_);
  node.set_incarnation(view_.incarnation());
  node.set_state(status_.state);
  node.set_detail(status_.detail);
  return request;
}

absl::Status NodeAgent::Impl::Register(const std::stop_token& stop) {
  const absl::StatusOr<v1::RegisterNodeResponse> response =
      Ask(stop, "register", &NodeManagerStub::RegisterNode, Registration());
  if (response.ok()) {
    TakeRegistration(*response);
  } else if (base::GetReason(response.status()).reason == "STALE_INCARNATION") {
    Unregister(response.status());
  }
  return response.status();
}

void NodeAgent::Impl::TakeRegistration(const v1::RegisterNodeResponse& response) {
  replicas_.Learn({response.nodemanagers().begin(), response.nodemanagers().end()});
  bool moved = false;
  {
    const base::MutexLock lock(mutex_);
    moved = was_registered_ && (view_.cluster_id() != response.cluster_id() ||
                                view_.cluster_secret() != response.cluster_secret());
    if (moved) {
      spdlog::warn("the NodeManager is another cluster's now: {} before, {} now",
                   view_.cluster_id(), response.cluster_id());
    }
    other_cluster_ |= moved;
    view_.SetCluster(response.cluster_id(), response.cluster_secret());
    TakeReportInterval(response.report_interval_ms());
    registered_ = was_registered_ = true;
    report_now_ = true;  // The state may have changed while the call was under way.
    last_error_ = absl::OkStatus();
    changed_.NotifyAll();
    spdlog::info("registered node={} incarnation={} cluster={}", options_.node_id,
                 view_.incarnation(), response.cluster_id());
  }
  if (moved) CancelStreams(Stream::kRouting);
}

// The bounds keep a NodeManager that says 0 from making this node report without a pause.
void NodeAgent::Impl::TakeReportInterval(int interval_ms) {
  report_interval_ = std::chrono::milliseconds(std::clamp(interval_ms, 10, 60000));
}

absl::Status NodeAgent::Impl::Report(const std::stop_token& stop) {
  v1::ReportNodeRequest request;
  {
    base::MutexLock lock(mutex_);
    const base::Duration pause = report_interval_ - RandomPart(report_interval_ / kReportSpread);
    clock_.WaitUntil(changed_, lock, stop, clock_.Now() + pause,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return report_now_; });
    if (stop.stop_requested()) return absl::OkStatus();
    // The flag falls before the call, so that a SetState() during the call makes another report.
    report_now_ = false;
    request.set_node_id(options_.node_id);
    request.set_incarnation(view_.incarnation());
    request.set_state(status_.state);
    request.set_detail(status_.detail);
    request.set_assignment_epoch(status_.assignment_epoch);
    request.mutable_served_app_ids()->Add(status_.served_apps.begin(), status_.served_apps.end());
    request.set_drained(status_.drained);
    request.set_load_failed(status_.load_failed);
    // Until its first table comes, what a node has is another cluster's.
    request.set_routing_epoch(other_cluster_ || any_epoch_ ? 0 : view_.routing()->epoch());
    request.set_cluster_id(view_.cluster_id());
  }
  FillIn(request);
  RoundTrip trip;
  const absl::StatusOr<v1::ReportNodeResponse> response =
      Ask(stop, "report", &NodeManagerStub::ReportNode, request, &trip);
  if (response.ok()) {
    TakeServerTime(response->server_unix_ms(), trip);
    TakeAnswer(*response);
    return absl::OkStatus();
  }
  const std::string reason = base::GetReason(response.status()).reason;
  if (absl::IsNotFound(response.status()) || reason == "STALE_INCARNATION") {
    Unregister(response.status());
  } else {
    const base::MutexLock lock(mutex_);
    // The next attempt waits for the loop's backoff alone, not for a whole interval too.
    report_now_ = true;
  }
  return response.status();
}

// The sources run without the mutex, because they may call SetState().
void NodeAgent::Impl::FillIn(v1::ReportNodeRequest& request) {
  if (load_source) *request.mutable_load() = load_source();
  if (const std::optional<base::Duration> skew = clock_skew(); skew) {
    request.mutable_load()->set_clock_skew_ms(*skew / std::chrono::milliseconds(1));
  }
  if (identity_ != nullptr) identity_->FillIn(request);
  if (use_source && unconfirmed_uses_.empty()) unconfirmed_uses_ = use_source();
  request.mutable_uses()->Add(unconfirmed_uses_.begin(), unconfirmed_uses_.end());
}

void NodeAgent::Impl::TakeAnswer(const v1::ReportNodeResponse& response) {
  replicas_.Learn({response.nodemanagers().begin(), response.nodemanagers().end()});
  unconfirmed_uses_.clear();
  if (identity_ != nullptr) identity_->Hear(response.identity_epoch());
  // An older NodeManager says it at the registration alone.
  if (const int interval = response.report_interval_ms(); interval > 0) {
    const base::MutexLock lock(mutex_);
    TakeReportInterval(interval);
  }
  // The limits come first, because a capacity is taken by them.
  if (std::string limits = response.limits().SerializeAsString();
      response.has_limits() && limits != limits_) {
    if (options_.door != nullptr) options_.door->limits().Follow(response.limits().callers());
    if (on_limits) on_limits(response.limits());
    limits_ = std::move(limits);
  }
  if (on_capacity && response.has_capacity()) on_capacity(response.capacity());
}

// The server read its clock somewhere within the round trip; the middle is at most half of it off.
// A slow answer says too little, and the estimate before it is better.
void NodeAgent::Impl::TakeServerTime(std::int64_t server_unix_ms, const RoundTrip& trip) {
  if (server_unix_ms <= 0 || trip.took > kLongestRoundTrip) return;
  const base::Duration skew = trip.sent_wall + trip.took / 2 - base::FromUnixMs(server_unix_ms);
  const base::MutexLock lock(mutex_);
  clock_skew_ = skew;
}

std::optional<base::Duration> NodeAgent::Impl::clock_skew() const {
  const base::MutexLock lock(mutex_);
  return clock_skew_;
}

void NodeAgent::Impl::Unregister(const absl::Status& why) {
  const bool stale = base::GetReason(why).reason == "STALE_INCARNATION";
  {
    const base::MutexLock lock(mutex_);
    registered_ = false;
    // An incarnation that was declared dead stays dead, because its work is being redone elsewhere.
    if (stale) BeginIncarnation(std::max(view_.incarnation(), KnownIncarnation(why)));
  }
  // The stream belongs to a registration that is over. AssignmentLoop() opens another one once the
  // node is registered again.
  CancelStreams(Stream::kAssignment);
}

// One turn of a stream: reads from the replica that the search names until the stream breaks, and
// then pauses. When `take` returns false, the stream has to begin anew.
template <typename Item, typename Open, typename Take>
void NodeAgent::Impl::ReadStream(const std::stop_token& stop, Stream kind,
                                 rpc::LeaderSearch& search, Backoff& backoff, std::string_view what,
                                 Open open, Take take) {
  const std::uint64_t found = replicas_.found();
  const rpc::Replica replica = search.Next();
  NodeManagerStub stub(replica.channel);
  absl::Status status;
  bool stale = false, goes_on = true;
  {
    Call call(*this, kind, replica.address);
    const std::unique_ptr<grpc::ClientReader<Item>> reader = open(stub, call.context);
    Item item;
    while (goes_on && reader->Read(&item)) {
      search.Answered();
      backoff.Reset();
      goes_on = take(std::move(item));
    }
    if (!goes_on) call.context.TryCancel();
    status = rpc::FromGrpc(reader->Finish());
    const base::MutexLock lock(mutex_);
    stale = calls_.at(&call);
  }
  if (!goes_on) {
    Pause(stop, backoff.Next(), found);
    return;
  }
  if (stale) {
    search.Restart();
    return;
  }
  const bool elsewhere = status.ok() || rpc::IsAboutTheReplica(status);
  const bool knows_better = elsewhere && replicas_.leader() != replica.address;
  const base::Duration pause = elsewhere ? search.Failed(status) : backoff.Next();
  const std::optional<std::string> hint = rpc::LeaderHint(status);
  if (pause == base::Duration::zero() && (knows_better || (hint && !hint->empty()))) return;
  if (!status.ok() && !absl::IsCancelled(status)) NoteError(what, status);
  if (!elsewhere) {
    Pause(stop, pause, found);
    return;
  }
  LetReportsSearch(stop, std::max(pause, base::Scaled(kStreamPatience)), found);
  if (replicas_.found() != found) search.Restart();
}

// A stream looks for its leader only where a follower or another thread points. Otherwise it has
// the next report look. So a node whose leader is gone asks each replica once in a round and not
// once for each stream, which counts when a thousand nodes ask a group that is electing.
void NodeAgent::Impl::LetReportsSearch(const std::stop_token& stop, base::Duration limit,
                                       std::uint64_t found) {
  {
    const base::MutexLock lock(mutex_);
    report_now_ = true;
    changed_.NotifyAll();
  }
  Pause(stop, limit, found);
}

void NodeAgent::Impl::RoutingLoop(const std::stop_token& stop) {
  rpc::LeaderSearch search(replicas_);
  Backoff backoff(kFirstPause, kMaxPause);
  v1::WatchRoutingRequest request;
  request.set_takes_deltas(true);
  while (!stop.stop_requested()) {
    ReadStream<v1::RoutingTable>(
        stop, Stream::kRouting, search, backoff, "watch routing",
        [&](NodeManagerStub& stub, grpc::ClientContext& context) {
          {
            // The call stands in calls_ by now, so Follow() cancels it when the set changes later.
            const base::MutexLock lock(mutex_);
            request.set_workflow_set(followed_set_);
            request.set_start_epoch(KnownEpoch());
          }
          return stub.WatchRouting(&context, request);
        },
        [&](v1::RoutingTable table) {
          return TakeRouting(std::move(table), request.workflow_set());
        });
  }
}

// From here on TakeRouting() refuses the tables of the set before.
void NodeAgent::Impl::Follow(const std::string& workflow_set) {
  {
    const base::MutexLock lock(mutex_);
    const std::string& set = workflow_set.empty() ? options_.workflow_set : workflow_set;
    if (set == followed_set_) return;
    spdlog::info("follows the routing of workflow set '{}', not '{}' any more", set, followed_set_);
    followed_set_ = set;
    view_.SetRouting(std::make_shared<const Routing>());
    has_routing_ = false;
    any_epoch_ = true;
  }
  CancelStreams(Stream::kRouting);
}

// The epoch of the table for which the NodeManager can tell changes, or 0.
std::uint64_t NodeAgent::Impl::KnownEpoch() const {
  return has_routing_ && !any_epoch_ ? view_.routing()->epoch() : 0;
}

// Returns null when the table tells changes of another one than `known`.
std::shared_ptr<const Routing> NodeAgent::Impl::MakeRouting(const Routing& known,
                                                            v1::RoutingTable table) const {
  const auto make = [&]() -> std::shared_ptr<const Routing> {
    if (table.base_epoch() == 0) return std::make_shared<const Routing>(std::move(table));
    auto changed = ChangedRouting(known, table);
    return changed.ok() ? *std::move(changed) : nullptr;
  };
  return options_.tables != nullptr
             ? options_.tables->Get(table.workflow_set(), table.epoch(), make)
             : make();
}

// Returns whether to make the table, given the one that is known. False: it is taken already, or
// refused. nullopt: it tells changes of another one than this node has.
std::optional<bool> NodeAgent::Impl::IsNext(const v1::RoutingTable& table, const Routing& known) {
  if (table.base_epoch() != 0) {
    if (KnownEpoch() != table.base_epoch()) return std::nullopt;
    if (table.epoch() == table.base_epoch()) return false;
  }
  // A replica that lags behind must not bring dead nodes back.
  if (!any_epoch_ && table.epoch() < known.epoch()) {
    if (!refused_older_) {
      spdlog::warn(
          "routing table of epoch {} is refused, {} is known: the replica lags behind, or a copy "
          "of its database was put back by hand and this node must be restarted",
          base::FormatEpoch(table.epoch()), base::FormatEpoch(known.epoch()));
    }
    refused_older_ = true;
    return false;
  }
  refused_older_ = false;
  return !has_routing_ || any_epoch_ || table.epoch() != known.epoch();
}

// Returns false when the table tells changes of another one than this node has.
bool NodeAgent::Impl::TakeRouting(v1::RoutingTable table, const std::string& of_set) {
  std::shared_ptr<const Routing> known;
  {
    const base::MutexLock lock(mutex_);
    if (of_set != followed_set_) return true;
    known = view_.routing();
    const std::optional<bool> next = IsNext(table, *known);
    if (!next || !*next) return next.has_value();
  }
  // The table of a large cluster takes long to make. Reports go on meanwhile, or the node would
  // count as dead when many tables come.
  const std::shared_ptr<const Routing> fresh = MakeRouting(*known, std::move(table));
  if (fresh == nullptr) return false;
  {
    const base::MutexLock lock(mutex_);
    if (view_.routing() != known) return true;  // Follow() came in between, and ends this stream.
    any_epoch_ = false;
    has_routing_ = true;
    view_.SetRouting(fresh);
    changed_.NotifyAll();
  }
  if (on_routing) on_routing(fresh);
  return true;
}

void NodeAgent::Impl::AssignmentLoop(const std::stop_token& stop) {
  rpc::LeaderSearch search(replicas_);
  Backoff backoff(kFirstPause, kMaxPause);
  while (!stop.stop_requested()) {
    v1::WatchAssignmentRequest request;
    request.set_node_id(options_.node_id);
    {
      base::MutexLock lock(mutex_);
      if (!changed_.Wait(lock, stop,
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return registered_; }))
        return;
      request.set_incarnation(view_.incarnation());
    }
    ReadStream<v1::Assignment>(
        stop, Stream::kAssignment, search, backoff, "watch assignment",
        [&](NodeManagerStub& stub, grpc::ClientContext& context) {
          return stub.WatchAssignment(&context, request);
        },
        [&](const v1::Assignment& assignment) {
          on_assignment(assignment);
          // The callback comes first: it finishes the work of the set before, which needs that
          // set's routing.
          Follow(assignment.workflow_set());
          return true;
        });
  }
}

void NodeAgent::Impl::CancelStreams(Stream kind) {
  const base::MutexLock lock(mutex_);
  for (auto& [call, stale] : calls_) {
    if (call->kind != kind) continue;
    stale = true;
    call->context.TryCancel();
  }
}

// Ends the streams that do not come from the leader. The replica that they come from may stand
// still, and then nothing else ends them for a long time.
void NodeAgent::Impl::LeaveOthers(const std::string& leader) {
  const base::MutexLock lock(mutex_);
  for (auto& [call, stale] : calls_) {
    if (call->kind == Stream::kNone || call->address == leader) continue;
    stale = true;
    call->context.TryCancel();
  }
  changed_.NotifyAll();  // Pause() ends early: a leader is known now.
}

// The pause also ends when another thread has found a leader since replicas_.found() was `found`.
// Returns false when a stop was requested.
bool NodeAgent::Impl::Pause(const std::stop_token& stop, base::Duration limit,
                            std::uint64_t found) {
  base::MutexLock lock(mutex_);
  clock_.WaitUntil(changed_, lock, stop, clock_.Now() + limit,
                   [&] { return replicas_.found() != found; });
  return !stop.stop_requested();
}

void NodeAgent::Impl::NoteError(std::string_view what, const absl::Status& status) {
  const base::MutexLock lock(mutex_);
  if (stopping_) return;
  // A failure that repeats is logged once. Nobody but an administrator can end this one.
  const bool in_use = base::GetReason(status).reason == "NODE_ID_IN_USE";
  if (last_error_ != status) {
    spdlog::log(in_use ? spdlog::level::err : spdlog::level::warn, "nodemanager: {}: {}", what,
                base::Message(status));
  }
  last_error_ = status;
}

void NodeAgent::Impl::Deregister() {
  v1::DeregisterNodeRequest request;
  request.set_node_id(options_.node_id);
  {
    const base::MutexLock lock(mutex_);
    if (!was_registered_) return;
    request.set_incarnation(view_.incarnation());
  }
  // One round only: the NodeManager declares a node dead anyway when its reports stop.
  const base::Duration share =
      kGoodbyeTimeout / static_cast<int>(std::max<std::size_t>(1, replicas_.addresses().size()));
  rpc::LeaderSearch search(replicas_);
  for (;;) {
    const rpc::Replica replica = search.Next();
    NodeManagerStub stub(replica.channel);
    const auto answer = rpc::Call(stub, &NodeManagerStub::DeregisterNode, request, share);
    if (!rpc::IsAboutTheReplica(answer.status())) return;
    if (search.Failed(answer.status()) == base::Duration::zero()) continue;
    spdlog::info("nodemanager: goodbye not heard: {}", base::Message(answer.status()));
    return;
  }
}

NodeAgent::NodeAgent(NodeAgentOptions options, ClusterView& view, base::Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), view, clock)) {}

NodeAgent::~NodeAgent() { Stop(); }

void NodeAgent::OnRouting(RoutingCallback callback) { impl_->on_routing = std::move(callback); }

void NodeAgent::OnAssignment(AssignmentCallback callback) {
  impl_->on_assignment = std::move(callback);
}

void NodeAgent::OnCapacity(CapacityCallback callback) { impl_->on_capacity = std::move(callback); }

void NodeAgent::OnLimits(LimitsCallback callback) { impl_->on_limits = std::move(callback); }

void NodeAgent::SetLoadSource(LoadSource source) { impl_->load_source = std::move(source); }

void NodeAgent::SetUseSource(UseSource source) { impl_->use_source = std::move(source); }

void NodeAgent::Start() { impl_->Start(); }

absl::Status NodeAgent::WaitReady(base::Duration limit) { return impl_->WaitReady(limit); }

void NodeAgent::SetState(NodeStatus status) { impl_->SetState(std::move(status)); }

std::optional<base::Duration> NodeAgent::clock_skew() const { return impl_->clock_skew(); }

void NodeAgent::Stop() { impl_->Stop(); }

}  // namespace onepiece::node
