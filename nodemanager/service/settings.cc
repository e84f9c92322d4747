#include "nodemanager/service/settings.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "nodemanager/policy/policy.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kDefaultReportIntervalMs = 500;
constexpr int kDefaultDeadAfterMs = 3000;
constexpr int kDefaultForgetAfterS = 86400;

absl::Status BadLiveness(const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                         absl::StrCat(field, ": ", message), {{"field", "liveness." + field}});
}

// At least 1, because 0 means the default.
int Unscaled(base::Duration time, base::Duration unit) {
  const auto units = time / std::max(base::Scaled(unit), base::Duration(1));
  return static_cast<int>(std::clamp<std::int64_t>(units, 1, std::numeric_limits<int>::max()));
}

}  // namespace

absl::StatusOr<v1::LivenessConfig> CompleteLiveness(v1::LivenessConfig liveness) {
  if (liveness.report_interval_ms() == 0) liveness.set_report_interval_ms(kDefaultReportIntervalMs);
  if (liveness.dead_after_ms() == 0) liveness.set_dead_after_ms(kDefaultDeadAfterMs);
  if (liveness.forget_after_s() == 0) liveness.set_forget_after_s(kDefaultForgetAfterS);
  if (liveness.report_interval_ms() < 10 ||
      liveness.report_interval_ms() > liveness.dead_after_ms() / 2)
    return BadLiveness("report_interval_ms", "at least 10, and at most half of dead_after_ms");
  if (liveness.forget_after_s() < 0) return BadLiveness("forget_after_s", "at least 1");
  return liveness;
}

absl::StatusOr<Settings> MakeSettings(const v1::ClusterConfig& config) {
  Settings settings;
  ONEPIECE_ASSIGN_OR_RETURN(settings.elasticity, CompleteElasticity(config.elasticity()));
  ONEPIECE_RETURN_IF_ERROR(MakePolicy(settings.elasticity).status());
  ONEPIECE_ASSIGN_OR_RETURN(const v1::LivenessConfig liveness, CompleteLiveness(config.liveness()));
  settings.report_interval = base::Scaled(std::chrono::milliseconds(liveness.report_interval_ms()));
  settings.dead_after = base::Scaled(std::chrono::milliseconds(liveness.dead_after_ms()));
  settings.forget_after = base::Scaled(std::chrono::seconds(liveness.forget_after_s()));
  return settings;
}

v1::ClusterConfig ConfigOf(const Settings& settings) {
  v1::ClusterConfig config;
  *config.mutable_elasticity() = settings.elasticity;
  v1::LivenessConfig& liveness = *config.mutable_liveness();
  constexpr std::chrono::milliseconds kMs(1);
  liveness.set_report_interval_ms(Unscaled(settings.report_interval, kMs));
  liveness.set_dead_after_ms(Unscaled(settings.dead_after, kMs));
  liveness.set_forget_after_s(Unscaled(settings.forget_after, std::chrono::seconds(1)));
  return config;
}

}  // namespace onepiece::nodemanager
