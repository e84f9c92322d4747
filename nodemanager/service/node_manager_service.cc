#include "nodemanager/service/node_manager_service.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/counted_stream.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/status.h"
#include "cluster/workflow/workflow_check.h"
#include "nodemanager/service/addresses.h"
#include "nodemanager/service/cluster_view.h"

namespace onepiece::nodemanager {
namespace {

// A stream looks at the state at most this often, and so coalesces a burst of changes. Without this
// pause every commit woke all routing streams, which took a sixth of the leader's processor time
// under 64 writers.
constexpr auto kLeastInterval = std::chrono::milliseconds(5);
// The synchronous API does not tell that a client has left, so streams look this often.
constexpr base::Duration kCancellationPoll = std::chrono::milliseconds(200);
constexpr auto kLeastTelemetryInterval = std::chrono::milliseconds(200);

const absl::Status& ClientLeft() {
  static const absl::Status status =
      base::MakeError(absl::StatusCode::kCancelled, "CLIENT_LEFT", "the client ended the stream");
  return status;
}

absl::Status WorkflowUnknown(const std::string& app_id) {
  return base::MakeError(absl::StatusCode::kNotFound, "WORKFLOW_UNKNOWN",
                         absl::StrCat("there is no workflow '", app_id, "'"), {{"app_id", app_id}});
}

absl::StatusOr<v1::Assignment> FindAssignment(const StateMachine& state,
                                              const v1::WatchAssignmentRequest& request) {
  const auto known = state.nodes().find(request.node_id());
  if (known == state.nodes().end()) {
    return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                           absl::StrCat("node '", request.node_id(), "' is not registered"));
  }
  if (known->second.node().incarnation() != request.incarnation() ||
      !IsAlive(known->second.node())) {
    return base::MakeError(
        absl::StatusCode::kAborted, "STALE_INCARNATION",
        absl::StrCat("this incarnation of node '", request.node_id(), "' is dead"));
  }
  return known->second.node().assignment();
}

absl::StatusOr<base::Duration> TelemetryInterval(const v1::WatchClusterRequest& request) {
  const std::chrono::milliseconds interval(request.telemetry_interval_ms());
  if (interval.count() == 0 || interval >= kLeastTelemetryInterval) return interval;
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TELEMETRY_INTERVAL",
                         absl::StrCat("telemetry_interval_ms: 0 (never) or at least ",
                                      kLeastTelemetryInterval.count()),
                         {{"field", "telemetry_interval_ms"}});
}

}  // namespace

// The state machine must not add this itself. Its answers are a part of the state, and replicas of
// an older version must come to the same state.
absl::Status NodeManagerService::WithIncarnation(absl::Status status,
                                                 const std::string& node_id) const {
  base::ErrorReason reason = base::GetReason(status);
  if (reason.reason != "STALE_INCARNATION") return status;
  controller_.Read([&](const StateMachine& state) {
    const auto known = state.nodes().find(node_id);
    if (known == state.nodes().end()) return;
    reason.metadata["incarnation"] = std::to_string(known->second.node().incarnation());
  });
  base::SetReason(status, reason);
  return status;
}

// A node that others cannot reach would be READY, and jobs would wait for it until they fail.
absl::Status NodeManagerService::CheckReachable(const grpc::ServerContext* context,
                                                const v1::Node& node) const {
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  absl::Status status;
  controller_.Read([&](const StateMachine& state) {
    status = CheckLoopback(state, node, context == nullptr ? "" : context->peer());
  });
  if (!status.ok() || options_.dial_limit == base::Duration::zero()) return status;
  return Dial(node.address(), options_.dial_limit);
}

