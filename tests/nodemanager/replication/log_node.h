// A whole replica in this process, over loopback gRPC and with real files.
#pragma once

#include <QDir>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/server.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/consensus_service.h"
#include "nodemanager/service/replica_health.h"
#include "tests/eventually.h"

namespace onepiece::nodemanager {

const base::Duration kNodeLimit = base::Scaled(std::chrono::seconds(30));

/// One replica with its server. It can be ended, and started again on the same folder and address.
class Node {
 public:
  explicit Node(ReplicatedLogOptions options) : options_(std::move(options)) {
    for (base::Duration* duration :
         {&options_.paxos.heartbeat, &options_.paxos.election_min, &options_.paxos.election_max,
          &options_.paxos.lease, &options_.propose_timeout}) {
      *duration = base::Scaled(*duration);
    }
  }
  ~Node() { End(); }

  absl::Status Open() {
    auto log = ReplicatedLog::Open(options_);
    if (!log.ok()) return log.status();
    log_ = *std::move(log);
    consensus_ = std::make_unique<ConsensusService>(*log_);
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{.listen = address_});
    server_->AddService(log_->service());
    server_->AddService(*consensus_);
    const auto port = server_->Start();
    if (!port.ok()) return port.status();
    address_ = server_->address();
    const auto tell = [server = server_.get()](ReplicaFitness fitness) {
      SetHealth(fitness, [&](const std::string& service, bool serving) {
        server->SetHealth(service,
                          serving ? rpc::ServingStatus::kServing : rpc::ServingStatus::kNotServing);
      });
    };
    tell({});
    log_->OnFitness(tell);
    return absl::OkStatus();
  }
  absl::Status Start() {
    const absl::Status status = Open();
    return status.ok() ? log_->Start(address_) : status;
  }
  void End() {
    if (log_ != nullptr) log_->Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::seconds(5));
    server_.reset();
    consensus_.reset();
    log_.reset();
  }
  void Move() { address_ = "127.0.0.1:0"; }
  void Wipe() const { QDir(QString::fromStdString(options_.data_dir)).removeRecursively(); }

  ReplicatedLog& log() { return *log_; }
  ReplicatedLogOptions& options() { return options_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] paxos::Seat seat() const { return {.name = options_.name, .address = address_}; }
  [[nodiscard]] bool Leads() const { return log_ != nullptr && log_->Term().ok(); }
  [[nodiscard]] bool WaitUntilLeading() const {
    return testing::Eventually(kNodeLimit, [&] { return Leads(); });
  }
  /// Proposes the command until it is known to be applied.
  [[nodiscard]] bool Propose(v1::Command command) {
    if (command.request_id().empty()) command.set_request_id(absl::StrCat("r", ++requests_));
    return testing::Eventually(kNodeLimit, [&] { return log_->Propose(command).ok(); });
  }
  [[nodiscard]] std::string State() const {
    std::string bytes;
    log_->Read([&](const StateMachine& machine) { bytes = machine.Serialize(); });
    return bytes;
  }
  [[nodiscard]] bool Knows(const std::string& node_id) const {
    bool known = false;
    log_->Read([&](const StateMachine& machine) { known = machine.nodes().contains(node_id); });
    return known;
  }

 private:
  static inline int requests_ = 0;
  ReplicatedLogOptions options_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<ConsensusService> consensus_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace onepiece::nodemanager
