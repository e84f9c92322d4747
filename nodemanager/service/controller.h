// The NodeManager's decisions around its log: liveness, assignments, plans, and waking of watchers.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "nodemanager/assignment/assigner.h"
#include "nodemanager/service/elastic_controller.h"
#include "nodemanager/service/follow_ups.h"
#include "nodemanager/service/forgetting.h"
#include "nodemanager/service/identity_reports.h"
#include "nodemanager/service/lost_generations.h"
#include "nodemanager/service/node_reports.h"
#include "nodemanager/service/reported_states.h"
#include "nodemanager/service/settings.h"
#include "nodemanager/state/log.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// What a Controller needs to know at its start. The times and `elasticity` seed the configuration
/// of a cluster that has none (feature level 4). From then on the configuration decides, whoever
/// leads. Below that level they decide.
struct ControllerOptions {
  /// How often nodes are told to report. It is not scaled here.
  base::Duration report_interval = std::chrono::milliseconds(500);
  /// A node that has not reported for this time is dead. It is not scaled here.
  base::Duration dead_after = std::chrono::seconds(3);
  /// A node that has been dead for this time is forgotten. It is not scaled here.
  base::Duration forget_after = std::chrono::hours(24);
  /// Returns the id for a new cluster.
  /// REQUIRES: set.
  std::function<std::string()> cluster_id;
  /// A new leader applies the workflows whose application the state neither has nor had. So it
  /// does not undo what clients have changed or deleted since.
  std::vector<v1::Workflow> workflows;
  /// When instances move by themselves.
  /// REQUIRES: CompleteElasticity() and MakePolicy() accept it.
  v1::ElasticityConfig elasticity;
  /// The author of what this leader's files bring into the configuration.
  std::string author = "files:nodemanager";
  /// Called on the thread that learns the result, with the time that a proposal took, unless the
  /// log failed it.
  std::function<void(base::Duration)> on_commit;
};

/// Decides for the cluster while this replica leads. The other replicas only answer reads.
///
/// Ownership: borrows the log and the clock, which must outlive it. Owns the thread of its duties.
/// Threading: thread-safe, except Start() and Stop(), which belong to one thread.
/// Blocking: calls that propose wait for the log, and so for disks. The others wait only for short
/// locks.
class Controller {
 public:
  /// What happened to proposals since the start.
  struct Counters {
    std::uint64_t applied = 0, refused = 0, failed = 0, reports = 0;
    /// How many moves have ended by a proposal of this replica.
    std::uint64_t moves_done = 0, moves_reverted = 0, moves_failed = 0;
  };

  Controller(Log& log, base::Clock& clock, ControllerOptions options);
  ~Controller() { Stop(); }
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// Starts the thread of the duties. It takes over when this replica begins to lead, and then
  /// looks for dead nodes and steps plans.
  void Start();
  /// Ends the thread. Idempotent.
  void Stop();
  /// Tells the controller that the log began or ceased to lead. It wakes the thread and all
  /// watchers, and never blocks.
  void OnRole();
  /// Does what a new leader must do before it answers anybody. The thread calls it. It gives a new
  /// cluster its id and secret, applies ControllerOptions::workflows, and seeds the configuration.
  /// A workflow that is refused is logged and left out. Every node gets a fresh period of grace,
  /// because no node could report while nobody led.
  /// Errors: those of the log. The thread retries soon, and steps down after several failures.
  absl::Status TakeOver();
  /// The number of this leadership.
  /// Errors: UNAVAILABLE (NOT_LEADER), also before TakeOver() has ended.
  [[nodiscard]] absl::StatusOr<LeaderTerm> Term() const;
  /// False while a new generation waits for its nodes. Nodes that the restored state does not know
  /// need some time to come back, and a table without them would have others redo their jobs. Until
  /// twice dead_after has passed, nodes keep the tables that they have.
  [[nodiscard]] bool MayTellRouting() const { return clock_.Now() >= routing_from_.load(); }

  /// Gives the cluster a configuration, made of ControllerOptions, when its feature level is 4 and
  /// it has none. The thread calls it, because the level may rise at any time.
  /// Errors: the state machine's refusal, or those of the log. Then it may be tried again.
  absl::Status SeedConfig();
  /// What this replica goes by.
  [[nodiscard]] Settings settings() const {
    const base::MutexLock lock(settings_mutex_);
    return settings_;
  }

