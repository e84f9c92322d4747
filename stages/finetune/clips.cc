#include "stages/finetune/clips.h"

#include <array>
#include <cmath>

#include "cluster/base/check.h"

namespace onepiece::finetune {
namespace {

constexpr std::int64_t kFrames = 9, kSide = 64;
constexpr double kRadius = 11, kPixelsPerFrame = 2.5;

struct Colour {
  const char* name;
  std::array<double, 3> rgb;  // 0 to 1.
};
constexpr std::array<Colour, 4> kColours = {{{"orange", {1.0, 0.55, 0.1}},
                                             {"cyan", {0.1, 0.9, 0.9}},
                                             {"pink", {1.0, 0.5, 0.75}},
                                             {"brown", {0.55, 0.35, 0.15}}}};
struct Path {
  const char* name;
  double x, y;  // Direction of a frame's step.
};
constexpr std::array<Path, 4> kPaths = {{{"diagonally down", 0.7, 0.7},
                                         {"diagonally up", 0.7, -0.7},
                                         {"back diagonally down", -0.7, 0.7},
                                         {"back diagonally up", -0.7, -0.7}}};
constexpr std::array<const char*, 2> kShapes = {"circle", "square"};
static_assert(kColours.size() * kPaths.size() * kShapes.size() == kClips);

/// Returns the share of every pixel that the shape around (x, y) covers, [side, side].
at::Tensor Coverage(bool square, double x, double y) {
  const at::Tensor grid = at::arange(kSide, at::kFloat);
  const at::Tensor across = (grid - x).abs().unsqueeze(0).expand({kSide, kSide});
  const at::Tensor down = (grid - y).abs().unsqueeze(1).expand({kSide, kSide});
  const at::Tensor distance =
      square ? at::maximum(across, down) : (across.square() + down.square()).sqrt();
  return (kRadius + 0.5 - distance).clamp(0, 1);
}

}  // namespace

Clip MakeClip(std::int64_t index) {
  ONEPIECE_CHECK(index >= 0 && index < kClips);
  const auto at_index = static_cast<std::size_t>(index);
  const bool square = at_index % kShapes.size() == 1;
  const Colour& colour = kColours[at_index / kShapes.size() % kColours.size()];
  const Path& path = kPaths[at_index / kShapes.size() / kColours.size()];
  Clip clip;
  clip.caption =
      std::string("a ") + colour.name + " " + kShapes[square ? 1 : 0] + " moving " + path.name;
  clip.video = at::zeros({1, 3, kFrames, kSide, kSide}, at::kFloat);
  const double middle = (kSide - 1) / 2.0;
  for (std::int64_t frame = 0; frame < kFrames; ++frame) {
    // The shape passes the middle of the picture at half the time.
    const double way = kPixelsPerFrame * (static_cast<double>(frame) - (kFrames - 1) / 2.0);
    const at::Tensor shape = Coverage(square, middle + way * path.x, middle + way * path.y);
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      clip.video.select(2, frame).select(1, channel)[0].copy_(
          shape * (2 * colour.rgb[static_cast<std::size_t>(channel)]) - 1);
    }
  }
  return clip;
}

}  // namespace onepiece::finetune