grpc::Status NodeManagerService::RegisterNode(grpc::ServerContext* context,
                                              const v1::RegisterNodeRequest* request,
                                              v1::RegisterNodeResponse* response) {
  v1::Command command;
  command.set_request_id(request->request_id());
  v1::Node& node = *command.mutable_register_node();
  node = request->node();
  if (node.workflow_set().empty()) node.set_workflow_set("default");
  if (const absl::Status status = CheckNode(node); !status.ok()) return rpc::ToGrpc(status);
  if (const absl::Status status = CheckReachable(context, node); !status.ok())
    return rpc::ToGrpc(status);
  const auto result = controller_.Propose(std::move(command));
  if (!result.ok()) return rpc::ToGrpc(WithIncarnation(result.status(), request->node().node_id()));
  absl::Status status;
  controller_.Read([&](const StateMachine& state) {
    const auto known = state.nodes().find(request->node().node_id());
    // The OK may be the remembered answer of an earlier attempt. The node may have died since.
    if (known == state.nodes().end() ||
        known->second.node().incarnation() != request->node().incarnation() ||
        !IsAlive(known->second.node())) {
      status = base::MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION",
                               "this incarnation was registered before and is dead now");
      return;
    }
    *response->mutable_node() = known->second.node();
    response->set_cluster_id(state.cluster_id());
    response->set_cluster_secret(state.cluster_secret());
  });
  response->set_report_interval_ms(options_.report_interval_ms);
  for (const std::string& address : options_.addresses()) response->add_nodemanagers(address);
  return rpc::ToGrpc(status);
}

grpc::Status NodeManagerService::ReportNode(grpc::ServerContext*,
                                            const v1::ReportNodeRequest* request,
                                            v1::ReportNodeResponse* response) {
  const auto epoch = controller_.Report(*request);
  if (!epoch.ok()) return rpc::ToGrpc(epoch.status());
  response->set_epoch(*epoch);
  if (auto capacity = controller_.CapacityFor(request->node_id()); capacity)
    *response->mutable_capacity() = *std::move(capacity);
  for (const std::string& address : options_.addresses()) response->add_nodemanagers(address);
  response->set_server_unix_ms(base::ToUnixMs(controller_.clock().WallNow()));
  return grpc::Status::OK;
}

grpc::Status NodeManagerService::DeregisterNode(grpc::ServerContext*,
                                                const v1::DeregisterNodeRequest* request,
                                                google::protobuf::Empty*) {
  v1::Command command;
  v1::EndNode& end = *command.mutable_end_node();
  end.set_node_id(request->node_id());
  end.set_incarnation(request->incarnation());
  end.set_detail("said goodbye");
  return rpc::ToGrpc(controller_.Propose(std::move(command)).status());
}

absl::Status NodeManagerService::Stream(grpc::ServerContext& context, base::Duration poll,
                                        const std::function<absl::Status()>& send) {
  const rpc::CountedStream stream(streams_);
  if (stream.number() > options_.max_streams) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_STREAMS",
                           absl::StrCat("at most ", options_.max_streams, " streams at a time"));
  }
  while (!stopping_.stop_requested()) {
    const base::MonotonicTime next = clock_.Now() + kLeastInterval;
    // The version is read before the state, so that a change in between ends the wait at once.
    const std::uint64_t version = controller_.version();
    // The stream ends when this replica no longer leads, so that its client looks for the leader.
    ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
    ONEPIECE_RETURN_IF_ERROR(send());
    controller_.WaitForChange(version, stopping_, clock_, clock_.Now() + poll);
    if (context.IsCancelled()) return ClientLeft();
    clock_.Pause(stopping_, next - clock_.Now());
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "SHUTTING_DOWN",
                         "the NodeManager is shutting down");
}

grpc::Status NodeManagerService::WatchAssignment(grpc::ServerContext* context,
                                                 const v1::WatchAssignmentRequest* request,
                                                 grpc::ServerWriter<v1::Assignment>* writer) {
  std::optional<std::uint64_t> sent;
  return rpc::ToGrpc(Stream(*context, kCancellationPoll, [&]() -> absl::Status {
    absl::StatusOr<v1::Assignment> found;
    bool news = false;
    ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
      found = FindAssignment(state, *request);
      return news = !found.ok() || sent != found->epoch();
    }));
    ONEPIECE_ASSIGN_OR_RETURN(const v1::Assignment assignment, std::move(found));
    if (!news) return absl::OkStatus();
    sent = assignment.epoch();
    return writer->Write(assignment) ? absl::OkStatus() : ClientLeft();
  }));
}

