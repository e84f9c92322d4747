// Three NodeManager replicas as real processes, each on a host of its own.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/local/process.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "tests/identities.h"

namespace onepiece::chaos {

/// Ownership: owns the processes. They die with the thread that started them.
///
/// Threading: thread-confined.
class Group {
 public:
  static constexpr int kReplicas = 3;
  using Statuses = std::array<std::optional<v1::ReplicaStatus>, kReplicas>;

  /// `folder` holds data, configurations and logs.
  explicit Group(std::string folder);
  /// Kills the processes with SIGKILL.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Returns host:port of every replica.
  static std::vector<std::string> Addresses();

  /// Starts a replica. The first one begins the group if its folder is empty.
  absl::Status Start(int replica);
  /// Sends SIGKILL and waits until the process is gone.
  void Kill(int replica);
  void Signal(int replica, int signal);

  /// Asks every replica for its status. Keeps what must never happen for complaints(): a ballot
  /// that goes back, states that differ at one index, a process that ended by itself.
  Statuses Look();
  /// Returns the leader of the highest round, or nullopt if no replica says that it leads.
  std::optional<int> Leader();
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }
  /// Returns the highest round seen, which is an upper bound for the number of elections.
  [[nodiscard]] std::uint64_t round() const;

  /// Returns whether all seats are occupied and one replica leads.
  bool IsWhole();
  /// Returns whether every replica has applied the same slots.
  bool IsEven();
  /// Returns the ends of the replicas' logs, for a failed test's report.
  [[nodiscard]] std::string Logs() const;

 private:
  struct Member {
    std::optional<local::ProcessId> process;
    std::unique_ptr<v1::ConsensusService::Stub> stub;
    std::uint64_t round = 0;
  };
  [[nodiscard]] std::string Path(int replica) const;
  void Check(int replica, const v1::ReplicaStatus& status);

  const std::string folder_;
  const testing::TestAuthority authority_;
  std::array<Member, kReplicas> members_;
  std::map<std::uint64_t, std::uint32_t> hashes_;  // Hashes of the state, by index.
  std::vector<std::string> complaints_;
};

}  // namespace onepiece::chaos
