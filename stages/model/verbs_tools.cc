// verify, inspect: what a plug-in's model tools say.
#include <filesystem>
#include <map>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/cli/verbs.h"
#include "cluster/local/resources.h"
#include "stages/sdk/plugin_loader.h"

namespace onepiece::cli {
namespace {

struct ModelArguments {
  std::string dir, reference, expect, device = "cpu";
  double tolerance = 1e-4;
  int threads = 1;
  bool hash = false;
};

/// The loader must outlive the tools' use only by form: plug-ins are never unloaded.
absl::StatusOr<const sdk::ModelTools*> LoadTools() {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string directory, local::PluginDir());
  sdk::PluginLoader loader;
  ONEPIECE_RETURN_IF_ERROR(loader.LoadDirectory(directory));
  return loader.Tools();
}

absl::Status CheckDir(const std::string& dir) {
  if (std::filesystem::is_directory(dir)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kNotFound, "NO_SUCH_FOLDER", "no folder " + dir,
                         {{"path", dir}});
}

Json VerifyDocument(const sdk::VerifyReport& report, double tolerance) {
  Json document = {{"component", report.component},
                   {"outputs", Json::array()},
                   {"compared", report.outputs.size()},
                   {"total", report.total},
                   {"tolerance", tolerance},
                   {"ok", report.ok()}};
  for (const auto& output : report.outputs) {
    document["outputs"].push_back(
        {{"name", output.name}, {output.metric, output.error}, {"tolerance", output.tolerance}});
  }
  if (!report.skipped.empty()) document["skipped"] = report.skipped;
  return document;
}

std::string VerifyText(const sdk::VerifyReport& report) {
  std::string text = report.component + "\n";
  for (const auto& output : report.outputs) {
    const bool ok = output.error <= output.tolerance;
    text += absl::StrFormat("  %-4s %-32s %s %.3e (at most %.1e)\n", ok ? "ok" : "BAD", output.name,
                            output.metric, output.error, output.tolerance);
  }
  for (const auto& name : report.skipped) text += "  not compared: " + name + "\n";
  text += absl::StrFormat("%s: %d of %d recorded outputs compared\n", report.ok() ? "ok" : "NOT OK",
                          report.outputs.size(), report.total);
  return text;
}

int RunVerify(const Context& context, const ModelArguments& arguments) {
  if (const absl::Status status = CheckDir(arguments.dir); !status.ok())
    return context.Fail(status);
  const auto tools = LoadTools();
  if (!tools.ok()) return context.Fail(tools.status());
  const auto report = arguments.reference.empty()
                          ? (*tools)->Verify(arguments.dir, arguments.tolerance, arguments.threads,
                                             arguments.device)
                          : (*tools)->VerifyReference(arguments.dir, arguments.reference,
                                                      arguments.threads, arguments.device);
  // A folder that cannot be verified is a failure, whatever the cause: exit 0 means "verified" and
  // nothing else.
  if (!report.ok()) return context.Fail(report.status(), kFailure);
  context.Print(VerifyDocument(*report, arguments.tolerance), VerifyText(*report));
  return report->ok() ? kOk : kFailure;
}

/// Content hashes by component name; components without weights have none.
using Hashes = std::map<std::string, std::string>;

absl::StatusOr<Hashes> HashComponents(const sdk::ModelTools& tools, const std::string& dir,
                                      const sdk::InspectReport& report) {
  Hashes hashes;
  for (const auto& component : report.components) {
    if (component.weights.empty()) continue;
    const std::string part = dir + "/" + component.name;
    const bool whole = std::filesystem::exists(dir + "/config.json");
    ONEPIECE_ASSIGN_OR_RETURN(hashes[component.name], tools.ContentHash(whole ? dir : part));
  }
  return hashes;
}

Json InspectDocument(const sdk::InspectReport& report, const Hashes& hashes) {
  Json document = {{"model", report.model},
                   {"components", Json::array()},
                   {"stages", Json::array()},
                   {"problems", report.problems}};
  for (const auto& component : report.components) {
    Json weights = Json::array();
    for (const auto& group : component.weights) {
      weights.push_back({{"dtype", group.dtype},
                         {"tensors", group.tensors},
                         {"parameters", group.parameters},
                         {"bytes", group.bytes}});
    }
    document["components"].push_back({{"name", component.name},
                                      {"class", component.class_name},
                                      {"stage", component.stage},
                                      {"weights", weights}});
    if (const auto hash = hashes.find(component.name); hash != hashes.end())
      document["components"].back()["sha256"] = hash->second;
  }
  for (const auto& stage : report.stages) {
    document["stages"].push_back({{"stage", stage.stage},
                                  {"weight_bytes", stage.weight_bytes},
                                  {"activation_bytes", stage.activation_bytes}});
  }
  return document;
}

std::string InspectText(const sdk::InspectReport& report, const Hashes& hashes) {
  std::string text = report.model + "\n";
  for (const auto& component : report.components) {
    text += absl::StrFormat("  %-16s %-26s %s\n", component.name, component.class_name,
                            component.stage);
    for (const auto& group : component.weights) {
      text += absl::StrFormat("    %-6s %5d tensors  %14d parameters  %s\n", group.dtype,
                              group.tensors, group.parameters, HumanBytes(group.bytes));
    }
    if (const auto hash = hashes.find(component.name); hash != hashes.end())
      text += "    sha256 " + hash->second + "\n";
  }
  for (const auto& stage : report.stages) {
    text += absl::StrFormat("  stage %-16s weights %s, and about %s for a job\n", stage.stage,
                            HumanBytes(stage.weight_bytes), HumanBytes(stage.activation_bytes));
  }
  for (const auto& problem : report.problems) text += "  PROBLEM: " + problem + "\n";
  return text;
}

/// File of a published component's table, by the name of the table or its path.
absl::StatusOr<std::string> PublishedTable(const std::string& name) {
  if (name.empty() || name.ends_with(".json")) return name;
  auto path = local::ResourcePath("models/published/" + name + ".json");
  if (path.ok() && std::filesystem::path(name).filename() == name) return path;
  return base::MakeError(absl::StatusCode::kNotFound, "NO_SUCH_TABLE",
                         "no published component \"" + name +
                             "\": the files of resources/models/published are the names");
}

int RunInspect(const Context& context, const ModelArguments& arguments) {
  if (arguments.dir.empty() && arguments.expect.empty()) {
    return context.Fail(absl::InvalidArgumentError("give a folder, --expect NAME, or both"),
                        kUsage);
  }
  if (!arguments.dir.empty()) {
    if (const absl::Status status = CheckDir(arguments.dir); !status.ok())
      return context.Fail(status);
  }
  if (arguments.dir.empty() && arguments.hash) {
    return context.Fail(absl::InvalidArgumentError("--hash needs a folder"), kUsage);
  }
  const auto expect = PublishedTable(arguments.expect);
  if (!expect.ok()) return context.Fail(expect.status());
  const auto tools = LoadTools();
  if (!tools.ok()) return context.Fail(tools.status());
  const auto report = (*tools)->Inspect(arguments.dir, *expect);
  if (!report.ok()) return context.Fail(report.status(), kFailure);
  Hashes hashes;
  if (arguments.hash) {
    auto made = HashComponents(**tools, arguments.dir, *report);
    if (!made.ok()) return context.Fail(made.status(), kFailure);
    hashes = *std::move(made);
  }
  context.Print(InspectDocument(*report, hashes), InspectText(*report, hashes));
  return report->problems.empty() ? kOk : kFailure;
}

}  // namespace

