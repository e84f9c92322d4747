#include "stages/instance/stage_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "spdlog/spdlog.h"

namespace onepiece::instance {
namespace {

constexpr std::size_t kMaxRefused = 64;
constexpr std::size_t kMaxNameBytes = 100;
// Histograms and counters of stages/instance/work_recorder.cc.
constexpr std::array<std::string_view, 5> kTaken = {
    "compute_seconds", "queue_seconds", "load_seconds", "busy_seconds_total", "jobs_total"};

bool IsGood(const sdk::StageMetric& number) {
  const std::string_view name = number.name;
  return !name.empty() && name.size() <= kMaxNameBytes &&
         number.counter == name.ends_with("_total") &&
         std::all_of(
             name.begin(), name.end(),
             [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }) &&
         std::find(kTaken.begin(), kTaken.end(), name) == kTaken.end() &&
         std::isfinite(number.value);
}

}  // namespace

void StageMetrics::Export(const std::string& stage, const std::vector<sdk::StageMetric>& numbers,
                          telemetry::Metrics& metrics) {
  const telemetry::Labels labels = {{"stage", stage}};
  std::set<prometheus::Gauge*> shown;
  for (const sdk::StageMetric& number : numbers) {
    if (!IsGood(number)) {
      // The limit bounds the memory if a plug-in makes up a new name at every scrape.
      if (refused_.size() < kMaxRefused && refused_.insert(number.name).second)
        spdlog::warn("stage={} its metric '{}' cannot be exported", stage, number.name);
      continue;
    }
    const std::string name = "onepiece_stage_" + number.name;
    if (number.counter) {
      telemetry::RaiseTo(metrics.Counter(name, number.help, labels), number.value);
    } else {
      auto& gauge = metrics.Gauge(name, number.help, labels);
      gauge.Set(number.value);
      shown.insert(&gauge);
    }
  }
  for (prometheus::Gauge* gauge : shown_) {
    if (!shown.contains(gauge)) gauge->Set(0);
  }
  shown_ = std::move(shown);
}

}  // namespace onepiece::instance
