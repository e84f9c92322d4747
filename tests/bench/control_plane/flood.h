// A host that registers far more often than any host should.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/shutdown.h"
#include "cluster/local/process.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::bench {

/// Sends registrations to one replica from its beginning to Stop(). Of two, one is a node that
/// begins anew each time, and would cost a commit and a new table. The other one has an address
/// that nobody can reach. It never has more than kUnderWay calls under way, so a leader that
/// answers slowly gets fewer.
///
/// Ownership: owns its thread and its connection.
/// Threading: thread-confined.
class RegistrationFlood {
 public:
  static constexpr int kUnderWay = 4000;
  struct Counts {
    std::uint64_t sent = 0, answered = 0, taken = 0;
    double seconds = 0;
  };

  RegistrationFlood(const std::string& address, int per_second);
  ~RegistrationFlood() { (void)Stop(); }
  RegistrationFlood(const RegistrationFlood&) = delete;
  RegistrationFlood& operator=(const RegistrationFlood&) = delete;

  /// Ends, and waits for the answers to what was sent. Idempotent.
  Counts Stop();

 private:
  void Run(const std::stop_token& stop, int per_second);
  void Send(std::uint64_t number);

  rpc::Server server_{rpc::ServerOptions{}};  // Of the node that begins anew.
  std::unique_ptr<v1::NodeManagerService::Stub> stub_;
  const base::MonotonicTime begun_;
  std::atomic<std::uint64_t> sent_{0}, answered_{0}, taken_{0};
  double seconds_ = 0;
  std::jthread thread_;
};

/// Floods `address` until a signal comes, and prints the counts to stdout. For a process of its
/// own.
int RunFlood(const std::string& address, int per_second, base::ShutdownSignals& signals);

/// A process that runs RunFlood(), like another host.
///
/// Threading: thread-confined; the process ends with the thread that started it.
class FloodProcess {
 public:
  /// Errors: those of local::Spawn.
  static absl::StatusOr<std::unique_ptr<FloodProcess>> Start(const std::string& address,
                                                             int per_second,
                                                             const std::string& dir);
  /// Kills the process.
  ~FloodProcess();
  FloodProcess(const FloodProcess&) = delete;
  FloodProcess& operator=(const FloodProcess&) = delete;

  /// Ends the process, which waits for the answers to what it sent.
  /// REQUIRES: it is called once.
  absl::StatusOr<RegistrationFlood::Counts> Stop();

 private:
  FloodProcess(local::ProcessId id, std::string output) : id_(id), output_(std::move(output)) {}

  const local::ProcessId id_;
  const std::string output_;
  bool ended_ = false;
};

}  // namespace onepiece::bench
