#include "cluster/cli/plan_verbs.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/cli/plan_output.h"
#include "cluster/terminal/interrupt.h"
#include "cluster/workflow/pool.h"

namespace onepiece::cli {
namespace {

// No plan takes this long, because each phase of its moves has its own limit.
constexpr std::chrono::hours kWaitLimit(1);

std::string DefaultActor() {
  const passwd* user = getpwuid(geteuid());
  return absl::StrCat("operator:", user == nullptr ? std::to_string(geteuid()) : user->pw_name);
}

/// Writes the phases of the moves: "instance-3 DRAINING, instance-4 PENDING".
std::string PhasesText(const v1::Plan& plan) {
  std::string text;
  for (const v1::Move& move : plan.moves()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", move.node_id(), " ",
                    v1::Move::Phase_Name(move.phase()));
    if (!move.detail().empty()) absl::StrAppend(&text, " (", move.detail(), ")");
  }
  return text;
}

absl::StatusOr<v1::Plan> Await(const Context& context, client::Client& client,
                               const std::string& plan_id) {
  const terminal::Interrupt interrupt;
  std::string said;
  return client.AwaitPlan(
      plan_id,
      [&](const v1::Plan& plan) {
        const std::string text = PhasesText(plan);
        if (text != said) context.Say(text);
        said = text;
      },
      base::SystemClock().Now() + base::Scaled(kWaitLimit), interrupt.token());
}

}  // namespace

bool AskOnTerminal() {
  std::cerr << "Do this? [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

std::int64_t NowUnixMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

void AddActorOption(CLI::App& verb, PlanArguments& arguments) {
  if (arguments.actor.empty()) arguments.actor = DefaultActor();
  verb.add_option("--actor", arguments.actor, "Who does this, for the audit log")
      ->capture_default_str();
}

void AddActorOptions(CLI::App& verb, PlanArguments& arguments) {
  AddActorOption(verb, arguments);
  verb.add_option("--reason", arguments.reason, "Why, for the audit log");
}

void AddWaitOption(CLI::App& verb, PlanArguments& arguments) {
  verb.add_flag("--wait", arguments.wait,
                "Wait until the plan has ended, with its progress on stderr; exit code 1 when it "
                "did not reach its end");
}

int FinishPlan(const Context& context, client::Client& client, const v1::Plan& plan, bool wait,
               const std::string& after) {
  if (!wait) {
    context.Print(PlanDocument(plan), PlanText(plan, NowUnixMs()));
    context.Say(absl::StrCat("Follow it: onepiece rebalance show ", plan.plan_id(),
                             "    Take it back: onepiece rebalance undo ", plan.plan_id()));
    if (!after.empty()) context.Say(after);
    return terminal::kOk;
  }
  const auto ended = Await(context, client, plan.plan_id());
  if (!ended.ok()) return context.Fail(ended.status());
  context.Print(PlanDocument(*ended), PlanText(*ended, NowUnixMs()));
  const bool good =
      plan.state() == v1::Plan::REVERTING
          ? ended->state() == v1::Plan::REVERTED
          : ended->state() == v1::Plan::DONE || ended->state() == v1::Plan::UNCONFIRMED;
  if (good && !after.empty()) context.Say(after);
  return good ? terminal::kOk : terminal::kFailure;
}

int RunPlan(const Context& context, client::Client& client, const std::vector<v1::Move>& moves,
            const PlanArguments& arguments, const std::string& after) {
  v1::ApplyPlanRequest request;
  request.mutable_moves()->Add(moves.begin(), moves.end());
  request.set_base_revision(arguments.base_revision);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  request.set_confirm_within_s(arguments.confirm_within_s);
  if (!arguments.yes && !context.json && isatty(STDIN_FILENO) == 1) {
    v1::ProposePlanRequest propose;
    *propose.mutable_moves() = request.moves();
    const auto proposed = client.ProposePlan(propose);
    if (!proposed.ok()) return context.Fail(proposed.status());
    context.Say(PlanText(*proposed, NowUnixMs()));
    if (!AskOnTerminal()) {
      return context.Fail(
          base::MakeError(absl::StatusCode::kAborted, "NOT_CONFIRMED", "nothing has been changed"));
    }
    // The base revision makes sure that the plan does what was shown, or is refused.
    if (request.base_revision() == 0) request.set_base_revision(proposed->base_revision());
  }
  const auto plan = client.ApplyPlan(request);
  if (!plan.ok()) return context.Fail(plan.status());
  return FinishPlan(context, client, *plan, arguments.wait, after);
}

absl::StatusOr<v1::Placement> PlaceOf(client::Client& client, const std::string& node_id) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, client.GetCluster());
  const auto node = std::ranges::find(cluster.nodes(), node_id, &v1::Node::node_id);
  if (node == cluster.nodes().end()) {
    return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                           "there is no node '" + node_id + "' (see `onepiece status`)");
  }
  if (node->role() != v1::INSTANCE) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NOT_AN_INSTANCE",
                           "'" + node_id + "' is no workflow instance; only those can be moved");
  }
  if (node->has_placement()) return node->placement();
  v1::Placement placement;
  placement.set_workflow_set(node->workflow_set());
  if (node->assignment().has_stage())
    placement.set_pool(workflow::PoolIdOf(node->assignment().stage()));
  return placement;
}

}  // namespace onepiece::cli
