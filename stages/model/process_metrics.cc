#include "stages/model/process_metrics.h"

#include "stages/model/component_store.h"
#include "stages/model/conditioning_cache.h"

namespace onepiece::model {

sdk::StageMetric ProcessGauge(std::string name, std::string help, std::int64_t value) {
  return {.name = std::move(name),
          .help = std::move(help),
          .of_process = true,
          .value = static_cast<double>(value)};
}

sdk::StageMetric ProcessCounter(std::string name, std::string help, std::int64_t value) {
  sdk::StageMetric metric = ProcessGauge(std::move(name), std::move(help), value);
  metric.counter = true;
  return metric;
}

std::vector<sdk::StageMetric> ProcessMetrics() {
  const auto store = ComponentStore::OfProcess().stats();
  std::vector<sdk::StageMetric> metrics = {
      ProcessGauge("weight_bytes", "Weights that the process holds", store.weight_bytes),
      ProcessGauge("weight_shared_bytes",
                   "Weights that it would hold on top if its stages shared none",
                   store.shared_bytes)};
  const auto cache = ConditioningCache::OfProcess();
  if (!cache.ok()) return metrics;
  const auto stats = (*cache)->stats();
  metrics.insert(
      metrics.end(),
      {ProcessCounter("conditioning_cache_hits_total", "Prompts and images found encoded",
                      stats.hits),
       ProcessCounter("conditioning_cache_misses_total",
                      "Prompts and images that had to be encoded", stats.misses),
       ProcessCounter("conditioning_cache_evictions_total",
                      "Encodings dropped to stay in the budget", stats.evictions),
       ProcessGauge("conditioning_cache_bytes", "Encodings kept", stats.bytes),
       ProcessGauge("conditioning_cache_budget_bytes", "Encodings kept at most", stats.budget)});
  return metrics;
}

}  // namespace onepiece::model
