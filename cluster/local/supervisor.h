// Runs an embedded cluster: starts the service processes, keeps them running, ends them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/plan.h"

namespace onepiece::local {

/// SIGTERM, SIGINT, SIGHUP and SIGCHLD as a descriptor to wait on. Construct before any thread
/// starts. Thread-confined.
class SupervisorSignals {
 public:
  SupervisorSignals();
  ~SupervisorSignals();
  SupervisorSignals(const SupervisorSignals&) = delete;
  SupervisorSignals& operator=(const SupervisorSignals&) = delete;
  /// Waits for a signal or `limit`. True once SIGTERM, SIGINT or SIGHUP has come; it stays true.
  bool WaitFor(base::Duration limit);

 private:
  int fd_;
  bool asked_to_end_ = false;
};

struct Progress {
  int ready = 0;
  int total = 0;
  std::string what;  ///< For people: "proxy-1 is ready".
};

/// What the NodeManager says of the nodes, by process id.
struct Readiness {
  std::set<std::int32_t> ready;  ///< They take work, or wait in the idle pool of a cluster whose
                                 ///< stages are all served.
  std::map<std::int32_t, std::string> failed;  ///< They cannot load their stage, and why.
  std::vector<std::string> vacant;  ///< NodeManager seats whose replica has not joined yet.
};

struct SupervisorOptions {
  DataDir dir;
  ClusterPlan plan;
  /// Told of every step of Start(); false: give up (nobody waits for this cluster any more).
  std::function<bool(const Progress&)> on_progress;
  /// Default: asks the NodeManager.
  std::function<absl::StatusOr<Readiness>(const std::vector<std::string>& nodemanagers)> readiness;
  /// For each process to write its ready file, and for the nodes to become READY.
  base::Duration start_limit = base::Scaled(std::chrono::seconds(120));
  /// For processes to end after SIGTERM; then SIGKILL.
  base::Duration stop_limit = base::Scaled(std::chrono::seconds(10));
  base::Duration first_backoff = std::chrono::milliseconds(200);
  base::Duration max_backoff = std::chrono::seconds(5);
};

/// The supervisor of one cluster. REQUIRES: the caller holds the data directory's lock.
///
/// Ownership  Owns the child processes: they die with the thread that called Start, whatever kills
/// it. Threading  Thread-confined. Blocking   Start until the cluster is ready, Run until a signal,
/// Stop for at most twice stop_limit.
class Supervisor {
 public:
  Supervisor(SupervisorOptions options, SupervisorSignals& signals);
  /// Stop().
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Starts every process and waits until the cluster takes jobs. On an error everything has been
  /// stopped and cleaned up. Errors: FAILED_PRECONDITION (START_FAILED: a process ended, with what
  /// it said last), INVALID_ARGUMENT (BAD_CONFIG: it ended because of its configuration),
  /// DEADLINE_EXCEEDED, CANCELLED (signal, or on_progress said so).
  absl::Status Start();
  /// Restarts processes that end, with backoff, until a signal asks for the end.
  void Run();
  /// Ends every process (SIGTERM, then SIGKILL; the NodeManagers last) and cleans the data
  /// directory up. Idempotent.
  void Stop();
  [[nodiscard]] const ClusterState& state() const { return state_; }

 private:
  struct Child {
    NodePlan plan;
    ProcessId process;  ///< pid 0: not running.
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
  /// Reaps children that ended and returns the first of them.
  Child* Reap();
  bool ReadReadyFile(Child& child);
  /// The first of the nodes that are not NodeManagers.
  [[nodiscard]] std::size_t first_node() const { return options_.plan.nodemanagers; }
  absl::Status EndedEarly(const Child& child) const;
  void StopChildren(std::size_t first, std::size_t end);
  void Restart(Child& child);
  void SaveState();
  void BoundLogs();

  SupervisorOptions options_;
  SupervisorSignals& signals_;
  std::vector<Child> children_;
  ClusterState state_;
  base::MonotonicTime logs_checked_{};
  int last_exit_ = 0;  ///< Wait status of the child that Reap returned.
  bool stopped_ = true;
};

/// The message of the last error (else the last line) in a service's log; empty when there is none.
std::string LastComplaint(const std::string& log_path);

}  // namespace onepiece::local
