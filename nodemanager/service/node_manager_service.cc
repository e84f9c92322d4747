#include "nodemanager/service/node_manager_service.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/state_stream.h"
#include "cluster/rpc/status.h"
#include "cluster/workflow/workflow_check.h"
#include "nodemanager/service/addresses.h"
#include "nodemanager/service/cluster_view.h"
#include "nodemanager/service/command_caller.h"
#include "nodemanager/service/identity_input.h"
#include "nodemanager/service/node_id_holder.h"

namespace onepiece::nodemanager {
namespace {

// A process that shares its address with another one of the same id is gone when it has not
// reported for so many intervals.
constexpr int kMissedReports = 2;
constexpr char kRegisterAgainMs[] = "200";
constexpr auto kLeastTelemetryInterval = std::chrono::milliseconds(200);

// Streams are served as bytes, so their requests come as bytes.
template <typename Request>
absl::StatusOr<Request> Parse(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy = bytes;  // Of the references to the slices only.
  Request request;
  if (grpc::SerializationTraits<Request>::Deserialize(&copy, &request).ok()) return request;
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                         "the request cannot be parsed");
}

// Whom a registration comes from, as far as places are concerned: the host. Its port would let a
// host take all places with many connections.
rpc::ShareHolder HostOf(const grpc::ServerContext* context) {
  const std::string peer = context == nullptr ? "" : context->peer();
  return rpc::ShareHolder(peer.starts_with("ipv") ? peer.substr(0, peer.rfind(':')) : peer);
}

// A place is free again much sooner than that of a stream.
absl::Status AskAgainSoon(absl::Status busy) {
  base::ErrorReason reason = base::GetReason(busy);
  reason.metadata[rpc::kRetryAfterMs] = kRegisterAgainMs;
  base::SetReason(busy, reason);
  return busy;
}

absl::Status WorkflowUnknown(const std::string& app_id) {
  return base::MakeError(absl::StatusCode::kNotFound, "WORKFLOW_UNKNOWN",
                         absl::StrCat("there is no workflow '", app_id, "'"), {{"app_id", app_id}});
}

absl::StatusOr<v1::Workflow> FindWorkflow(const StateMachine& state, const std::string& app_id) {
  const auto known = state.workflows().find(app_id);
  if (known == state.workflows().end()) return WorkflowUnknown(app_id);
  return known->second.workflow();
}

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const grpc::Status& why) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(why);
  return reactor;
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
    const std::uint64_t last = known == state.nodes().end() ? state.forgotten_incarnation()
                                                            : known->second.node().incarnation();
    reason.metadata["incarnation"] = std::to_string(last);
  });
  base::SetReason(status, reason);
  return status;
}

absl::Status NodeManagerService::CheckSpeaker(const grpc::ServerContextBase* context,
                                              const std::string& node_id,
                                              std::optional<identity::Role> role) const {
  return CallerOf(options_.door, context).CheckNode(node_id, role);
}

// A node that others cannot reach would be READY, and jobs would wait for it until they fail.
absl::Status NodeManagerService::CheckNewcomer(const grpc::ServerContext* context,
                                               const v1::Node& node) {
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  absl::Status status;
  std::optional<v1::Node> holder;
  controller_.Read([&](const StateMachine& state) {
    status = CheckLoopback(state, node, context == nullptr ? "" : context->peer());
    holder = FindOtherHolder(state, node);
  });
  ONEPIECE_RETURN_IF_ERROR(status);
  // Both addresses are dialled at the same time, because the node waits for the answer.
  std::optional<Dialling> dialling;
  if (holder && holder->address() != node.address() && options_.dial_limit > base::Duration::zero())
    dialling.emplace(holder->address(), options_.dial_limit);
  const absl::Status reached = reachability_.Check(node.address());
  if (holder) {
    ONEPIECE_RETURN_IF_ERROR(
        CheckHolder(*holder, node,
                    {.dialling = dialling ? &*dialling : nullptr,
                     .silent = controller_.SilenceOf(*holder),
                     .silence_limit = kMissedReports * controller_.settings().report_interval}));
  }
  return reached;
}

grpc::Status NodeManagerService::RegisterNode(grpc::ServerContext* context,
                                              const v1::RegisterNodeRequest* request,
                                              v1::RegisterNodeResponse* response) {
  const v1::Node& speaker = request->node();
  if (const absl::Status status =
          CheckSpeaker(context, speaker.node_id(), IdentityRole(speaker.role()));
      !status.ok())
    return rpc::ToGrpc(status);
  controller_.NoteRegistering(request->node());
  const auto place = registrations_.Take(HostOf(context));
  if (!place.ok()) return rpc::ToGrpc(AskAgainSoon(place.status()));
  v1::Command command;
  command.set_request_id(request->request_id());
  v1::Node& node = *command.mutable_register_node();
  node = request->node();
  if (node.workflow_set().empty()) node.set_workflow_set("default");
  if (const absl::Status status = CheckNode(node); !status.ok()) return rpc::ToGrpc(status);
  if (const absl::Status status = CheckNewcomer(context, node); !status.ok())
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
    // The role is that of the node's certificate, so nobody gets the secret by saying "proxy".
    if (request->node().role() == v1::PROXY) response->set_cluster_secret(state.cluster_secret());
  });
  response->set_report_interval_ms(ReportIntervalMs());
  for (const std::string& address : options_.addresses()) response->add_nodemanagers(address);
  return rpc::ToGrpc(status);
}

