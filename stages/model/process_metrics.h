// The metrics of a process, which each of its stages exports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stages/sdk/stage.h"

namespace onepiece::model {

/// Returns the metrics of what the stages of this plug-in share in this process: weights
/// (ComponentStore) and the conditioning cache.
std::vector<sdk::StageMetric> ProcessMetrics();

/// Makes a metric that all stages of this plug-in report alike (StageMetric::of_process).
sdk::StageMetric ProcessGauge(std::string name, std::string help, std::int64_t value);
/// REQUIRES: `name` ends in _total.
sdk::StageMetric ProcessCounter(std::string name, std::string help, std::int64_t value);

}  // namespace onepiece::model
