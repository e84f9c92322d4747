#include "stages/model/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <numbers>
#include <utility>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::model {
namespace {

constexpr int kFractionBits = 22;  // 32 bits less 8 of a value and 2 for sums beyond its range.
constexpr std::int64_t kChannels = 3;

/// The source positions that contribute to one position of the result.
struct Window {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;  // Fixed point.
};

double Support(ResampleFilter filter) {
  return filter == ResampleFilter::kLanczos ? 3.0 : filter == ResampleFilter::kBicubic ? 2.0 : 1.0;
}

double Sinc(double x) {
  return x == 0 ? 1 : std::sin(x * std::numbers::pi) / (x * std::numbers::pi);
}

double Weight(ResampleFilter filter, double x) {
  if (filter == ResampleFilter::kLanczos) return x >= -3 && x < 3 ? Sinc(x) * Sinc(x / 3) : 0;
  x = std::abs(x);
  if (filter == ResampleFilter::kBilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

std::int32_t ToFixed(double weight) {
  return static_cast<std::int32_t>(std::copysign(0.5, weight) +
                                   weight * (std::int32_t{1} << kFractionBits));
}

std::vector<Window> Windows(std::int64_t from, std::int64_t to, ResampleFilter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0), support = Support(filter) * stretch;
  std::vector<Window> windows(static_cast<std::size_t>(to));
  std::vector<double> weights;
  for (std::int64_t i = 0; i < to; ++i) {
    Window& window = windows[static_cast<std::size_t>(i)];
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    window.first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    const std::int64_t end = std::min(static_cast<std::int64_t>(centre + support + 0.5), from);
    weights.clear();
    double sum = 0;
    for (std::int64_t x = window.first; x < end; ++x) {
      weights.push_back(Weight(filter, (static_cast<double>(x) - centre + 0.5) * (1 / stretch)));
      sum += weights.back();
    }
    for (const double weight : weights)
      window.weights.push_back(ToFixed(sum != 0 ? weight / sum : weight));
  }
  return windows;
}

/// Sums values of one channel, `step` bytes apart from each other.
std::byte Blend(const std::byte* from, std::int64_t step, const Window& window) {
  std::int32_t sum = std::int32_t{1} << (kFractionBits - 1);
  for (const std::int32_t weight : window.weights) {
    sum += weight * std::to_integer<std::int32_t>(*from);
    from += step;
  }
  return static_cast<std::byte>(std::clamp(sum >> kFractionBits, 0, 255));
}

media::Image Blank(std::int64_t width, std::int64_t height) {
  return {width, height, std::vector<std::byte>(static_cast<std::size_t>(width * height * 3))};
}

media::Image ResampleColumns(const media::Image& image, std::int64_t width, ResampleFilter filter) {
  const std::vector<Window> windows = Windows(image.width, width, filter);
  media::Image result = Blank(width, image.height);
  std::byte* to = result.rgb.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::byte* row = image.rgb.data() + y * image.width * kChannels;
    for (const Window& window : windows) {
      for (std::int64_t c = 0; c < kChannels; ++c)
        *to++ = Blend(row + window.first * kChannels + c, kChannels, window);
    }
  }
  return result;
}

media::Image ResampleRows(const media::Image& image, std::int64_t height, ResampleFilter filter) {
  const std::int64_t stride = image.width * kChannels;
  media::Image result = Blank(image.width, height);
  std::byte* to = result.rgb.data();
  for (const Window& window : Windows(image.height, height, filter)) {
    const std::byte* from = image.rgb.data() + window.first * stride;
    for (std::int64_t i = 0; i < stride; ++i) *to++ = Blend(from + i, stride, window);
  }
  return result;
}

}  // namespace

absl::StatusOr<media::Image> Resample(const media::Image& image, std::int64_t width,
                                      std::int64_t height, ResampleFilter filter) {
  ONEPIECE_CHECK(image.width > 0 && image.height > 0 &&
                 static_cast<std::int64_t>(image.rgb.size()) ==
                     image.width * image.height * kChannels);
  const bool bounded = width >= 1 && height >= 1 && width <= media::kMaxImageSide &&
                       height <= media::kMaxImageSide && width * height <= media::kMaxImagePixels &&
                       width * image.height <= media::kMaxImagePixels;
  if (!bounded) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_LARGE",
                           "an image of " + std::to_string(image.width) + "x" +
                               std::to_string(image.height) + " pixels cannot become " +
                               std::to_string(width) + "x" + std::to_string(height));
  }
  try {
    const bool columns = width != image.width, rows = height != image.height;
    if (!columns && !rows) return image;
    if (!columns) return ResampleRows(image, height, filter);
    media::Image narrowed = ResampleColumns(image, width, filter);
    return rows ? ResampleRows(narrowed, height, filter) : std::move(narrowed);
  } catch (const std::bad_alloc&) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                           "no memory for the resized image");
  }
}

}  // namespace onepiece::model
