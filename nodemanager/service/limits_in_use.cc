#include "nodemanager/service/limits_in_use.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace onepiece::nodemanager {
namespace {

struct Limit {
  v1::Role role;
  const char* field;
  std::int64_t before, after;
  std::int64_t (*use)(const v1::NodeLoad&);

  // Before, each node may have gone by its own file.
  [[nodiscard]] bool IsLowered() const { return after > 0 && (before == 0 || after < before); }
};

absl::Status CheckUse(const Limit& limit, const StateMachine& state, const Telemetry& telemetry) {
  for (const auto& [id, record] : state.nodes()) {
    if (record.node().role() != limit.role || !IsAlive(record.node())) continue;
    const v1::NodeLoad* load = telemetry.window->Last(id);
    const std::int64_t use = load == nullptr ? 0 : limit.use(*load);
    if (use <= limit.after) continue;
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "BELOW_USE",
        absl::StrCat(limit.field, ": at most ", limit.after, ", but node '", id, "' has ", use,
                     ": wait until it has less"),
        {{"field", limit.field}, {"in_use", absl::StrCat(use)}, {"node_id", id}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLimitsInUse(const StateMachine& state, const Telemetry& telemetry,
                              const v1::LimitsConfig& next) {
  const v1::LimitsConfig& present = state.settings().limits();
  const Limit limits[] = {
      {.role = v1::PROXY,
       .field = "limits.proxies.max_jobs_in_flight",
       .before = present.proxies().max_jobs_in_flight(),
       .after = next.proxies().max_jobs_in_flight(),
       .use = [](const v1::NodeLoad& load) { return std::int64_t{load.running_jobs()}; }},
      {.role = v1::DATABASE,
       .field = "limits.databases.budget_bytes",
       .before = present.databases().budget_bytes(),
       .after = next.databases().budget_bytes(),
       .use = [](const v1::NodeLoad& load) { return std::int64_t{load.memory_bytes()}; }}};
  for (const Limit& limit : limits) {
    if (limit.IsLowered()) ONEPIECE_RETURN_IF_ERROR(CheckUse(limit, state, telemetry));
  }
  return absl::OkStatus();
}

}  // namespace onepiece::nodemanager
