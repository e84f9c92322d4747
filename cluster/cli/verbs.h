// The verbs of `onepiece`. One table says which verbs there are, what each does, and which program
// serves it. Help, completion and docs/cli.md follow the table.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

#include "cluster/cli/context.h"

namespace onepiece::cli {

struct Verb {
  std::string_view name;  ///< "submit". "bench ring" is the verb `ring` of the verb `bench`.
  std::string_view help;  ///< One line for --help. Empty hides the verb.
  /// Adds the verb's options, and the callback that sets Context::action. Null when another program
  /// serves the verb, and for a verb that only groups its own verbs.
  void (*define)(CLI::App& verb, Context& context) = nullptr;
  /// The program that serves the verb, with its first arguments: "onepiece-bench ring".
  const char* program = nullptr;
  /// Tells people where that program comes from, when it is missing: "It is built with …".
  const char* origin = nullptr;
};

/// Returns every verb, in the order of --help. A verb comes before its own verbs.
std::span<const Verb> Verbs();

void DefineUp(CLI::App& verb, Context& context);
void DefineSupervise(CLI::App& verb, Context& context);
void DefineDown(CLI::App& verb, Context& context);
void DefineStatus(CLI::App& verb, Context& context);
void DefineCluster(CLI::App& verb, Context& context);
void DefineClusterBackup(CLI::App& verb, Context& context);
void DefineInit(CLI::App& verb, Context& context);
void DefineJoin(CLI::App& verb, Context& context);
void DefineContext(CLI::App& verb, Context& context);
void DefineWhoAmI(CLI::App& verb, Context& context);
void DefineToken(CLI::App& verb, Context& context);
void DefineCert(CLI::App& verb, Context& context);
/// The verbs of `cert` that ask the cluster.
void AddClusterCertVerbs(CLI::App& cert, Context& context);
void DefineUsage(CLI::App& verb, Context& context);
void DefineAudit(CLI::App& verb, Context& context);
void DefineNode(CLI::App& verb, Context& context);
void DefineConfig(CLI::App& verb, Context& context);
void DefineApply(CLI::App& verb, Context& context);
void DefineRebalance(CLI::App& verb, Context& context);
void DefineDrain(CLI::App& verb, Context& context);
void DefinePin(CLI::App& verb, Context& context);
void DefineUnpin(CLI::App& verb, Context& context);
void DefineDatabase(CLI::App& verb, Context& context);
void DefineRings(CLI::App& verb, Context& context);
void DefineLogs(CLI::App& verb, Context& context);
void DefineSubmit(CLI::App& verb, Context& context);
void DefineGet(CLI::App& verb, Context& context);
void DefineCancel(CLI::App& verb, Context& context);
void DefineDelete(CLI::App& verb, Context& context);
void DefineWatch(CLI::App& verb, Context& context);
void DefineJobs(CLI::App& verb, Context& context);
void DefineWorkflow(CLI::App& verb, Context& context);
void DefineRecord(CLI::App& verb, Context& context);
void DefineShow(CLI::App& verb, Context& context);
void DefineCompletion(CLI::App& verb, Context& context);

}  // namespace onepiece::cli
