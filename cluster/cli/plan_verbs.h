// The shared parts of the verbs that start plans: options, the question, applying and waiting.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cli/context.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::cli {

/// Asks "Do this?" on stderr and returns the answer of the person at the terminal.
bool AskOnTerminal();

/// Says who changes something, why, and how.
struct PlanArguments {
  std::string actor, reason;
  std::uint64_t base_revision = 0;
  int confirm_within_s = 0;
  bool yes = false, wait = false;
};

/// Adds --actor (default "operator:$USER").
void AddActorOption(CLI::App& verb, PlanArguments& arguments);
/// Adds --actor and --reason.
void AddActorOptions(CLI::App& verb, PlanArguments& arguments);
/// Adds --wait.
void AddWaitOption(CLI::App& verb, PlanArguments& arguments);

/// Shows what the moves would do, asks on a terminal unless `yes`, starts the plan, and follows it
/// with `wait`. `after` is a message for people, which is written once the plan is DONE or, without
/// `wait`, has begun. Returns the exit code.
int RunPlan(const Context& context, client::Client& client, const std::vector<v1::Move>& moves,
            const PlanArguments& arguments, const std::string& after = "");

/// Prints the plan. With `wait` it shows the progress on stderr and prints the plan once it has
/// settled. Returns exit code 1 when the plan ended otherwise than DONE or UNCONFIRMED, or, for a
/// plan that is being reverted, otherwise than REVERTED.
int FinishPlan(const Context& context, client::Client& client, const v1::Plan& plan, bool wait,
               const std::string& after = "");

/// Returns the node's present place.
///
/// Errors: NOT_FOUND (NODE_UNKNOWN), INVALID_ARGUMENT (NOT_AN_INSTANCE).
absl::StatusOr<v1::Placement> PlaceOf(client::Client& client, const std::string& node_id);

/// Returns the present time in milliseconds since the Unix epoch.
std::int64_t NowUnixMs();

}  // namespace onepiece::cli
