// What stages count themselves, on the instance's metrics endpoint.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cluster/telemetry/metrics.h"
#include "stages/sdk/stage.h"

namespace onepiece::instance {

/// Exports a stage's numbers as onepiece_stage_NAME{stage}. Plug-ins choose the names: what would
/// not be a good metric, or is one of the instance's own, is left out and logged once. A gauge that
/// is no longer told falls to zero.
/// Thread-confined.
class StageMetrics {
 public:
  void Export(const std::string& stage, const std::vector<sdk::StageMetric>& numbers,
              telemetry::Metrics& metrics);

 private:
  std::set<std::string> refused_;  // At most kMaxRefused.
  std::set<prometheus::Gauge*> shown_;
};

}  // namespace onepiece::instance
