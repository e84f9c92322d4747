// Runs verbs that another program serves: `onepiece simulate …` becomes `onepiece-simulate …`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/cli/context.h"
#include "cluster/cli/verbs.h"

namespace onepiece::cli {

/// A call of a verb that another program serves.
struct ProgramCall {
  const Verb* verb = nullptr;
  /// The arguments after the verb, without the global options that name a cluster, which the
  /// programs do not take. --json is among them, wherever it stood.
  std::vector<std::string> arguments;
  /// What --identity named. Programs are told in the environment, as ONEPIECE_IDENTITY.
  std::string identity;
};

/// Returns the call that a command line (without the program's own name) means. It is absent when
/// `onepiece` itself serves the verb, or when there is no such verb.
std::optional<ProgramCall> FindProgramCall(std::span<const std::string> command_line);

/// Replaces this process by the program. Returns only when that fails, with the exit code.
///
/// Errors: FAILED_PRECONDITION (NOT_INSTALLED: there is no such program beside this one or in
/// $ONEPIECE_BIN_DIR).
int RunProgram(const terminal::Output& output, const ProgramCall& call);

}  // namespace onepiece::cli