grpc::Status NodeManagerService::WatchRouting(grpc::ServerContext* context,
                                              const v1::WatchRoutingRequest* request,
                                              grpc::ServerWriter<v1::RoutingTable>* writer) {
  const std::string workflow_set =
      request->workflow_set().empty() ? "default" : request->workflow_set();
  std::optional<std::uint64_t> sent;
  return rpc::ToGrpc(Stream(*context, kCancellationPoll, [&]() -> absl::Status {
    v1::RoutingTable table;
    ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
      if (sent != state.epoch()) table = state.Routing(workflow_set);
      table.set_epoch(state.epoch());
      return sent != state.epoch();
    }));
    if (sent == table.epoch()) return absl::OkStatus();
    sent = table.epoch();
    return writer->Write(table) ? absl::OkStatus() : ClientLeft();
  }));
}

grpc::Status NodeManagerService::ListProxies(grpc::ServerContext*,
                                             const v1::ListProxiesRequest* request,
                                             v1::ListProxiesResponse* response) {
  return rpc::ToGrpc(controller_.ReadNewest([&](const StateMachine& state) {
    *response = MakeProxyList(state, request->workflow_set());
    return true;
  }));
}

grpc::Status NodeManagerService::GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                                            v1::Cluster* response) {
  const absl::Status status = controller_.ReadNewest([&](const StateMachine& state) {
    *response = MakeSnapshot(state);
    for (v1::Node& node : *response->mutable_nodes()) controller_.AddTelemetry(state, node);
    return true;
  });
  return rpc::ToGrpc(status);
}

void NodeManagerService::AddTelemetry(const StateMachine& state, v1::Telemetry& telemetry) const {
  for (const auto& [id, record] : state.nodes()) {
    v1::Node node;
    node.set_node_id(id);
    node.set_incarnation(record.node().incarnation());
    node.set_role(record.node().role());
    node.set_state(record.node().state());
    node.set_detail(record.node().detail());
    controller_.AddTelemetry(state, node);
    v1::Telemetry::Entry& entry = *telemetry.add_nodes();
    entry.set_node_id(id);
    entry.set_activity(node.activity());
    entry.set_detail(std::move(*node.mutable_detail()));
    if (node.has_last_report_time())
      *entry.mutable_last_report_time() = std::move(*node.mutable_last_report_time());
    if (node.has_load()) *entry.mutable_load() = std::move(*node.mutable_load());
  }
}

grpc::Status NodeManagerService::WatchCluster(grpc::ServerContext* context,
                                              const v1::WatchClusterRequest* request,
                                              grpc::ServerWriter<v1::ClusterEvent>* writer) {
  const auto interval = TelemetryInterval(*request);
  if (!interval.ok()) return rpc::ToGrpc(interval.status());
  const bool wants_telemetry = *interval > base::Duration::zero();
  const base::Duration poll =
      wants_telemetry ? std::min(kCancellationPoll, *interval / 4) : kCancellationPoll;
  std::uint64_t known = request->start_revision();
  base::MonotonicTime last_sent = clock_.Now();
  // A snapshot holds the telemetry already. A watcher that resumes has not heard it for a while, so
  // it hears it at once.
  base::MonotonicTime next_telemetry = known == 0 ? last_sent + *interval : last_sent;
  return rpc::ToGrpc(Stream(*context, poll, [&]() -> absl::Status {
    const base::MonotonicTime now = clock_.Now();
    const bool telemetry_due = wants_telemetry && now >= next_telemetry;
    std::vector<v1::ClusterEvent> events;
    // A client may know more than this replica when another replica leads by now. ReadNewest()
    // fails then, and the stream ends before it tells old news.
    ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
      if (known == 0 || known != state.revision()) events = ChangesAfter(state, known);
      for (v1::ClusterEvent& event : events) {
        if (event.has_node()) controller_.AddTelemetry(state, *event.mutable_node());
        if (!event.has_snapshot()) continue;
        for (v1::Node& node : *event.mutable_snapshot()->mutable_nodes())
          controller_.AddTelemetry(state, node);
      }
      if (telemetry_due) {
        const std::uint64_t revision = events.empty() ? known : events.back().revision();
        events.emplace_back().set_revision(revision);
        AddTelemetry(state, *events.back().mutable_telemetry());
      }
      return !events.empty();
    }));
    // A slow reader does not get the telemetry that it missed in a burst.
    if (telemetry_due) next_telemetry = std::max(next_telemetry, now - *interval / 2) + *interval;
    // An empty event comes before the silence reaches the promised limit, with room for a late
    // poll.
    if (events.empty() && now - last_sent >= options_.heartbeat - 2 * kCancellationPoll) {
      events.emplace_back().set_revision(known);
    }
    for (v1::ClusterEvent& event : events) {
      event.set_server_unix_ms(base::ToUnixMs(controller_.clock().WallNow()));
      if (!writer->Write(event)) return ClientLeft();
      known = event.revision();
      last_sent = now;
    }
    return absl::OkStatus();
  }));
}

