// Computes large frames in overlapping tiles, which are blended where they overlap. Private to
// stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

namespace onepiece::wan::vae {

/// The tiles along one axis: a tile's side, and the distance from one tile to the next.
///
/// Units: pixels of the input or of the output.
struct TileSize {
  std::int64_t side = 0, stride = 0;
};

/// Computes one tile of the input.
using TileRun = std::function<absl::StatusOr<at::Tensor>(const at::Tensor& tile)>;

/// Returns how many tiles an input has.
///
/// REQUIRES: 0 < stride <= side.
std::int64_t CountTiles(const at::Tensor& input, const TileSize& tile);

/// Calls `run` on the tiles of `input`, [batch, channels, frames, h, w], and joins the results into
/// one tensor. The sides of results and tiles relate like `out` and `in`. Holds one row of results
/// in addition.
///
/// Errors: those of `run`.
absl::StatusOr<at::Tensor> RunTiled(const at::Tensor& input, const TileSize& in,
                                    const TileSize& out, const TileRun& run);

}  // namespace onepiece::wan::vae