void AddModelVerbs(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<ModelArguments>();
  CLI::App* verify =
      app.add_subcommand("verify", "Compare this build's numbers with recorded ones");
  verify
      ->add_option("dir", arguments->dir,
                   "One component with io.safetensors; a whole model with --reference")
      ->required();
  verify
      ->add_option("--reference", arguments->reference,
                   "Replay this recorded generation (safetensors)")
      ->check(CLI::ExistingFile);
  verify->add_option("--tolerance", arguments->tolerance, "Largest relative error that passes")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verify->add_option("--threads", arguments->threads, "Threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verify->add_option("--device", arguments->device, "Where to compute: cpu or cuda:N")
      ->capture_default_str();
  verify->callback([&context, arguments] {
    context.action = [&context, arguments] { return RunVerify(context, *arguments); };
  });

  CLI::App* inspect =
      app.add_subcommand("inspect", "Components, parameters, dtypes and memory of a model folder");
  inspect->add_option("dir", arguments->dir, "Model or component folder");
  inspect->add_option("--expect", arguments->expect,
                      "Hold it, or without a folder this build, against this published component's "
                      "tensors (a name in resources/models/published)");
  inspect->add_flag("--hash", arguments->hash,
                    "Each component's content hash; reads every byte of the weights");
  inspect->callback([&context, arguments] {
    context.action = [&context, arguments] { return RunInspect(context, *arguments); };
  });
}

}  // namespace onepiece::cli
