#include "stages/wan/stage_common.h"

#include <iterator>

#include "cluster/base/status.h"
#include "stages/model/process_metrics.h"
#include "stages/sdk/parameters.h"
#include "stages/wan/merged_transformers.h"

namespace onepiece::wan {

absl::StatusOr<std::optional<WanVae::Tiling>> ReadTiling(const sdk::Parameters& parameters) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool tiled,
                            sdk::BoolParameter(parameters, "vae_tiling", /*fallback=*/false));
  return tiled ? std::optional(WanVae::Tiling()) : std::nullopt;
}

std::vector<sdk::StageMetric> WanMetrics() {
  std::vector<sdk::StageMetric> metrics = model::ProcessMetrics();
  const auto merged = MergedTransformers::OfProcess();
  if (!merged.ok()) return metrics;
  const auto lora = (*merged)->stats();
  metrics.insert(
      metrics.end(),
      {model::ProcessCounter("lora_cache_hits_total", "Jobs that found their adapters merged",
                             lora.hits),
       model::ProcessCounter("lora_cache_misses_total", "Merges of adapters", lora.misses),
       model::ProcessCounter("lora_cache_evictions_total",
                             "Merged weights dropped to stay in the budget", lora.evictions),
       model::ProcessGauge("lora_cache_bytes", "Merged weights kept", lora.bytes)});
  return metrics;
}

}  // namespace onepiece::wan
