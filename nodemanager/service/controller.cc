#include "nodemanager/service/controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/generation.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/utf8.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/service/cluster_view.h"
#include "nodemanager/service/command_caller.h"
#include "nodemanager/service/limits_in_use.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kMaxDetailBytes = 512;
constexpr auto kTakeOverRetry = std::chrono::milliseconds(50);
constexpr auto kPlanPeriod = std::chrono::milliseconds(300);  // Between two looks at plans.
// The feature level since which programs know who changes a workflow.
constexpr std::uint32_t kActorLevel = 4;
constexpr int kMaxTakeOvers = 5;  // After this many failures another replica shall try.

// True when the log failed the proposal, so that a retry may succeed. Otherwise the state machine
// refused the command, or it is too large, and a retry would be refused again.
bool IsOfTheLog(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         base::GetReason(status).reason == "LOG_BUSY";
}

Settings SettingsOf(const ControllerOptions& options) {
  return {.elasticity = CompleteElasticity(options.elasticity).value(),
          .report_interval = options.report_interval,
          .dead_after = options.dead_after,
          .forget_after = options.forget_after};
}

// Limits of 0 are told too, so that a node goes back to its own.
void FillInLimits(v1::Role role, const v1::LimitsConfig& limits, v1::ReportNodeResponse& response) {
  if (role == v1::PROXY) *response.mutable_limits()->mutable_proxies() = limits.proxies();
  if (role == v1::DATABASE) *response.mutable_limits()->mutable_databases() = limits.databases();
  *response.mutable_limits()->mutable_callers() = limits.callers();
}

absl::Status CheckReporter(const StateMachine& state, const v1::SetNodeState& change) {
  ONEPIECE_RETURN_IF_ERROR(CheckKnown(state, change.node_id(), change.incarnation()));
  return state.CheckChange(change);
}

}  // namespace

Controller::Controller(Log& log, base::Clock& clock, ControllerOptions options)
    : log_(log),
      clock_(clock),
      options_(std::move(options)),
      files_(SettingsOf(options_)),
      elastic_(files_.elasticity),
      reports_(clock, files_.dead_after, base::FromSeconds(files_.elasticity.window_s())),
      lost_generations_(clock),
      forgetting_(files_.forget_after),
      settings_(files_),
      follow_ups_([this](bool changed) {
        if (settings_may_differ_.exchange(false)) FollowConfig();
        if (changed) Reassign();
        Notify();
      }),
      states_([this](const auto& batch) { CommitStates(batch); }) {}

void Controller::Start() {
  works_ = true;
  worker_ = std::jthread([this](const std::stop_token& stop) { Work(stop); });
}

void Controller::Stop() {
  states_.Stop();
  follow_ups_.Stop();
  worker_.request_stop();
  if (worker_.joinable()) worker_.join();
}

// Watchers wake too: the streams of a replica that no longer leads must end.
void Controller::OnRole() {
  ++roles_;
  WakeWorker();
  Notify();
}

void Controller::WakeWorker() {
  { const base::MutexLock lock(wait_mutex_); }
  due_.NotifyAll();
}

void Controller::Work(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    // The count is read before the duties, so that a role that changes during them ends the wait at
    // once.
    const std::uint64_t roles = roles_.load();
    const base::Duration pause = DoDuties();
    const base::MonotonicTime due = clock_.Now() + pause;
    const auto is_over = [&] { return roles_.load() != roles || clock_.Now() >= due; };
    while (!stop.stop_requested() && !is_over()) {
      {
        base::MutexLock lock(wait_mutex_);
        clock_.WaitUntil(due_, lock, stop, due, [&] {
          return roles_.load() != roles || (newcomers_wait_ && newcomers_ == 0);
        });
      }
      if (!newcomers_wait_.exchange(false) || !Term().ok()) continue;
      Reassign();
      Notify();
    }
  }
}

