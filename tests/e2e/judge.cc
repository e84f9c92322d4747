#include "tests/e2e/judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace onepiece::e2e {
namespace {

using Rgb = std::array<double, 3>;

double SquaredDistance(const Rgb& a, const Rgb& b) {
  double sum = 0;
  for (std::size_t c = 0; c < 3; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return sum;
}

/// The part of a frame that is not background.
struct Shape {
  double area = 0, x = 0, y = 0;  ///< Pixels, and the centroid.
  Rgb colour_sum{};
};

Rgb PixelAt(const media::Frames& frames, std::int64_t frame, std::int64_t y, std::int64_t x) {
  const auto at = static_cast<std::size_t>(((frame * frames.height + y) * frames.width + x) * 3);
  const auto channel = [&](std::size_t c) {
    return static_cast<double>(static_cast<unsigned char>(frames.rgb[at + c]));
  };
  return {channel(0), channel(1), channel(2)};
}

/// Returns the median colour of a frame's border. The shape covers less than half of the border.
Rgb Background(const media::Frames& frames, std::int64_t frame) {
  std::array<std::vector<double>, 3> channels;
  for (std::int64_t y = 0; y < frames.height; ++y) {
    for (std::int64_t x = 0; x < frames.width; ++x) {
      if (y > 0 && x > 0 && y + 1 < frames.height && x + 1 < frames.width) continue;
      const Rgb pixel = PixelAt(frames, frame, y, x);
      for (std::size_t c = 0; c < 3; ++c) channels[c].push_back(pixel[c]);
    }
  }
  Rgb median{};
  for (std::size_t c = 0; c < 3; ++c) {
    const auto middle = channels[c].begin() + static_cast<std::ptrdiff_t>(channels[c].size() / 2);
    std::nth_element(channels[c].begin(), middle, channels[c].end());
    median[c] = *middle;
  }
  return median;
}

Shape FindShape(const media::Frames& frames, std::int64_t frame) {
  constexpr double kLeastContrast = 90;
  const Rgb background = Background(frames, frame);
  Shape shape;
  for (std::int64_t y = 0; y < frames.height; ++y) {
    for (std::int64_t x = 0; x < frames.width; ++x) {
      const Rgb pixel = PixelAt(frames, frame, y, x);
      if (SquaredDistance(pixel, background) < kLeastContrast * kLeastContrast) continue;
      shape.area += 1;
      shape.x += static_cast<double>(x);
      shape.y += static_cast<double>(y);
      for (std::size_t c = 0; c < 3; ++c) shape.colour_sum[c] += pixel[c];
    }
  }
  if (shape.area > 0) {
    shape.x /= shape.area;
    shape.y /= shape.area;
  }
  return shape;
}

std::string NearestColour(const Rgb& colour) {
  static const std::array<std::pair<const char*, Rgb>, 6> kColours = {{{"red", {220, 40, 40}},
                                                                       {"green", {40, 190, 60}},
                                                                       {"blue", {50, 80, 225}},
                                                                       {"yellow", {230, 215, 50}},
                                                                       {"white", {235, 235, 235}},
                                                                       {"purple", {160, 60, 200}}}};
  return std::min_element(kColours.begin(), kColours.end(),
                          [&colour](const auto& a, const auto& b) {
                            return SquaredDistance(colour, a.second) <
                                   SquaredDistance(colour, b.second);
                          })
      ->first;
}

std::string NameMotion(const Shape& first, const Shape& last) {
  constexpr double kMoved = 8;  // Pixels. A moving shape moves about 24, a still one under 3.
  const double dx = last.x - first.x, dy = last.y - first.y;
  if (std::max(std::abs(dx), std::abs(dy)) >= kMoved) {
    if (std::abs(dx) > std::abs(dy)) return dx > 0 ? "right" : "left";
    return dy > 0 ? "down" : "up";
  }
  constexpr double kGrown = 1.4;
  if (last.area > first.area * kGrown) return "bigger";
  return last.area * kGrown < first.area ? "smaller" : "still";
}

}  // namespace

Verdict Judge(const media::Frames& frames) {
  Rgb colour{};
  double area = 0;
  Shape first, last;
  for (std::int64_t frame = 0; frame < frames.count; ++frame) {
    last = FindShape(frames, frame);
    if (frame == 0) first = last;
    area += last.area;
    for (std::size_t c = 0; c < 3; ++c) colour[c] += last.colour_sum[c];
  }
  if (area == 0) return {"nothing", "nothing"};
  for (double& channel : colour) channel /= area;
  return {NearestColour(colour), NameMotion(first, last)};
}

}  // namespace onepiece::e2e
