// Starts three servers that agree, ours or etcd's, asks them who leads, and kills them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/local/process.h"
#include "tests/bench/consensus/load.h"
#include "tests/bench/consensus/watchers.h"

namespace onepiece::bench {

/// What one server says about itself.
struct MemberView {
  bool leads = false;
  std::uint64_t index = 0;  ///< The last index of its log.
};

/// Describes the three servers.
struct GroupPlan {
  std::vector<std::vector<std::string>>
      arguments;  ///< The arguments of each server, beginning with its program.
  std::vector<std::string> addresses;  ///< The addresses for clients.
  std::function<absl::StatusOr<MemberView>(const std::string& address)> view;
  WriteCall write;
  WatchCall watch;  ///< Tells of every write, or of the newest state after several.
};

/// Three onepiece-nodemanager that keep their data under `dir`. A write is an ApplyWorkflow whose
/// workflow has 256 bytes. A watch is that of a node: the routing table of the set, which holds the
/// workflows, in deltas.
///
/// Errors: NOT_FOUND.
absl::StatusOr<GroupPlan> PlanNodeManagers(const std::string& dir);
/// Three etcd with their defaults. A write is a Put of 256 bytes. A watch is that of the range of
/// all keys that are written.
///
/// Errors: NOT_FOUND.
absl::StatusOr<GroupPlan> PlanEtcd(const std::string& dir);

/// Threading: thread-confined; the servers end with the thread that started them.
class Group {
 public:
  /// Starts the servers and waits until one leads and all have its log.
  ///
  /// Errors: DEADLINE_EXCEEDED, those of local::Spawn.
  static absl::StatusOr<std::unique_ptr<Group>> Start(GroupPlan plan, const std::string& dir);
  ~Group();

  /// `watchers` clients listen to the leader meanwhile.
  absl::StatusOr<Load> Measure(int clients, int watchers, base::Duration warm_up,
                               base::Duration window);
  /// Kills the leader (SIGKILL), measures the seconds until another server has taken a write, and
  /// restarts the killed one.
  absl::StatusOr<double> FailOver();

  [[nodiscard]] const std::vector<std::string>& addresses() const { return plan_.addresses; }
  [[nodiscard]] std::int32_t pid(std::size_t member) const { return processes_[member].pid; }
  /// Waits until one member leads and all have its log.
  ///
  /// Errors: DEADLINE_EXCEEDED.
  absl::StatusOr<std::size_t> WaitUntilSettled() const;
  absl::Status StartMember(std::size_t member);
  void KillMember(std::size_t member);  ///< SIGKILL.

 private:
  Group(GroupPlan plan, const std::string& dir) : plan_(std::move(plan)), dir_(dir) {}
  /// Returns the leader if all three answer and their logs are equally long.
  [[nodiscard]] std::optional<std::size_t> SettledLeader() const;

  const GroupPlan plan_;
  const std::string dir_;
  std::vector<local::ProcessId> processes_;
};

}  // namespace onepiece::bench
