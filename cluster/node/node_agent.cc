#include "cluster/node/node_agent.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>

#include "cluster/base/check.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/node/backoff.h"
#include "cluster/rpc/channel.h"
#include "google/protobuf/util/message_differencer.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

using google::protobuf::util::MessageDifferencer;
using Stub = v1::NodeManagerService::Stub;

constexpr base::Duration kGoodbyeTimeout = std::chrono::seconds(1);

std::uint64_t NextIncarnation(std::uint64_t last) {
  const auto now = base::SystemClock().WallNow().time_since_epoch().count();
  return std::max(static_cast<std::uint64_t>(now), last + 1);
}

}  // namespace

class NodeAgent::Impl {
 public:
  explicit Impl(NodeAgentOptions options);
  void Start();
  absl::Status WaitReady(base::Duration limit);
  void SetState(v1::Node::State state, std::string detail, std::uint64_t assignment_epoch,
                std::vector<std::string> served_apps);
  void Stop();

  const NodeAgentOptions options;
  // Constant after Start().
  RoutingCallback on_routing;
  AssignmentCallback on_assignment;
  LoadSource load_source;

  mutable std::mutex mutex;
  // Guarded by mutex.
  std::uint64_t incarnation = NextIncarnation(0);
  std::string cluster_secret, cluster_id;
  std::shared_ptr<const Routing> routing = std::make_shared<Routing>();

 private:
  enum class Stream : std::uint8_t { kNone, kRouting, kAssignment };

  /// A call that Stop(), or a change that makes its stream stale, can cancel.
  struct Call {
    Call(Impl& impl, Stream stream);
    ~Call();
    grpc::ClientContext context;
    Impl& owner;
    const Stream kind;
  };

  std::shared_ptr<Stub> CurrentStub(int* index);
  void NextReplica(int failed_index);
  template <typename Request, typename Response>
  absl::StatusOr<Response> Unary(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                                 const Request& request);
  void ReportLoop(const std::stop_token& stop);
  absl::Status Register();
  absl::Status Report(const std::stop_token& stop);
  void Unregister(const absl::Status& why);
  void RoutingLoop(const std::stop_token& stop);
  void AssignmentLoop(const std::stop_token& stop);
  void TakeRouting(v1::RoutingTable table);
  void CancelStreams(Stream kind);
  bool Pause(const std::stop_token& stop, base::Duration limit);
  void NoteError(std::string_view what, const absl::Status& status);
  void Deregister();

  const std::vector<std::shared_ptr<Stub>> stubs_;
  std::condition_variable_any changed_;
  // Guarded by mutex.
  int replica_ = 0;
  bool registered_ = false;
  bool was_registered_ = false;
  bool has_routing_ = false;
  bool any_epoch_ = true;  // The next table may be older than ours: the NodeManager began anew.
  bool stopping_ = false;
  bool report_now_ = false;
  v1::Node::State state_ = v1::Node::STARTING;
  std::string detail_;
  std::uint64_t assignment_epoch_ = 0;
  std::vector<std::string> served_apps_;
  base::Duration report_interval_ = std::chrono::milliseconds(500);
  absl::Status last_error_;
  std::set<Call*> calls_;

  std::vector<std::jthread> threads_;
};

namespace {

std::vector<std::shared_ptr<Stub>> MakeStubs(const std::vector<std::string>& addresses) {
  std::vector<std::shared_ptr<Stub>> stubs;
  for (const std::string& address : addresses) {
    stubs.push_back(v1::NodeManagerService::NewStub(rpc::MakeChannel(address)));
  }
  return stubs;
}

}  // namespace

NodeAgent::Impl::Impl(NodeAgentOptions given)
    : options(std::move(given)), stubs_(MakeStubs(options.nodemanagers)) {
  ONEPIECE_CHECK(!stubs_.empty());
}

NodeAgent::Impl::Call::Call(Impl& impl, Stream stream) : owner(impl), kind(stream) {
  const std::scoped_lock lock(owner.mutex);
  owner.calls_.insert(this);
  if (owner.stopping_) context.TryCancel();
}

