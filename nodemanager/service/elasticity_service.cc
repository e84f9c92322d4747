#include "nodemanager/service/elasticity_service.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/status.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/service/command_caller.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kDefaultPlansPage = 50;
constexpr int kMaxPlansPage = 1000;
constexpr int kMaxConfirmS = 7 * 24 * 3600;
constexpr int kAttempts = 3;  // Retries when the cluster changes while a plan is made.

absl::Status Bad(const char* reason, const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

absl::Status PlanUnknown(const std::string& plan_id) {
  return base::MakeError(absl::StatusCode::kNotFound, "PLAN_UNKNOWN",
                         absl::StrCat("there is no plan '", plan_id, "', or none any more"),
                         {{"plan_id", plan_id}});
}

bool IsStale(const absl::Status& status) {
  return base::GetReason(status).reason == "STALE_REVISION";
}

absl::Status CheckActor(const std::string& actor) {
  return actor.empty() ? Bad("NO_ACTOR", "actor", "who does this? \"operator:NAME\"")
                       : absl::OkStatus();
}

absl::StatusOr<int> PageSize(int wanted) {
  if (wanted < 0) return Bad("BAD_PAGE_SIZE", "page_size", "not negative");
  return wanted == 0 ? kDefaultPlansPage : std::min(wanted, kMaxPlansPage);
}

// The same request id gives the same plan id. Without a request id the result is empty, and the
// state machine names the plan.
std::string PlanIdFor(const std::string& request_id) {
  if (request_id.empty()) return "";
  return absl::StrFormat("plan-%08x",
                         base::Crc32c(std::as_bytes(std::span<const char>(request_id))));
}

bool IsAsked(const v1::Placement& asked, const v1::Placement& made) {
  // A request may name a pool by its stage, and the node's own set by its name.
  const bool pool = made.pool() == asked.pool() ||
                    (!asked.pool().empty() && made.pool().starts_with(asked.pool() + "/"));
  const bool set = made.workflow_set() == asked.workflow_set() || made.workflow_set().empty();
  return pool && set && asked.pinned() == made.pinned() && asked.removed() == made.removed();
}

// Checks that `made`, which has the id of this request, is what the request asks for.
absl::Status CheckSameRequest(const v1::Plan& made, const v1::Plan& wanted) {
  const bool same = made.actor() == wanted.actor() && made.reason() == wanted.reason() &&
                    made.undo_of() == wanted.undo_of() &&
                    std::equal(made.moves().begin(), made.moves().end(), wanted.moves().begin(),
                               wanted.moves().end(), [](const v1::Move& a, const v1::Move& b) {
                                 return a.node_id() == b.node_id() && IsAsked(b.to(), a.to());
                               });
  if (same) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
      absl::StrCat("the request id has started plan '", made.plan_id(), "', which is another one"),
      {{"plan_id", made.plan_id()}});
}

std::int64_t UnixMsAfter(const base::Clock& clock, int seconds) {
  return base::ToUnixMs(clock.WallNow() + std::chrono::seconds(seconds));
}

template <typename Response>
grpc::Status Answer(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) return rpc::ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

// A page goes on after the plan that its token names. If that plan has been forgotten, all older
// plans have been forgotten too, and the page is empty.
absl::StatusOr<v1::ListPlansResponse> MakePlanPage(const StateMachine& state,
                                                   const v1::ListPlansRequest& request) {
  ONEPIECE_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  const std::deque<v1::Plan>& plans = state.plans();
  auto next = plans.rbegin();
  if (!request.page_token().empty()) {
    next = std::find_if(plans.rbegin(), plans.rend(), [&](const v1::Plan& plan) {
      return plan.plan_id() == request.page_token();
    });
    if (next != plans.rend()) ++next;
  }
  v1::ListPlansResponse response;
  for (; next != plans.rend() && response.plans_size() < size; ++next)
    *response.add_plans() = *next;
  if (next != plans.rend())
    response.set_next_page_token(response.plans(response.plans_size() - 1).plan_id());
  return response;
}

// Several entries may have one revision. A token therefore holds the revision of the last entry on
// the page, and how many entries of that revision have been told.
absl::StatusOr<v1::ListAuditResponse> MakeAuditPage(const StateMachine& state,
                                                    const v1::ListAuditRequest& request) {
  ONEPIECE_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  std::uint64_t revision = ~std::uint64_t{0}, told = 0;
  if (!request.page_token().empty()) {
    const std::vector<std::string> parts = absl::StrSplit(request.page_token(), '/');
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &revision) ||
        !absl::SimpleAtoi(parts[1], &told)) {
      return Bad("BAD_PAGE_TOKEN", "page_token", "not a token that ListAudit gave");
    }
  }
  v1::ListAuditResponse response;
  std::uint64_t skip = told;
  for (auto entry = state.audit().rbegin(); entry != state.audit().rend(); ++entry) {
    if (entry->revision() > revision) continue;
    if (entry->revision() == revision && skip > 0) {
      --skip;
      continue;
    }
    if (response.entries_size() == size) {
      response.set_next_page_token(absl::StrCat(revision, "/", told));
      break;
    }
    *response.add_entries() = *entry;
    told = entry->revision() == revision ? told + 1 : 1;
    revision = entry->revision();
    skip = 0;
  }
  return response;
}