  /// Stamps a command with the time and proposes it. Then it brings assignments up to date and
  /// wakes watchers. After a registration the thread does the former soon. Fields of the command
  /// that only programs of a newer feature level know are left out.
  /// Errors: the state machine's refusal, or those of the log.
  absl::StatusOr<v1::CommandResult> Propose(v1::Command command);
  /// At most this many calls of ProposeAsync() wait. More are answered RESOURCE_EXHAUSTED
  /// (LOG_BUSY).
  static constexpr std::size_t kMaxProposals = 8192;
  /// Does what Propose() does, without a thread that waits. `answer` is called once, also on the
  /// caller's thread. It must not block and must not propose.
  void ProposeAsync(v1::Command command, Log::Answer answer);
  /// Takes a heartbeat. Telemetry stays in memory. A changed state of the node is proposed,
  /// together with those that other nodes report meanwhile. Never blocks; `answer` is called when
  /// the state is committed, or at once when there is nothing to commit. It must not block.
  /// Errors: NOT_FOUND (NODE_UNKNOWN), ABORTED (STALE_INCARNATION), INVALID_ARGUMENT
  /// (BAD_NODE_STATE, BAD_EPOCH), RESOURCE_EXHAUSTED (REPORTS_BUSY), and those of the log. A node
  /// that is told so costs no commit.
  void Report(const v1::ReportNodeRequest& request, ReportedStates::Answer answer);
  /// Declares nodes dead that have not reported for dead_after. The thread calls it ten times in
  /// that period. If the last call is longer ago than half of the period, this process stood still,
  /// and every node gets a fresh period of grace instead. It does nothing unless this replica
  /// leads.
  void CheckLiveness();

  /// Forgets nodes that have been dead for forget_after, and dead ephemeral ones at once. The
  /// thread calls it after CheckLiveness(). It does nothing unless this replica leads.
  void ForgetDead();

  /// Begins a new generation when nodes have seen tables that this state knows nothing of. The
  /// thread calls it after CheckLiveness(). It does nothing unless this replica leads.
  void RaiseGeneration();

  /// Takes plans under way further, and starts a plan that the policy wants. The thread calls it
  /// ten times in dead_after, and at least three times a second. It does nothing unless this
  /// replica leads.
  void StepPlans();

  /// Calls `read` with the state as this replica knows it, which may be old.
  void Read(const std::function<void(const StateMachine&)>& read) const { log_.Read(read); }
  /// Calls `read`, and returns OK when it saw the newest state of a moment during this call. If
  /// `read` returns false, it found nothing that the caller will use, and nobody is asked whether
  /// the state is the newest.
  /// Errors: those of Term() and Log::Confirm().
  absl::Status ReadNewest(const std::function<bool(const StateMachine&)>& read);
  /// Like ReadNewest(), and a replica that follows answers too, after it has caught up with the
  /// leader. Only for what is in the state: a follower knows no reports of nodes.
  /// Errors: those of Log::CatchUpWithLeader() too.
  absl::Status ReadAtAnyReplica(const std::function<void(const StateMachine&)>& read);
  /// Adds to a node of `state` what its last report said, and its activity.
  void AddTelemetry(const StateMachine& state, v1::Node& node) const;
  /// Takes a registration as a sign of life, whatever becomes of it. A node that has not heard the
  /// answer asks again and does not report yet. Without this a leader that answers late would call
  /// its newcomers dead, and have ever more to do.
  void NoteRegistering(const v1::Node& node) {
    reports_.NoteLife(node.node_id(), node.incarnation());
  }
  /// Returns how long ago this incarnation reported to this leader, or nullopt before that.
  [[nodiscard]] std::optional<base::Duration> SilenceOf(const v1::Node& node) const {
    return reports_.SilenceOf(node);
  }
  /// Copies the state as this replica knows it, which may be old, and the telemetry. So nobody
  /// waits for what is computed from them.
  [[nodiscard]] ElasticInput Input() const;
  /// Like Input(), but with the newest state.
  /// Errors: those of ReadNewest().
  [[nodiscard]] absl::StatusOr<ElasticInput> NewestInput();
  /// Checks that no limit falls below what nodes say that they use.
  /// Errors: those of CheckLimitsInUse().
  [[nodiscard]] absl::Status CheckLimits(const StateMachine& state,
                                         const v1::LimitsConfig& next) const;
  [[nodiscard]] const ElasticController& elastic() const { return elastic_; }
  /// What nodes report about identities to this leader.
  [[nodiscard]] IdentityReports& identity_reports() { return identity_reports_; }
  /// Fills in the epoch of the routing table that the node goes by, its limits, and what it admits
  /// by. Only a proxy gets a capacity, and none while there are no workflows.
  void FillIn(const std::string& node_id, v1::ReportNodeResponse& response) const;
  [[nodiscard]] const base::Clock& clock() const { return clock_; }

  /// Wakes all watchers. For changes that this object did not propose.
  void Notify();
  /// `listener` is called after every applied change and every change of the role, until it is
  /// replaced. It must not block and must not use this object. nullptr: nobody is called, and no
  /// call is under way any more.
  void OnChange(std::function<void()> listener);
  /// Grows with every applied change.
  [[nodiscard]] std::uint64_t version() const { return version_.load(); }
  /// Waits until version() is not `seen`, `stop` is requested, or `deadline` passes on `clock`. The
  /// clock is the caller's, because a watcher's pace has nothing to do with the nodes' time.
  void WaitForChange(std::uint64_t seen, const std::stop_token& stop, base::Clock& clock,
                     base::MonotonicTime deadline) const;
  [[nodiscard]] Counters counters() const;

