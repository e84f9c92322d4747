// A NodeManager in this process whose leaders come with files of their own, over one log.
#pragma once

#include <QTemporaryDir>
#include <QtTest>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/config_service.h"
#include "nodemanager/service/controller.h"
#include "tests/eventually.h"
#include "tests/nodemanager/state/builders.h"

namespace onepiece::nodemanager {

/// What the files of one leader say, and what its program knows.
struct LeaderFiles {
  std::string policy = "static";
  base::Duration dead_after = std::chrono::seconds(3);
  std::vector<v1::Workflow> workflows;
  std::string author = "files:nm-1";
  std::uint32_t version = kCommandVersion;  ///< The highest that the program applies.
  bool read_only = false;
};

/// A leader with a clock that the test moves.
///
/// Threading: thread-confined.
class ConfigWorld {
 public:
  explicit ConfigWorld(const LeaderFiles& files = {}) { Open(files); }
  ~ConfigWorld() { Close(); }

  /// Puts another leader over the same log.
  void FailOver(const LeaderFiles& files) {
    Close();
    Open(files);
  }

  base::ManualClock& clock() { return clock_; }
  Controller& controller() { return *controller_; }

  absl::StatusOr<v1::ConfigRevision> Get(std::uint64_t revision = 0) {
    v1::GetConfigRequest request;
    request.set_revision(revision);
    v1::ConfigRevision response;
    const grpc::Status status = service_->GetConfig(nullptr, &request, &response);
    if (!status.ok()) return rpc::FromGrpc(status);
    return response;
  }
  absl::StatusOr<v1::ListConfigRevisionsResponse> List(int size = 0,
                                                       const std::string& token = "") {
    v1::ListConfigRevisionsRequest request;
    request.set_page_size(size);
    request.set_page_token(token);
    v1::ListConfigRevisionsResponse response;
    const grpc::Status status = service_->ListConfigRevisions(nullptr, &request, &response);
    if (!status.ok()) return rpc::FromGrpc(status);
    return response;
  }
  absl::StatusOr<v1::ApplyConfigResponse> Apply(const v1::ApplyConfigRequest& request) {
    v1::ApplyConfigResponse response;
    const grpc::Status status = service_->ApplyConfig(nullptr, &request, &response);
    if (!status.ok()) return rpc::FromGrpc(status);
    return response;
  }
  absl::StatusOr<v1::ApplyConfigResponse> Apply(const v1::ClusterConfig& config) {
    v1::ApplyConfigRequest request;
    *request.mutable_config() = config;
    request.set_actor("operator:ann");
    return Apply(request);
  }
  absl::Status Propose(const v1::Command& command) {
    return controller_->Propose(command).status();
  }

  absl::Status Report(const std::string& id) {
    v1::ReportNodeRequest report;
    report.set_node_id(id);
    report.set_incarnation(1);
    report.set_state(v1::Node::READY);
    std::promise<absl::Status> answer;
    controller_->Report(report, [&](const absl::Status& status) { answer.set_value(status); });
    return answer.get_future().get();
  }
  /// Lets time pass in steps of the failure detector. The nodes of `alive` report in each.
  void Pass(base::Duration time, const std::vector<std::string>& alive = {}) {
    constexpr std::chrono::milliseconds kStep(100);
    for (base::Duration passed{}; passed < time; passed += kStep) {
      clock_.Advance(kStep);
      for (const std::string& id : alive) {
        if (!Report(id).ok()) qFatal("Report failed");
      }
      controller_->CheckLiveness();
      controller_->ForgetDead();
    }
  }
  /// Nullopt when the node is not known.
  std::optional<v1::Node::State> StateOf(const std::string& id) {
    std::optional<v1::Node::State> found;
    controller_->Read([&](const StateMachine& state) {
      if (state.nodes().contains(id)) found = state.nodes().at(id).node().state();
    });
    return found;
  }

 private:
  void Open(const LeaderFiles& files) {
    ReplicatedLogOptions options{.data_dir = dir_.path().toStdString(), .name = "nm"};
    options.paxos.version = files.version;
    log_ = std::move(ReplicatedLog::Open(options)).value();
    v1::ElasticityConfig elasticity;
    elasticity.set_policy(files.policy);
    controller_ = std::make_unique<Controller>(
        *log_, clock_,
        ControllerOptions{.dead_after = files.dead_after,
                          .cluster_id = [this] { return log_->cluster_id(); },
                          .workflows = files.workflows,
                          .elasticity = elasticity,
                          .author = files.author});
    service_ = std::make_unique<ConfigService>(*controller_, files.read_only);
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    log_->OnRole([this](bool) { controller_->OnRole(); });
    server_->AddService(log_->service());
    if (!server_->Start().ok()) qFatal("Start failed");
    if (!log_->Start(server_->address()).ok()) qFatal("the log does not start");
    if (!testing::Eventually(std::chrono::seconds(20),
                             [this] { return controller_->TakeOver().ok(); }))
      qFatal("nobody leads");
    controller_->CheckLiveness();
  }
  void Close() {
    server_->Shutdown(std::chrono::seconds(5));
    log_->Stop();
    service_.reset();
    controller_.reset();
    log_.reset();
  }

  QTemporaryDir dir_;
  base::ManualClock clock_;
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<ConfigService> service_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace onepiece::nodemanager
