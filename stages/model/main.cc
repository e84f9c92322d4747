// `onepiece-model` works with models without a cluster. `onepiece generate|verify|inspect` runs it.
// It does not link LibTorch; the stage plug-ins that it loads do.
#include "stages/model/verbs.h"

int main(int argc, char** argv) {
  using namespace onepiece;
  CLI::App app{"Models without a cluster", "onepiece"};
  terminal::Output output;
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", output.json, "Print one JSON document on stdout and nothing else there");
  model::DefineGenerate(*app.add_subcommand("generate", "Run a whole workflow in this process"),
                        output);
  model::DefineVerify(
      *app.add_subcommand("verify", "Compare this build's numbers with recorded ones"), output);
  model::DefineInspect(
      *app.add_subcommand("inspect", "Components, parameters, dtypes and memory of a model folder"),
      output);
  return terminal::RunCommandLine(app, output, argc, argv);
}
