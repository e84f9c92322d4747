// A NodeManager in this process that leads alone, with a clock that the test moves.
#pragma once

#include <QTemporaryDir>
#include <QtTest>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "cluster/rpc/server.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/controller.h"
#include "tests/eventually.h"

namespace onepiece::nodemanager {

/// The log, its server and the controller. The worlds of the tests put services on top.
///
/// Threading: thread-confined.
class LeaderWorld {
 public:
  LeaderWorld(const LeaderWorld&) = delete;
  LeaderWorld& operator=(const LeaderWorld&) = delete;

  base::ManualClock& clock() { return clock_; }
  Controller& controller() { return *controller_; }
  absl::Status Propose(const v1::Command& command) {
    return controller_->Propose(command).status();
  }
  absl::Status Send(const v1::ReportNodeRequest& report) {
    std::promise<absl::Status> answer;
    controller_->Report(report, [&](const absl::Status& status) { answer.set_value(status); });
    return answer.get_future().get();
  }
  /// What the answer to the node's next report says.
  [[nodiscard]] v1::ReportNodeResponse AnswerTo(const std::string& node_id) const {
    v1::ReportNodeResponse response;
    controller_->FillIn(node_id, response);
    return response;
  }

 protected:
  LeaderWorld() = default;
  ~LeaderWorld() = default;

  /// Leads the log of this world with a new controller. `version` is the highest that the leader's
  /// program applies.
  void Lead(ControllerOptions options, std::uint32_t version = kCommandVersion) {
    ReplicatedLogOptions log_options{.data_dir = dir_.path().toStdString(), .name = "nm"};
    log_options.paxos.version = version;
    log_ = std::move(ReplicatedLog::Open(log_options)).value();
    options.cluster_id = [this] { return log_->cluster_id(); };
    controller_ = std::make_unique<Controller>(*log_, clock_, std::move(options));
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
  /// Nobody leads any more. Services over the controller go after StopLog() and before this.
  void Leave() {
    controller_.reset();
    log_.reset();
  }
  void StopLog() {
    server_->Shutdown(std::chrono::seconds(5));
    log_->Stop();
  }

 private:
  QTemporaryDir dir_;
  base::ManualClock clock_;
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace onepiece::nodemanager
