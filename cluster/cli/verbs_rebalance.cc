// The verbs rebalance plan, apply, status, list, show, undo, confirm, hold, limits and audit.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/cli/verbs.h"

namespace onepiece::cli {
namespace {

struct RebalanceArguments : PlanArguments {
  std::vector<std::string> moves;
  std::string plan_id, pool;
  int limit = 20, hold_s = 0, min = 0, max = 0;
  bool release = false;
};

constexpr int kMaxLimit = 1000;

absl::StatusOr<std::vector<v1::Move>> ParseMoves(client::Client& client,
                                                 const std::vector<std::string>& texts) {
  std::vector<v1::Move> moves;
  for (const std::string& text : texts) {
    ONEPIECE_ASSIGN_OR_RETURN(v1::Move move, ParseMove(text));
    ONEPIECE_ASSIGN_OR_RETURN(const v1::Placement place, PlaceOf(client, move.node_id()));
    move.mutable_to()->set_pinned(place.pinned());  // A move by hand does not change the pin.
    moves.push_back(std::move(move));
  }
  return moves;
}

int RunPropose(const Context& context, client::Client& client,
               const RebalanceArguments& arguments) {
  const auto moves = ParseMoves(client, arguments.moves);
  if (!moves.ok()) return context.Fail(moves.status());
  v1::ProposePlanRequest request;
  request.mutable_moves()->Add(moves->begin(), moves->end());
  const auto plan = client.ProposePlan(request);
  if (!plan.ok()) return context.Fail(plan.status());
  context.Print(PlanDocument(*plan), PlanText(*plan, NowUnixMs()));
  if (!plan->moves().empty()) {
    std::string again = "To do this: onepiece rebalance apply";
    for (const v1::Move& move : plan->moves())
      absl::StrAppend(
          &again, " '", move.node_id(), "=",
          PoolName(move.to().workflow_set(), move.to().pool().empty() ? "idle" : move.to().pool()),
          "'");
    context.Say(absl::StrCat(again, " --base-revision ", plan->base_revision()));
  }
  return terminal::kOk;
}

int RunApply(const Context& context, client::Client& client, const RebalanceArguments& arguments) {
  const auto moves = ParseMoves(client, arguments.moves);
  if (!moves.ok()) return context.Fail(moves.status());
  return RunPlan(context, client, *moves, arguments);
}

int ShowPools(const Context& context, client::Client& client) {
  const auto elasticity = client.GetElasticity();
  if (!elasticity.ok()) return context.Fail(elasticity.status());
  context.Print(ElasticityDocument(*elasticity), ElasticityText(*elasticity, NowUnixMs()));
  return terminal::kOk;
}

int RunList(const Context& context, client::Client& client, const RebalanceArguments& arguments) {
  Json document = {{"plans", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"PLAN", "STATE", "AGE", "ACTOR", "MOVES", "REASON"}};
  v1::ListPlansRequest request;
  for (int left = arguments.limit; left > 0;) {
    request.set_page_size(left);
    const auto page = client.ListPlans(request);
    if (!page.ok()) return context.Fail(page.status());
    for (const v1::Plan& plan : page->plans()) {
      document["plans"].push_back(PlanDocument(plan));
      rows.push_back(PlanRow(plan, NowUnixMs()));
    }
    left -= page->plans_size();
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  context.Print(document, rows.size() == 1 ? "There are no plans.\n" : Table(rows));
  return terminal::kOk;
}

int RunShow(const Context& context, client::Client& client, const RebalanceArguments& arguments) {
  const auto plan = client.GetPlan(arguments.plan_id);
  if (!plan.ok()) return context.Fail(plan.status());
  context.Print(PlanDocument(*plan), PlanText(*plan, NowUnixMs()));
  return terminal::kOk;
}

v1::DecidePlanRequest Decision(const RebalanceArguments& arguments) {
  v1::DecidePlanRequest request;
  request.set_plan_id(arguments.plan_id);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  return request;
}

int RunUndo(const Context& context, client::Client& client, const RebalanceArguments& arguments) {
  const auto plan = client.UndoPlan(Decision(arguments));
  if (!plan.ok()) return context.Fail(plan.status());
  return FinishPlan(context, client, *plan, arguments.wait);
}

int RunConfirm(const Context& context, client::Client& client,
               const RebalanceArguments& arguments) {
  const auto plan = client.ConfirmPlan(Decision(arguments));
  if (!plan.ok()) return context.Fail(plan.status());
  context.Print(PlanDocument(*plan), "Plan " + plan->plan_id() + " stays.\n");
  return terminal::kOk;
}

int RunHold(const Context& context, client::Client& client, const RebalanceArguments& arguments) {
  v1::SetHoldRequest request;
  request.set_active(!arguments.release);
  request.set_for_s(arguments.hold_s);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  const auto hold = client.SetHold(request);
  if (!hold.ok()) return context.Fail(hold.status());
  context.Print(HoldDocument(*hold), HoldText(*hold, NowUnixMs()));
  return terminal::kOk;
}

int RunLimits(const Context& context, client::Client& client, const RebalanceArguments& arguments) {
  const auto place = ParsePlace(arguments.pool);
  if (!place.ok()) return context.Fail(place.status());
  v1::SetPoolLimitsRequest request;
  v1::PoolLimits& limits = *request.mutable_limits();
  limits.set_workflow_set(place->workflow_set());
  limits.set_pool(place->pool());
  limits.set_min_instances(arguments.min);
  limits.set_max_instances(arguments.max);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  const auto set = client.SetPoolLimits(request);
  if (!set.ok()) return context.Fail(set.status());
  const auto number = [](int value) {
    return value == 0 ? std::string("as the workflows say") : std::to_string(value);
  };
  context.Print({{"workflow_set", set->workflow_set()},
                 {"pool", set->pool()},
                 {"min_instances", set->min_instances()},
                 {"max_instances", set->max_instances()}},
                PoolName(set->workflow_set(), set->pool()) + ": at least " +
                    number(set->min_instances()) + ", at most " + number(set->max_instances()) +
                    " instances\n");
  return terminal::kOk;
}

void AddLimit(CLI::App& verb, RebalanceArguments& arguments) {
  verb.add_option("--limit", arguments.limit, "Lines at most")
      ->check(CLI::Range(1, kMaxLimit))
      ->capture_default_str();
}

using Bound = std::function<std::function<int(client::Client&)>(
    int (*)(const Context&, client::Client&, const RebalanceArguments&))>;

void AddPlanVerbs(CLI::App& rebalance, Context& context, RebalanceArguments& arguments,
                  const Bound& with) {
  const std::string move_help =
      "NODE=POOL, NODE=SET:POOL (another workflow set) or NODE=idle; POOL is an id of `rebalance "
      "status`, or a stage that only one pool has";
  AddManagerVerb(rebalance, context, "plan",
                 "Show what moves would do (none given: those that the policy would make); changes "
                 "nothing",
                 with(RunPropose))
      ->add_option("moves", arguments.moves, move_help);
  CLI::App* apply = AddManagerVerb(rebalance, context, "apply", "Move instances", with(RunApply));
  apply->add_option("moves", arguments.moves, move_help)->required();
  AddActorOptions(*apply, arguments);
  apply
      ->add_option("--confirm-within", arguments.confirm_within_s,
                   "Go back by itself unless `rebalance confirm` comes so many seconds after the "
                   "moves are done")
      ->check(CLI::Range(1, 86400));
  apply->add_option(
      "--base-revision", arguments.base_revision,
      "Refuse when the cluster has changed since this revision (of `rebalance plan`)");
  apply->add_flag("--yes", arguments.yes, "Do not ask (a question comes on a terminal only)");
  AddWaitOption(*apply, arguments);
  CLI::App* undo = AddManagerVerb(rebalance, context, "undo",
                                  "Bring back what a plan has moved, or stop one that is under way",
                                  with(RunUndo));
  CLI::App* confirm = AddManagerVerb(rebalance, context, "confirm",
                                     "Keep a plan that would go back by itself", with(RunConfirm));
  CLI::App* show = AddManagerVerb(rebalance, context, "show", "One plan", with(RunShow));
  for (CLI::App* verb : {undo, confirm, show})
    verb->add_option("plan", arguments.plan_id, "Plan id")->required();
  AddActorOptions(*undo, arguments);
  AddActorOptions(*confirm, arguments);
  AddWaitOption(*undo, arguments);
}

}  // namespace

void DefineRebalance(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  verb.footer(
      "A move takes an instance out of the routes, lets it finish or pass on what it holds, and "
      "loads its new\nstage; no job is lost. States and phases: docs/operation.md, \"Moving "
      "instances\".");
  const auto arguments = std::make_shared<RebalanceArguments>();
  const Bound with = [&context, arguments](auto run) {
    return [&context, arguments, run](client::Client& client) {
      return run(context, client, *arguments);
    };
  };
  AddManagerVerb(verb, context, "status",
                 "Pools and how busy they are, plans under way, and why the policy moves nothing",
                 [&context](client::Client& client) { return ShowPools(context, client); });
  AddPlanVerbs(verb, context, *arguments, with);
  AddLimit(*AddManagerVerb(verb, context, "list", "Plans, newest first", with(RunList)),
           *arguments);
  CLI::App* hold =
      AddManagerVerb(verb, context, "hold", "No automatic moves from now on; plans under way go on",
                     with(RunHold));
  CLI::Option* for_s =
      hold->add_option("--for", arguments->hold_s, "Seconds (default: until it is released)");
  for_s->check(CLI::Range(1, 30 * 86400));
  hold->add_flag("--release", arguments->release, "Let the policy move instances again")
      ->excludes(for_s);
  AddActorOptions(*hold, *arguments);
  CLI::App* limits =
      AddManagerVerb(verb, context, "limits",
                     "How many instances automatic moves leave and give a pool", with(RunLimits));
  limits->add_option("pool", arguments->pool, "POOL or SET:POOL")->required();
  limits->add_option("--min", arguments->min, "0: as the workflows say")
      ->check(CLI::Range(0, 4096));
  limits->add_option("--max", arguments->max, "0: as the workflows say")
      ->check(CLI::Range(0, 4096));
  AddActorOptions(*limits, *arguments);
  DefineAudit(
      *verb.add_subcommand("audit", "What has been changed, by whom and why: `onepiece audit`"),
      context);
}

}  // namespace onepiece::cli
