// The verbs context add, use, list, remove and show.
#include <filesystem>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/cli/cert_output.h"
#include "cluster/cli/identity_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/verbs.h"
#include "cluster/contexts/contexts.h"
#include "cluster/identity/identity_folder.h"

namespace onepiece::cli {
namespace {

using contexts::ClusterContext;
using contexts::Contexts;

struct ContextArguments {
  std::string name, folder, identity_name, authorities, token_file;
  bool use = false;
};

Json ContextDocument(const ClusterContext& entry, bool current) {
  const contexts::Credentials& credentials = entry.credentials;
  const bool identity = !credentials.folder.empty();
  const auto text = [](bool there, const std::string& value) {
    return there ? Json(value) : Json(nullptr);
  };
  return {{"name", entry.name},
          {"current", current},
          {"nodemanagers", entry.nodemanagers},
          {"identity", text(identity, credentials.folder)},
          {"identity_name", text(identity, credentials.name)},
          {"ca", text(!identity, credentials.authorities)},
          {"token_file", text(!identity, credentials.token_file)}};
}

std::string CredentialsText(const contexts::Credentials& credentials) {
  return credentials.folder.empty() ? absl::StrCat("token in ", credentials.token_file)
                                    : absl::StrCat(credentials.name, " in ", credentials.folder);
}

/// Changes the contexts and writes them.
absl::Status Change(const std::function<absl::Status(Contexts&)>& change) {
  const std::string path = contexts::DefaultPath();
  ONEPIECE_ASSIGN_OR_RETURN(Contexts all, contexts::Load(path));
  ONEPIECE_RETURN_IF_ERROR(change(all));
  return contexts::Save(path, all);
}

int PrintCurrent(const Context& context, const std::string& verb, const std::string& name) {
  const auto all = contexts::Load(contexts::DefaultPath());
  if (!all.ok()) return context.Fail(all.status());
  const std::string current = all->current();
  context.Print(
      {{"name", name}, {"current", current.empty() ? Json(nullptr) : Json(current)}},
      absl::StrCat("Context ", name, " ", verb,
                   current.empty()   ? "; no context is the current one.\n"
                   : current == name ? "; it is the current one.\n"
                                     : absl::StrCat("; the current one is ", current, ".\n")));
  return terminal::kOk;
}

/// A token that comes by the standard input is kept beside the contexts.
absl::StatusOr<std::string> KeepToken(const std::string& name) {
  std::string text(static_cast<std::size_t>(4096), '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::cin.gcount()));
  const std::filesystem::path folder = std::filesystem::path(contexts::DefaultPath()).parent_path();
  std::string path = (folder / (name + ".token")).string();
  ONEPIECE_RETURN_IF_ERROR(contexts::KeepToken(path, text));
  return path;
}

absl::StatusOr<contexts::Credentials> CredentialsOf(const ContextArguments& arguments) {
  if (!arguments.folder.empty()) {
    if (!arguments.authorities.empty() || !arguments.token_file.empty())
      return terminal::UsageError("--identity, or --ca and --token-file, not both");
    if (arguments.identity_name.empty()) return contexts::FindIdentity(arguments.folder);
    return contexts::Credentials{.folder = arguments.folder, .name = arguments.identity_name};
  }
  if (arguments.authorities.empty() || arguments.token_file.empty())
    return terminal::UsageError("--identity DIR, or --ca FILE and --token-file FILE, is needed");
  return contexts::Credentials{.authorities = arguments.authorities,
                               .token_file = arguments.token_file};
}

int RunAddContext(const Context& context, const ContextArguments& arguments) {
  ClusterContext entry{.name = arguments.name, .nodemanagers = context.nodemanagers};
  auto credentials = CredentialsOf(arguments);
  if (!credentials.ok()) return context.Fail(credentials.status());
  entry.credentials = *std::move(credentials);
  const bool from_input = entry.credentials.token_file == "-";
  const absl::Status added = Change([&](Contexts& all) {
    // First without effect: a token is written only for a name that can be added.
    Contexts trial = all;
    ONEPIECE_RETURN_IF_ERROR(trial.Add(entry));
    if (from_input) {
      ONEPIECE_ASSIGN_OR_RETURN(entry.credentials.token_file, KeepToken(entry.name));
    }
    // What is wrong with the files shows now, and not at the next command.
    ONEPIECE_RETURN_IF_ERROR(contexts::Present(entry.credentials));
    ONEPIECE_RETURN_IF_ERROR(all.Add(entry));
    return arguments.use ? all.Use(entry.name) : absl::OkStatus();
  });
  if (!added.ok()) return context.Fail(added);
  return PrintCurrent(context, "added", entry.name);
}

int RunUseContext(const Context& context, const ContextArguments& arguments) {
  const absl::Status used = Change([&](Contexts& all) { return all.Use(arguments.name); });
  return used.ok() ? PrintCurrent(context, "chosen", arguments.name) : context.Fail(used);
}

int RunRemoveContext(const Context& context, const ContextArguments& arguments) {
  const absl::Status removed = Change([&](Contexts& all) { return all.Remove(arguments.name); });
  return removed.ok() ? PrintCurrent(context, "removed", arguments.name) : context.Fail(removed);
}

int RunListContexts(const Context& context, const ContextArguments& /*arguments*/) {
  const std::string path = contexts::DefaultPath();
  const auto all = contexts::Load(path);
  if (!all.ok()) return context.Fail(all.status());
  Json document = {{"file", path},
                   {"current", all->current().empty() ? Json(nullptr) : Json(all->current())},
                   {"contexts", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"", "NAME", "NODEMANAGERS", "CREDENTIALS"}};
  for (const ClusterContext& entry : all->all()) {
    const bool current = entry.name == all->current();
    document["contexts"].push_back(ContextDocument(entry, current));
    rows.push_back({current ? "*" : "", entry.name, absl::StrJoin(entry.nodemanagers, ","),
                    CredentialsText(entry.credentials)});
  }
  context.Print(document, Table(rows));
  return terminal::kOk;
}

int RunShowContext(const Context& context, const ContextArguments& arguments) {
  const auto all = contexts::Load(contexts::DefaultPath());
  if (!all.ok()) return context.Fail(all.status());
  const auto entry = all->Find(arguments.name);
  if (!entry.ok()) return context.Fail(entry.status());
  const bool current = entry->name == all->current();
  Json document = ContextDocument(*entry, current);
  std::string text = absl::StrCat("context      ", entry->name, current ? " (the current one)" : "",
                                  "\nNodeManagers ", absl::StrJoin(entry->nodemanagers, ","),
                                  "\ncredentials  ", CredentialsText(entry->credentials), "\n");
  if (!entry->credentials.folder.empty()) {
    const auto certificate = identity::ReadCertificateFile(
        identity::FilesOf(entry->credentials.folder, entry->credentials.name).certificate);
    const base::WallTime now = base::SystemClock().WallNow();
    if (certificate.ok()) {
      document["certificate"] = CertificateDocument(*certificate, now);
      absl::StrAppend(&text, CertificateText(*certificate, now));
    } else {
      document["certificate"] = nullptr;
      absl::StrAppend(&text, "! ", base::Message(certificate.status()), "\n");
    }
  }
  context.Print(document, text);
  return terminal::kOk;
}

using ContextRunner = int (*)(const Context&, const ContextArguments&);

CLI::App* AddContextVerb(CLI::App& parent, Context& context, const char* name, const char* help,
                         const std::shared_ptr<ContextArguments>& arguments, ContextRunner run) {
  CLI::App* verb = parent.add_subcommand(name, help);
  verb->callback([&context, arguments, run] {
    context.action = [&context, arguments, run] { return run(context, *arguments); };
  });
  return verb;
}

}  // namespace

void DefineContext(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  verb.footer(
      "Contexts are kept in $ONEPIECE_CONTEXTS, or ~/.config/onepiece/contexts.yaml. A verb uses, "
      "in "
      "this order:\n--identity, --context, the cluster that runs in --data-dir, the current "
      "context.");
  const auto arguments = std::make_shared<ContextArguments>();
  CLI::App* add = AddContextVerb(verb, context, "add",
                                 "Add a cluster: its --nodemanager addresses, and what to show it",
                                 arguments, RunAddContext);
  add->add_option("name", arguments->name, "What to call it")->required();
  add->add_option("--identity", arguments->folder,
                  "The folder of a client certificate: NAME.pem, NAME.key and ca.pem")
      ->type_name("DIR");
  add->add_option("--identity-name", arguments->identity_name,
                  "NAME (default: admin, or the only one that is there)");
  add->add_option("--ca", arguments->authorities, "With a token: the cluster's CAs (PEM)")
      ->type_name("FILE");
  add->add_option("--token-file", arguments->token_file,
                  "The file of a token, mode 0600; - reads the standard input and keeps it")
      ->type_name("FILE");
  add->add_flag("--use", arguments->use, "Make it the current one; the first one is anyway");
  CLI::App* use = AddContextVerb(verb, context, "use", "Make a context the current one", arguments,
                                 RunUseContext);
  use->add_option("name", arguments->name, "Its name")->required();
  AddContextVerb(verb, context, "list", "Every context; * marks the current one", arguments,
                 RunListContexts);
  CLI::App* remove = AddContextVerb(verb, context, "remove", "Forget a context; its files stay",
                                    arguments, RunRemoveContext);
  remove->add_option("name", arguments->name, "Its name")->required();
  CLI::App* show = AddContextVerb(verb, context, "show",
                                  "A context (default: the current one) and its certificate",
                                  arguments, RunShowContext);
  show->add_option("name", arguments->name, "Its name");
}

}  // namespace onepiece::cli