// Finds the pool that the limits name by its id, or by its stage where only one pool matches.
// Errors: NOT_FOUND (POOL_UNKNOWN, WORKFLOW_SET_UNKNOWN), INVALID_ARGUMENT (POOL_AMBIGUOUS).
absl::StatusOr<std::string> ResolvePool(const StateMachine& state, const v1::PoolLimits& limits) {
  const std::string& set = limits.workflow_set();
  // Limits outlive their pool and set, and must still be removable then.
  if (limits.min_instances() == 0 && limits.max_instances() == 0 &&
      state.pool_limits().contains({set, limits.pool()}))
    return limits.pool();
  if (std::none_of(state.nodes().begin(), state.nodes().end(),
                   [&](const auto& node) { return node.second.node().workflow_set() == set; })) {
    return base::MakeError(absl::StatusCode::kNotFound, "WORKFLOW_SET_UNKNOWN",
                           absl::StrCat("no node is of workflow set '", set, "'"));
  }
  const std::vector<Pool> pools = PoolsOf(state, set);
  if (FindPool(pools, limits.pool()) != nullptr) return limits.pool();
  std::string found;
  for (const Pool& pool : pools) {
    if (pool.spec.stage() != limits.pool()) continue;
    if (!found.empty()) {
      return Bad("POOL_AMBIGUOUS", "limits.pool",
                 absl::StrCat("'", limits.pool(), "' may be ", found, " or ", pool.id));
    }
    found = pool.id;
  }
  if (!found.empty()) return found;
  return base::MakeError(absl::StatusCode::kNotFound, "POOL_UNKNOWN",
                         absl::StrCat("no workflow has a pool or stage '", limits.pool(), "'"));
}

// Refuses a maximum below what a workflow asks for. The workflow's minimum would hold, and the
// maximum would mean nothing.
absl::Status CheckMaximum(const StateMachine& state, const v1::PoolLimits& limits,
                          const std::string& pool_id) {
  const std::vector<Pool> pools = PoolsOf(state, "");  // Without the limits of any set.
  const Pool* pool = FindPool(pools, pool_id);
  if (pool == nullptr || limits.max_instances() == 0 ||
      limits.max_instances() >= pool->min_instances)
    return absl::OkStatus();
  return Bad("BAD_LIMITS", "limits.max_instances",
             absl::StrCat("workflows ask for at least ", pool->min_instances, " instances of '",
                          pool_id, "'"));
}

}  // namespace

grpc::Status ElasticityService::GetElasticity(grpc::ServerContext*, const v1::GetElasticityRequest*,
                                              v1::Elasticity* response) {
  const absl::StatusOr<ElasticInput> input = controller_.NewestInput();
  if (!input.ok()) return rpc::ToGrpc(input.status());
  *response = controller_.elastic().Describe(*input);
  return grpc::Status::OK;
}

grpc::Status ElasticityService::ProposePlan(grpc::ServerContext*,
                                            const v1::ProposePlanRequest* request,
                                            v1::Plan* response) {
  const ElasticController& elastic = controller_.elastic();
  const absl::StatusOr<ElasticInput> input = controller_.NewestInput();
  if (!input.ok()) return rpc::ToGrpc(input.status());
  if (request->moves().empty()) return Answer<v1::Plan>(elastic.Wanted(*input), response);
  v1::Plan wanted;
  *wanted.mutable_moves() = request->moves();
  return Answer(elastic.Propose(*input, std::move(wanted)), response);
}

absl::StatusOr<v1::Plan> ElasticityService::FindPlan(const std::string& plan_id) {
  absl::StatusOr<v1::Plan> found = PlanUnknown(plan_id);
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    if (const v1::Plan* plan = nodemanager::FindPlan(state.plans(), plan_id); plan != nullptr)
      found = *plan;
  }));
  return found;
}

v1::Command ElasticityService::CommandOf(const grpc::ServerContext* context) const {
  v1::Command command;
  SignCommand(door_, context, command);
  return command;
}

