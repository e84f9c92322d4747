// Large frames worked off in overlapping tiles, blended where they overlap. Private to stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

namespace onepiece::wan::vae {

/// Of one axis, in pixels of the input or of the output: a tile's side, and the distance from one
/// tile to the next.
struct TileSize {
  std::int64_t side = 0, stride = 0;
};

/// Computes one tile of the input.
using TileRun = std::function<absl::StatusOr<at::Tensor>(const at::Tensor& tile)>;

/// How many tiles an input has. REQUIRES: 0 < stride <= side.
std::int64_t CountTiles(const at::Tensor& input, const TileSize& tile);

/// `run` over the tiles of `input`, [batch, channels, frames, h, w]; the results, whose sides
/// relate to the tiles' as out to in, become one tensor. Holds one row of results beside it.
/// Returns what `run` fails with.
absl::StatusOr<at::Tensor> RunTiled(const at::Tensor& input, const TileSize& in,
                                    const TileSize& out, const TileRun& run);

}  // namespace onepiece::wan::vae
