// The verbs config get, set, diff, history, rollback and export.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/cli/config_verbs.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/cli/verbs.h"
#include "cluster/config/config_changes.h"

namespace onepiece::cli {
namespace {

struct ConfigArguments : PlanArguments {
  std::string key, value, file;
  std::uint64_t revision = 0, from = 0, to = 0;
  int limit = 20;
};

int RunConfigGet(const Context& context, client::Client& client, const ConfigArguments& arguments) {
  const auto revision = client.GetConfig(arguments.revision);
  if (!revision.ok()) return context.Fail(revision.status());
  if (arguments.key.empty()) {
    Json document = ConfigRevisionDocument(*revision);
    document["config"] = MessageDocument(revision->config());
    context.Print(document, config::ConfigFileText(revision->config()));
    return terminal::kOk;
  }
  const auto part = config::FindConfigPart(revision->config(), arguments.key);
  if (!part.ok()) return context.Fail(part.status());
  const std::string yaml = config::ConfigPartToYaml(*part);
  context.Print({{"revision", revision->revision()},
                 {"key", arguments.key},
                 {"value", ConfigPartDocument(*part)}},
                yaml);
  if (yaml.empty()) context.Say("'" + arguments.key + "' is not set: its default holds");
  return terminal::kOk;
}

int RunConfigSet(const Context& context, client::Client& client, const ConfigArguments& arguments) {
  const auto present = client.GetConfig();
  if (!present.ok()) return context.Fail(present.status());
  v1::ApplyConfigRequest request;
  *request.mutable_config() = present->config();
  const absl::Status set =
      config::SetConfigValue(arguments.key, arguments.value, *request.mutable_config());
  if (!set.ok()) return context.Fail(set);
  request.add_sections(arguments.key.substr(0, arguments.key.find_first_of(".[")));
  // Nobody else's change of the same section is lost: the leader refuses a stale base.
  request.set_base_revision(present->revision());
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  const auto applied = client.ApplyConfig(std::move(request));
  if (!applied.ok()) return context.Fail(applied.status());
  context.Print(AppliedDocument(*applied, false), AppliedText(*applied, false));
  return terminal::kOk;
}

struct Difference {
  std::string from, to;  // Revisions, or the name of a file.
  ChangeList changes;
};

// The leader answers, so that this is what `apply` would do.
absl::StatusOr<Difference> DifferenceOfFile(client::Client& client, const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(config::ConfigFile file, LoadConfigFile(path));
  v1::ApplyConfigRequest request;
  *request.mutable_config() = std::move(file.config);
  request.mutable_sections()->Add(file.sections.begin(), file.sections.end());
  request.set_validate_only(true);
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ApplyConfigResponse answer,
                            client.ApplyConfig(std::move(request)));
  return Difference{.from = absl::StrCat(answer.revision()),
                    .to = path,
                    .changes = {answer.changes().begin(), answer.changes().end()}};
}

// Without revisions: what the present one has changed.
absl::StatusOr<Difference> DifferenceOfRevisions(client::Client& client, std::uint64_t from,
                                                 std::uint64_t to) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ConfigRevision after, client.GetConfig(to));
  v1::ConfigRevision before;
  if (from == 0 && after.revision() > 1) from = after.revision() - 1;
  if (from != 0) {
    ONEPIECE_ASSIGN_OR_RETURN(before, client.GetConfig(from));
  }
  return Difference{.from = absl::StrCat(before.revision()),
                    .to = absl::StrCat(after.revision()),
                    .changes = config::ConfigChanges(before.config(), after.config())};
}

int RunConfigDiff(const Context& context, client::Client& client,
                  const ConfigArguments& arguments) {
  const auto difference = arguments.file.empty()
                              ? DifferenceOfRevisions(client, arguments.from, arguments.to)
                              : DifferenceOfFile(client, arguments.file);
  if (!difference.ok()) return context.Fail(difference.status());
  const ChangeList& changes = difference->changes;
  context.Print({{"from", difference->from},
                 {"to", difference->to},
                 {"changes", ConfigChangesDocument(changes)}},
                changes.empty() ? "Nothing differs.\n" : ConfigChangesText(changes));
  return terminal::kOk;
}

int RunConfigHistory(const Context& context, client::Client& client,
                     const ConfigArguments& arguments) {
  Json document = {{"revisions", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"REVISION", "TIME (UTC)", "AUTHOR", "WHAT", "REASON"}};
  v1::ListConfigRevisionsRequest request;
  for (int left = arguments.limit; left > 0;) {
    request.set_page_size(left);
    const auto page = client.ListConfigRevisions(request);
    if (!page.ok()) return context.Fail(page.status());
    for (const v1::ConfigRevision& revision : page->revisions()) {
      document["revisions"].push_back(ConfigRevisionDocument(revision));
      rows.push_back(ConfigRevisionRow(revision));
    }
    left -= page->revisions_size();
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  context.Print(document, rows.size() == 1 ? "There is no revision yet.\n" : Table(rows));
  return terminal::kOk;
}

// Shows the change, and asks on a terminal. OK: do it. REQUIRES: something would change.
absl::Status ConfirmRollback(const Context& context, const ConfigArguments& arguments,
                             const v1::ApplyConfigResponse& planned) {
  std::string text = ConfigChangesText({planned.changes().begin(), planned.changes().end()});
  text.pop_back();  // Say() ends the line.
  context.Say(text);
  const bool asks = !arguments.yes && !context.json && isatty(STDIN_FILENO) == 1;
  if (!asks || AskOnTerminal()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kAborted, "NOT_CONFIRMED", "nothing has been changed");
}

int RunConfigRollback(const Context& context, client::Client& client,
                      const ConfigArguments& arguments) {
  const auto revision = client.GetConfig(arguments.revision);
  if (!revision.ok()) return context.Fail(revision.status());
  v1::ApplyConfigRequest request;
  *request.mutable_config() = revision->config();
  for (const std::string& section : config::ConfigSections()) request.add_sections(section);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  request.set_validate_only(true);
  const auto planned = client.ApplyConfig(request);
  if (!planned.ok()) return context.Fail(planned.status());
  if (planned->changes().empty()) {
    context.Print(AppliedDocument(*planned, false), AppliedText(*planned, false));
    return terminal::kOk;
  }
  if (const absl::Status confirmed = ConfirmRollback(context, arguments, *planned); !confirmed.ok())
    return context.Fail(confirmed);
  request.set_validate_only(false);
  request.set_base_revision(planned->revision());  // It does what was shown, or is refused.
  const auto applied = client.ApplyConfig(std::move(request));
  if (!applied.ok()) return context.Fail(applied.status());
  Json document = AppliedDocument(*applied, false);
  document["rolled_back_to"] = arguments.revision;
  context.Print(document, absl::StrCat("The configuration is now revision ", applied->revision(),
                                       ", which is as revision ", arguments.revision, " was.\n"));
  return terminal::kOk;
}

// A file that is there may have its owner's comments, so it is not replaced.
absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "FILE_EXISTS",
                           path + " is there already; `onepiece config diff -f` compares it");
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_FILE",
                         path + " cannot be written");
}

