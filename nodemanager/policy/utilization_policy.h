// The seed's assignment of instances by utilisation (paper §4.2, docs/elasticity.md).
#pragma once

#include <utility>

#include "nodemanager/policy/policy.h"

namespace onepiece::nodemanager {

/// The busiest pool above the threshold gets an instance, an idle one or of the pool that can spare
/// it best; nearly idle pools give theirs to the idle ones. How busy a pool is goes by what is
/// offered, so that pools that are all at 100 % still differ.
class UtilizationPolicy final : public Policy {
 public:
  /// REQUIRES: `config` is complete.
  explicit UtilizationPolicy(v1::ElasticityConfig config) : config_(std::move(config)) {}
  [[nodiscard]] std::string_view name() const override { return "utilization"; }
  [[nodiscard]] PolicyDecision Decide(const PolicyView& view) const override;

 private:
  v1::ElasticityConfig config_;
};

}  // namespace onepiece::nodemanager
