// How plans under way go on. The code keeps nothing between calls: a new leader sees the same state
// and goes on from there.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"
#include "cluster/base/seconds.h"
#include "cluster/base/utf8.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

using Place = std::pair<std::string, std::string>;  // Workflow set and pool id.

class Steps {
 public:
  Steps(const StateMachine& state, const Telemetry& telemetry, const v1::ElasticityConfig& config)
      : state_(state),
        telemetry_(telemetry),
        config_(config),
        pools_(PoolsOf(state, "")),  // Every set has the same pools, and limits do not matter here.
        timeout_(base::FromSeconds(config.move_timeout_s())) {}

  std::vector<v1::Command> Make() {
    if (std::ranges::all_of(state_.plans(), HasEnded)) return {};
    moves_ = CountMoves(state_);
    counts_ = CountInstances(state_);
    for (const auto& [place, moves] : moves_) under_way_ += moves.under_way;
    for (const v1::Plan& plan : state_.plans()) Step(plan);
    return std::move(commands_);
  }

 private:
  void Step(const v1::Plan& plan) {
    if (plan.state() == v1::Plan::UNCONFIRMED) {
      if (const std::string reason = WhyNotKept(plan); !reason.empty()) Revert(plan, reason);
      return;
    }
    for (const v1::Move& move : plan.moves()) StepBack(plan, move);
    if (plan.state() != v1::Plan::RUNNING) return;
    std::set<std::string> back;
    for (const v1::Move& move : plan.moves()) {
      const std::string trouble = Trouble(plan, move);
      if (trouble.empty()) continue;
      if (!GoBackAlone(plan))
        return Revert(plan, absl::StrCat("node ", move.node_id(), ": ", trouble));
      TakeBack(plan, move, trouble);
      back.insert(move.node_id());
    }
    for (const v1::Move& move : plan.moves()) {
      if (!back.contains(move.node_id())) StepForward(plan, move);
    }
  }

  // The moves of a policy have nothing to do with each other: the policy wants each of them for
  // itself. What a person plans may be an exchange, so it goes or comes back as a whole.
  [[nodiscard]] bool GoBackAlone(const v1::Plan& plan) const {
    return state_.feature_level() >= 3 && plan.actor().starts_with("policy:");
  }

  // Says why an unconfirmed plan is reverted, or nothing when it is not yet.
  [[nodiscard]] std::string WhyNotKept(const v1::Plan& plan) const {
    if (IsConfirmOverdue(plan)) return "nobody has confirmed it in time";
    for (const v1::Move& move : plan.moves()) {
      if (IsGone(move.to()))
        return absl::StrCat("node ", move.node_id(), ": ", GoneText(move.to()));
    }
    return "";
  }

  void StepForward(const v1::Plan& plan, const v1::Move& move) {
    const v1::NodeRecord* node = Alive(move);
    switch (move.phase()) {
      case v1::Move::PENDING:
        // A dead node takes no turn from the others.
        if (node == nullptr || !IsItsTurn(move)) return;
        if (!NeedsDrain(*node, move.to())) return Begin(plan, move, v1::Move::SWITCHING);
        if (LeavesTooFew(plan, *node)) return;
        return Begin(plan, move, v1::Move::DRAINING);
      case v1::Move::DRAINING:
        if (node == nullptr) return Advance(plan, move, v1::Move::SWITCHING, "it has died");
        // A new incarnation has no assignment and so holds nothing to drain.
        if (!node->node().assignment().draining())
          return Advance(plan, move, v1::Move::SWITCHING, "it has started anew");
        if (WaitsFor(*node).empty()) Advance(plan, move, v1::Move::SWITCHING);
        return;
      case v1::Move::SWITCHING:
        if (HasArrived(node, move.to())) Advance(plan, move, v1::Move::DONE);
        return;
      default:
        return;
    }
  }

  // With max_moves the moves of all pools wait for each other. Otherwise only those do that count
  // at the same pool.
  [[nodiscard]] bool IsItsTurn(const v1::Move& move) {
    if (config_.max_moves() > 0) return under_way_ < config_.max_moves();
    const std::pair place = CountedPlace(state_, move);
    const MoveCounts& moves = moves_[place];
    return moves.under_way < MoveShare(config_, counts_[place] + moves.leaving);
  }
  void Begin(const v1::Plan& plan, const v1::Move& move, v1::Move::Phase to) {
    ++under_way_;
    ++moves_[CountedPlace(state_, move)].under_way;
    Advance(plan, move, to);
  }