NodeAgent::Impl::Call::~Call() {
  const std::scoped_lock lock(owner.mutex);
  owner.calls_.erase(this);
}

void NodeAgent::Impl::Start() {
  ONEPIECE_CHECK(threads_.empty());
  threads_.emplace_back([this](const std::stop_token& stop) { ReportLoop(stop); });
  threads_.emplace_back([this](const std::stop_token& stop) { RoutingLoop(stop); });
  if (on_assignment) {
    threads_.emplace_back([this](const std::stop_token& stop) { AssignmentLoop(stop); });
  }
}

absl::Status NodeAgent::Impl::WaitReady(base::Duration limit) {
  std::unique_lock lock(mutex);
  const bool ready =
      changed_.wait_for(lock, limit, [&] { return stopping_ || (registered_ && has_routing_); });
  if (stopping_)
    return base::MakeError(absl::StatusCode::kCancelled, "STOPPED", "the node agent was stopped");
  if (ready) return absl::OkStatus();
  const std::string cause =
      last_error_.ok() ? std::string("no answer yet") : base::Message(last_error_);
  return base::MakeError(absl::StatusCode::kDeadlineExceeded, "NOT_REGISTERED",
                         "not registered: " + cause);
}

void NodeAgent::Impl::SetState(v1::Node::State state, std::string detail,
                               std::uint64_t assignment_epoch,
                               std::vector<std::string> served_apps) {
  const std::scoped_lock lock(mutex);
  state_ = state;
  detail_ = std::move(detail);
  assignment_epoch_ = assignment_epoch;
  served_apps_ = std::move(served_apps);
  report_now_ = true;
  changed_.notify_all();
}

void NodeAgent::Impl::Stop() {
  {
    const std::scoped_lock lock(mutex);
    if (stopping_) return;
    stopping_ = true;
    for (Call* call : calls_) call->context.TryCancel();
    changed_.notify_all();
  }
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();  // Joins.
  Deregister();
}

std::shared_ptr<Stub> NodeAgent::Impl::CurrentStub(int* index) {
  const std::scoped_lock lock(mutex);
  *index = replica_;
  return stubs_[static_cast<std::size_t>(replica_)];
}

void NodeAgent::Impl::NextReplica(int failed_index) {
  const std::scoped_lock lock(mutex);
  // Several threads may report the same failure.
  if (replica_ == failed_index) replica_ = (replica_ + 1) % static_cast<int>(stubs_.size());
}

template <typename Request, typename Response>
absl::StatusOr<Response> NodeAgent::Impl::Unary(grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Response*),
                                                const Request& request) {
  int index = 0;
  const std::shared_ptr<Stub> stub = CurrentStub(&index);
  Call call(*this, Stream::kNone);
  rpc::SetTimeout(call.context, options.call_timeout);
  Response response;
  const absl::Status status = rpc::FromGrpc(((*stub).*method)(&call.context, request, &response));
  if (status.ok()) return response;
  if (!absl::IsCancelled(status)) NextReplica(index);
  return status;
}

void NodeAgent::Impl::ReportLoop(const std::stop_token& stop) {
  Backoff backoff(options.backoff_min, options.backoff_max);
  while (!stop.stop_requested()) {
    bool known = false;
    {
      const std::scoped_lock lock(mutex);
      known = registered_;
    }
    const absl::Status status = known ? Report(stop) : Register();
    if (stop.stop_requested()) return;
    if (status.ok()) {
      backoff.Reset();
      continue;
    }
    NoteError(known ? "report" : "register", status);
    Pause(stop, backoff.Next());
  }
}

