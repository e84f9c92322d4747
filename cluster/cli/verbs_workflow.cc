// The verbs workflow check and workflow list.
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/cli/verbs.h"
#include "cluster/config/yaml.h"
#include "cluster/workflow/workflow_check.h"

namespace onepiece::cli {
namespace {

std::vector<std::string> StageNames(const v1::Workflow& workflow) {
  std::vector<std::string> names;
  for (const auto& stage : workflow.stages()) names.push_back(stage.stage());
  return names;
}

int RunCheck(const Context& context, const std::string& file) {
  v1::Workflow workflow;
  absl::Status status = config::LoadYamlFile(file, &workflow);
  if (status.ok()) {
    status = workflow::CheckWorkflow(workflow);
    if (!status.ok()) status = base::Annotate(status, file);
  }
  if (!status.ok()) return context.Fail(status, terminal::kBadConfig);
  const auto stages = StageNames(workflow);
  context.Print(
      {{"file", file}, {"app", workflow.app_id()}, {"stages", stages}, {"ok", true}},
      file + ": ok, application " + workflow.app_id() + " (" + absl::StrJoin(stages, " → ") + ")");
  return terminal::kOk;
}

int RunList(const Context& context) {
  const auto client = context.MakeManagerClient();
  if (!client.ok()) return context.Fail(client.status());
  const auto cluster = (*client)->GetCluster();
  if (!cluster.ok()) return context.Fail(cluster.status());
  Json document = {{"workflows", Json::array()}};
  std::string text;
  for (const auto& workflow : cluster->workflows()) {
    Json parameters = Json::array();
    text += absl::StrFormat("%-20s %s (%s)\n", workflow.app_id(), workflow.display_name(),
                            absl::StrJoin(StageNames(workflow), " → "));
    for (const auto& parameter : workflow.parameters()) {
      const std::string type = v1::ParameterSpec::Type_Name(parameter.type());
      parameters.push_back({{"name", parameter.name()},
                            {"type", type},
                            {"required", parameter.required()},
                            {"default", parameter.default_value()},
                            {"description", parameter.description()}});
      text += absl::StrFormat("  %-18s %-8s %-10s %s\n", parameter.name(), type,
                              parameter.required() ? "required" : parameter.default_value(),
                              parameter.description());
    }
    Json inputs = Json::array();
    for (const auto& input : workflow.inputs()) {
      inputs.push_back({{"name", input.name()},
                        {"required", input.required()},
                        {"media_types", std::vector<std::string>(input.media_types().begin(),
                                                                 input.media_types().end())},
                        {"description", input.description()}});
      text += absl::StrFormat("  %-18s %-8s %-10s %s\n", input.name(), "FILE",
                              input.required() ? "required" : "", input.description());
    }
    document["workflows"].push_back({{"app", workflow.app_id()},
                                     {"display_name", workflow.display_name()},
                                     {"stages", StageNames(workflow)},
                                     {"parameters", parameters},
                                     {"inputs", inputs}});
  }
  context.Print(document, text);
  return terminal::kOk;
}

}  // namespace

void DefineWorkflow(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  const auto file = std::make_shared<std::string>();
  CLI::App* check =
      verb.add_subcommand("check", "Check a workflow file (YAML) as the NodeManager would");
  check->add_option("file", *file, "Workflow file")->required();
  check->callback(
      [&context, file] { context.action = [&context, file] { return RunCheck(context, *file); }; });
  verb.add_subcommand("list", "List the cluster's applications, their parameters and inputs")
      ->callback([&context] { context.action = [&context] { return RunList(context); }; });
}

}  // namespace onepiece::cli