base::Duration Controller::DoDuties() {
  const base::Duration period = std::min<base::Duration>(settings().dead_after / 10, kPlanPeriod);
  const absl::StatusOr<LeaderTerm> term = log_.Term();
  if (!term.ok()) {
    failed_take_overs_ = 0;
    return period;
  }
  if (*term == serving_term_) {
    (void)SeedConfig();  // It tries again at the next look.
    CheckLiveness();
    RaiseGeneration();
    ForgetDead();
    StepPlans();
    return period;
  }
  const absl::Status status = TakeOver();
  if (status.ok()) {
    failed_take_overs_ = 0;
    return period;
  }
  spdlog::warn("op=take_over error=\"{}\"", base::Message(status));
  // A leader that cannot take over serves nobody and keeps others from leading, so it gives way.
  if (++failed_take_overs_ % kMaxTakeOvers == 0) {
    const absl::Status left = log_.StepDown();
    spdlog::warn("op=step_down failed_take_overs={} result=\"{}\"", failed_take_overs_,
                 left.ok() ? "ok" : base::Message(left));
  }
  return std::min<base::Duration>(kTakeOverRetry, period);
}

absl::StatusOr<LeaderTerm> Controller::Term() const {
  ONEPIECE_ASSIGN_OR_RETURN(const LeaderTerm term, log_.Term());
  if (term == serving_term_) return term;
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                         "this NodeManager is just beginning to lead");
}

absl::Status Controller::TakeOver() {
  const base::MutexLock lock(take_over_mutex_);
  ONEPIECE_ASSIGN_OR_RETURN(const LeaderTerm term, log_.Term());
  // `term` is read before the rest. If the leadership ends and begins again meanwhile, the log has
  // another term, and DoDuties() takes over anew.
  reports_.Clear();
  identity_reports_.Clear();
  lost_generations_.Clear();
  {
    const base::MutexLock forget_lock(forget_mutex_);
    forgetting_.Clear();
  }
  FollowConfig();  // This replica may have followed another leader since it looked.
  elastic_.Restart(clock_.Now());
  AwaitNodesOfNewGeneration();
  ONEPIECE_RETURN_IF_ERROR(Initialize());
  ONEPIECE_RETURN_IF_ERROR(ApplyWorkflows());
  ONEPIECE_RETURN_IF_ERROR(SeedOrLeaveIt());
  // Term() fails until here, so nobody sees a cluster without its id, secret and workflows.
  serving_term_ = term;
  Reassign();
  Notify();
  return absl::OkStatus();
}

void Controller::AwaitNodesOfNewGeneration() {
  std::uint64_t epoch = 0;
  Read([&](const StateMachine& state) { epoch = state.epoch(); });
  const std::uint32_t generation = base::GenerationOf(epoch);
  // No table of this generation differs from the first one yet, so nobody has led in it before.
  if (generation == 0 || epoch != base::FirstEpochOf(generation)) return;
  routing_from_ = clock_.Now() + 2 * settings().dead_after;
  spdlog::info("op=begin_generation generation={}", generation);
}

absl::Status Controller::Initialize() {
  bool known = false;
  Read([&](const StateMachine& state) { known = !state.cluster_id().empty(); });
  if (known) return absl::OkStatus();
  v1::Command command;
  v1::InitializeCluster& change = *command.mutable_initialize();
  change.set_cluster_id(options_.cluster_id());
  std::string secret(kSecretBytes, '\0');
  base::FillRandom(secret.data(), secret.size());
  change.set_cluster_secret(secret);
  return ProposeAlone(std::move(command)).status();
}

absl::Status Controller::ApplyWorkflows() {
  for (const v1::Workflow& workflow : options_.workflows) {
    bool is_new = false;
    Read([&](const StateMachine& state) {
      const auto is_it = [&](const auto& deletion) {
        return deletion.app_id() == workflow.app_id();
      };
      is_new = !state.workflows().contains(workflow.app_id()) && !state.forgot_deletions() &&
               std::none_of(state.deletions().begin(), state.deletions().end(), is_it);
    });
    if (!is_new) continue;
    const absl::Status status = ProposeAlone(CommandFor(workflow)).status();
    if (status.ok()) continue;
    if (IsOfTheLog(status)) return status;
    // A file that is refused must not keep the leader from taking over.
    spdlog::error("op=workflow_file app={} error=\"{}\"", workflow.app_id(), base::Message(status));
  }
  return absl::OkStatus();
}