  void StepBack(const v1::Plan& plan, const v1::Move& move) {
    if (move.phase() != v1::Move::REVERTING) return;
    const v1::NodeRecord* node = Alive(move);
    const auto known = state_.nodes().find(move.node_id());
    if (known != state_.nodes().end() && DrainsFirst(move, known->second.node())) {
      // After the timeout it goes back anyway. The instance then gives what it holds some time of
      // its own before it leaves the set.
      if (node == nullptr || !node->node().assignment().draining() || TakesTooLong(plan, move) ||
          WaitsFor(*node).empty())
        Advance(plan, move, v1::Move::REVERTING, move.detail());
      return;
    }
    if (node == nullptr)
      return Advance(plan, move, v1::Move::REVERTED, "it is dead; it comes back where it was");
    if (HasArrived(node, move.from()))
      return Advance(plan, move, v1::Move::REVERTED, move.detail());
    if (IsGone(move.from()) && !node->node().assignment().has_stage())
      return Advance(plan, move, v1::Move::REVERTED, GoneText(move.from()));
    if (const std::string failure = LoadFailure(*node, move.from()); !failure.empty())
      return Advance(plan, move, v1::Move::FAILED, failure);
    if (TakesTooLong(plan, move))
      Advance(plan, move, v1::Move::FAILED, TooLongText("it does not serve again"));
  }

  // Says why the move cannot go on, or nothing when it can.
  [[nodiscard]] std::string Trouble(const v1::Plan& plan, const v1::Move& move) {
    if (move.phase() != v1::Move::PENDING && move.phase() != v1::Move::DRAINING &&
        move.phase() != v1::Move::SWITCHING)
      return "";
    if (IsGone(move.to())) return GoneText(move.to());
    const v1::NodeRecord* node = Alive(move);
    const bool switching = move.phase() == v1::Move::SWITCHING;
    if (switching && node != nullptr) {
      if (std::string failure = LoadFailure(*node, move.to()); !failure.empty()) return failure;
    }
    if (!TakesTooLong(plan, move)) return "";
    if (switching)
      return HasArrived(node, move.to())
                 ? ""
                 : TooLongText(node == nullptr ? "it is dead" : "it does not serve");
    if (node == nullptr) return move.phase() == v1::Move::PENDING ? "it is dead" : "";
    if (move.phase() == v1::Move::PENDING)
      return NeedsDrain(*node, move.to()) && LeavesTooFew(plan, *node)
                 ? TooLongText("its pool has too few instances to let it go")
                 : "";
    if (!node->node().assignment().draining()) return "";
    const std::string missing = WaitsFor(*node);
    return missing.empty() ? "" : TooLongText(missing);
  }

  // Null when the node is dead or forgotten.
  [[nodiscard]] const v1::NodeRecord* Alive(const v1::Move& move) const {
    const auto known = state_.nodes().find(move.node_id());
    return known == state_.nodes().end() || !IsAlive(known->second.node()) ? nullptr
                                                                           : &known->second;
  }

  // True when the node serves a stage at another place than `to`. A plan that changes only a pin
  // drains nothing.
  static bool NeedsDrain(const v1::NodeRecord& record, const v1::Placement& to) {
    const v1::Node& node = record.node();
    return node.assignment().has_stage() &&
           std::pair(node.workflow_set(), AssignedPool(node)) != PlaceOf(record, to);
  }

  // True when the node's pool would end below its minimum and the plan takes more instances from
  // that pool than it brings. CompletePlan() has checked that once, but other instances may have
  // gone since. The move then waits.
  [[nodiscard]] bool LeavesTooFew(const v1::Plan& plan, const v1::NodeRecord& record) {
    const v1::Node& node = record.node();
    if (record.load_failed()) return false;
    const std::pair place(node.workflow_set(), AssignedPool(node));
    const auto [pools, is_new] = set_pools_.try_emplace(place.first);
    if (is_new) pools->second = PoolsOf(state_, place.first);
    const Pool* pool = FindPool(pools->second, place.second);
    if (pool == nullptr) return false;
    int taken = 0;
    for (const v1::Move& move : plan.moves()) {
      const v1::NodeRecord* moved = Alive(move);
      if (moved == nullptr) continue;
      taken += PlaceOf(*moved, move.from()) == place ? 1 : 0;
      taken -= PlaceOf(*moved, move.to()) == place ? 1 : 0;
    }
    // CountInstances() counts a PENDING move at its destination already. So all moves of one step
    // see the pool as it will be.
    const auto found = counts_.find(place);
    return taken > 0 && (found == counts_.end() ? 0 : found->second) < pool->min_instances;
  }

  // Says what a draining node still waits for, or nothing. A node of its set that may go by an
  // older table may still send to it. The node itself says when it holds nothing any more.
  [[nodiscard]] std::string WaitsFor(const v1::NodeRecord& record) {
    const v1::Node& node = record.node();
    for (const auto& [epoch, id] : LastToFollow(node.workflow_set())) {
      if (id != node.node_id() && epoch < node.assignment().epoch())
        return absl::StrCat("node ", id, " has not said that it goes by routing epoch ",
                            base::FormatEpoch(node.assignment().epoch()));
    }
    return record.drained() ? "" : "it still holds work";
  }