int RunConfigExport(const Context& context, client::Client& client,
                    const ConfigArguments& arguments) {
  const auto revision = client.GetConfig(arguments.revision);
  if (!revision.ok()) return context.Fail(revision.status());
  const std::string text =
      absl::StrCat("# The cluster's configuration, ", ConfigRevisionTitle(*revision), ".\n",
                   "# `onepiece apply -f` reads this file (docs/configuration.md).\n",
                   config::ConfigFileText(revision->config()));
  Json document = ConfigRevisionDocument(*revision);
  if (arguments.file.empty()) {
    document["config"] = MessageDocument(revision->config());
    context.Print(document, text);
    return terminal::kOk;
  }
  const absl::Status written = WriteNewFile(arguments.file, text);
  if (!written.ok()) return context.Fail(written);
  document["file"] = arguments.file;
  document["bytes"] = text.size();
  context.Print(document, absl::StrCat(arguments.file, ": ", ConfigRevisionTitle(*revision), "\n"));
  return terminal::kOk;
}

using Runner = int (*)(const Context&, client::Client&, const ConfigArguments&);
using BoundRunner = std::function<ManagerVerb(Runner)>;

void AddReadingVerbs(CLI::App& config, Context& context, ConfigArguments& arguments,
                     const BoundRunner& with) {
  CLI::App* get = AddManagerVerb(
      config, context, "get", "The configuration as YAML, or one part of it", with(RunConfigGet));
  get->add_option("key", arguments.key,
                  "elasticity.threshold, liveness, workflows[tiny-wan-t2v].stages[diffusion], …");
  CLI::App* diff = AddManagerVerb(config, context, "diff",
                                  "What the last change was, what differs between two revisions, "
                                  "or what a file would change",
                                  with(RunConfigDiff));
  CLI::Option* from = diff->add_option("a", arguments.from, "A revision");
  diff->add_option("b", arguments.to, "A later revision (default: the present one)");
  diff->add_option("-f,--file", arguments.file,
                   "Compare the present configuration with this file; - reads the standard input")
      ->excludes(from);
  AddManagerVerb(config, context, "history", "The revisions, newest first: who, when, what and why",
                 with(RunConfigHistory))
      ->add_option("--limit", arguments.limit, "Lines at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI::App* to_file =
      AddManagerVerb(config, context, "export", "The configuration as a file that `apply` reads",
                     with(RunConfigExport));
  to_file->add_option("file", arguments.file, "A new file (default: the standard output)");
  for (CLI::App* verb : {get, to_file})
    verb->add_option("--revision", arguments.revision, "That of this revision (default: present)");
}

void AddChangingVerbs(CLI::App& config, Context& context, ConfigArguments& arguments,
                      const BoundRunner& with) {
  CLI::App* set = AddManagerVerb(config, context, "set", "Change one field (lists: `apply -f`)",
                                 with(RunConfigSet));
  set->add_option("key", arguments.key,
                  "elasticity.threshold, workflow_sets[default].pools[POOL].min_instances, …")
      ->required();
  set->add_option("value", arguments.value, "The value; 0 is the default where a field has one")
      ->required();
  CLI::App* rollback =
      AddManagerVerb(config, context, "rollback",
                     "Make the configuration what it was in a revision", with(RunConfigRollback));
  rollback->add_option("revision", arguments.revision, "Of `config history`")
      ->required()
      ->check(CLI::PositiveNumber);
  rollback->add_flag("--yes", arguments.yes, "Do not ask (a question comes on a terminal only)");
  for (CLI::App* verb : {set, rollback}) {
    AddActorOption(*verb, arguments);
    verb->add_option("--reason", arguments.reason, "Why, for the history")->required();
  }
}

}  // namespace

void DefineConfig(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  verb.footer(
      "The configuration is part of the cluster's replicated state; every change is a revision "
      "with "
      "an author\nand a reason. `onepiece apply -f` brings in a file. docs/configuration.md.");
  const auto arguments = std::make_shared<ConfigArguments>();
  const BoundRunner with = [&context, arguments](Runner run) {
    return [&context, arguments, run](client::Client& client) {
      return run(context, client, *arguments);
    };
  };
  AddReadingVerbs(verb, context, *arguments, with);
  AddChangingVerbs(verb, context, *arguments, with);
}

}  // namespace onepiece::cli