absl::Status NodeAgent::Impl::Register() {
  v1::RegisterNodeRequest request;
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  v1::Node& node = *request.mutable_node();
  node.set_name("nodes/" + options.node_id);
  node.set_node_id(options.node_id);
  node.set_role(options.role);
  node.set_address(options.address);
  node.set_metrics_address(options.metrics_address);
  node.set_pid(getpid());
  node.set_workflow_set(options.workflow_set);
  node.set_pinned_stage(options.pinned_stage);
  {
    const std::scoped_lock lock(mutex);
    node.set_incarnation(incarnation);
    node.set_state(state_);
    node.set_detail(detail_);
  }
  absl::StatusOr<v1::RegisterNodeResponse> response = Unary(&Stub::RegisterNode, request);
  if (!response.ok()) {
    if (base::GetReason(response.status()).reason == "STALE_INCARNATION")
      Unregister(response.status());
    return response.status();
  }
  const std::scoped_lock lock(mutex);
  cluster_secret = response->cluster_secret();
  cluster_id = response->cluster_id();
  report_interval_ =
      std::chrono::milliseconds(std::clamp(response->report_interval_ms(), 10, 60000));
  registered_ = was_registered_ = true;
  report_now_ = true;  // The state may have changed while the call was under way.
  last_error_ = absl::OkStatus();
  changed_.notify_all();
  spdlog::info("registered node={} incarnation={} cluster={}", options.node_id, incarnation,
               cluster_id);
  return absl::OkStatus();
}

absl::Status NodeAgent::Impl::Report(const std::stop_token& stop) {
  v1::ReportNodeRequest request;
  {
    std::unique_lock lock(mutex);
    changed_.wait_for(lock, stop, report_interval_, [&] { return report_now_; });
    if (stop.stop_requested()) return absl::OkStatus();
    report_now_ = false;
    request.set_node_id(options.node_id);
    request.set_incarnation(incarnation);
    request.set_state(state_);
    request.set_detail(detail_);
    request.set_assignment_epoch(assignment_epoch_);
    request.mutable_served_app_ids()->Add(served_apps_.begin(), served_apps_.end());
  }
  if (load_source) *request.mutable_load() = load_source();
  const absl::StatusOr<v1::ReportNodeResponse> response = Unary(&Stub::ReportNode, request);
  if (response.ok()) return absl::OkStatus();
  const std::string reason = base::GetReason(response.status()).reason;
  if (absl::IsNotFound(response.status()) || reason == "STALE_INCARNATION") {
    Unregister(response.status());
  } else {
    const std::scoped_lock lock(mutex);
    report_now_ = true;
  }
  return response.status();
}

void NodeAgent::Impl::Unregister(const absl::Status& why) {
  const bool stale = base::GetReason(why).reason == "STALE_INCARNATION";
  {
    const std::scoped_lock lock(mutex);
    registered_ = false;
    // An incarnation that was declared dead stays dead: what it held is being redone elsewhere.
    if (stale) incarnation = NextIncarnation(incarnation);
    // A NodeManager that forgot us has a new history, whose epochs begin anew.
    if (!stale) any_epoch_ = true;
  }
  CancelStreams(Stream::kAssignment);
  if (!stale) CancelStreams(Stream::kRouting);
}

void NodeAgent::Impl::RoutingLoop(const std::stop_token& stop) {
  Backoff backoff(options.backoff_min, options.backoff_max);
  v1::WatchRoutingRequest request;
  request.set_workflow_set(options.workflow_set);
  while (!stop.stop_requested()) {
    int index = 0;
    const std::shared_ptr<Stub> stub = CurrentStub(&index);
    {
      Call call(*this, Stream::kRouting);
      const auto reader = stub->WatchRouting(&call.context, request);
      v1::RoutingTable table;
      while (reader->Read(&table)) {
        backoff.Reset();
        TakeRouting(std::move(table));
      }
      const absl::Status status = rpc::FromGrpc(reader->Finish());
      if (!status.ok() && !absl::IsCancelled(status)) NoteError("watch routing", status);
    }
    NextReplica(index);
    Pause(stop, backoff.Next());
  }
}

void NodeAgent::Impl::TakeRouting(v1::RoutingTable table) {
  std::shared_ptr<const Routing> fresh;
  {
    const std::scoped_lock lock(mutex);
    // A replica that lags behind must not bring the dead back.
    if (!any_epoch_ && table.epoch() < routing->epoch()) return;
    if (has_routing_ && MessageDifferencer::Equals(table, routing->table())) return;
    any_epoch_ = false;
    has_routing_ = true;
    fresh = routing = std::make_shared<Routing>(std::move(table));
    changed_.notify_all();
  }
  if (on_routing) on_routing(fresh);
}