  using Follower = std::pair<std::uint64_t, std::string>;  // A routing epoch, and who goes by it.
  // The two senders of the set that go by the oldest tables. Two, because a node that drains does
  // not wait for itself. All drains of a step share the look at the nodes.
  const std::vector<Follower>& LastToFollow(const std::string& workflow_set) {
    const auto [last, is_new] = followers_.try_emplace(workflow_set);
    if (!is_new) return last->second;
    for (const auto& [id, other] : state_.nodes()) {
      const v1::Role role = other.node().role();
      const bool sends = role == v1::PROXY || role == v1::INSTANCE || role == v1::DATABASE;
      if (!sends || !IsAlive(other.node()) || other.node().workflow_set() != workflow_set) continue;
      last->second.emplace_back(telemetry_.routing_epoch ? telemetry_.routing_epoch(id) : 0, id);
      std::ranges::sort(last->second);
      if (last->second.size() > 2) last->second.pop_back();
    }
    return last->second;
  }

  static bool HasArrived(const v1::NodeRecord* record, const v1::Placement& place) {
    // A dead node serves nothing, so it has arrived where it shall be idle.
    if (record == nullptr) return place.pool().empty();
    const v1::Node& node = record->node();
    const v1::Assignment& assignment = node.assignment();
    const std::string& set =
        assignment.workflow_set().empty() ? DescribedSet(*record) : assignment.workflow_set();
    if (assignment.draining() || assignment.removed() != place.removed() ||
        set != PlaceOf(*record, place).first)
      return false;
    if (place.pool().empty()) return !assignment.has_stage();
    return AssignedPool(node) == place.pool() && !record->load_failed() &&
           ServedApps(*record).size() == assignment.app_ids_size();
  }

  static std::string LoadFailure(const v1::NodeRecord& record, const v1::Placement& place) {
    if (!record.load_failed() || AssignedPool(record.node()) != place.pool()) return "";
    return absl::StrCat("a model does not load: ", record.node().detail());
  }

  [[nodiscard]] bool IsGone(const v1::Placement& place) const {
    return !place.pool().empty() && FindPool(pools_, place.pool()) == nullptr;
  }
  static std::string GoneText(const v1::Placement& place) {
    return absl::StrCat("no workflow has pool '", place.pool(), "' any more");
  }

  // After a failover a phase has its whole time again (StampAges).
  [[nodiscard]] base::Duration InPhase(const v1::Plan& plan, const v1::Move& move) const {
    return telemetry_.ages->AgeOf(plan, move, telemetry_.now);
  }
  // The plan waits since its last move was done.
  [[nodiscard]] bool IsConfirmOverdue(const v1::Plan& plan) const {
    if (plan.confirm_within_ms() <= 0) return false;
    base::Duration waited = base::Duration::max();
    for (const v1::Move& move : plan.moves()) waited = std::min(waited, InPhase(plan, move));
    return waited >= std::chrono::milliseconds(plan.confirm_within_ms());
  }
  [[nodiscard]] bool TakesTooLong(const v1::Plan& plan, const v1::Move& move) const {
    return InPhase(plan, move) > timeout_;
  }
  [[nodiscard]] std::string TooLongText(const std::string& what) const {
    return absl::StrCat(what, " after ",
                        std::chrono::duration_cast<std::chrono::seconds>(timeout_).count(), " s");
  }

  void Advance(const v1::Plan& plan, const v1::Move& move, v1::Move::Phase to,
               const std::string& detail = "") {
    v1::AdvanceMove& change = *commands_.emplace_back().mutable_advance_move();
    change.set_plan_id(plan.plan_id());
    change.set_node_id(move.node_id());
    change.set_from(move.phase());
    change.set_to(to);
    change.set_detail(base::ToUtf8(detail, kMaxPlanTextBytes));
  }

  void TakeBack(const v1::Plan& plan, const v1::Move& move, const std::string& reason) {
    const bool begun = move.phase() != v1::Move::PENDING;
    Advance(plan, move, begun ? v1::Move::REVERTING : v1::Move::REVERTED, reason);
  }

  void Revert(const v1::Plan& plan, const std::string& reason) {
    v1::DecidePlan& change = *commands_.emplace_back().mutable_decide_plan();
    change.set_plan_id(plan.plan_id());
    change.set_decision(v1::DecidePlan::REVERT);
    change.set_actor("timer");
    change.set_reason(base::ToUtf8(reason, kMaxPlanTextBytes));
  }

  const StateMachine& state_;
  const Telemetry& telemetry_;
  const v1::ElasticityConfig& config_;
  const std::vector<Pool> pools_;
  const base::Duration timeout_;
  std::map<Place, MoveCounts> moves_;
  std::map<Place, int> counts_;  // Instances.
  int under_way_ = 0;
  // Computed when they are needed: by workflow set.
  std::map<std::string, std::vector<Pool>> set_pools_;
  std::map<std::string, std::vector<Follower>> followers_;
  std::vector<v1::Command> commands_;
};

}  // namespace

std::vector<v1::Command> NextSteps(const StateMachine& state, const Telemetry& telemetry,
                                   const v1::ElasticityConfig& config) {
  return Steps(state, telemetry, config).Make();
}

}  // namespace onepiece::nodemanager
