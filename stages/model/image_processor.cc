#include "stages/model/image_processor.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/model/config_reader.h"
#include "stages/model/weights.h"

namespace onepiece::model {
namespace {

constexpr std::int64_t kMaxSide = 4096;

/// `field` is a side of a square, or an object of `height` and `width`.
std::pair<std::int64_t, std::int64_t> ReadSides(ConfigReader& reader, const nlohmann::json& json,
                                                const std::string& field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_object()) {
    const std::int64_t side = reader.IntOr(field, 1, kMaxSide, 224);
    return {side, side};
  }
  ConfigReader sides(*found);
  const std::int64_t height = sides.Int("height", 1, kMaxSide),
                     width = sides.Int("width", 1, kMaxSide);
  if (!sides.status().ok()) reader.Bad(field, base::Message(sides.status()));
  return {height, width};
}

void ReadSize(ConfigReader& reader, const nlohmann::json& json, ImageProcessorConfig& config) {
  const auto size = json.find("size");
  if (size != json.end() && size->is_object() && !size->contains("shortest_edge")) {
    std::tie(config.height, config.width) = ReadSides(reader, json, "size");
    return;
  }
  if (size == json.end() || !size->is_object()) {
    config.shortest_edge = reader.IntOr("size", 1, kMaxSide, 224);
    return;
  }
  ConfigReader edge(*size);
  config.shortest_edge = edge.Int("shortest_edge", 1, kMaxSide);
  if (!edge.status().ok()) reader.Bad("size", base::Message(edge.status()));
}

std::array<float, 3> ReadChannels(ConfigReader& reader, const std::string& field,
                                  const std::array<float, 3>& fallback) {
  if (!reader.Has(field)) return fallback;
  const std::vector<double> numbers = reader.Numbers(field, 3);
  if (numbers.size() != 3) {
    reader.Bad(field, "must have 3 numbers");
    return fallback;
  }
  return {static_cast<float>(numbers[0]), static_cast<float>(numbers[1]),
          static_cast<float>(numbers[2])};
}

/// Returns the middle of the image. Parts outside of the image are black.
media::Image CentreCrop(const media::Image& image, std::int64_t width, std::int64_t height) {
  media::Image result{width, height,
                      std::vector<std::byte>(static_cast<std::size_t>(width * height * 3))};
  const auto offset = [](std::int64_t from, std::int64_t to) {
    const std::int64_t spare = from - to;
    return spare >= 0 ? spare / 2 : -((1 - spare) / 2);  // Rounds down.
  };
  const std::int64_t left = offset(image.width, width), top = offset(image.height, height);
  const std::int64_t columns = std::min(width, image.width), rows = std::min(height, image.height);
  for (std::int64_t y = 0; y < rows; ++y) {
    const std::byte* from =
        image.rgb.data() +
        ((y + std::max<std::int64_t>(top, 0)) * image.width + std::max<std::int64_t>(left, 0)) * 3;
    std::byte* to =
        result.rgb.data() +
        ((y + std::max<std::int64_t>(-top, 0)) * width + std::max<std::int64_t>(-left, 0)) * 3;
    std::memcpy(to, from, static_cast<std::size_t>(columns * 3));
  }
  return result;
}

/// F32 or F64 [1, 3, height, width] of the values 0 to 255.
at::Tensor Planes(const media::Image& image, at::ScalarType type) {
  const at::Tensor values =
      at::from_blob(const_cast<std::byte*>(image.rgb.data()), {image.height, image.width, 3},
                    at::TensorOptions(at::kByte));
  return values.permute({2, 0, 1}).unsqueeze(0).to(type).contiguous();
}

}  // namespace

