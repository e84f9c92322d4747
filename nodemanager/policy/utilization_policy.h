// The policy "utilization" (docs/elasticity.md, "Policy").
#pragma once

#include <utility>

#include "nodemanager/policy/policy.h"

namespace onepiece::nodemanager {

/// The busiest pool above the threshold gets an instance: an idle one, or one from the pool that
/// can spare it best. Pools that are nearly idle give instances to the idle pool. The policy
/// measures how busy a pool is by what is offered to it, so pools that are all at 100 % still
/// differ.
///
/// Threading: thread-safe, because it never changes.
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