 private:
  absl::StatusOr<v1::CommandResult> ProposeAlone(v1::Command command);
  // Stamps the command with the time, and leaves out what older programs would read otherwise.
  void Prepare(v1::Command& command) const;
  // Counts the proposal. Returns its result, or the state machine's refusal.
  absl::StatusOr<v1::CommandResult> Finish(absl::StatusOr<v1::CommandResult> result,
                                           base::MonotonicTime begun);
  absl::StatusOr<v1::CommandResult> ProposeNewcomer(v1::Command command);
  absl::Status Initialize();
  void AwaitNodesOfNewGeneration();
  absl::Status ApplyWorkflows();
  [[nodiscard]] v1::Command CommandFor(const v1::Workflow& workflow) const;
  absl::Status SeedOrLeaveIt();
  // Makes the configuration of the state the settings that this replica goes by, if it has changed.
  void FollowConfig();
  std::vector<NodeReports::DeadNode> FindDead();
  void CommitStates(const std::vector<ReportedStates::Waiting>& batch);
  absl::Status CheckReporters(const std::vector<ReportedStates::Waiting>& batch,
                              std::vector<absl::Status>& results);
  absl::Status ProposeStates(const v1::SetNodeStates& changes);
  // Returns false when the log takes nothing at present.
  bool ProposeStep(const v1::Command& command);
  void StartPlan();
  void CountEnd(const v1::AdvanceMove& step);
  void Reassign();
  bool ProposeAssignments() ABSL_EXCLUSIVE_LOCKS_REQUIRED(assign_mutex_);
  void Work(const std::stop_token& stop);
  void WakeWorker();
  base::Duration DoDuties();  // Returns the time until they are due again.

  Log& log_;
  base::Clock& clock_;
  const ControllerOptions options_;
  const Settings files_;  // What `options_` says.
  ElasticController elastic_;
  NodeReports reports_;
  IdentityReports identity_reports_;
  LostGenerations lost_generations_;
  std::atomic<LeaderTerm> serving_term_{};  // The term for which TakeOver() has ended.
  std::atomic<base::MonotonicTime> routing_from_{};
  int failed_take_overs_ = 0;  // In this leadership. The worker's alone.

  // Held for a whole TakeOver(), so that two of them never run at once.
  base::Mutex take_over_mutex_;

  base::Mutex forget_mutex_ ABSL_ACQUIRED_AFTER(take_over_mutex_);
  Forgetting forgetting_ ABSL_GUARDED_BY(forget_mutex_);

  // Held while a changed configuration is taken, so that an older one never comes last.
  base::Mutex follow_mutex_ ABSL_ACQUIRED_AFTER(take_over_mutex_)
      ABSL_ACQUIRED_BEFORE(forget_mutex_);
  std::uint64_t followed_ ABSL_GUARDED_BY(follow_mutex_) = 0;  // The configuration's revision.
  mutable base::Mutex settings_mutex_ ABSL_ACQUIRED_AFTER(follow_mutex_);
  Settings settings_ ABSL_GUARDED_BY(settings_mutex_);

  // Held while assignments are planned and proposed, so that there is one plan at a time.
  base::Mutex assign_mutex_ ABSL_ACQUIRED_AFTER(take_over_mutex_);
  // The number of the newest change that a plan made after that change has followed.
  std::uint64_t assign_done_ ABSL_GUARDED_BY(assign_mutex_) = 0;
  Assigner assigner_ ABSL_GUARDED_BY(assign_mutex_);
  std::atomic<std::uint64_t> assign_wanted_{0};  // Counts the changes that a plan must follow.
  std::atomic<bool> works_{false};               // Start() was called.
  std::atomic<int> newcomers_{0};                // Registrations that are being proposed.
  std::atomic<bool> newcomers_wait_{false};      // Some are committed, and no plan was made since.

  // Guards nothing: the waiters' conditions are atomic. It keeps a notification from falling
  // between a waiter's look and its sleep.
  mutable base::Mutex wait_mutex_ ABSL_ACQUIRED_AFTER(take_over_mutex_);
  mutable base::CondVar changed_;
  base::CondVar due_;  // For the worker, whom most changes do not concern.
  std::function<void()> listener_ ABSL_GUARDED_BY(wait_mutex_);
  std::atomic<std::uint64_t> version_{1};
  std::atomic<std::uint64_t> roles_{0};  // Calls of OnRole().
  std::atomic<std::uint64_t> applied_{0}, refused_{0}, failed_{0}, reports_taken_{0};
  std::atomic<std::uint64_t> moves_done_{0}, moves_reverted_{0}, moves_failed_{0};
  std::atomic<std::size_t> proposals_{0};         // Of ProposeAsync(), that wait.
  std::atomic<bool> settings_may_differ_{false};  // A SetConfig of ProposeAsync() was applied.
  FollowUps follow_ups_;
  ReportedStates states_;
  std::jthread worker_;
};

}  // namespace onepiece::nodemanager
