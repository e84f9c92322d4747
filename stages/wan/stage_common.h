// Functions that the Wan stages share. Private to stages/wan.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"
#include "stages/wan/autoencoder.h"

namespace onepiece::wan {

/// Reads the parameter vae_tiling (default false): whether frames are computed in tiles.
///
/// Errors: INVALID_ARGUMENT BAD_PARAMETER.
absl::StatusOr<std::optional<WanVae::Tiling>> ReadTiling(const sdk::Parameters& parameters);

/// Returns ProcessMetrics and the metrics of merged adapters (MergedTransformers).
std::vector<sdk::StageMetric> WanMetrics();

}  // namespace onepiece::wan
