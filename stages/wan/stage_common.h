// What the Wan stages have in common. Private to stages/wan.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"
#include "stages/wan/autoencoder.h"

namespace onepiece::wan {

/// The parameter vae_tiling (default false): whether frames are worked off in tiles. Errors:
/// INVALID_ARGUMENT BAD_PARAMETER.
absl::StatusOr<std::optional<WanVae::Tiling>> ReadTiling(const sdk::Parameters& parameters);

/// ProcessMetrics, and those of the adapters that are merged (MergedTransformers).
std::vector<sdk::StageMetric> WanMetrics();

}  // namespace onepiece::wan
