// The NodeManager's decisions around its log: liveness, assignment, plans and waking of watchers.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "nodemanager/service/elastic_controller.h"
#include "nodemanager/service/node_reports.h"
#include "nodemanager/state/log.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Only the leader of the replicas decides anything; the others refuse what they are asked.
///
/// Ownership  Borrows the log and the clock; owns the thread of its duties.
/// Threading  Thread-safe, except Start() and Stop(): one thread.
/// Blocking   What proposes waits for the log (the disks); the rest only for short locks.
class Controller {
 public:
  struct Options {
    base::Duration dead_after =
        std::chrono::seconds(3);  ///< Without a report for so long: dead. Not scaled here.
    /// The id that a new cluster gets. REQUIRES: set.
    std::function<std::string()> cluster_id;
    /// A new leader applies those whose application the state neither has nor had: what was
    /// acknowledged since holds.
    std::vector<v1::Workflow> workflows;
    /// When instances move by themselves. REQUIRES: CompleteElasticity and MakePolicy take it.
    v1::ElasticityConfig elasticity;
    /// Told how long each proposal that succeeded took; called on the proposer's thread.
    std::function<void(base::Duration)> on_commit;
  };
  /// What happened to proposals since the start.
  struct Counters {
    std::uint64_t applied = 0, refused = 0, failed = 0, reports = 0;
    /// Moves whose end this replica has proposed.
    std::uint64_t moves_done = 0, moves_reverted = 0, moves_failed = 0;
  };

  Controller(Log& log, base::Clock& clock, Options options);
  ~Controller() { Stop(); }
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// Starts the thread that takes over when this replica leads, and then looks for dead nodes.
  void Start();
  /// Ends the thread. Idempotent.
  void Stop();
  /// The log began or ceased to lead: wakes the thread and all watchers. Never blocks.
  void OnRole();
  /// What a new leader does before it answers anybody; the thread calls it. Gives a new cluster its
  /// id and secret, applies Options::workflows (one that is refused is logged and left out), and
  /// gives every node a fresh period of grace: while nobody led, nobody could report. Errors: those
  /// of the log. The thread tries again soon, and steps down when it fails time after time.
  absl::Status TakeOver();
  /// This leadership. Errors: UNAVAILABLE (NOT_LEADER), also before TakeOver() has ended.
  [[nodiscard]] absl::StatusOr<std::uint64_t> Term() const;

  /// Stamps and proposes a command, then brings assignments up to date and wakes watchers. Errors:
  /// what the state machine refused with, or those of the log.
  absl::StatusOr<v1::CommandResult> Propose(v1::Command command);
  /// Takes a heartbeat: telemetry stays in memory, a changed state is proposed. Returns the routing
  /// epoch. Errors: NOT_FOUND (NODE_UNKNOWN), ABORTED (STALE_INCARNATION), INVALID_ARGUMENT
  /// (BAD_NODE_STATE), those of the log.
  absl::StatusOr<std::uint64_t> Report(const v1::ReportNodeRequest& request);
  /// Declares nodes dead that have not reported in time; the thread calls it ten times in that
  /// period. When the last call is longer ago than half of it (this process stood still), everyone
  /// gets fresh grace instead. Does nothing unless this replica leads.
  void CheckLiveness();

  /// Brings plans under way further, and starts those that the policy wants; the thread calls it
  /// ten times in dead_after, and at least three times a second. Does nothing unless this replica
  /// leads.
  void StepPlans();

  /// The state as this replica knows it, be it old.
  void Read(const std::function<void(const StateMachine&)>& read) const { log_.Read(read); }
  /// OK: what `read` saw was the newest state at a moment during this call. A `read` that returns
  /// false found nothing that it will use; then nothing is asked. Errors: those of Term() and
  /// Log::Confirm().
  absl::Status ReadNewest(const std::function<bool(const StateMachine&)>& read);
  /// Adds to a node of `state` what its last report said, and what it is about.
  void AddTelemetry(const StateMachine& state, v1::Node& node) const;
  /// Copied, so that nobody waits for what is computed of it: the state as this replica knows it,
  /// be it old, and what has been reported.
  [[nodiscard]] ElasticInput Input() const;
  /// The same, of the newest state. Errors: those of ReadNewest().
  [[nodiscard]] absl::StatusOr<ElasticInput> NewestInput();
  [[nodiscard]] const ElasticController& elastic() const { return elastic_; }
  /// What the proxy admits by; empty for nodes that are none, and while there are no workflows.
  [[nodiscard]] std::optional<v1::Capacity> CapacityFor(const std::string& node_id) const;
  [[nodiscard]] const base::Clock& clock() const { return clock_; }

  /// Grows with every applied change.
  [[nodiscard]] std::uint64_t version() const { return version_.load(); }
  /// Waits in real time until version() is not `seen`, `stop` is requested or `deadline` (of the
  /// system's clock) passes.
  void WaitForChange(std::uint64_t seen, const std::stop_token& stop,
                     base::MonotonicTime deadline) const;
  [[nodiscard]] Counters counters() const;

 private:
  absl::StatusOr<v1::CommandResult> ProposeAlone(v1::Command command);
  absl::Status Initialize();
  absl::Status ApplyWorkflows();
  std::vector<NodeReports::DeadNode> FindDead();
  // False: the log takes nothing at present.
  bool ProposeStep(const v1::Command& command);
  void StartPlan();
  void CountEnd(const v1::AdvanceMove& step);
  void Reassign();
  bool ProposeAssignments();
  void Notify();
  void Work(const std::stop_token& stop);
  base::Duration DoDuties();  // The time until they are due again.

  Log& log_;
  base::Clock& clock_;
  const Options options_;
  std::atomic<std::uint64_t> serving_term_{0};  // For which TakeOver() has ended.
  std::mutex take_over_mutex_;                  // Held by TakeOver().
  int failed_take_overs_ = 0;                   // In this leadership. The worker's alone.

  std::mutex assign_mutex_;                      // One plan at a time.
  std::atomic<std::uint64_t> assign_wanted_{0};  // Changes that a plan must follow,
  std::uint64_t assign_done_ = 0;                // and has. Guarded by assign_mutex_.
  ElasticController elastic_;
  NodeReports reports_;

  mutable std::mutex wait_mutex_;
  mutable std::condition_variable_any changed_;
  std::atomic<std::uint64_t> version_{1};
  std::atomic<std::uint64_t> roles_{0};  // Calls of OnRole().
  std::atomic<std::uint64_t> applied_{0}, refused_{0}, failed_{0}, reports_taken_{0};
  std::atomic<std::uint64_t> moves_done_{0}, moves_reverted_{0}, moves_failed_{0};
  std::jthread worker_;
};

}  // namespace onepiece::nodemanager
