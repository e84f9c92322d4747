// The verbs verify and inspect, which run a plug-in's model tools.
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "stages/model/verbs.h"
#include "stages/sdk/plugin_loader.h"

namespace onepiece::model {
namespace {

struct ModelArguments {
  std::string dir, reference, expect, device = "cpu";
  double tolerance = 1e-4;
  int threads = 1;
  bool hash = false;
};

/// Loads the plug-ins and returns the tools for `dir`. The tools outlive the loader, because
/// plug-ins are never unloaded.
absl::StatusOr<const sdk::ModelTools*> LoadTools(const std::string& dir,
                                                 const std::string& expect) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string directory, local::PluginDir());
  sdk::PluginLoader loader;
  ONEPIECE_RETURN_IF_ERROR(loader.LoadDirectory(directory));
  return loader.ToolsFor(dir, expect);
}

absl::Status CheckDir(const std::string& dir) {
  if (std::filesystem::is_directory(dir)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kNotFound, "NO_SUCH_FOLDER", "no folder " + dir,
                         {{"path", dir}});
}

terminal::Json VerifyDocument(const sdk::VerifyReport& report, double tolerance) {
  terminal::Json document = {{"component", report.component},
                             {"outputs", terminal::Json::array()},
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

int RunVerify(const terminal::Output& output, const ModelArguments& arguments) {
  if (const absl::Status status = CheckDir(arguments.dir); !status.ok()) return output.Fail(status);
  const auto tools = LoadTools(arguments.dir, /*expect=*/"");
  if (!tools.ok()) return output.Fail(tools.status());
  const auto report = arguments.reference.empty()
                          ? (*tools)->Verify(arguments.dir, arguments.tolerance, arguments.threads,
                                             arguments.device)
                          : (*tools)->VerifyReference(arguments.dir, arguments.reference,
                                                      arguments.threads, arguments.device);
  // A folder that cannot be verified is a failure, whatever the cause, because exit code 0 means
  // only "verified".
  if (!report.ok()) return output.Fail(report.status(), terminal::kFailure);
  output.Print(VerifyDocument(*report, arguments.tolerance), VerifyText(*report));
  return report->ok() ? terminal::kOk : terminal::kFailure;
}

/// Content hashes by component name. Components without weights have none.
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

terminal::Json InspectDocument(const sdk::InspectReport& report, const Hashes& hashes) {
  terminal::Json document = {{"model", report.model},
                             {"components", terminal::Json::array()},
                             {"stages", terminal::Json::array()},
                             {"problems", report.problems}};
  for (const auto& component : report.components) {
    terminal::Json weights = terminal::Json::array();
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
                              group.tensors, group.parameters, terminal::HumanBytes(group.bytes));
    }
    if (const auto hash = hashes.find(component.name); hash != hashes.end())
      text += "    sha256 " + hash->second + "\n";
  }
  for (const auto& stage : report.stages) {
    text += absl::StrFormat("  stage %-16s weights %s, and about %s for a job\n", stage.stage,
                            terminal::HumanBytes(stage.weight_bytes),
                            terminal::HumanBytes(stage.activation_bytes));
  }
  for (const auto& problem : report.problems) text += "  PROBLEM: " + problem + "\n";
  return text;
}

/// Returns the file of a published component's table, by the table's name or its path.
absl::StatusOr<std::string> PublishedTable(const std::string& name) {
  if (name.empty() || name.ends_with(".json")) return name;
  auto path = local::ResourcePath("models/published/" + name + ".json");
  if (path.ok() && std::filesystem::path(name).filename() == name) return path;
  return base::MakeError(absl::StatusCode::kNotFound, "NO_SUCH_TABLE",
                         "no published component \"" + name +
                             "\": the files of resources/models/published are the names");
}

int RunInspect(const terminal::Output& output, const ModelArguments& arguments) {
  if (arguments.dir.empty() && arguments.expect.empty()) {
    return output.Fail(absl::InvalidArgumentError("give a folder, --expect NAME, or both"),
                       terminal::kUsage);
  }
  if (!arguments.dir.empty()) {
    if (const absl::Status status = CheckDir(arguments.dir); !status.ok())
      return output.Fail(status);
  }
  if (arguments.dir.empty() && arguments.hash) {
    return output.Fail(absl::InvalidArgumentError("--hash needs a folder"), terminal::kUsage);
  }
  const auto expect = PublishedTable(arguments.expect);
  if (!expect.ok()) return output.Fail(expect.status());
  const auto tools = LoadTools(arguments.dir, *expect);
  if (!tools.ok()) return output.Fail(tools.status());
  const auto report = (*tools)->Inspect(arguments.dir, *expect);
  if (!report.ok()) return output.Fail(report.status(), terminal::kFailure);
  Hashes hashes;
  if (arguments.hash) {
    auto made = HashComponents(**tools, arguments.dir, *report);
    if (!made.ok()) return output.Fail(made.status(), terminal::kFailure);
    hashes = *std::move(made);
  }
  output.Print(InspectDocument(*report, hashes), InspectText(*report, hashes));
  return report->problems.empty() ? terminal::kOk : terminal::kFailure;
}

}  // namespace

void DefineVerify(CLI::App& verb, terminal::Output& output) {
  const auto arguments = std::make_shared<ModelArguments>();
  verb.add_option("dir", arguments->dir,
                  "One component with io.safetensors; a whole model with --reference")
      ->required();
  verb.add_option("--reference", arguments->reference,
                  "Replay this recorded generation (safetensors)")
      ->check(CLI::ExistingFile);
  verb.add_option("--tolerance", arguments->tolerance, "Largest relative error that passes")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--threads", arguments->threads, "Threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb.add_option("--device", arguments->device, "Where to compute: cpu or cuda:N")
      ->capture_default_str();
  verb.callback([&output, arguments] {
    output.action = [&output, arguments] { return RunVerify(output, *arguments); };
  });
}

void DefineInspect(CLI::App& verb, terminal::Output& output) {
  const auto arguments = std::make_shared<ModelArguments>();
  verb.add_option("dir", arguments->dir, "Model or component folder");
  verb.add_option("--expect", arguments->expect,
                  "Hold it, or without a folder this build, against this published component's "
                  "tensors (a name in resources/models/published)");
  verb.add_flag("--hash", arguments->hash,
                "Each component's content hash; reads every byte of the weights");
  verb.callback([&output, arguments] {
    output.action = [&output, arguments] { return RunInspect(output, *arguments); };
  });
}

}  // namespace onepiece::model
