// The verbs whoami and usage.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/cli/identity_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/time_arguments.h"
#include "cluster/cli/verbs.h"

namespace onepiece::cli {
namespace {

template <typename Words>
std::vector<std::string> WordList(const Words& words) {
  return {words.begin(), words.end()};
}

int RunWhoAmI(const Context& context, client::Client& client) {
  const auto me = client.WhoAmI();
  if (!me.ok()) return context.Fail(me.status());
  const std::string scopes = absl::StrJoin(me->scopes(), ","),
                    roles = absl::StrJoin(me->roles(), ",");
  std::string text = absl::StrCat("name     ", me->name(), "\ncluster  ", me->cluster_id(), "\n");
  if (!me->tenant().empty()) absl::StrAppend(&text, "tenant   ", me->tenant(), "\n");
  if (!scopes.empty()) absl::StrAppend(&text, "scopes   ", scopes, "\n");
  if (!roles.empty()) absl::StrAppend(&text, "roles    ", roles, "\n");
  absl::StrAppend(&text, "shown by ", me->shown(), "\n");
  if (me->expires_unix_ms() > 0)
    absl::StrAppend(&text, "until    ", TimeText(me->expires_unix_ms()), " UTC\n");
  context.Print({{"cluster_id", me->cluster_id()},
                 {"name", me->name()},
                 {"tenant", me->tenant().empty() ? Json(nullptr) : Json(me->tenant())},
                 {"scopes", WordList(me->scopes())},
                 {"roles", WordList(me->roles())},
                 {"shown", me->shown()},
                 {"expires_unix_ms",
                  me->expires_unix_ms() > 0 ? Json(me->expires_unix_ms()) : Json(nullptr)}},
                text);
  return terminal::kOk;
}

struct UsageArguments {
  std::string tenant, since = "24h";
};

/// What a tenant has used, and what it may.
struct Usage {
  std::int64_t jobs = 0, bytes = 0;
  double worker_seconds = 0;
  v1::Quota quota;
};

/// An hour counts when any part of it is after `since_ms`.
std::map<std::string, Usage> SumUp(const v1::ListTenantsResponse& tenants, const std::string& only,
                                   std::int64_t since_ms) {
  std::map<std::string, Usage> sums;
  for (const v1::Tenant& tenant : tenants.tenants()) {
    if (only.empty() || only == tenant.name()) sums[tenant.name()].quota = tenant.quota();
  }
  constexpr std::int64_t kHourMs = 3'600'000;
  for (const v1::TenantUse& use : tenants.uses()) {
    if (!only.empty() && only != use.tenant()) continue;
    Usage& sum = sums[use.tenant()];
    if (use.hour_unix_ms() + kHourMs <= since_ms) continue;
    sum.jobs += use.jobs();
    sum.worker_seconds += use.worker_seconds();
    sum.bytes += use.bytes();
  }
  return sums;
}

int RunUsage(const Context& context, client::Client& client, const UsageArguments& arguments) {
  const auto since_ms = ParseSinceUnixMs(arguments.since);
  if (!since_ms.ok()) return context.Fail(since_ms.status());
  const auto tenants = client.ListTenants();
  if (!tenants.ok()) return context.Fail(tenants.status());
  const auto sums = SumUp(*tenants, arguments.tenant, *since_ms);
  if (sums.empty() && !arguments.tenant.empty()) {
    return context.Fail(base::MakeError(
        absl::StatusCode::kNotFound, "TENANT_UNKNOWN",
        absl::StrCat("there is no tenant '", arguments.tenant, "' that you may see")));
  }
  Json document = {{"since_unix_ms", *since_ms}, {"tenants", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"TENANT", "JOBS", "WORKER SECONDS", "RESULTS", "QUOTA"}};
  for (const auto& [name, sum] : sums) {
    document["tenants"].push_back({{"tenant", name},
                                   {"jobs", sum.jobs},
                                   {"worker_seconds", sum.worker_seconds},
                                   {"bytes", sum.bytes},
                                   {"quota", QuotaDocument(sum.quota)}});
    rows.push_back({name, absl::StrCat(sum.jobs), absl::StrFormat("%.1f", sum.worker_seconds),
                    terminal::HumanBytes(sum.bytes), QuotaText(sum.quota)});
  }
  context.Print(document, Table(rows));
  return terminal::kOk;
}

}  // namespace

void DefineWhoAmI(CLI::App& verb, Context& context) {
  OnManager(verb, context,
            [&context](client::Client& client) { return RunWhoAmI(context, client); });
}

void DefineUsage(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<UsageArguments>();
  verb.add_option("--tenant", arguments->tenant, "Only of this tenant");
  verb.add_option("--since", arguments->since,
                  "From then on, in whole hours: 2026-01-31T12:00:00Z, or 24h, 30d for ago")
      ->type_name("TIME")
      ->capture_default_str();
  OnManager(verb, context, [&context, arguments](client::Client& client) {
    return RunUsage(context, client, *arguments);
  });
}

}  // namespace onepiece::cli
