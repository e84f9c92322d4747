// The verb generate runs a whole workflow in this process, without a cluster.
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_format.h"
#include "cluster/base/seconds.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "cluster/local/resources.h"
#include "cluster/terminal/job_arguments.h"
#include "cluster/terminal/progress_bar.h"
#include "cluster/workflow/graph.h"
#include "cluster/workflow/input_check.h"
#include "cluster/workflow/parameter_check.h"
#include "cluster/workflow/workflow_check.h"
#include "stages/model/verbs.h"
#include "stages/runtime/fused_workflow.h"
#include "stages/runtime/plugin_stages.h"

namespace onepiece::model {
namespace {

struct GenerateArguments {
  terminal::JobArguments job;
  std::string workflow_file, model_root;
};

absl::StatusOr<v1::Workflow> LoadWorkflow(const GenerateArguments& arguments) {
  std::string file = arguments.workflow_file;
  if (file.empty()) {
    auto found = local::ResourcePath("workflows/" + arguments.job.app + ".yaml");
    if (!found.ok()) {
      return base::MakeError(
          absl::StatusCode::kNotFound, "UNKNOWN_APP",
          "no application \"" + arguments.job.app + "\" is shipped; name its file with --workflow");
    }
    file = *found;
  }
  v1::Workflow workflow;
  ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(file, &workflow));
  ONEPIECE_RETURN_IF_ERROR(workflow::CheckWorkflow(workflow));
  return workflow;
}

absl::StatusOr<runtime::FusedWorkflow> LoadFused(const v1::Workflow& workflow,
                                                 const std::string& model_root) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string plugin_dir, local::PluginDir());
  const workflow::Graph graph(workflow);
  std::vector<runtime::FusedWorkflow::StagePlan> stages;
  for (const auto& spec : workflow.stages()) {
    runtime::StageAssignment stage;
    stage.stage = spec.stage();
    stage.plugin = spec.plugin();
    if (!spec.model().empty())
      stage.load.model_dir = (std::filesystem::path(model_root) / spec.model()).string();
    stage.load.threads = std::max(1, spec.threads());
    if (!spec.precision().empty()) stage.load.precision = spec.precision();
    const auto predecessors = graph.Predecessors(spec.stage());
    stages.push_back({std::move(stage), {predecessors.begin(), predecessors.end()}});
  }
  return runtime::FusedWorkflow::Load(stages, runtime::StagesFromPlugins(plugin_dir));
}

terminal::Json ArtifactDocument(const message::Artifact& artifact) {
  return {{"artifact", artifact.name},
          {"media_type", artifact.media_type},
          {"bytes", artifact.data.size()},
          {"sha256", base::Sha256Hex(artifact.data.text())}};
}

absl::StatusOr<std::vector<std::string>> Save(const std::vector<message::Artifact>& artifacts,
                                              const std::string& path) {
  std::vector<const message::Artifact*> main;
  for (const auto& artifact : artifacts) {
    if (artifact.media_type == artifacts.front().media_type) main.push_back(&artifact);
  }
  std::vector<std::string> files;
  for (std::size_t i = 0; i < main.size(); ++i) {
    files.push_back(terminal::NumberedPath(path, i, main.size()));
    std::ofstream file(files.back(), std::ios::binary | std::ios::trunc);
    file << main[i]->data.text();
    file.close();
    if (!file) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                             "cannot write " + files.back());
    }
  }
  return files;
}

std::vector<message::Artifact> TakeArtifacts(terminal::JobInputs inputs) {
  std::vector<message::Artifact> artifacts;
  for (v1::JobInput& input : inputs) {
    artifacts.push_back(
        message::BytesArtifact(input.name(), input.media_type(), std::move(*input.mutable_data())));
  }
  return artifacts;
}

absl::StatusOr<runtime::FusedWorkflow::RunResult> Compute(const terminal::Output& output,
                                                          const GenerateArguments& arguments) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Workflow workflow, LoadWorkflow(arguments));
  ONEPIECE_ASSIGN_OR_RETURN(const google::protobuf::Struct given, arguments.job.Parameters());
  ONEPIECE_ASSIGN_OR_RETURN(const message::Parameters parameters,
                            workflow::CheckParameters(workflow, given));
  ONEPIECE_ASSIGN_OR_RETURN(terminal::JobInputs inputs, arguments.job.Inputs());
  ONEPIECE_RETURN_IF_ERROR(workflow::CheckInputs(workflow, inputs));
  std::string model_root = arguments.model_root;
  if (model_root.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(model_root, local::ResourcePath("models"));
  }
  ONEPIECE_ASSIGN_OR_RETURN(runtime::FusedWorkflow fused, LoadFused(workflow, model_root));
  const double limit_s = arguments.job.deadline_s > 0        ? arguments.job.deadline_s
                         : workflow.default_deadline_s() > 0 ? workflow.default_deadline_s()
                                                             : 600;
  const base::Duration limit = base::FromSeconds(limit_s);
  terminal::ProgressBar bar(output);
  return fused.Run(
      parameters, TakeArtifacts(std::move(inputs)), base::SystemClock().Now() + limit,
      [&](const std::string& stage, int stage_index, int step, int steps) {
        const double done = stage_index + (steps > 0 ? static_cast<double>(step) / steps : 0);
        bar.Show(done / workflow.stages_size(), absl::StrFormat("%s %d/%d", stage, step, steps));
      });
}

int RunGenerate(const terminal::Output& output, const GenerateArguments& arguments) {
  const auto start = base::SystemClock().Now();
  const auto result = Compute(output, arguments);
  if (!result.ok()) return output.Fail(result.status());
  const double wall_s = base::ToSeconds(base::SystemClock().Now() - start);
  if (result->artifacts.empty())
    return output.Fail(absl::InternalError("the last stage made nothing"));
  std::vector<std::string> files;
  if (!arguments.job.output.empty()) {
    auto saved = Save(result->artifacts, arguments.job.output);
    if (!saved.ok()) return output.Fail(saved.status());
    files = *std::move(saved);
  }
  terminal::Json document = {
      {"app", arguments.job.app}, {"state", "SUCCEEDED"}, {"wall_s", wall_s}};
  const terminal::Json main = ArtifactDocument(result->artifacts.front());
  for (const char* key : {"media_type", "bytes", "sha256"}) document[key] = main[key];
  document["timings"] = terminal::Json::array();
  document["artifacts"] = terminal::Json::array();
  std::string text;
  for (const auto& time : result->times) {
    document["timings"].push_back(
        {{"stage", time.stage}, {"compute_s", base::ToSeconds(time.compute)}});
    text += absl::StrFormat("  %-16s %.3f s\n", time.stage, base::ToSeconds(time.compute));
  }
  for (const auto& artifact : result->artifacts)
    document["artifacts"].push_back(ArtifactDocument(artifact));
  document["files"] = files;
  for (const auto& file : files) text += file + "\n";
  output.Print(document, text);
  return terminal::kOk;
}

}  // namespace

void DefineGenerate(CLI::App& verb, terminal::Output& output) {
  const auto arguments = std::make_shared<GenerateArguments>();
  arguments->job.AddTo(verb);
  verb.add_option("--workflow", arguments->workflow_file,
                  "Workflow file (default: the shipped one of --app)");
  verb.add_option("--model-root", arguments->model_root,
                  "Folder of the models (default: the shipped ones)");
  verb.callback([&output, arguments] {
    output.action = [&output, arguments] { return RunGenerate(output, *arguments); };
  });
}

}  // namespace onepiece::model
