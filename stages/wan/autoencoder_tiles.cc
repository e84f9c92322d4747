#include "stages/wan/autoencoder_tiles.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/base/status.h"

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

}  // namespace

std::int64_t CountTiles(const at::Tensor& input, const TileSize& tile) {
  return Steps(input.size(kHeight), tile.stride) * Steps(input.size(kWidth), tile.stride);
}

absl::StatusOr<at::Tensor> RunTiled(const at::Tensor& input, const TileSize& in,
                                    const TileSize& out, const TileRun& run) {
  const std::int64_t height = input.size(kHeight), width = input.size(kWidth);
  const std::int64_t overlap = out.side - out.stride;
  const auto scaled = [&](std::int64_t extent) { return extent * out.stride / in.stride; };
  at::Tensor canvas;
  std::vector<at::Tensor> above;
  for (std::int64_t y = 0; y < height; y += in.stride) {
    std::vector<at::Tensor> row;
    for (std::int64_t x = 0; x < width; x += in.stride) {
      ONEPIECE_ASSIGN_OR_RETURN(at::Tensor tile,
                                run(input.narrow(kHeight, y, std::min(in.side, height - y))
                                        .narrow(kWidth, x, std::min(in.side, width - x))));
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
