// Serves NodeManagerService over gRPC.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/identity/role.h"
#include "cluster/rpc/stream_shares.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/reachability.h"
#include "nodemanager/service/watches.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::nodemanager {

/// How a NodeManagerService answers.
struct NodeManagerServiceOptions {
  WatchesOptions watches;
  /// Returns host:port of every NodeManager replica.
  /// REQUIRES: set.
  std::function<std::vector<std::string>()> addresses;
  bool read_only = false;  ///< What it means in NodeConfig.
  /// Knows who calls. Null: the NodeManager is insecure, and everybody may speak for every node.
  const rpc::Door* door = nullptr;
  /// How many registrations may be under way, because each holds a thread of the server while an
  /// address is dialled and while its commit waits. A host gets another one while it holds fewer
  /// than are free, so one host alone gets half of them, and however many registrations a second
  /// it sends, others get in. More are refused, and those nodes ask again. It must stay well below
  /// the server's threads.
  int max_registrations = 64;
  /// How long a registration waits for a connection to the node's address, and to that of another
  /// process with the same id. It must be shorter than a node's first attempt (400 ms). 0:
  /// addresses are not dialled.
  base::Duration dial_limit{};
};

/// The calls that may wait for the log, and cost no thread meanwhile.
using WithCallbackProposals = v1::NodeManagerService::WithCallbackMethod_ReportNode<
    v1::NodeManagerService::WithCallbackMethod_DeregisterNode<
        v1::NodeManagerService::WithCallbackMethod_RemoveNode<
            v1::NodeManagerService::WithCallbackMethod_ApplyWorkflow<
                v1::NodeManagerService::WithCallbackMethod_DeleteWorkflow<
                    v1::NodeManagerService::Service>>>>>;

/// What nodes and clients ask of the NodeManager. Streams cost no thread (Watches), and neither do
/// changes while they wait for the log, except a registration, which dials.
///
/// Ownership: borrows the controller, which must outlive it.
/// Threading: thread-safe.
/// Errors: every error carries a reason (google.rpc.ErrorInfo). A replica that does not lead
/// answers ListProxies(), GetWorkflow() and ListWorkflows() after it has caught up with the leader.
/// Nodes speak for themselves only: other callers get PERMISSION_DENIED (FOREIGN_NODE, WRONG_ROLE).
/// It refuses every other call with UNAVAILABLE (NOT_LEADER), and streams end with it.
class NodeManagerService final
    : public v1::NodeManagerService::WithRawCallbackMethod_WatchRouting<
          v1::NodeManagerService::WithRawCallbackMethod_WatchAssignment<
              v1::NodeManagerService::WithRawCallbackMethod_WatchCluster<WithCallbackProposals>>> {
 public:
  /// `clock` paces the streams.
  NodeManagerService(Controller& controller, std::stop_token stopping,
                     NodeManagerServiceOptions options, base::Clock& clock = base::SystemClock())
      : controller_(controller),
        options_(std::move(options)),
        registrations_({.places = static_cast<std::size_t>(options_.max_registrations),
                        .reason = "REGISTRATIONS_BUSY",
                        .what = "registrations",
                        .advice = "ask again"}),
        reachability_(options_.dial_limit, clock, options_.door != nullptr),
        watches_(controller, std::move(stopping), options_.watches, clock, options_.door) {}

  [[nodiscard]] std::size_t streams() const { return watches_.streams(); }
  [[nodiscard]] WatchCounters watch_counters() const { return watches_.counters(); }
  /// How many registrations are under way.
  [[nodiscard]] std::size_t registrations() const { return registrations_.taken(); }

  grpc::Status RegisterNode(grpc::ServerContext* context, const v1::RegisterNodeRequest* request,
                            v1::RegisterNodeResponse* response) override;
  grpc::ServerUnaryReactor* ReportNode(grpc::CallbackServerContext* context,
                                       const v1::ReportNodeRequest* request,
                                       v1::ReportNodeResponse* response) override;
  grpc::ServerUnaryReactor* DeregisterNode(grpc::CallbackServerContext* context,
                                           const v1::DeregisterNodeRequest* request,
                                           google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* RemoveNode(grpc::CallbackServerContext* context,
                                       const v1::RemoveNodeRequest* request,
                                       google::protobuf::Empty* response) override;
  Watches::Reactor* WatchAssignment(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request) override;
  Watches::Reactor* WatchRouting(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request) override;
  grpc::Status ListProxies(grpc::ServerContext* context, const v1::ListProxiesRequest* request,
                           v1::ListProxiesResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::Cluster* response) override;
  Watches::Reactor* WatchCluster(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ApplyWorkflow(grpc::CallbackServerContext* context,
                                          const v1::ApplyWorkflowRequest* request,
                                          v1::Workflow* response) override;
  grpc::Status GetWorkflow(grpc::ServerContext* context, const v1::GetWorkflowRequest* request,
                           v1::Workflow* response) override;
  grpc::Status ListWorkflows(grpc::ServerContext* context, const v1::ListWorkflowsRequest* request,
                             v1::ListWorkflowsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteWorkflow(grpc::CallbackServerContext* context,
                                           const v1::DeleteWorkflowRequest* request,
                                           google::protobuf::Empty* response) override;

 private:
  absl::StatusOr<v1::Workflow> FindNewestWorkflow(const std::string& app_id);
  // Whether the caller is the node that it speaks for.
  [[nodiscard]] absl::Status CheckSpeaker(const grpc::ServerContextBase* context,
                                          const std::string& node_id,
                                          std::optional<identity::Role> role = {}) const;
  // Proposes the command, and ends the call with the status.
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context, v1::Command command);
  // Adds the metadata "incarnation" to STALE_INCARNATION: the known incarnation, which the node's
  // next one must exceed.
  absl::Status WithIncarnation(absl::Status status, const std::string& node_id) const;
  void FillIn(const std::string& node_id, v1::ReportNodeResponse& response) const;
  [[nodiscard]] int ReportIntervalMs() const;
  // Whether others can reach the node, and no other process has its id.
  absl::Status CheckNewcomer(const grpc::ServerContext* context, const v1::Node& node);

  Controller& controller_;
  const NodeManagerServiceOptions options_;
  rpc::StreamShares registrations_;  // By host.
  Reachability reachability_;
  Watches watches_;
};

}  // namespace onepiece::nodemanager