// gRPC keeps the request and the response until the reactor is done.
grpc::ServerUnaryReactor* NodeManagerService::ReportNode(grpc::CallbackServerContext* context,
                                                         const v1::ReportNodeRequest* request,
                                                         v1::ReportNodeResponse* response) {
  if (const absl::Status status = CheckSpeaker(context, request->node_id()); !status.ok())
    return Refuse(context, rpc::ToGrpc(status));
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  // Only proxies know what tenants use.
  const bool counts = CheckSpeaker(context, request->node_id(), identity::Role::kProxy).ok();
  controller_.Report(
      *request, [this, request, response, reactor, counts](const absl::Status& status) {
        if (status.ok()) FillIn(request->node_id(), *response);
        // A report that failed comes again, with the same uses.
        if (status.ok() && counts)
          controller_.identity_reports().TakeUses(*request, controller_.clock().WallNow());
        reactor->Finish(rpc::ToGrpc(status));
      });
  return reactor;
}

int NodeManagerService::ReportIntervalMs() const {
  return static_cast<int>(controller_.settings().report_interval / std::chrono::milliseconds(1));
}

void NodeManagerService::FillIn(const std::string& node_id,
                                v1::ReportNodeResponse& response) const {
  controller_.FillIn(node_id, response);
  response.set_report_interval_ms(ReportIntervalMs());
  for (const std::string& address : options_.addresses()) response.add_nodemanagers(address);
  response.set_server_unix_ms(base::ToUnixMs(controller_.clock().WallNow()));
}

grpc::ServerUnaryReactor* NodeManagerService::Commit(grpc::CallbackServerContext* context,
                                                     v1::Command command) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  controller_.ProposeAsync(std::move(command),
                           [reactor](const absl::StatusOr<v1::CommandResult>& result) {
                             reactor->Finish(rpc::ToGrpc(result.status()));
                           });
  return reactor;
}

grpc::ServerUnaryReactor* NodeManagerService::DeregisterNode(
    grpc::CallbackServerContext* context, const v1::DeregisterNodeRequest* request,
    google::protobuf::Empty*) {
  if (const absl::Status status = CheckSpeaker(context, request->node_id()); !status.ok())
    return Refuse(context, rpc::ToGrpc(status));
  v1::Command command;
  v1::EndNode& end = *command.mutable_end_node();
  end.set_node_id(request->node_id());
  end.set_incarnation(request->incarnation());
  end.set_detail("said goodbye");
  return Commit(context, std::move(command));
}

grpc::ServerUnaryReactor* NodeManagerService::RemoveNode(grpc::CallbackServerContext* context,
                                                         const v1::RemoveNodeRequest* request,
                                                         google::protobuf::Empty*) {
  if (options_.read_only) return Refuse(context, rpc::RefuseReadOnly());
  v1::Command command;
  command.set_request_id(request->request_id());
  SignCommand(options_.door, context, command);
  v1::RemoveNode& remove = *command.mutable_remove_node();
  remove.set_node_id(request->node_id());
  remove.set_actor(request->actor());
  remove.set_reason(request->reason());
  return Commit(context, std::move(command));
}

Watches::Reactor* NodeManagerService::WatchAssignment(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request) {
  const auto parsed = Parse<v1::WatchAssignmentRequest>(*request);
  if (!parsed.ok()) return rpc::RefuseStream<grpc::ByteBuffer>(parsed.status());
  const absl::Status speaker = CheckSpeaker(context, parsed->node_id(), identity::Role::kInstance);
  if (!speaker.ok()) return rpc::RefuseStream<grpc::ByteBuffer>(speaker);
  return watches_.WatchAssignment(*context, *parsed);
}

Watches::Reactor* NodeManagerService::WatchRouting(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) {
  const auto parsed = Parse<v1::WatchRoutingRequest>(*request);
  if (!parsed.ok()) return rpc::RefuseStream<grpc::ByteBuffer>(parsed.status());
  return watches_.WatchRouting(*context, *parsed);
}