absl::StatusOr<v1::Workflow> NodeManagerService::FindWorkflow(const std::string& app_id) {
  absl::StatusOr<v1::Workflow> found = WorkflowUnknown(app_id);
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    const auto known = state.workflows().find(app_id);
    if (known != state.workflows().end()) found = known->second.workflow();
    return true;
  }));
  return found;
}

grpc::Status NodeManagerService::ApplyWorkflow(grpc::ServerContext*,
                                               const v1::ApplyWorkflowRequest* request,
                                               v1::Workflow* response) {
  if (options_.read_only && !request->validate_only()) return rpc::RefuseReadOnly();
  if (const absl::Status status = workflow::CheckWorkflow(request->workflow()); !status.ok())
    return rpc::ToGrpc(status);
  if (request->validate_only()) {
    *response = request->workflow();
    response->set_name("workflows/" + response->app_id());
    return grpc::Status::OK;
  }
  v1::Command command;
  command.set_request_id(request->request_id());
  *command.mutable_apply_workflow() = request->workflow();
  if (const auto result = controller_.Propose(std::move(command)); !result.ok())
    return rpc::ToGrpc(result.status());
  auto workflow = FindWorkflow(request->workflow().app_id());
  if (!workflow.ok()) return rpc::ToGrpc(workflow.status());
  *response = *std::move(workflow);
  return grpc::Status::OK;
}

grpc::Status NodeManagerService::GetWorkflow(grpc::ServerContext*,
                                             const v1::GetWorkflowRequest* request,
                                             v1::Workflow* response) {
  const auto app_id = AppIdOfName(request->name());
  if (!app_id.ok()) return rpc::ToGrpc(app_id.status());
  auto workflow = FindWorkflow(*app_id);
  if (!workflow.ok()) return rpc::ToGrpc(workflow.status());
  *response = *std::move(workflow);
  return grpc::Status::OK;
}

grpc::Status NodeManagerService::ListWorkflows(grpc::ServerContext*,
                                               const v1::ListWorkflowsRequest* request,
                                               v1::ListWorkflowsResponse* response) {
  absl::StatusOr<v1::ListWorkflowsResponse> page;
  const absl::Status status = controller_.ReadNewest([&](const StateMachine& state) {
    page = MakeWorkflowPage(state, *request);
    return true;
  });
  if (!status.ok()) return rpc::ToGrpc(status);
  if (!page.ok()) return rpc::ToGrpc(page.status());
  *response = *std::move(page);
  return grpc::Status::OK;
}

grpc::Status NodeManagerService::DeleteWorkflow(grpc::ServerContext*,
                                                const v1::DeleteWorkflowRequest* request,
                                                google::protobuf::Empty*) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const auto app_id = AppIdOfName(request->name());
  if (!app_id.ok()) return rpc::ToGrpc(app_id.status());
  v1::Command command;
  command.set_request_id(request->request_id());
  command.set_delete_workflow(*app_id);
  return rpc::ToGrpc(controller_.Propose(std::move(command)).status());
}

}  // namespace onepiece::nodemanager
