#include "nodemanager/service/config_check.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/utf8.h"
#include "cluster/config/alert_rules.h"
#include "cluster/config/config_changes.h"
#include "cluster/config/watched.h"
#include "cluster/workflow/workflow_check.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/service/settings.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kMaxPoolInstances = 4096;
constexpr std::int64_t kMaxPoolDeviceMemory = std::int64_t{1} << 44;
constexpr std::size_t kMaxSetName = 63;

absl::Status BadConfig(const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

// Turns the error of another check into one about the configuration. `section` comes before the
// field that the error names, unless the field begins with it.
absl::Status InSection(const std::string& section, const absl::Status& status) {
  if (status.ok()) return status;
  std::string field = base::GetReason(status).metadata["field"];
  if (!field.starts_with(section)) field = absl::StrCat(section, field.empty() ? "" : ".", field);
  return base::MakeError(
      status.code() == absl::StatusCode::kNotFound ? absl::StatusCode::kInvalidArgument
                                                   : status.code(),
      "BAD_CONFIG", absl::StrCat(section, ": ", base::Message(status)), {{"field", field}});
}

absl::Status CheckElasticity(const v1::ClusterConfig& config) {
  const auto complete = CompleteElasticity(config.elasticity());
  if (!complete.ok()) return InSection("elasticity", complete.status());
  const absl::Status policy = MakePolicy(*complete).status();
  return policy.ok() ? policy : BadConfig("elasticity.policy", base::Message(policy));
}

absl::Status CheckLiveness(const v1::ClusterConfig& config) {
  return InSection("liveness", CompleteLiveness(config.liveness()).status());
}

bool IsSetName(const std::string& text) {
  return !text.empty() && text.size() <= kMaxSetName &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

absl::Status CheckPool(const std::string& field, const v1::PoolConfig& pool) {
  if (pool.min_instances() < 0 || pool.min_instances() > kMaxPoolInstances)
    return BadConfig(field + ".min_instances", absl::StrCat("0 to ", kMaxPoolInstances));
  if (pool.max_instances() < 0 || pool.max_instances() > kMaxPoolInstances)
    return BadConfig(field + ".max_instances", absl::StrCat("0 to ", kMaxPoolInstances));
  if (pool.max_instances() != 0 && pool.max_instances() < pool.min_instances())
    return BadConfig(field + ".max_instances", "below min_instances");
  if (!workflow::IsDeviceKind(pool.device()))
    return BadConfig(field + ".device", "cpu, cuda, or none (as the workflows say)");
  if (pool.device_memory_bytes() < 0 || pool.device_memory_bytes() > kMaxPoolDeviceMemory)
    return BadConfig(field + ".device_memory_bytes",
                     absl::StrCat("0 (as the workflows say) to ", kMaxPoolDeviceMemory));
  return absl::OkStatus();
}

absl::Status CheckSets(const v1::ClusterConfig& config) {
  for (const v1::WorkflowSetConfig& set : config.workflow_sets()) {
    if (!IsSetName(set.name()))
      return BadConfig("workflow_sets[].name", "1 to 63 letters, digits, '-', '_' and '.'");
    for (const v1::PoolConfig& pool : set.pools()) {
      ONEPIECE_RETURN_IF_ERROR(
          CheckPool(absl::StrCat("workflow_sets[", set.name(), "].pools[",
                                 base::ToUtf8(pool.pool(), config::kMaxShownValue), "]"),
                    pool));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkflows(const v1::ClusterConfig& config) {
  for (const v1::Workflow& workflow : config.workflows()) {
    ONEPIECE_RETURN_IF_ERROR(InSection(
        absl::StrCat("workflows[", base::ToUtf8(workflow.app_id(), config::kMaxShownValue), "]"),
        workflow::CheckWorkflow(workflow)));
  }
  return absl::OkStatus();
}

absl::Status CheckAlerts(const v1::ClusterConfig& config) {
  ONEPIECE_RETURN_IF_ERROR(InSection("alerts", config::CheckAlertRules(config.alerts())));
  for (const v1::AlertRule& rule : config.alerts())
    ONEPIECE_RETURN_IF_ERROR(InSection("alerts", config::CheckWatches(rule)));
  return absl::OkStatus();
}

// Values that are too low would lock out the nodes of one host, and whoever could raise them again.
absl::Status CheckCallerLimits(const v1::CallerLimits& callers) {
  constexpr double kMost = 1'000'000;
  const struct {
    const char* field;
    double value, least;
  } numbers[] = {
      {"calls_per_s", callers.calls_per_s(), 10},
      {"calls_burst", callers.calls_burst(), 10},
      {"calls_under_way", static_cast<double>(callers.calls_under_way()), 10},
      {"connections", static_cast<double>(callers.connections()), 100},
      {"connections_per_s", callers.connections_per_s(), 10},
  };
  for (const auto& [field, value, least] : numbers) {
    // A number that is none is not between the two.
    if (value == 0 || (value >= least && value <= kMost)) continue;
    return BadConfig(absl::StrCat("limits.callers.", field),
                     absl::StrCat("0 (the default), or ", least, " to ", std::int64_t{1'000'000}));
  }
  return absl::OkStatus();
}

absl::Status CheckNodeLimits(const v1::ClusterConfig& config) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 44;
  const v1::ProxyLimits& proxies = config.limits().proxies();
  const v1::DatabaseLimits& databases = config.limits().databases();
  const struct {
    const char* field;
    std::int64_t value, most;
  } numbers[] = {
      {"proxies.max_jobs_in_flight", proxies.max_jobs_in_flight(), 1'000'000},
      {"proxies.kept_bytes", proxies.kept_bytes(), kMaxBytes},
      {"databases.budget_bytes", databases.budget_bytes(), kMaxBytes},
      {"databases.max_records", databases.max_records(), 1'000'000'000},
      {"databases.tombstone_ttl_s", databases.tombstone_ttl_s(), 30 * 86400},
      {"databases.spill_budget_bytes", databases.spill_budget_bytes(), kMaxBytes},
  };
  for (const auto& [field, value, most] : numbers) {
    if (value < 0 || value > most)
      return BadConfig(absl::StrCat("limits.", field),
                       absl::StrCat("0 (as each node's file says) to ", most));
  }
  // A number that is none is not between 0 and 1.
  if (!(proxies.admission_share() >= 0 && proxies.admission_share() <= 1))
    return BadConfig("limits.proxies.admission_share", "0 (as each node's file says) to 1");
  return CheckCallerLimits(config.limits().callers());
}

}  // namespace

absl::Status CheckSections(const v1::ClusterConfig& config,
                           const std::vector<std::string>& sections) {
  static const std::map<std::string_view, std::function<absl::Status(const v1::ClusterConfig&)>>
      checks = {{"elasticity", CheckElasticity}, {"liveness", CheckLiveness},
                {"workflow_sets", CheckSets},    {"workflows", CheckWorkflows},
                {"alerts", CheckAlerts},         {"limits", CheckNodeLimits}};
  if (sections.empty())
    return BadConfig("sections", "the request replaces nothing: name a section, or send one");
  for (const std::string& section : sections) {
    const auto check = checks.find(section);
    if (check == checks.end()) {
      return BadConfig(
          "sections",
          absl::StrCat("'", base::ToUtf8(section, config::kMaxShownValue),
                       "' is no section: ", absl::StrJoin(config::ConfigSections(), ", "), " are"));
    }
    ONEPIECE_RETURN_IF_ERROR(check->second(config));
  }
  return absl::OkStatus();
}

}  // namespace onepiece::nodemanager
