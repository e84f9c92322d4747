// A NodeManager that serves on loopback, for tests, and streams that they read item by item.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/node_manager_service.h"
#include "tests/eventually.h"

namespace onepiece::nodemanager {

using Stub = v1::NodeManagerService::Stub;
inline constexpr auto kLimit = std::chrono::seconds(20);
inline constexpr base::Duration kDeadAfter = std::chrono::seconds(3);

// A NodeManager that serves on loopback and has a clock that the test moves.
class ServedNodeManager {
 public:
  explicit ServedNodeManager(const std::string& dir, std::vector<v1::Workflow> workflows = {},
                             NodeManagerServiceOptions service_options = {
                                 .watches = {.heartbeat = std::chrono::milliseconds(600),
                                             .cluster_streams = 8}}) {
    ReplicatedLogOptions options{.data_dir = dir, .name = "nm"};
    options.paxos.version = kCommandVersion;
    log_ = std::move(ReplicatedLog::Open(std::move(options))).value();
    controller_ = std::make_unique<Controller>(
        *log_, clock_,
        ControllerOptions{.dead_after = kDeadAfter,
                          .cluster_id = [&] { return log_->cluster_id(); },
                          .workflows = std::move(workflows)});
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    service_options.addresses = [this] { return log_->Addresses(); };
    service_ = std::make_unique<NodeManagerService>(*controller_, server_->stopping(),
                                                    std::move(service_options));
    log_->OnRole([&](bool) { controller_->OnRole(); });
    server_->AddService(*service_);
    server_->AddService(log_->service());
    if (!server_->Start().ok()) qFatal("Start failed");
    if (!log_->Start(server_->address()).ok()) qFatal("the log does not start");
    stub_ = Connect();
    if (!testing::Eventually(kLimit, [&] { return controller_->TakeOver().ok(); }))
      qFatal("nobody leads");
    controller_->CheckLiveness();
  }
  ~ServedNodeManager() { Shutdown(); }
  void Shutdown() {
    controller_->Stop();
    server_->Shutdown(std::chrono::seconds(5));
    log_->Stop();
  }

  Stub& stub() { return *stub_; }
  Controller& controller() { return *controller_; }
  NodeManagerService& service() { return *service_; }
  ReplicatedLog& log() { return *log_; }
  // Lets time pass in the steps of the failure detector. The `alive` nodes go on reporting.
  void Pass(base::Duration time, const std::vector<v1::ReportNodeRequest>& alive = {}) {
    for (base::Duration passed{}; passed < time; passed += kDeadAfter / 10) {
      clock_.Advance(kDeadAfter / 10);
      for (const v1::ReportNodeRequest& report : alive) {
        if (!Report(report).ok()) qFatal("Report failed");
      }
      controller_->CheckLiveness();
    }
  }
  void StandStill(base::Duration time) { clock_.Advance(time); }

  absl::StatusOr<v1::RegisterNodeResponse> Register(const v1::Node& node) {
    return Register(*stub_, node);
  }
  static absl::StatusOr<v1::RegisterNodeResponse> Register(Stub& stub, const v1::Node& node) {
    v1::RegisterNodeRequest request;
    *request.mutable_node() = node;
    return rpc::Call(stub, &Stub::RegisterNode, request, kLimit);
  }
  /// Another connection from this host.
  [[nodiscard]] std::unique_ptr<Stub> Connect() const {
    return v1::NodeManagerService::NewStub(rpc::MakeChannel(server_->address()));
  }
  absl::StatusOr<v1::ReportNodeResponse> Report(const v1::ReportNodeRequest& request) {
    return rpc::Call(*stub_, &Stub::ReportNode, request, kLimit);
  }
  absl::StatusOr<v1::Workflow> Apply(const v1::Workflow& workflow) {
    v1::ApplyWorkflowRequest request;
    *request.mutable_workflow() = workflow;
    return rpc::Call(*stub_, &Stub::ApplyWorkflow, request, kLimit);
  }

 private:
  base::ManualClock clock_;
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<NodeManagerService> service_;
  std::unique_ptr<Stub> stub_;
};

inline v1::ReportNodeRequest ReadyReport(const std::string& id, std::uint64_t assignment_epoch = 0,
                                         std::uint64_t incarnation = 1) {
  v1::ReportNodeRequest report;
  report.set_node_id(id);
  report.set_incarnation(incarnation);
  report.set_state(v1::Node::READY);
  report.set_assignment_epoch(assignment_epoch);
  report.mutable_load()->set_utilization(0.5);
  return report;
}

// A stream that the test reads item by item. It gives up after a while when nothing comes.
template <typename Request, typename Item>
class Reader {
 public:
  using Method = std::unique_ptr<grpc::ClientReader<Item>> (Stub::*)(grpc::ClientContext*,
                                                                     const Request&);
  Reader(ServedNodeManager& server, Method method, const Request& request) {
    rpc::SetTimeout(context_, kLimit);
    reader_ = (server.stub().*method)(&context_, request);
  }
  ~Reader() {
    context_.TryCancel();
    if (!finished_) (void)Finish();
  }
  // Returns the next item for which `wanted` holds. It fails the test when the stream ends before.
  Item Next(const std::function<bool(const Item&)>& wanted = [](const Item&) { return true; }) {
    Item item;
    while (reader_->Read(&item)) {
      if (wanted(item)) return item;
    }
    qFatal("the stream ended: %s", base::Message(Finish()).c_str());
  }
  absl::Status Finish() {
    finished_ = true;
    Item item;
    while (reader_->Read(&item)) continue;
    return rpc::FromGrpc(reader_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<Item>> reader_;
  bool finished_ = false;
};
using RoutingReader = Reader<v1::WatchRoutingRequest, v1::RoutingTable>;
using AssignmentReader = Reader<v1::WatchAssignmentRequest, v1::Assignment>;
using ClusterReader = Reader<v1::WatchClusterRequest, v1::ClusterEvent>;

inline v1::WatchAssignmentRequest WatchAssignmentOf(const std::string& id,
                                                    std::uint64_t incarnation = 1) {
  v1::WatchAssignmentRequest request;
  request.set_node_id(id);
  request.set_incarnation(incarnation);
  return request;
}

}  // namespace onepiece::nodemanager
