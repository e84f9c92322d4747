#include "nodemanager/policy/policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "nodemanager/policy/utilization_policy.h"

namespace onepiece::nodemanager {
namespace {

class StaticPolicy final : public Policy {
 public:
  [[nodiscard]] std::string_view name() const override { return "static"; }
  [[nodiscard]] PolicyDecision Decide(const PolicyView&) const override {
    return {.moves = {}, .detail = "the policy is \"static\": nothing moves by itself"};
  }
};

absl::Status Bad(std::string_view field, double value, std::string_view wanted) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ELASTICITY",
                         absl::StrCat("elasticity.", base::AbslView(field), " is ", value,
                                      "; it must be ", base::AbslView(wanted)),
                         {{"field", std::string(field)}});
}

// Checks that `value` lies between `least` and `most`. A value of 0 becomes `fallback` first.
absl::Status Complete(std::string_view field, double& value, double fallback, double least,
                      double most) {
  if (value == 0) value = fallback;
  if (value >= least && value <= most) return absl::OkStatus();  // NaN never does.
  return Bad(field, value, absl::StrCat(least, " to ", most, ", or 0 for the default"));
}

}  // namespace

absl::StatusOr<v1::ElasticityConfig> CompleteElasticity(v1::ElasticityConfig config) {
  constexpr double kDay = 86'400;
  if (config.policy().empty()) config.set_policy("utilization");
  double window = config.window_s(), threshold = config.threshold();
  ONEPIECE_RETURN_IF_ERROR(Complete("window_s", window, 300, 2, kDay));
  ONEPIECE_RETURN_IF_ERROR(Complete("threshold", threshold, 0.85, 0.05, 1));
  double low = config.low_threshold(), cooldown = config.cooldown_s();
  double interval = config.interval_s(), timeout = config.move_timeout_s();
  ONEPIECE_RETURN_IF_ERROR(Complete("low_threshold", low, std::min(0.3, threshold / 2), 0.001, 1));
  if (low >= threshold)
    return Bad("low_threshold", low, absl::StrCat("below elasticity.threshold, ", threshold));
  ONEPIECE_RETURN_IF_ERROR(Complete("cooldown_s", cooldown, window, 0.1, 7 * kDay));
  ONEPIECE_RETURN_IF_ERROR(
      Complete("interval_s", interval, std::min(window / 10, 10.0), 0.1, kDay));
  ONEPIECE_RETURN_IF_ERROR(Complete("move_timeout_s", timeout, 300, 1, kDay));
  if (config.max_moves() < 0 || config.max_moves() > 1000)
    return Bad("max_moves", config.max_moves(),
               "1 to 1000, or 0 for elasticity.max_move_share of each pool");
  double share = config.max_move_share();
  ONEPIECE_RETURN_IF_ERROR(Complete("max_move_share", share, 0.1, 0.001, 1));
  config.set_window_s(window);
  config.set_threshold(threshold);
  config.set_low_threshold(low);
  config.set_cooldown_s(cooldown);
  config.set_interval_s(interval);
  config.set_move_timeout_s(timeout);
  config.set_max_move_share(share);
  return config;
}

int MoveShare(const v1::ElasticityConfig& config, int instances) {
  // Without the addend a tenth of 30 might be 2.999….
  return std::max(1, static_cast<int>(config.max_move_share() * instances + 1e-9));
}

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const v1::ElasticityConfig& config) {
  if (config.policy() == "utilization") return std::make_unique<UtilizationPolicy>(config);
  if (config.policy() == "static") return std::make_unique<StaticPolicy>();
  return base::MakeError(absl::StatusCode::kNotFound, "POLICY_UNKNOWN",
                         absl::StrCat("elasticity.policy is \"", config.policy(),
                                      "\"; there are \"utilization\" and \"static\""));
}

}  // namespace onepiece::nodemanager
