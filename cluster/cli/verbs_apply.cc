// The verb apply.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/cli/config_verbs.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/cli/settling.h"
#include "cluster/cli/verbs.h"
#include "cluster/terminal/interrupt.h"

namespace onepiece::cli {
namespace {

constexpr std::chrono::milliseconds kServedPoll(500);

struct ApplyArguments : PlanArguments {
  std::string file;
  bool dry_run = false;
  int timeout_s = 300;
};

absl::StatusOr<std::vector<std::string>> AskWhatIsMissing(client::Client& client,
                                                          std::uint64_t revision) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster cluster, client.GetCluster());
  ONEPIECE_ASSIGN_OR_RETURN(const v1::Elasticity elasticity, client.GetElasticity());
  return WhatIsMissing(cluster, elasticity, revision);
}

// Polls until nothing is missing or the deadline passes, and returns what is missing at the end. A
// NodeManager that does not answer is something that is missing: it may elect a leader.
//
// Errors: CANCELLED (INTERRUPTED), and errors that no time mends.
absl::StatusOr<std::vector<std::string>> AwaitServed(const Context& context, client::Client& client,
                                                     std::uint64_t revision, int timeout_s) {
  const terminal::Interrupt interrupt;
  base::Clock& clock = base::SystemClock();
  const base::MonotonicTime deadline = clock.Now() + base::Scaled(std::chrono::seconds(timeout_s));
  for (std::string said;;) {
    auto missing = AskWhatIsMissing(client, revision);
    if (!missing.ok()) {
      if (!absl::IsUnavailable(missing.status())) return missing.status();
      missing = std::vector<std::string>{base::Message(missing.status())};
    }
    if (missing->empty() || clock.Now() >= deadline) return missing;
    const std::string text = absl::StrJoin(*missing, "; ");
    if (text != said) context.Say(text);
    said = text;
    if (!clock.Pause(interrupt.token(), kServedPoll)) {
      return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED",
                             "interrupted; the configuration stays applied");
    }
  }
}

int AwaitAndReport(const Context& context, client::Client& client, const ApplyArguments& arguments,
                   const v1::ApplyConfigResponse& applied) {
  if (!context.json) context.Print({}, AppliedText(applied, false));
  const auto missing = AwaitServed(context, client, applied.revision(), arguments.timeout_s);
  if (!missing.ok()) return context.Fail(missing.status());
  Json document = AppliedDocument(applied, false);
  document["served"] = missing->empty();
  document["missing"] = *missing;
  if (context.json) context.Print(document, "");
  if (missing->empty()) {
    context.Say("Everything is served.");
    return terminal::kOk;
  }
  context.Say(absl::StrCat("onepiece: after ", arguments.timeout_s,
                           " s the configuration is applied, and this is missing:\n  ",
                           absl::StrJoin(*missing, "\n  ")));
  return terminal::kRetryLater;
}

int RunApplyFile(const Context& context, client::Client& client, const ApplyArguments& arguments) {
  auto file = LoadConfigFile(arguments.file);
  if (!file.ok()) return context.Fail(file.status());
  v1::ApplyConfigRequest request;
  *request.mutable_config() = std::move(file->config);
  request.mutable_sections()->Add(file->sections.begin(), file->sections.end());
  request.set_validate_only(arguments.dry_run);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason.empty() ? "apply -f " + arguments.file : arguments.reason);
  const auto applied = client.ApplyConfig(std::move(request));
  if (!applied.ok()) return context.Fail(applied.status());
  if (arguments.wait && !arguments.dry_run)
    return AwaitAndReport(context, client, arguments, *applied);
  context.Print(AppliedDocument(*applied, arguments.dry_run),
                AppliedText(*applied, arguments.dry_run));
  return terminal::kOk;
}

}  // namespace

void DefineApply(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<ApplyArguments>();
  verb.footer(
      "The file's sections replace the cluster's, each as a whole; sections that are not in the "
      "file stay.\nThe same file again changes nothing. Format: docs/configuration.md.");
  verb.add_option("-f,--file", arguments->file, "The file (YAML); - reads the standard input")
      ->required();
  CLI::Option* dry = verb.add_flag("--dry-run", arguments->dry_run,
                                   "Check the file and say what would change; change nothing");
  CLI::Option* wait = verb.add_flag("--wait", arguments->wait,
                                    "Wait until every stage is served and no instance moves; exit "
                                    "code 75 when that takes longer");
  wait->excludes(dry);
  verb.add_option("--timeout", arguments->timeout_s, "With --wait: seconds")
      ->needs(wait)
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  AddActorOptions(verb, *arguments);
  OnManager(verb, context, [&context, arguments](client::Client& client) {
    return RunApplyFile(context, client, *arguments);
  });
}

}  // namespace onepiece::cli