absl::StatusOr<v1::Plan> ElasticityService::Start(v1::Command command, v1::Plan plan) {
  *command.mutable_start_plan()->mutable_plan() = plan;
  const auto result = controller_.Propose(std::move(command));
  if (!result.ok()) {
    // An earlier attempt of the same request may have started the plan, which is why this one
    // fails.
    auto made = plan.plan_id().empty() ? result.status() : FindPlan(plan.plan_id());
    if (!made.ok()) return result.status();
    ONEPIECE_RETURN_IF_ERROR(CheckSameRequest(*made, plan));
    return made;
  }
  // The state machine names such a plan after the revision that starts it.
  if (plan.plan_id().empty()) plan.set_plan_id(absl::StrCat("plan-", result->revision()));
  return FindPlan(plan.plan_id());
}

absl::StatusOr<v1::Plan> ElasticityService::Apply(v1::Command command,
                                                  const v1::ApplyPlanRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckActor(request.actor()));
  if (request.moves().empty()) return Bad("NO_MOVES", "moves", "a plan has at least one move");
  if (request.confirm_within_s() < 0 || request.confirm_within_s() > kMaxConfirmS) {
    return Bad("BAD_CONFIRM_WITHIN", "confirm_within_s",
               absl::StrCat("0 to ", kMaxConfirmS, ", not ", request.confirm_within_s()));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const ElasticInput input, controller_.NewestInput());
  v1::Plan wanted;
  wanted.set_plan_id(PlanIdFor(request.request_id()));
  *wanted.mutable_moves() = request.moves();
  wanted.set_actor(request.actor());
  wanted.set_reason(request.reason());
  // A retry must find its plan before CompletePlan() looks, which would refuse to move instances
  // that are moving already.
  if (const v1::Plan* made = nodemanager::FindPlan(input.state().plans(), wanted.plan_id());
      made != nullptr && !wanted.plan_id().empty()) {
    ONEPIECE_RETURN_IF_ERROR(CheckSameRequest(*made, wanted));
    // The copy in `input` lacks the prediction of a plan that has ended.
    return FindPlan(made->plan_id());
  }
  absl::StatusOr<v1::Plan> plan = controller_.elastic().Propose(input, std::move(wanted));
  ONEPIECE_RETURN_IF_ERROR(plan.status());
  if (request.base_revision() != 0) plan->set_base_revision(request.base_revision());
  if (request.confirm_within_s() > 0) {
    plan->set_confirm_by_unix_ms(UnixMsAfter(controller_.clock(), request.confirm_within_s()));
    plan->set_confirm_within_ms(request.confirm_within_s() * 1000LL);
  }
  return Start(std::move(command), *std::move(plan));
}

grpc::Status ElasticityService::ApplyPlan(grpc::ServerContext* context,
                                          const v1::ApplyPlanRequest* request, v1::Plan* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  // The cluster may change between the look at the state and the command. That is no reason to fail
  // unless the caller gave a revision.
  absl::StatusOr<v1::Plan> plan = Apply(CommandOf(context), *request);
  for (int again = 0; again < kAttempts && request->base_revision() == 0 && IsStale(plan.status());
       ++again)
    plan = Apply(CommandOf(context), *request);
  return Answer(std::move(plan), response);
}

grpc::Status ElasticityService::GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                                        v1::Plan* response) {
  return Answer(FindPlan(request->plan_id()), response);
}

grpc::Status ElasticityService::ListPlans(grpc::ServerContext*, const v1::ListPlansRequest* request,
                                          v1::ListPlansResponse* response) {
  absl::StatusOr<v1::ListPlansResponse> page;
  const absl::Status status = controller_.ReadAtAnyReplica(
      [&](const StateMachine& state) { page = MakePlanPage(state, *request); });
  if (!status.ok()) return rpc::ToGrpc(status);
  return Answer(std::move(page), response);
}

absl::StatusOr<v1::Plan> ElasticityService::Decide(v1::Command command,
                                                   const v1::DecidePlanRequest& request,
                                                   v1::DecidePlan::Decision decision) {
  command.set_request_id(request.request_id());
  v1::DecidePlan& change = *command.mutable_decide_plan();
  change.set_plan_id(request.plan_id());
  change.set_decision(decision);
  change.set_actor(request.actor());
  change.set_reason(request.reason());
  ONEPIECE_RETURN_IF_ERROR(controller_.Propose(std::move(command)).status());
  return FindPlan(request.plan_id());
}

grpc::Status ElasticityService::ConfirmPlan(grpc::ServerContext* context,
                                            const v1::DecidePlanRequest* request,
                                            v1::Plan* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  if (const absl::Status status = CheckActor(request->actor()); !status.ok())
    return rpc::ToGrpc(status);
  return Answer(Decide(CommandOf(context), *request, v1::DecidePlan::CONFIRM), response);
}

