// The verbs of `onepiece-model`, which work with a model without a cluster.
#pragma once

#include <CLI/CLI.hpp>

#include "cluster/terminal/output.h"

namespace onepiece::model {

/// Each adds the options of one verb, and the callback that sets `output.action`.
void DefineGenerate(CLI::App& verb, terminal::Output& output);
void DefineVerify(CLI::App& verb, terminal::Output& output);
void DefineInspect(CLI::App& verb, terminal::Output& output);

}  // namespace onepiece::model
