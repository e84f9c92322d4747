// Computes large frames in overlapping tiles, which are blended where they overlap. Private to
// stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"

namespace onepiece::wan::vae {

/// The tiles along one axis: a tile's side, and the distance from one tile to the next.
///
/// Units: pixels of the input or of the output.
struct TileSize {
  std::int64_t side = 0, stride = 0;
};

/// Computes one tile of the input.
using TileRun = std::function<absl::StatusOr<at::Tensor>(const at::Tensor& tile)>;

/// Who computes the tiles, and what else than its sides makes the shape of a result: a rank must
/// know it before it has computed a tile.
struct TileShare {
  const model::Parallel& parallel;
  std::int64_t channels = 0, frames = 0;
};

/// Returns how many tiles an input has.
///
/// REQUIRES: 0 < stride <= side.
std::int64_t CountTiles(const at::Tensor& input, const TileSize& tile);

/// Calls `run` on the tiles of `input`, [batch, channels, frames, h, w], and joins the results into
/// one tensor. The sides of results and tiles relate like `out` and `in`. Holds one row of results
/// in addition. With `share`, the ranks of its group compute one tile each at a time, and every
/// rank joins them all.
///
/// Errors: those of `run`; with `share` those of sdk::Group.
absl::StatusOr<at::Tensor> RunTiled(const at::Tensor& input, const TileSize& in,
                                    const TileSize& out, const TileRun& run,
                                    const TileShare* share = nullptr);

}  // namespace onepiece::wan::vae