// A configuration says who has changed it, and ApplyWorkflow does not. Before there is one, the
// seed covers the workflows.
v1::Command Controller::CommandFor(const v1::Workflow& workflow) const {
  v1::Command command;
  Read([&](const StateMachine& state) {
    if (state.config_revision() == 0) return;
    v1::SetConfig& change = *command.mutable_set_config();
    *change.mutable_config()->mutable_workflows() = state.Config().workflows();
    change.set_base_revision(state.config_revision());
  });
  if (!command.has_set_config()) {
    *command.mutable_apply_workflow() = workflow;
    return command;
  }
  v1::SetConfig& change = *command.mutable_set_config();
  *change.mutable_config()->add_workflows() = workflow;
  change.add_sections("workflows");
  change.set_actor(options_.author);
  change.set_reason(absl::StrCat("workflow file of ", workflow.app_id()));
  return command;
}

absl::Status Controller::SeedConfig() {
  v1::Command command;
  v1::SetConfig& change = *command.mutable_set_config();
  bool wanted = false;
  Read([&](const StateMachine& state) {
    wanted = state.feature_level() >= VersionOf(command) && state.config_revision() == 0 &&
             !state.cluster_id().empty();
  });
  if (!wanted) return absl::OkStatus();
  *change.mutable_config() = ConfigOf(files_);
  change.add_sections("elasticity");
  change.add_sections("liveness");
  change.set_seed(true);
  change.set_actor(options_.author);
  change.set_reason("the cluster had no configuration");
  ONEPIECE_RETURN_IF_ERROR(ProposeAlone(std::move(command)).status());
  spdlog::info("op=seed_config author={}", options_.author);
  FollowConfig();
  return absl::OkStatus();
}

// While the log cannot take this kind of command, because some voter has not said yet what it
// knows, the leader goes by its files as before, and seeds later.
absl::Status Controller::SeedOrLeaveIt() {
  const absl::Status status = SeedConfig();
  const std::string reason = base::GetReason(status).reason;
  if (status.ok() || (IsOfTheLog(status) && reason != "OLD_REPLICA")) return status;
  spdlog::warn("op=seed_config error=\"{}\"", base::Message(status));
  return absl::OkStatus();
}

void Controller::FollowConfig() {
  const base::MutexLock lock(follow_mutex_);
  v1::ClusterConfig config;
  const std::uint64_t known = followed_;
  std::uint64_t revision = 0;
  Read([&](const StateMachine& state) {
    revision = state.config_revision();
    if (revision != known) config = state.settings();
  });
  if (revision == known) return;
  followed_ = revision;
  const absl::StatusOr<Settings> next = MakeSettings(config);
  // The program that took it knew more than this one. Whatever it says, the cluster must have a
  // leader.
  if (!next.ok()) {
    spdlog::error("op=follow_config revision={} error=\"{}\"", revision,
                  base::Message(next.status()));
    return;
  }
  const Settings before = settings();
  if (before.elasticity.SerializeAsString() != next->elasticity.SerializeAsString())
    elastic_.Follow(next->elasticity, clock_.Now());
  reports_.Follow(next->dead_after, base::FromSeconds(next->elasticity.window_s()));
  {
    const base::MutexLock forget_lock(forget_mutex_);
    forgetting_.SetAfter(next->forget_after);
  }
  const base::MutexLock settings_lock(settings_mutex_);
  settings_ = *next;
}

// The order matters: a lease that was held before the read proves nothing about what the read saw
// (Log::Confirm).
absl::Status Controller::ReadNewest(const std::function<bool(const StateMachine&)>& read) {
  ONEPIECE_ASSIGN_OR_RETURN(const LeaderTerm term, Term());
  ONEPIECE_RETURN_IF_ERROR(log_.CatchUp());
  bool used = false;
  Read([&](const StateMachine& state) { used = read(state); });
  return used ? log_.Confirm(term) : absl::OkStatus();
}

absl::Status Controller::ReadAtAnyReplica(const std::function<void(const StateMachine&)>& read) {
  if (log_.Term().ok()) {
    return ReadNewest([&](const StateMachine& state) {
      read(state);
      return true;
    });
  }
  ONEPIECE_RETURN_IF_ERROR(log_.CatchUpWithLeader());
  bool begun = false;
  Read([&](const StateMachine& state) {
    // Its first leader has not given the cluster what it begins with.
    begun = !state.cluster_id().empty();
    if (begun) read(state);
  });
  if (begun) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                         "this cluster is just beginning: ask again");
}

