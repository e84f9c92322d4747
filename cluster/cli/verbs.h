// The verbs of `onepiece`, one function for each group; each adds subcommands that set
// Context::action.
#pragma once

#include <CLI/CLI.hpp>

#include "cluster/cli/context.h"

namespace onepiece::cli {

/// up, down, status, and the hidden supervisor.
void AddClusterVerbs(CLI::App& app, Context& context);
/// cluster status, members, add, remove, replace, step-down, snapshot, log.
void AddConsensusVerbs(CLI::App& app, Context& context);
/// rebalance plan, apply, status, list, show, undo, confirm, hold, limits, audit.
void AddRebalanceVerbs(CLI::App& app, Context& context);
/// drain, pin, unpin.
void AddDrainVerbs(CLI::App& app, Context& context);
/// rings.
void AddRingVerbs(CLI::App& app, Context& context);
/// logs.
void AddLogVerbs(CLI::App& app, Context& context);
/// submit.
void AddSubmitVerb(CLI::App& app, Context& context);
/// get, jobs, watch, cancel, delete.
void AddJobVerbs(CLI::App& app, Context& context);
/// generate.
void AddGenerateVerb(CLI::App& app, Context& context);
/// verify, inspect.
void AddModelVerbs(CLI::App& app, Context& context);
/// workflow check, workflow list.
void AddWorkflowVerbs(CLI::App& app, Context& context);
/// simulate.
void AddSimulateVerb(CLI::App& app, Context& context);
/// record, show.
void AddRecordVerbs(CLI::App& app, Context& context);
/// bench hop, bench ring, bench fabric.
void AddBenchVerbs(CLI::App& app, Context& context);

}  // namespace onepiece::cli
