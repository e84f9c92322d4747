// `onepiece`: the command line of a cluster.
#include <map>
#include <string>
#include <vector>

#include "cluster/cli/context.h"
#include "cluster/cli/program.h"
#include "cluster/cli/verbs.h"
#include "cluster/local/identities.h"
#include "cluster/service/options.h"
#include "cluster/terminal/exit_code.h"

namespace onepiece::cli {
namespace {

void AddGlobalOptions(CLI::App& app, Context& context) {
  app.set_version_flag("--version", "onepiece " ONEPIECE_VERSION);
  app.add_option("--data-dir", context.data_dir,
                 "The embedded cluster's directory (after any verb)")
      ->envname("ONEPIECE_DATA_DIR")
      ->capture_default_str();
  app.add_option("--nodemanager", context.nodemanagers,
                 "Talk to the cluster of these NodeManagers (host:port,…)")
      ->envname("ONEPIECE_NODEMANAGER")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--proxy", context.proxies,
                 "Send jobs to these proxies (host:port,…), whatever the NodeManager does")
      ->envname("ONEPIECE_PROXIES")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--identity", context.identity,
                 "Folder of the client certificate to show (default: identity in --data-dir)")
      ->envname("ONEPIECE_IDENTITY");
  app.add_option("--context", context.context,
                 "The cluster of this context (see `onepiece context list`)")
      ->envname("ONEPIECE_CONTEXT");
  app.add_flag("--json", context.json, "Print one JSON document on stdout and nothing else there");
}

void AddVerbs(CLI::App& app, Context& context) {
  std::map<std::string_view, CLI::App*> parents;
  for (const Verb& verb : Verbs()) {
    const std::size_t space = verb.name.find(' ');
    CLI::App& parent =
        space == std::string_view::npos ? app : *parents.at(verb.name.substr(0, space));
    const std::string_view word =
        space == std::string_view::npos ? verb.name : verb.name.substr(space + 1);
    CLI::App* added = parent.add_subcommand(std::string(word), std::string(verb.help));
    if (verb.help.empty()) added->group("");
    if (verb.define != nullptr) verb.define(*added, context);
    // FindProgramCall() finds the calls as people write them. What only the parser understands
    // ("--json=true") comes here.
    if (verb.program != nullptr) {
      added->callback([&context, &verb] {
        context.action = [&context, &verb] {
          ProgramCall call{.verb = &verb, .arguments = {}};
          if (context.json) call.arguments.emplace_back("--json");
          return RunProgram(context, call);
        };
      });
    }
    // A verb that has neither a function nor a program only groups its own verbs.
    if (verb.define == nullptr && verb.program == nullptr) added->require_subcommand(1);
    parents[verb.name] = added;
  }
}

int Main(int argc, char** argv) {
  local::PrepareCalls();
  Context context;
  const std::vector<std::string> command_line(argv + 1, argv + argc);
  if (const auto call = FindProgramCall(command_line); call.has_value()) {
    context.json = std::ranges::find(call->arguments, "--json") != call->arguments.end();
    return RunProgram(context, *call);
  }
  context.data_dir = service::DefaultStateDir();
  CLI::App app{"OnePiece: multi-stage generative workflows on a cluster", "onepiece"};
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(terminal::ExitCodesHelp());
  AddGlobalOptions(app, context);
  AddVerbs(app, context);
  return terminal::RunCommandLine(app, context, argc, argv);
}

}  // namespace
}  // namespace onepiece::cli

int main(int argc, char** argv) { return onepiece::cli::Main(argc, argv); }
