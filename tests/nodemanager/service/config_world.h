// A NodeManager in this process whose leaders come with files of their own, over one log.
#pragma once

#include <QtTest>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/rpc/status.h"
#include "nodemanager/service/config_service.h"
#include "tests/nodemanager/service/leader_world.h"
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
class ConfigWorld : public LeaderWorld {
 public:
  explicit ConfigWorld(const LeaderFiles& files = {}) { Open(files); }
  ~ConfigWorld() { Close(); }

  /// Puts another leader over the same log.
  void FailOver(const LeaderFiles& files) {
    Close();
    Open(files);
  }

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
  absl::Status Report(const std::string& id, const v1::NodeLoad& load = {}) {
    v1::ReportNodeRequest report;
    report.set_node_id(id);
    report.set_incarnation(1);
    report.set_state(v1::Node::READY);
    *report.mutable_load() = load;
    return Send(report);
  }
  /// Lets time pass in steps of the failure detector. The nodes of `alive` report in each.
  void Pass(base::Duration time, const std::vector<std::string>& alive = {}) {
    constexpr std::chrono::milliseconds kStep(100);
    for (base::Duration passed{}; passed < time; passed += kStep) {
      clock().Advance(kStep);
      for (const std::string& id : alive) {
        if (!Report(id).ok()) qFatal("Report failed");
      }
      controller().CheckLiveness();
      controller().ForgetDead();
    }
  }
  /// Nullopt when the node is not known.
  std::optional<v1::Node::State> StateOf(const std::string& id) {
    std::optional<v1::Node::State> found;
    controller().Read([&](const StateMachine& state) {
      if (state.nodes().contains(id)) found = state.nodes().at(id).node().state();
    });
    return found;
  }

 private:
  void Open(const LeaderFiles& files) {
    v1::ElasticityConfig elasticity;
    elasticity.set_policy(files.policy);
    Lead({.dead_after = files.dead_after,
          .workflows = files.workflows,
          .elasticity = elasticity,
          .author = files.author},
         files.version);
    service_ = std::make_unique<ConfigService>(controller(), files.read_only);
  }
  void Close() {
    StopLog();
    service_.reset();
    Leave();
  }

  std::unique_ptr<ConfigService> service_;
};

}  // namespace onepiece::nodemanager