Watches::Reactor* NodeManagerService::WatchCluster(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) {
  const auto parsed = Parse<v1::WatchClusterRequest>(*request);
  if (!parsed.ok()) return rpc::RefuseStream<grpc::ByteBuffer>(parsed.status());
  const auto interval = TelemetryInterval(*parsed);
  if (!interval.ok()) return rpc::RefuseStream<grpc::ByteBuffer>(interval.status());
  return watches_.WatchCluster(*context, parsed->start_revision(), *interval);
}

grpc::Status NodeManagerService::ListProxies(grpc::ServerContext*,
                                             const v1::ListProxiesRequest* request,
                                             v1::ListProxiesResponse* response) {
  return rpc::ToGrpc(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    *response = MakeProxyList(state, request->workflow_set());
  }));
}

grpc::Status NodeManagerService::GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                                            v1::Cluster* response) {
  const absl::Status status = controller_.ReadNewest([&](const StateMachine& state) {
    *response = MakeSnapshot(state);
    for (v1::Node& node : *response->mutable_nodes()) controller_.AddTelemetry(state, node);
    return true;
  });
  // The log is asked here, because it must not be asked while the state is locked.
  if (const auto& level = options_.watches.available_level; level)
    response->set_available_feature_level(level());
  return rpc::ToGrpc(status);
}

absl::StatusOr<v1::Workflow> NodeManagerService::FindNewestWorkflow(const std::string& app_id) {
  absl::StatusOr<v1::Workflow> found;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadAtAnyReplica(
      [&](const StateMachine& state) { found = FindWorkflow(state, app_id); }));
  return found;
}

grpc::ServerUnaryReactor* NodeManagerService::ApplyWorkflow(grpc::CallbackServerContext* context,
                                                            const v1::ApplyWorkflowRequest* request,
                                                            v1::Workflow* response) {
  if (options_.read_only && !request->validate_only())
    return Refuse(context, rpc::RefuseReadOnly());
  if (const absl::Status bad = workflow::CheckWorkflow(request->workflow()); !bad.ok())
    return Refuse(context, rpc::ToGrpc(bad));
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (request->validate_only()) {
    *response = request->workflow();
    response->set_name("workflows/" + response->app_id());
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  v1::Command command;
  command.set_request_id(request->request_id());
  command.set_actor(request->actor());
  command.set_reason(request->reason());
  SignCommand(options_.door, context, command);
  *command.mutable_apply_workflow() = request->workflow();
  controller_.ProposeAsync(
      std::move(command),
      [this, request, response, reactor](const absl::StatusOr<v1::CommandResult>& result) {
        absl::Status status = result.status();
        // This replica has applied the command, so its own state shows what it did. Nobody needs to
        // be asked whether that is the newest state.
        if (status.ok()) {
          controller_.Read([&](const StateMachine& state) {
            auto workflow = FindWorkflow(state, request->workflow().app_id());
            status = workflow.status();
            if (workflow.ok()) *response = *std::move(workflow);
          });
        }
        reactor->Finish(rpc::ToGrpc(status));
      });
  return reactor;
}

grpc::Status NodeManagerService::GetWorkflow(grpc::ServerContext*,
                                             const v1::GetWorkflowRequest* request,
                                             v1::Workflow* response) {
  const auto app_id = AppIdOfName(request->name());
  if (!app_id.ok()) return rpc::ToGrpc(app_id.status());
  auto workflow = FindNewestWorkflow(*app_id);
  if (!workflow.ok()) return rpc::ToGrpc(workflow.status());
  *response = *std::move(workflow);
  return grpc::Status::OK;
}

grpc::Status NodeManagerService::ListWorkflows(grpc::ServerContext*,
                                               const v1::ListWorkflowsRequest* request,
                                               v1::ListWorkflowsResponse* response) {
  absl::StatusOr<v1::ListWorkflowsResponse> page;
  const absl::Status status = controller_.ReadAtAnyReplica(
      [&](const StateMachine& state) { page = MakeWorkflowPage(state, *request); });
  if (!status.ok()) return rpc::ToGrpc(status);
  if (!page.ok()) return rpc::ToGrpc(page.status());
  *response = *std::move(page);
  return grpc::Status::OK;
}

grpc::ServerUnaryReactor* NodeManagerService::DeleteWorkflow(
    grpc::CallbackServerContext* context, const v1::DeleteWorkflowRequest* request,
    google::protobuf::Empty*) {
  if (options_.read_only) return Refuse(context, rpc::RefuseReadOnly());
  const auto app_id = AppIdOfName(request->name());
  if (!app_id.ok()) return Refuse(context, rpc::ToGrpc(app_id.status()));
  v1::Command command;
  command.set_request_id(request->request_id());
  command.set_actor(request->actor());
  command.set_reason(request->reason());
  SignCommand(options_.door, context, command);
  command.set_delete_workflow(*app_id);
  return Commit(context, std::move(command));
}

}  // namespace onepiece::nodemanager