// A program that does not know a field keeps it among the unknown ones, and computes another
// fingerprint of the command than one that knows it. Replicas of both would come to different
// states. The level never falls, so what is left out here may at most be missing.
void Controller::Prepare(v1::Command& command) const {
  command.set_time_unix_ms(base::ToUnixMs(clock_.WallNow()));
  std::uint32_t level = 0;
  bool begins = false;
  Read([&](const StateMachine& state) {
    level = state.feature_level();
    begins = state.revision() == 0;
  });
  if (begins) return;  // The group takes the newest level with its first command.
  if (level < kActorLevel) {
    command.clear_actor();
    command.clear_reason();
  }
  if (level < kCallerLevel) {
    command.clear_caller();
    command.clear_caller_address();
  }
}

absl::StatusOr<v1::CommandResult> Controller::ProposeAlone(v1::Command command) {
  Prepare(command);
  const base::MonotonicTime begun = clock_.Now();
  return Finish(log_.Propose(command), begun);
}

absl::StatusOr<v1::CommandResult> Controller::Finish(absl::StatusOr<v1::CommandResult> result,
                                                     base::MonotonicTime begun) {
  if (!result.ok()) {
    ++failed_;
    return result.status();
  }
  if (options_.on_commit) options_.on_commit(clock_.Now() - begun);
  const absl::Status status = ToStatus(*result);
  ++(status.ok() ? applied_ : refused_);
  if (!status.ok()) return status;
  return result;
}

absl::StatusOr<v1::CommandResult> Controller::Propose(v1::Command command) {
  ONEPIECE_RETURN_IF_ERROR(Term().status());
  if (command.has_register_node()) return ProposeNewcomer(std::move(command));
  // Only this command changes the settings. A state that was put back is followed by TakeOver().
  const bool settings = command.has_set_config();
  absl::StatusOr<v1::CommandResult> result = ProposeAlone(std::move(command));
  if (result.ok()) {
    if (settings) FollowConfig();
    Reassign();
  }
  Notify();
  return result;
}

void Controller::ProposeAsync(v1::Command command, Log::Answer answer) {
  if (const absl::Status status = Term().status(); !status.ok()) return answer(status);
  if (++proposals_ > kMaxProposals) {
    --proposals_;
    return answer(base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                                  "too many commands are under way: try again later"));
  }
  Prepare(command);
  const base::MonotonicTime begun = clock_.Now();
  const bool settings = command.has_set_config();
  log_.ProposeAsync(command, [this, begun, settings, answer = std::move(answer)](
                                 absl::StatusOr<v1::CommandResult> logged) mutable {
    absl::StatusOr<v1::CommandResult> result = Finish(std::move(logged), begun);
    const bool changed = result.ok();
    if (changed && settings) settings_may_differ_ = true;
    follow_ups_.Add(changed, [this, answer = std::move(answer), result = std::move(result)] {
      --proposals_;
      answer(result);
    });
  });
}

// Nodes that come together are assigned together. A plan for each would cost a commit, and would be
// stale by then, because the next node has come. No newcomer waits for it: its agent gives a call
// 400 ms at first. The thread of the duties makes the plan after the last of them, or at its next
// turn if they come without end. Those who come while it is made wait here, so that it is not
// stale. Without that thread the last newcomer makes it.
absl::StatusOr<v1::CommandResult> Controller::ProposeNewcomer(v1::Command command) {
  { const base::MutexLock nobody_assigns(assign_mutex_); }
  ++newcomers_;
  absl::StatusOr<v1::CommandResult> result = ProposeAlone(std::move(command));
  // The flag is set before the count falls, so whoever sees no newcomers sees the flag.
  if (result.ok()) newcomers_wait_ = true;
  const bool last = --newcomers_ == 0;
  if (last && !works_ && newcomers_wait_.exchange(false)) Reassign();
  if (last) WakeWorker();
  Notify();
  return result;
}

void Controller::Reassign() {
  const std::uint64_t wanted = ++assign_wanted_;
  const base::MutexLock lock(assign_mutex_);
  if (assign_done_ >= wanted) return;  // A plan was made after the change that asked for this one.
  // The count is read before ProposeAssignments() reads the state. So the plan follows every change
  // that is counted here.
  assign_done_ = assign_wanted_;
  // It retries when what it had read changed meanwhile. CheckLiveness() assigns what is still left.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (ProposeAssignments()) return;
  }
}