absl::StatusOr<ImageProcessorConfig> ImageProcessor::ParseConfig(const nlohmann::json& json) {
  ConfigReader reader(json);
  ImageProcessorConfig config;
  config.resize = reader.BoolOr("do_resize", true);
  config.crop = reader.BoolOr("do_center_crop", true);
  config.rescale = reader.BoolOr("do_rescale", true);
  config.normalise = reader.BoolOr("do_normalize", true);
  ReadSize(reader, json, config);
  std::tie(config.crop_height, config.crop_width) = ReadSides(reader, json, "crop_size");
  const std::int64_t filter = reader.IntOr("resample", 0, 5, 3);
  if (filter < 1 || filter > 3)
    reader.Unimplemented("resample", "only 1 (lanczos), 2 (bilinear) and 3 (bicubic)");
  config.filter = static_cast<ResampleFilter>(filter);
  config.scale = reader.PositiveOr("rescale_factor", 1.0 / 255);
  config.mean = ReadChannels(reader, "image_mean", {0.48145466F, 0.4578275F, 0.40821073F});
  config.std = ReadChannels(reader, "image_std", {0.26862954F, 0.26130258F, 0.27577711F});
  for (const float deviation : config.std) {
    if (!(deviation > 0)) reader.Bad("image_std", "must be above 0");
  }
  if (!reader.status().ok()) return reader.status();
  return config;
}

absl::StatusOr<ImageProcessor> ImageProcessor::Load(const std::string& dir) {
  const std::string path = dir + "/preprocessor_config.json";
  ONEPIECE_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonObject(path));
  const auto config = ParseConfig(json);
  if (!config.ok()) return base::Annotate(config.status(), path);
  return ImageProcessor(*config);
}

absl::StatusOr<at::Tensor> ImageProcessor::Process(const media::Image& image) const {
  const ImageProcessorConfig& c = config_;
  media::Image shown = image;
  if (c.resize) {
    std::int64_t width = c.width, height = c.height;
    if (c.shortest_edge > 0) {
      const auto [shorter, longer] = std::minmax(image.width, image.height);
      const auto along = static_cast<std::int64_t>(static_cast<double>(c.shortest_edge * longer) /
                                                   static_cast<double>(shorter));
      width = image.width <= image.height ? c.shortest_edge : along;
      height = image.width <= image.height ? along : c.shortest_edge;
    }
    ONEPIECE_ASSIGN_OR_RETURN(shown, Resample(image, width, height, c.filter));
  }
  if (c.crop) shown = CentreCrop(shown, c.crop_width, c.crop_height);
  // The reference scales in F64 and rounds once.
  at::Tensor pixels = Planes(shown, at::kDouble);
  if (c.rescale) pixels = pixels * c.scale;
  pixels = pixels.to(at::kFloat);
  if (!c.normalise) return pixels;
  const auto column = [](const std::array<float, 3>& values) {
    return at::tensor(at::ArrayRef<float>(values.data(), values.size())).view({1, 3, 1, 1});
  };
  return (pixels - column(c.mean)) / column(c.std);
}

absl::StatusOr<at::Tensor> FrameOfImage(const media::Image& image, std::int64_t width,
                                        std::int64_t height) {
  ONEPIECE_ASSIGN_OR_RETURN(const media::Image frame,
                            Resample(image, width, height, ResampleFilter::kLanczos));
  return Planes(frame, at::kFloat) / 255.0 * 2.0 - 1.0;
}

absl::StatusOr<at::Tensor> PixelValues(const ImageProcessor& processor,
                                       const std::vector<media::Image>& images) {
  std::vector<at::Tensor> pixels;
  for (const media::Image& image : images) {
    ONEPIECE_ASSIGN_OR_RETURN(pixels.emplace_back(), processor.Process(image));
    if (pixels.back().sizes() != pixels.front().sizes()) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SHAPE",
                             "the images have different sizes after preprocessing");
    }
  }
  return at::cat(pixels);
}

at::Tensor FramesOfVideo(const at::Tensor& video) {
  const at::Tensor pixels = (video[0] / 2 + 0.5).clamp(0, 1).mul(255).round();
  return pixels.permute({1, 2, 3, 0}).to(at::kCPU, at::kByte).contiguous();
}

}  // namespace onepiece::model
