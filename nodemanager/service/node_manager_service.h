// Serves NodeManagerService over gRPC.
#pragma once

#include <atomic>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/service/controller.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::nodemanager {

/// How a NodeManagerService answers.
struct NodeManagerServiceOptions {
  int report_interval_ms = 500;                        ///< How often nodes are told to report.
  base::Duration heartbeat = std::chrono::seconds(5);  ///< The longest silence of WatchCluster.
  /// Further streams are refused: RESOURCE_EXHAUSTED (TOO_MANY_STREAMS). It must stay below the
  /// server's threads.
  int max_streams = 192;
  /// Returns host:port of every NodeManager replica.
  /// REQUIRES: set.
  std::function<std::vector<std::string>()> addresses;
  bool read_only = false;  ///< What it means in NodeConfig.
  /// How long a registration waits for a connection to the node's address. It must be shorter than
  /// a node's first attempt (400 ms). 0: addresses are not dialled.
  base::Duration dial_limit{};
};

/// What nodes and clients ask of the NodeManager. Streams coalesce: a slow reader gets the newest
/// state, and never a backlog.
///
/// Ownership: borrows the controller, which must outlive it.
/// Threading: thread-safe. A stream holds a thread of the server until its client leaves or
/// `stopping` is requested.
/// Errors: every error carries a reason (google.rpc.ErrorInfo). A replica that does not lead
/// refuses every call with UNAVAILABLE (NOT_LEADER), and streams end with it.
class NodeManagerService final : public v1::NodeManagerService::Service {
 public:
  /// `clock` paces the streams.
  NodeManagerService(Controller& controller, std::stop_token stopping,
                     NodeManagerServiceOptions options, base::Clock& clock = base::SystemClock())
      : controller_(controller),
        stopping_(std::move(stopping)),
        options_(std::move(options)),
        clock_(clock) {}

  [[nodiscard]] int streams() const { return streams_.load(); }

  grpc::Status RegisterNode(grpc::ServerContext* context, const v1::RegisterNodeRequest* request,
                            v1::RegisterNodeResponse* response) override;
  grpc::Status ReportNode(grpc::ServerContext* context, const v1::ReportNodeRequest* request,
                          v1::ReportNodeResponse* response) override;
  grpc::Status DeregisterNode(grpc::ServerContext* context,
                              const v1::DeregisterNodeRequest* request,
                              google::protobuf::Empty* response) override;
  grpc::Status WatchAssignment(grpc::ServerContext* context,
                               const v1::WatchAssignmentRequest* request,
                               grpc::ServerWriter<v1::Assignment>* writer) override;
  grpc::Status WatchRouting(grpc::ServerContext* context, const v1::WatchRoutingRequest* request,
                            grpc::ServerWriter<v1::RoutingTable>* writer) override;
  grpc::Status ListProxies(grpc::ServerContext* context, const v1::ListProxiesRequest* request,
                           v1::ListProxiesResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::Cluster* response) override;
  grpc::Status WatchCluster(grpc::ServerContext* context, const v1::WatchClusterRequest* request,
                            grpc::ServerWriter<v1::ClusterEvent>* writer) override;
  grpc::Status ApplyWorkflow(grpc::ServerContext* context, const v1::ApplyWorkflowRequest* request,
                             v1::Workflow* response) override;
  grpc::Status GetWorkflow(grpc::ServerContext* context, const v1::GetWorkflowRequest* request,
                           v1::Workflow* response) override;
  grpc::Status ListWorkflows(grpc::ServerContext* context, const v1::ListWorkflowsRequest* request,
                             v1::ListWorkflowsResponse* response) override;
  grpc::Status DeleteWorkflow(grpc::ServerContext* context,
                              const v1::DeleteWorkflowRequest* request,
                              google::protobuf::Empty* response) override;

 private:
  absl::StatusOr<v1::Workflow> FindWorkflow(const std::string& app_id);
  // Adds the metadata "incarnation" to STALE_INCARNATION: the known incarnation, which the node's
  // next one must exceed.
  absl::Status WithIncarnation(absl::Status status, const std::string& node_id) const;
  absl::Status CheckReachable(const grpc::ServerContext* context, const v1::Node& node) const;
  // Calls `send` now, after every change, and after every `poll`, until it returns an error, the
  // client leaves or the server stops.
  absl::Status Stream(grpc::ServerContext& context, base::Duration poll,
                      const std::function<absl::Status()>& send);
  // Adds what every node of `state` reported last.
  void AddTelemetry(const StateMachine& state, v1::Telemetry& telemetry) const;

  Controller& controller_;
  const std::stop_token stopping_;
  const NodeManagerServiceOptions options_;
  base::Clock& clock_;
  std::atomic<int> streams_{0};
};

}  // namespace onepiece::nodemanager