bool Controller::ProposeAssignments() {
  v1::Command command;
  Assigner& assigner = assigner_;
  Read([&](const StateMachine& state) { *command.mutable_assign() = assigner.Plan(state); });
  if (command.assign().assignments().empty()) return true;
  if (const auto result = ProposeAlone(command); !result.ok()) {
    spdlog::warn("op=assign error=\"{}\"", base::Message(result.status()));
    return result.status().code() != absl::StatusCode::kAborted;
  }
  for (const v1::NodeAssignment& assignment : command.assign().assignments()) {
    spdlog::info("op=assign node={} stage={}", assignment.node_id(),
                 assignment.has_stage() ? assignment.stage().stage() : "none");
  }
  return true;
}

void Controller::OnChange(std::function<void()> listener) {
  const base::MutexLock lock(wait_mutex_);
  listener_ = std::move(listener);
}

void Controller::Notify() {
  {
    const base::MutexLock lock(wait_mutex_);
    ++version_;
    if (listener_) listener_();
  }
  changed_.NotifyAll();
}

void Controller::Report(const v1::ReportNodeRequest& request, ReportedStates::Answer answer) {
  if (const absl::Status status = Term().status(); !status.ok()) return answer(status);
  v1::SetNodeState change;
  change.set_node_id(request.node_id());
  change.set_incarnation(request.incarnation());
  change.set_state(request.state());
  change.set_detail(base::ToUtf8(request.detail(), kMaxDetailBytes));
  change.set_assignment_epoch(request.assignment_epoch());
  *change.mutable_served_app_ids() = request.served_app_ids();
  change.set_drained(request.drained());
  change.set_load_failed(request.load_failed());
  bool is_current = false, is_news = true;
  absl::Status epoch;
  std::string pool;
  Read([&](const StateMachine& state) {
    is_current = state.CheckChange(change).ok();
    if (!is_current) return;
    epoch = lost_generations_.Look(request, state.epoch(), state.cluster_id());
    const v1::NodeRecord& record = state.nodes().at(request.node_id());
    is_news = !state.IsKnown(record, change);
    pool = AssignedPool(record.node());
  });
  if (!epoch.ok()) return answer(epoch);
  if (is_current) {
    ++reports_taken_;
    reports_.Take(request, pool);
    identity_reports_.Take(request);
  }
  if (!is_news) return answer(absl::OkStatus());
  states_.Add(std::move(change), std::move(answer));
}

// Finds who is unknown or stale in the newest state. They need no commit to be told so.
absl::Status Controller::CheckReporters(const std::vector<ReportedStates::Waiting>& batch,
                                        std::vector<absl::Status>& results) {
  return ReadNewest([&](const StateMachine& state) {
    results.clear();
    bool refused = false;
    for (const ReportedStates::Waiting& waiting : batch) {
      results.push_back(CheckReporter(state, waiting.change));
      refused = refused || !results.back().ok();
    }
    return refused;
  });
}

// Clusters of feature level 2 know only commands with one state.
absl::Status Controller::ProposeStates(const v1::SetNodeStates& changes) {
  v1::Command command;
  if (changes.changes_size() > 1) {
    *command.mutable_set_node_states() = changes;
    absl::Status status = Propose(command).status();
    const std::string reason = base::GetReason(status).reason;
    if (reason != "OLD_REPLICA" && reason != "FEATURE_LEVEL") return status;
  }
  absl::Status first;
  for (const v1::SetNodeState& change : changes.changes()) {
    *command.mutable_set_node_state() = change;
    first.Update(Propose(command).status());
  }
  return first;
}

void Controller::CommitStates(const std::vector<ReportedStates::Waiting>& batch) {
  std::vector<absl::Status> results;
  absl::Status status = CheckReporters(batch, results);
  if (!status.ok()) results.assign(batch.size(), status);
  v1::SetNodeStates changes;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (results[i].ok()) *changes.add_changes() = batch[i].change;
  }
  if (!changes.changes().empty()) status = ProposeStates(changes);
  // Which of several changes failed shows in the state.
  if (!status.ok()) {
    Read([&](const StateMachine& state) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const v1::SetNodeState& change = batch[i].change;
        if (!results[i].ok()) continue;
        results[i] = CheckReporter(state, change);
        if (!results[i].ok() || !state.IsKnown(state.nodes().at(change.node_id()), change))
          results[i] = status;
      }
    });
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (const ReportedStates::Answer& answer : batch[i].answers) answer(results[i]);
  }
}