absl::StatusOr<v1::Plan> ElasticityService::Undo(v1::Command command,
                                                 const v1::DecidePlanRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckActor(request.actor()));
  ONEPIECE_ASSIGN_OR_RETURN(const ElasticInput input, controller_.NewestInput());
  const std::deque<v1::Plan>& plans = input.state().plans();
  const std::string inverse_id = PlanIdFor(request.request_id());
  if (const v1::Plan* made = nodemanager::FindPlan(plans, inverse_id);
      made != nullptr && !inverse_id.empty()) {
    v1::Plan wanted = *made;
    wanted.set_undo_of(request.plan_id());
    wanted.set_actor(request.actor());
    wanted.set_reason(request.reason());
    ONEPIECE_RETURN_IF_ERROR(CheckSameRequest(*made, wanted));
    return FindPlan(made->plan_id());
  }
  const v1::Plan* plan = nodemanager::FindPlan(plans, request.plan_id());
  if (plan == nullptr) return PlanUnknown(request.plan_id());
  // The plan is undone already, as when the caller asks again.
  if (plan->state() == v1::Plan::REVERTING || plan->state() == v1::Plan::REVERTED)
    return FindPlan(plan->plan_id());
  if (plan->state() == v1::Plan::RUNNING || plan->state() == v1::Plan::UNCONFIRMED)
    return Decide(std::move(command), request, v1::DecidePlan::REVERT);
  ONEPIECE_ASSIGN_OR_RETURN(v1::Plan inverse, InversePlan(input.state(), *plan));
  inverse.set_base_revision(input.state().plan_revision());
  *inverse.mutable_prediction() = Predict(input.state(), input.telemetry(), inverse);
  inverse.set_plan_id(inverse_id);
  inverse.set_actor(request.actor());
  inverse.set_reason(request.reason());
  return Start(std::move(command), std::move(inverse));
}

grpc::Status ElasticityService::UndoPlan(grpc::ServerContext* context,
                                         const v1::DecidePlanRequest* request, v1::Plan* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  absl::StatusOr<v1::Plan> plan = Undo(CommandOf(context), *request);
  for (int again = 0; again < kAttempts && IsStale(plan.status()); ++again)
    plan = Undo(CommandOf(context), *request);
  return Answer(std::move(plan), response);
}

grpc::Status ElasticityService::SetHold(grpc::ServerContext* context,
                                        const v1::SetHoldRequest* request, v1::Hold* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  absl::Status status = CheckActor(request->actor());
  if (status.ok() && request->for_s() < 0)
    status = Bad("BAD_HOLD", "for_s", "not negative; 0 is until it is taken back");
  if (!status.ok()) return rpc::ToGrpc(status);
  // The command carries no request id. A repeated hold begins anew, as its caller asks.
  v1::Command command = CommandOf(context);
  v1::Hold& hold = *command.mutable_set_hold();
  hold.set_active(request->active());
  hold.set_actor(request->actor());
  hold.set_reason(request->reason());
  if (request->active() && request->for_s() > 0) {
    hold.set_until_unix_ms(UnixMsAfter(controller_.clock(), request->for_s()));
    hold.set_for_ms(request->for_s() * 1000LL);
  }
  *response = hold;
  return rpc::ToGrpc(controller_.Propose(std::move(command)).status());
}

absl::StatusOr<v1::PoolLimits> ElasticityService::Limit(v1::Command command,
                                                        const v1::SetPoolLimitsRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckActor(request.actor()));
  v1::PoolLimits limits = request.limits();
  if (limits.workflow_set().empty()) limits.set_workflow_set("default");
  absl::StatusOr<std::string> pool;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    pool = ResolvePool(state, limits);
    if (!pool.ok()) return true;
    if (const absl::Status most = CheckMaximum(state, limits, *pool); !most.ok()) pool = most;
    return true;
  }));
  ONEPIECE_ASSIGN_OR_RETURN(*limits.mutable_pool(), std::move(pool));
  command.set_request_id(request.request_id());
  v1::SetPoolLimits& change = *command.mutable_set_pool_limits();
  *change.mutable_limits() = limits;
  change.set_actor(request.actor());
  change.set_reason(request.reason());
  ONEPIECE_RETURN_IF_ERROR(controller_.Propose(std::move(command)).status());
  return limits;
}

grpc::Status ElasticityService::SetPoolLimits(grpc::ServerContext* context,
                                              const v1::SetPoolLimitsRequest* request,
                                              v1::PoolLimits* response) {
  if (read_only_) return rpc::RefuseReadOnly();
  return Answer(Limit(CommandOf(context), *request), response);
}

grpc::Status ElasticityService::ListAudit(grpc::ServerContext*, const v1::ListAuditRequest* request,
                                          v1::ListAuditResponse* response) {
  absl::StatusOr<v1::ListAuditResponse> page;
  const absl::Status status = controller_.ReadAtAnyReplica(
      [&](const StateMachine& state) { page = MakeAuditPage(state, *request); });
  if (!status.ok()) return rpc::ToGrpc(status);
  return Answer(std::move(page), response);
}

}  // namespace onepiece::nodemanager