void NodeAgent::Impl::AssignmentLoop(const std::stop_token& stop) {
  Backoff backoff(options.backoff_min, options.backoff_max);
  while (!stop.stop_requested()) {
    v1::WatchAssignmentRequest request;
    request.set_node_id(options.node_id);
    {
      std::unique_lock lock(mutex);
      if (!changed_.wait(lock, stop, [&] { return registered_; })) return;
      request.set_incarnation(incarnation);
    }
    int index = 0;
    const std::shared_ptr<Stub> stub = CurrentStub(&index);
    {
      Call call(*this, Stream::kAssignment);
      const auto reader = stub->WatchAssignment(&call.context, request);
      v1::Assignment assignment;
      while (reader->Read(&assignment)) {
        backoff.Reset();
        on_assignment(assignment);
      }
      const absl::Status status = rpc::FromGrpc(reader->Finish());
      if (!status.ok() && !absl::IsCancelled(status)) NoteError("watch assignment", status);
    }
    NextReplica(index);
    Pause(stop, backoff.Next());
  }
}

void NodeAgent::Impl::CancelStreams(Stream kind) {
  const std::scoped_lock lock(mutex);
  for (Call* call : calls_) {
    if (call->kind == kind) call->context.TryCancel();
  }
}

bool NodeAgent::Impl::Pause(const std::stop_token& stop, base::Duration limit) {
  std::unique_lock lock(mutex);
  changed_.wait_for(lock, stop, limit, [] { return false; });
  return !stop.stop_requested();
}

void NodeAgent::Impl::NoteError(std::string_view what, const absl::Status& status) {
  const std::scoped_lock lock(mutex);
  if (stopping_) return;
  // The same trouble again and again is one line.
  if (last_error_ != status) spdlog::warn("nodemanager: {}: {}", what, base::Message(status));
  last_error_ = status;
}

void NodeAgent::Impl::Deregister() {
  v1::DeregisterNodeRequest request;
  request.set_node_id(options.node_id);
  {
    const std::scoped_lock lock(mutex);
    if (!was_registered_) return;
    request.set_incarnation(incarnation);
  }
  const base::Duration share = kGoodbyeTimeout / static_cast<int>(stubs_.size());
  for (std::size_t i = 0; i < stubs_.size(); ++i) {
    int index = 0;
    const std::shared_ptr<Stub> stub = CurrentStub(&index);
    const auto answer = rpc::Call(*stub, &Stub::DeregisterNode, request, share);
    if (answer.ok()) return;
    spdlog::info("nodemanager: goodbye not heard: {}", base::Message(answer.status()));
    NextReplica(index);
  }
}

NodeAgent::NodeAgent(NodeAgentOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

NodeAgent::~NodeAgent() { Stop(); }

void NodeAgent::OnRouting(RoutingCallback callback) { impl_->on_routing = std::move(callback); }

void NodeAgent::OnAssignment(AssignmentCallback callback) {
  impl_->on_assignment = std::move(callback);
}

void NodeAgent::SetLoadSource(LoadSource source) { impl_->load_source = std::move(source); }

void NodeAgent::Start() { impl_->Start(); }

absl::Status NodeAgent::WaitReady(base::Duration limit) { return impl_->WaitReady(limit); }

void NodeAgent::SetState(v1::Node::State state, std::string detail, std::uint64_t assignment_epoch,
                         std::vector<std::string> served_apps) {
  impl_->SetState(state, std::move(detail), assignment_epoch, std::move(served_apps));
}

void NodeAgent::Stop() { impl_->Stop(); }

const std::string& NodeAgent::node_id() const { return impl_->options.node_id; }

std::uint64_t NodeAgent::incarnation() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->incarnation;
}

v1::Endpoint NodeAgent::self() const {
  v1::Endpoint self;
  self.set_node_id(impl_->options.node_id);
  self.set_address(impl_->options.address);
  self.set_incarnation(incarnation());
  return self;
}

std::string NodeAgent::cluster_secret() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->cluster_secret;
}

std::string NodeAgent::cluster_id() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->cluster_id;
}

std::shared_ptr<const Routing> NodeAgent::routing() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->routing;
}

}  // namespace onepiece::node
