// The verbs that look into the results databases.
#pragma once

#include <CLI/CLI.hpp>

#include "cluster/cli/context.h"

namespace onepiece::cli {

/// db stats, list, get, purge.
void AddDatabaseVerbs(CLI::App& app, Context& context);

}  // namespace onepiece::cli
