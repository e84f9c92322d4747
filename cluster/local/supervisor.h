// Runs an embedded cluster: it starts the service processes, keeps them running, and ends them.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/plan.h"
#include "cluster/local/silence.h"

namespace onepiece::local {

/// Receives SIGTERM, SIGINT, SIGHUP and SIGCHLD through a descriptor. Construct it before any
/// thread starts, because it blocks these signals and threads inherit that.
///
/// Threading: used by one thread.
class SupervisorSignals {
 public:
  SupervisorSignals();
  ~SupervisorSignals();
  SupervisorSignals(const SupervisorSignals&) = delete;
  SupervisorSignals& operator=(const SupervisorSignals&) = delete;
  /// Waits for a signal or `limit`. Returns true once SIGTERM, SIGINT or SIGHUP has come, and from
  /// then on.
  bool WaitFor(base::Duration limit);

 private:
  int fd_;
  bool asked_to_end_ = false;
};

struct Progress {
  int ready = 0;
  int total = 0;
  std::string what;  ///< A text for people: "proxy-1 is up".
};

/// What the NodeManager says about the nodes, by process id.
struct Readiness {
  /// The nodes that take work, or wait in the idle pool of a cluster whose stages are all served.
  std::set<std::int32_t> ready;
  std::map<std::int32_t, std::string> failed;  ///< Nodes that cannot load their stage, and why.
  std::vector<std::string> vacant;  ///< NodeManager seats whose replica has not joined yet.
  SilentNodes silent;               ///< Nodes that count as dead.
};

struct SupervisorOptions {
  DataDir dir;
  ClusterPlan plan;
  /// Is called at every step of Start(). Returns false to give up, because nobody waits for this
  /// cluster any more.
  std::function<bool(const Progress&)> on_progress;
  /// By default it asks the NodeManager. While the cluster runs, a thread of its own calls it.
  std::function<absl::StatusOr<Readiness>(const std::vector<std::string>& nodemanagers)> readiness;
  /// The limit for the processes to write their ready files, and for the nodes to become READY.
  base::Duration start_limit = base::Scaled(std::chrono::seconds(120));
  /// The limit for processes to end after SIGTERM. SIGKILL follows.
  base::Duration stop_limit = base::Scaled(std::chrono::seconds(10));
  base::Duration first_backoff = std::chrono::milliseconds(200);
  base::Duration max_backoff = std::chrono::seconds(5);
  /// When a process that runs, and that the NodeManager counts as dead, is killed and started
  /// again.
  SilenceLimits silence = {.first = base::Scaled(std::chrono::seconds(30)),
                           .longest = base::Scaled(std::chrono::minutes(10))};
};

/// The supervisor of one cluster.
/// REQUIRES: the caller holds the data directory's lock.
///
/// Ownership: owns the child processes. They die with the thread that called Start(), whatever
/// kills it.
/// Threading: used by one thread.
/// Blocking: Start() until the cluster is ready, Run() until a signal, Stop() for at most twice
/// stop_limit.
class Supervisor {
 public:
  Supervisor(SupervisorOptions options, SupervisorSignals& signals);
  /// Calls Stop().
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Starts every process and waits until the cluster takes jobs. After an error everything has
  /// been stopped and cleaned up.
  ///
  /// Errors: FAILED_PRECONDITION (START_FAILED: a process ended, with its last complaint),
  /// INVALID_ARGUMENT (BAD_CONFIG: a process ended because of its configuration),
  /// DEADLINE_EXCEEDED, CANCELLED (a signal came, or on_progress returned false).
  absl::Status Start();
  /// Restarts processes that end, and kills those that stay silent (SilenceJudge), with backoff,
  /// until a signal asks the cluster to end.
  void Run();
  /// Ends every process by SIGTERM, then SIGKILL, the NodeManagers last. Cleans up the data
  /// directory. A second call has no effect.
  void Stop();
  [[nodiscard]] const ClusterState& state() const { return state_; }

 private:
  struct Child {
    NodePlan plan;
    ProcessId process;  ///< pid 0 while it does not run.
    bool ready = false;
    int restarts = 0;
    base::MonotonicTime started{};
    base::MonotonicTime restart_at{};
    base::Duration backoff{};
  };

  absl::Status StartAll();
  absl::Status Launch(Child& child);
  absl::Status WaitUntilReady(std::size_t first, std::size_t end);
  absl::Status WaitUntilRouted();
  absl::Status Turn(base::Duration wait);
  bool Report(std::string what);
  /// Reaps one child that has ended and returns it, or nullptr.
  Child* Reap();
  bool ReadReadyFile(Child& child);
  /// Returns the index of the first node that is not a NodeManager.
  [[nodiscard]] std::size_t first_node() const { return options_.plan.nodemanagers; }
  absl::Status EndedEarly(const Child& child) const;
  void StopChildren(std::size_t first, std::size_t end);
  void Restart(Child& child);
  void KillTheSilent();
  void SaveState();
  void BoundLogs();

  SupervisorOptions options_;
  SupervisorSignals& signals_;
  std::vector<Child> children_;
  ClusterState state_;
  base::MonotonicTime logs_checked_{};
  int last_exit_ = 0;  ///< The wait status of the child that Reap() returned last.
  bool stopped_ = true;
  SilenceJudge silence_;
  base::MonotonicTime ask_at_{};  ///< When the NodeManager is next asked who is silent.
  // Its thread ends with the supervisor. Nobody waits for it before.
  std::future<absl::StatusOr<Readiness>> asked_;
};

/// Returns the message of the last error in a service's log, else its last line. Empty when there
/// is none.
std::string LastComplaint(const std::string& log_path);

}  // namespace onepiece::local