std::vector<NodeReports::DeadNode> Controller::FindDead() {
  std::map<std::string, std::uint64_t> live;  // Incarnations.
  Read([&](const StateMachine& state) {
    for (const auto& [id, record] : state.nodes()) {
      if (IsAlive(record.node())) live[id] = record.node().incarnation();
    }
  });
  return reports_.FindDead(live);
}

void Controller::CheckLiveness() {
  const absl::StatusOr<LeaderTerm> term = Term();
  if (!term.ok()) return;
  const std::vector<NodeReports::DeadNode> dead = FindDead();
  // The nodes may report to another leader by now. Only a leader that still leads may call them
  // silent.
  if (!dead.empty() && !log_.Confirm(*term).ok()) return;
  const std::uint64_t before = applied_.load();
  for (const NodeReports::DeadNode& node : dead) {
    v1::Command command;
    v1::EndNode& end = *command.mutable_end_node();
    end.set_node_id(node.node_id);
    end.set_incarnation(node.incarnation);
    end.set_detail(absl::StrFormat("no report for %.1f s", base::ToSeconds(node.silent)));
    const std::string detail = end.detail();
    const absl::Status status = ProposeAlone(std::move(command)).status();
    spdlog::warn("op=dead node={} incarnation={} detail=\"{}\" proposed={}", node.node_id,
                 node.incarnation, detail, status.ok() ? "ok" : base::Message(status));
  }
  // One plan follows all deaths. It also finishes assignments that an earlier Reassign() gave up.
  Reassign();
  if (applied_.load() != before) Notify();
}

void Controller::RaiseGeneration() {
  const std::optional<v1::BeginGeneration> due = lost_generations_.Due();
  if (!due) return;
  // Another leader may have told the nodes what this one does not know yet.
  bool behind = false;
  const absl::Status newest = ReadNewest([&](const StateMachine& state) {
    behind = LostGenerations::IsBehind(state.epoch(), *due);
    return true;
  });
  if (!newest.ok()) return lost_generations_.TryAgain();
  if (!behind) return;
  v1::Command command;
  *command.mutable_begin_generation() = *due;
  const absl::Status status = Propose(std::move(command)).status();
  spdlog::warn("op=begin_generation generation={} detail=\"{}\" proposed=\"{}\"", due->generation(),
               due->detail(), status.ok() ? "ok" : base::Message(status));
  if (!status.ok()) lost_generations_.TryAgain();
}

