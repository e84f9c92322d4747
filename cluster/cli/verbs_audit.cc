// The verb audit, which `rebalance audit` is another name of.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/time_arguments.h"
#include "cluster/cli/verbs.h"
#include "cluster/telemetry/audit_document.h"

namespace onepiece::cli {
namespace {

struct AuditArguments {
  std::string since;
  int limit = 100;
};

constexpr int kMaxAuditLines = 100'000;

int RunAuditLog(const Context& context, client::Client& client, const AuditArguments& arguments) {
  const auto since_ms = ParseSinceUnixMs(arguments.since);
  if (!since_ms.ok()) return context.Fail(since_ms.status());
  Json document = {{"entries", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"TIME (UTC)", "REVISION", "WHO", "FROM", "ACTION", "SUBJECT", "ANSWER", "DETAIL"}};
  v1::ListAuditRequest request;
  bool older = false;
  for (int left = arguments.limit; left > 0 && !older;) {
    request.set_page_size(std::min(left, 1000));
    const auto page = client.ListAudit(request);
    if (!page.ok()) return context.Fail(page.status());
    for (const v1::AuditEntry& entry : page->entries()) {
      // Newest first, so the rest is older too.
      if (entry.time_unix_ms() < *since_ms) older = true;
      if (older) break;
      document["entries"].push_back(telemetry::AuditDocument(entry));
      rows.push_back({TimeText(entry.time_unix_ms()), absl::StrCat(entry.revision()),
                      entry.caller(), entry.caller_address(), entry.action(), entry.subject(),
                      entry.answer(), entry.detail()});
    }
    left -= page->entries_size();
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  context.Print(document, Table(rows));
  return terminal::kOk;
}

}  // namespace

void DefineAudit(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<AuditArguments>();
  verb.add_option("--since", arguments->since,
                  "Then or later: 2026-01-31T12:00:00Z, or 24h for ago")
      ->type_name("TIME");
  verb.add_option("--limit", arguments->limit, "Lines at most")
      ->check(CLI::Range(1, kMaxAuditLines))
      ->capture_default_str();
  OnManager(verb, context, [&context, arguments](client::Client& client) {
    return RunAuditLog(context, client, *arguments);
  });
}

}  // namespace onepiece::cli
