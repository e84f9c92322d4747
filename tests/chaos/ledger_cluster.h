// The cluster of a ledger run: `onepiece up` with a configuration of the run, and what a nemesis
// needs to reach one of its processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/local/data_dir.h"
#include "tests/chaos/hosts.h"
#include "tests/chaos/ledger_schedule.h"

namespace onepiece::ledger {

/// What the faults of a run need of the machine.
struct Needs {
  bool mounts = false;  ///< /dev/shm and the databases' folders are file systems of the run.
  bool hosts = false;   ///< Databases, instances and proxies have a network namespace each.
  bool clocks = false;  ///< Every process has a wall clock that can be moved (libfaketime).
};
Needs NeedsOf(const std::vector<FaultKind>& faults);

/// Gives this process a /dev/shm and, with `hosts`, network namespaces of its own. They go with the
/// process. Comes before any thread is started.
///
/// Errors: FAILED_PRECONDITION (NO_PERMISSION: these need root).
absl::Status EnterOwnMachine(const Needs& needs);

/// Sets the size of a file system that EnterOwnMachine() or the cluster mounted. 0: as small as
/// what is in it, so that nothing more fits. It takes no memory from the machine.
absl::Status ResizeMount(const std::string& path, std::int64_t bytes);
inline constexpr char kSharedMemory[] = "/dev/shm";
inline constexpr std::int64_t kMountBytes = std::int64_t{3} << 30;

struct ClusterOptions {
  std::string folder;      ///< For configuration, data and logs. It exists.
  std::string bin_dir;     ///< The programs of the cluster.
  std::string plugin_dir;  ///< ledger_plugin.cc.
  Needs needs;
};

/// Two databases, two proxies, three NodeManagers, and two instances of each of two stages.
///
/// Ownership: owns the processes. They die with the thread that started them.
///
/// Threading: Start() and the destructor are one thread's, the rest may be used from any thread.
class Cluster {
 public:
  /// Errors: DEADLINE_EXCEEDED, FAILED_PRECONDITION, with the last complaint of the services.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(const ClusterOptions& options);
  /// Ends the cluster in order, or kills it.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  static const Population& population();
  /// The instances of the first stage come first among those of the population.
  static constexpr int kFirstStageInstances = 2;
  /// Returns what the supervisor says of the victim now. Its process has pid 0 while it does not
  /// run, and no address until it is ready.
  [[nodiscard]] local::ProcessRecord Find(Role role, int victim) const;
  /// Returns those that run and have an address.
  [[nodiscard]] std::vector<local::ProcessRecord> Ready(Role role) const;
  /// Whether every process of the role is ready.
  [[nodiscard]] bool IsWhole(Role role) const;

  [[nodiscard]] std::string DataDirOf(const std::string& node) const;
  [[nodiscard]] const std::string& folder() const { return options_.folder; }
  /// Where the cluster's programs are, without wrappers.
  [[nodiscard]] const std::string& bin_dir() const { return options_.bin_dir; }
  /// Stopped, the supervisor does not see that its processes end.
  absl::Status SignalSupervisor(int signal) const;
  /// Moves the node's wall clock to so many seconds from the true time. REQUIRES: Needs::clocks.
  absl::Status MoveClock(const std::string& node, std::int64_t by_s) const;
  /// The node's host. REQUIRES: Needs::hosts.
  [[nodiscard]] int HostOf(Role role, int victim) const;
  [[nodiscard]] chaos::Hosts& hosts() { return hosts_; }

  /// Returns what the supervisor has written of the cluster.
  [[nodiscard]] local::ClusterState State() const;

  /// Returns the ends of the services' logs.
  [[nodiscard]] std::string Logs() const;

 private:
  explicit Cluster(ClusterOptions options);
  absl::Status Prepare();
  absl::Status MakeLongIdentities() const;
  absl::Status WriteWrappers() const;
  absl::Status WaitUntilReady();
  void Stop() const;

  const ClusterOptions options_;
  const local::DataDir data_;
  chaos::Hosts hosts_;
  local::ProcessId supervisor_{};
};

}  // namespace onepiece::ledger