void Controller::ForgetDead() {
  const absl::StatusOr<LeaderTerm> term = Term();
  if (!term.ok()) return;
  std::vector<v1::RemoveNode> due;
  {
    const base::MutexLock lock(forget_mutex_);
    Read([&](const StateMachine& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(forget_mutex_) {
      due = forgetting_.Due(state, clock_.Now());
    });
  }
  for (const v1::RemoveNode& node : due) {
    v1::Command command;
    *command.mutable_remove_node() = node;
    const absl::Status status = Propose(std::move(command)).status();
    spdlog::info("op=forget node={} incarnation={} detail=\"{}\" proposed={}", node.node_id(),
                 node.incarnation(), node.reason(), status.ok() ? "ok" : base::Message(status));
    if (!status.ok()) return;
  }
}

void Controller::StepPlans() {
  if (!Term().ok()) return;
  std::vector<v1::Command> due;
  const v1::ElasticityConfig config = elastic_.config();
  // Steps are cheap enough to be found while the state is locked. What the policy looks at is not,
  // so StartPlan() copies it first.
  Read([&](const StateMachine& state) {
    reports_.Note(state);
    reports_.Read([&](const Telemetry& telemetry) { due = NextSteps(state, telemetry, config); });
  });
  for (const v1::Command& command : due) {
    if (!ProposeStep(command)) return;
  }
  if (elastic_.IsTimeToLook(clock_.Now())) StartPlan();
}

void Controller::StartPlan() {
  v1::Command command;
  v1::Plan& plan = *command.mutable_start_plan()->mutable_plan();
  plan = elastic_.Start(Input());
  if (plan.moves().empty()) return;
  const absl::Status status = Propose(command).status();
  for (const v1::Move& move : plan.moves()) {
    spdlog::info("op=start_plan actor={} node={} set={} pool={} reason=\"{}\" proposed=\"{}\"",
                 plan.actor(), move.node_id(), move.to().workflow_set(),
                 move.to().pool().empty() ? "idle" : move.to().pool(), plan.reason(),
                 status.ok() ? "ok" : base::Message(status));
  }
}

bool Controller::ProposeStep(const v1::Command& command) {
  const absl::Status status = Propose(command).status();
  const std::string result = status.ok() ? "ok" : base::Message(status);
  if (command.has_advance_move()) {
    const v1::AdvanceMove& step = command.advance_move();
    spdlog::info("op=advance_move plan={} node={} phase={} detail=\"{}\" proposed=\"{}\"",
                 step.plan_id(), step.node_id(), v1::Move::Phase_Name(step.to()), step.detail(),
                 result);
    if (status.ok()) CountEnd(step);
  } else if (command.has_decide_plan()) {
    spdlog::warn("op=revert_plan plan={} reason=\"{}\" proposed=\"{}\"",
                 command.decide_plan().plan_id(), command.decide_plan().reason(), result);
  }
  return status.ok() || !IsOfTheLog(status);
}

void Controller::CountEnd(const v1::AdvanceMove& step) {
  if (step.to() == v1::Move::DONE) ++moves_done_;
  if (step.to() == v1::Move::REVERTED) ++moves_reverted_;
  if (step.to() == v1::Move::FAILED) ++moves_failed_;
}

void Controller::AddTelemetry(const StateMachine& state, v1::Node& node) const {
  const auto known = state.nodes().find(node.node_id());
  if (known != state.nodes().end()) reports_.AddTo(node, known->second);
}

ElasticInput Controller::Input() const {
  std::optional<ElasticInput> input;
  Read([&](const StateMachine& state) {
    reports_.Note(state);
    reports_.Read([&](const Telemetry& telemetry) { input.emplace(state, telemetry); });
  });
  return *std::move(input);
}

absl::StatusOr<ElasticInput> Controller::NewestInput() {
  std::optional<ElasticInput> input;
  ONEPIECE_RETURN_IF_ERROR(ReadNewest([&](const StateMachine& state) {
    reports_.Note(state);
    reports_.Read([&](const Telemetry& telemetry) { input.emplace(state, telemetry); });
    return true;
  }));
  return *std::move(input);
}

absl::Status Controller::CheckLimits(const StateMachine& state,
                                     const v1::LimitsConfig& next) const {
  absl::Status status;
  reports_.Read(
      [&](const Telemetry& telemetry) { status = CheckLimitsInUse(state, telemetry, next); });
  return status;
}

void Controller::FillIn(const std::string& node_id, v1::ReportNodeResponse& response) const {
  Read([&](const StateMachine& state) {
    const auto known = state.nodes().find(node_id);
    if (known == state.nodes().end()) return;
    const v1::Node& node = known->second.node();
    response.set_epoch(state.EpochOf(node.workflow_set()));
    response.set_identity_epoch(state.identity().epoch());
    if (state.config_revision() > 0) FillInLimits(node.role(), state.settings().limits(), response);
    if (node.role() != v1::PROXY) return;
    reports_.Read([&](const Telemetry& telemetry) {
      *response.mutable_capacity() = MakeCapacity(state, telemetry, node.workflow_set(), node_id);
    });
    if (response.capacity().pools().empty()) response.clear_capacity();
  });
}

void Controller::WaitForChange(std::uint64_t seen, const std::stop_token& stop, base::Clock& clock,
                               base::MonotonicTime deadline) const {
  base::MutexLock lock(wait_mutex_);
  clock.WaitUntil(changed_, lock, stop, deadline, [&] { return version_.load() != seen; });
}

Controller::Counters Controller::counters() const {
  return {applied_.load(),    refused_.load(),        failed_.load(),      reports_taken_.load(),
          moves_done_.load(), moves_reverted_.load(), moves_failed_.load()};
}

}  // namespace onepiece::nodemanager
