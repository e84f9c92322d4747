// The verbs drain, pin and unpin.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/cli/verbs.h"

namespace onepiece::cli {
namespace {

struct DrainArguments : PlanArguments {
  std::string node_id;
  bool cancel = false;
};

constexpr int kPageSize = 100;

v1::Move MoveTo(const std::string& node_id, const v1::Placement& place) {
  v1::Move move;
  move.set_node_id(node_id);
  *move.mutable_to() = place;
  return move;
}

/// Returns the last plan that took the node out and was not reverted or undone.
absl::StatusOr<std::string> FindDrain(client::Client& client, const std::string& node_id) {
  v1::ListPlansRequest request;
  request.set_page_size(kPageSize);
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::ListPlansResponse page, client.ListPlans(request));
    for (const v1::Plan& plan : page.plans()) {
      const bool stands = plan.undone_by().empty() && plan.state() != v1::Plan::REVERTED &&
                          plan.state() != v1::Plan::REVERTING;
      const auto drains = [&](const v1::Move& move) {
        return move.node_id() == node_id && move.to().removed();
      };
      if (stands && std::ranges::any_of(plan.moves(), drains)) return plan.plan_id();
    }
    if (page.next_page_token().empty()) break;
    request.set_page_token(page.next_page_token());
  }
  return base::MakeError(absl::StatusCode::kNotFound, "PLAN_UNKNOWN",
                         "no plan has drained '" + node_id + "' (see `onepiece rebalance list`)");
}

int RunCancel(const Context& context, client::Client& client, const DrainArguments& arguments) {
  const auto plan_id = FindDrain(client, arguments.node_id);
  if (!plan_id.ok()) return context.Fail(plan_id.status());
  v1::DecidePlanRequest request;
  request.set_plan_id(*plan_id);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  const auto plan = client.UndoPlan(request);
  if (!plan.ok()) return context.Fail(plan.status());
  return FinishPlan(context, client, *plan, arguments.wait,
                    "'" + arguments.node_id + "' comes back.");
}

int RunDrain(const Context& context, client::Client& client, const DrainArguments& arguments) {
  if (arguments.cancel) return RunCancel(context, client, arguments);
  auto place = PlaceOf(client, arguments.node_id);
  if (!place.ok()) return context.Fail(place.status());
  place->clear_pool();
  place->set_removed(true);
  const std::string& node = arguments.node_id;
  const std::string after =
      (arguments.wait
           ? absl::StrCat("'", node, "' is drained: it is safe to remove (stop its process).")
           : absl::StrCat("It is safe to remove when `onepiece status` shows DRAINED.")) +
      absl::StrCat("\nBring it back: onepiece drain ", node, " --cancel");
  return RunPlan(context, client, {MoveTo(node, *place)}, arguments, after);
}

int RunPin(const Context& context, client::Client& client, const DrainArguments& arguments,
           bool pinned) {
  auto place = PlaceOf(client, arguments.node_id);
  if (!place.ok()) return context.Fail(place.status());
  if (place->pinned() == pinned) {
    context.Print(
        {{"node_id", arguments.node_id}, {"pinned", pinned}, {"changed", false}},
        absl::StrCat("'", arguments.node_id, "' is ", pinned ? "" : "not ", "pinned already.\n"));
    return terminal::kOk;
  }
  place->set_pinned(pinned);
  PlanArguments plan = arguments;
  plan.yes = true;  // Nothing moves, so there is nothing to ask.
  plan.wait = true;
  return RunPlan(context, client, {MoveTo(arguments.node_id, *place)}, plan);
}

void AddNodeOptions(CLI::App& verb, DrainArguments& arguments) {
  verb.add_option("node", arguments.node_id, "Node id of the instance")->required();
  AddActorOptions(verb, arguments);
}

}  // namespace

void DefineDrain(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<DrainArguments>();
  OnManager(verb, context,
            [&context, arguments](auto& client) { return RunDrain(context, client, *arguments); });
  AddNodeOptions(verb, *arguments);
  AddWaitOption(verb, *arguments);
  verb.add_flag("--yes", arguments->yes, "Do not ask (a question comes on a terminal only)");
  verb.add_flag("--cancel", arguments->cancel, "Bring back an instance that was drained");
}

void DefinePin(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<DrainArguments>();
  OnManager(verb, context, [&context, arguments](auto& client) {
    return RunPin(context, client, *arguments, true);
  });
  AddNodeOptions(verb, *arguments);
}

void DefineUnpin(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<DrainArguments>();
  OnManager(verb, context, [&context, arguments](auto& client) {
    return RunPin(context, client, *arguments, false);
  });
  AddNodeOptions(verb, *arguments);
}

}  // namespace onepiece::cli
