// What the verbs that start plans share: options, the question, applying and waiting.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cli/context.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::cli {

/// "Do this?" on stderr, and the answer of whoever sits at the terminal.
bool AskOnTerminal();

/// Who changes something, why, and how.
struct PlanArguments {
  std::string actor, reason;
  std::uint64_t base_revision = 0;
  int confirm_within_s = 0;
  bool yes = false, wait = false;
};

/// --actor (default "operator:$USER") and --reason.
void AddActorOptions(CLI::App& verb, PlanArguments& arguments);
/// --wait.
void AddWaitOption(CLI::App& verb, PlanArguments& arguments);

/// Shows what the moves would do, asks on a terminal unless `yes`, starts the plan, and with `wait`
/// follows it. `after`: for people, said once the plan is DONE, or, without `wait`, has begun.
/// Returns the exit code.
int RunPlan(const Context& context, client::Client& client, const std::vector<v1::Move>& moves,
            const PlanArguments& arguments, const std::string& after = "");

/// Prints the plan; with `wait` once it has settled, and with its progress on stderr. 1 when it
/// ended otherwise than DONE or UNCONFIRMED; a plan that goes back shall be REVERTED.
int FinishPlan(const Context& context, client::Client& client, const v1::Plan& plan, bool wait,
               const std::string& after = "");

/// The node's present place. Errors: NOT_FOUND (NODE_UNKNOWN), INVALID_ARGUMENT
/// (NOT_AN_INSTANCE).
absl::StatusOr<v1::Placement> PlaceOf(client::Client& client, const std::string& node_id);

/// Milliseconds since the Unix epoch.
std::int64_t NowUnixMs();

}  // namespace onepiece::cli
