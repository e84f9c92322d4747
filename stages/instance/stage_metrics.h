// The metrics of stages on the instance's metrics endpoint.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cluster/telemetry/metrics.h"
#include "stages/sdk/stage.h"

namespace onepiece::instance {

/// Exports a stage's numbers as onepiece_stage_NAME{stage}. Plug-ins choose the names, so a number
/// with a bad name, or with the name of one of the instance's own metrics, is left out and logged
/// once. A gauge that the stage stops reporting falls to zero.
///
/// Threading: used by one thread.
class StageMetrics {
 public:
  void Export(const std::string& stage, const std::vector<sdk::StageMetric>& numbers,
              telemetry::Metrics& metrics);

 private:
  std::set<std::string> refused_;  // At most kMaxRefused.
  std::set<prometheus::Gauge*> shown_;
};

}  // namespace onepiece::instance
