// `onepiece`: the command line of a cluster.
#include <algorithm>
#include <iostream>
#include <string_view>

#include "cluster/base/status.h"
#include "cluster/cli/context.h"
#include "cluster/cli/verbs.h"
#include "cluster/cli/verbs_db.h"
#include "cluster/service/options.h"

int main(int argc, char** argv) {
  using namespace onepiece;
  CLI::App app{"OnePiece: multi-stage generative workflows on a cluster", "onepiece"};
  cli::Context context;
  context.data_dir = service::DefaultStateDir();
  app.set_version_flag("--version", "onepiece " ONEPIECE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(cli::ExitCodesHelp());
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
  app.add_flag("--json", context.json, "Print one JSON document on stdout and nothing else there");
  cli::AddClusterVerbs(app, context);
  cli::AddConsensusVerbs(app, context);
  cli::AddRebalanceVerbs(app, context);
  cli::AddDrainVerbs(app, context);
  cli::AddDatabaseVerbs(app, context);
  cli::AddRingVerbs(app, context);
  cli::AddLogVerbs(app, context);
  cli::AddSubmitVerb(app, context);
  cli::AddJobVerbs(app, context);
  cli::AddGenerateVerb(app, context);
  cli::AddModelVerbs(app, context);
  cli::AddWorkflowVerbs(app, context);
  cli::AddSimulateVerb(app, context);
  cli::AddRecordVerbs(app, context);
  cli::AddBenchVerbs(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    // The flag may not have been read yet.
    context.json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
    const int code = context.Fail(
        base::MakeError(absl::StatusCode::kInvalidArgument, "USAGE", error.what()), cli::kUsage);
    std::cerr << "Run `onepiece --help` or `onepiece VERB --help`.\n";
    return code;
  }
  return context.action();
}
