#include "stages/wan/autoencoder_tiles.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "stages/model/group_tensors.h"

namespace onepiece::wan::vae {
namespace {

constexpr std::int64_t kHeight = 3, kWidth = 4;

/// Fades from the end of `before` into the beginning of `tile`, which follows it along `axis`.
void Blend(const at::Tensor& before, at::Tensor& tile, std::int64_t axis, std::int64_t extent) {
  extent = std::min({extent, before.size(axis), tile.size(axis)});
  if (extent <= 0) return;
  std::vector<std::int64_t> shape(5, 1);
  shape[static_cast<std::size_t>(axis)] = extent;
  const at::Tensor share =
      (at::arange(extent, tile.options()) / static_cast<double>(extent)).view(shape);
  at::Tensor begin = tile.narrow(axis, 0, extent);
  begin.mul_(share).add_(before.narrow(axis, before.size(axis) - extent, extent) * (1 - share));
}

std::int64_t Steps(std::int64_t extent, std::int64_t stride) {
  return (extent + stride - 1) / stride;
}

/// Computes the tiles in their order.
class Tiles {
 public:
  Tiles(const at::Tensor& input, const TileSize& in, const TileSize& out, const TileRun& run,
        const TileShare* share)
      : out_(out), in_(in), run_(run), share_(share) {
    for (std::int64_t y = 0; y < input.size(kHeight); y += in.stride) {
      for (std::int64_t x = 0; x < input.size(kWidth); x += in.stride) {
        tiles_.push_back(input.narrow(kHeight, y, std::min(in.side, input.size(kHeight) - y))
                             .narrow(kWidth, x, std::min(in.side, input.size(kWidth) - x)));
      }
    }
  }

  absl::StatusOr<at::Tensor> Next() {
    if (share_ == nullptr) return run_(tiles_[next_++]);
    const auto ranks = static_cast<std::size_t>(share_->parallel.group->size());
    if (next_ % ranks == 0) {
      ONEPIECE_ASSIGN_OR_RETURN(wave_, Wave(ranks));
    }
    // Moved out: the memory of a wave goes with its last tile.
    return std::move(wave_[next_++ % ranks]);
  }

 private:
  /// Computes the next tile of every rank.
  absl::StatusOr<std::vector<at::Tensor>> Wave(std::size_t ranks) {
    std::vector<std::vector<std::int64_t>> shapes;
    for (std::size_t tile = next_; tile < next_ + ranks; ++tile) shapes.push_back(ShapeOf(tile));
    const std::size_t own = next_ + static_cast<std::size_t>(share_->parallel.group->rank());
    at::Tensor mine = at::empty({0}, tiles_.front().options());
    if (own < tiles_.size()) {
      ONEPIECE_ASSIGN_OR_RETURN(mine, run_(tiles_[own]));
    }
    return model::GatherTensors(share_->parallel, mine, shapes);
  }
  [[nodiscard]] std::vector<std::int64_t> ShapeOf(std::size_t tile) const {
    if (tile >= tiles_.size()) return {0};
    const auto scaled = [&](std::int64_t extent) { return extent * out_.stride / in_.stride; };
    const at::Tensor& x = tiles_[tile];
    return {x.size(0), share_->channels, share_->frames, scaled(x.size(kHeight)),
            scaled(x.size(kWidth))};
  }

  const TileSize out_, in_;
  const TileRun& run_;
  const TileShare* const share_;
  std::vector<at::Tensor> tiles_;
  std::vector<at::Tensor> wave_;
  std::size_t next_ = 0;
};

}  // namespace

std::int64_t CountTiles(const at::Tensor& input, const TileSize& tile) {
  return Steps(input.size(kHeight), tile.stride) * Steps(input.size(kWidth), tile.stride);
}

absl::StatusOr<at::Tensor> RunTiled(const at::Tensor& input, const TileSize& in,
                                    const TileSize& out, const TileRun& run,
                                    const TileShare* share) {
  const std::int64_t height = input.size(kHeight), width = input.size(kWidth);
  const std::int64_t overlap = out.side - out.stride;
  const auto scaled = [&](std::int64_t extent) { return extent * out.stride / in.stride; };
  Tiles tiles(input, in, out, run, share);
  at::Tensor canvas;
  std::vector<at::Tensor> above;
  for (std::int64_t y = 0; y < height; y += in.stride) {
    std::vector<at::Tensor> row;
    for (std::int64_t x = 0; x < width; x += in.stride) {
      ONEPIECE_ASSIGN_OR_RETURN(at::Tensor tile, tiles.Next());
      if (!above.empty()) Blend(above[row.size()], tile, kHeight, overlap);
      if (!row.empty()) Blend(row.back(), tile, kWidth, overlap);
      if (!canvas.defined()) {
        canvas =
            at::empty({tile.size(0), tile.size(1), tile.size(2), scaled(height), scaled(width)},
                      tile.options());
      }
      const std::int64_t rows = std::min(out.stride, tile.size(kHeight));
      const std::int64_t columns = std::min(out.stride, tile.size(kWidth));
      canvas.narrow(kHeight, scaled(y), rows)
          .narrow(kWidth, scaled(x), columns)
          .copy_(tile.narrow(kHeight, 0, rows).narrow(kWidth, 0, columns));
      row.push_back(std::move(tile));
    }
    above = std::move(row);
  }
  return canvas;
}

}  // namespace onepiece::wan::vae
