// The NodeManager's decisions around its log: liveness, assignment, telemetry and waking of
// watchers.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "nodemanager/state/log.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Ownership  Borrows the log and the clock; owns the failure detector's thread.
/// Threading  Thread-safe, except Start() and Stop(): one thread.
/// Blocking   What proposes waits for the log (the disk); the rest only for short locks.
class Controller {
 public:
  struct Options {
    base::Duration dead_after =
        std::chrono::seconds(3);  ///< Without a report for so long: dead. Not scaled here.
  };
  /// What happened to proposals since the start.
  struct Counters {
    std::uint64_t applied = 0, refused = 0, failed = 0, reports = 0;
  };

  Controller(Log& log, base::Clock& clock, Options options);
  ~Controller() { Stop(); }
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// Gives a new cluster its id (`wanted`, else a random one) and secret. Errors:
  /// FAILED_PRECONDITION (OTHER_CLUSTER) when the log belongs to another cluster than `wanted`;
  /// those of the log.
  absl::Status Initialize(const std::string& wanted);
  /// Starts the failure detector. Every node gets a fresh period of grace: while this process was
  /// away nobody could report to it.
  void Start();
  /// Ends the detector. Idempotent.
  void Stop();

  /// Stamps and proposes a command, then brings assignments up to date and wakes watchers. Errors:
  /// what the state machine refused with, or those of the log.
  absl::StatusOr<v1::CommandResult> Propose(v1::Command command);
  /// Takes a heartbeat: telemetry stays in memory, a changed state is proposed. Returns the routing
  /// epoch. Errors: NOT_FOUND (NODE_UNKNOWN), ABORTED (STALE_INCARNATION), INVALID_ARGUMENT
  /// (BAD_NODE_STATE), those of the log.
  absl::StatusOr<std::uint64_t> Report(const v1::ReportNodeRequest& request);
  /// Declares nodes dead that have not reported in time; the detector calls it ten times in that
  /// period. When the last call is longer ago than half of it (this process stood still), everyone
  /// gets fresh grace instead.
  void CheckLiveness();

  void Read(const std::function<void(const StateMachine&)>& read) const { log_.Read(read); }
  /// Adds what the last report said. Takes no lock of the log.
  void AddTelemetry(v1::Node& node) const;

  /// Grows with every applied change.
  [[nodiscard]] std::uint64_t version() const { return version_.load(); }
  /// Waits in real time until version() is not `seen`, `stop` is requested or `deadline` (of the
  /// system's clock) passes.
  void WaitForChange(std::uint64_t seen, const std::stop_token& stop,
                     base::MonotonicTime deadline) const;
  [[nodiscard]] Counters counters() const;

 private:
  struct LastReport {
    std::uint64_t incarnation = 0;
    base::MonotonicTime at{};
    std::optional<base::WallTime> wall;  // None before the first report.
    v1::NodeLoad load;
  };

  absl::StatusOr<v1::CommandResult> ProposeAlone(const v1::Command& command);
  void TakeHeartbeat(const v1::ReportNodeRequest& request);
  void Reassign();
  void Notify();
  void Detect(const std::stop_token& stop);

  Log& log_;
  base::Clock& clock_;
  const Options options_;

  std::mutex change_mutex_;  // Held from a command to the assignments that follow from it.
  mutable std::mutex reports_mutex_;
  std::map<std::string, LastReport> reports_;      // Live nodes only. Guarded by reports_mutex_.
  std::optional<base::MonotonicTime> last_check_;  // Guarded by reports_mutex_.

  mutable std::mutex wait_mutex_;
  mutable std::condition_variable_any changed_;
  std::atomic<std::uint64_t> version_{1};
  std::atomic<std::uint64_t> applied_{0}, refused_{0}, failed_{0}, reports_taken_{0};
  std::jthread detector_;
};

}  // namespace onepiece::nodemanager
