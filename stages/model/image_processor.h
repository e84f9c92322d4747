// Prepares images for the models: transformers' CLIPImageProcessor, and the image preprocessing of
// diffusers' video pipelines.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/media/image.h"
#include "stages/model/resample.h"

namespace onepiece::model {

struct ImageProcessorConfig {
  bool resize = true, crop = true, rescale = true, normalise = true;
  std::int64_t shortest_edge = 0;      ///< The sides keep their ratio. 0: uses the next two.
  std::int64_t height = 0, width = 0;  ///< Resized to exactly this.
  std::int64_t crop_height = 0, crop_width = 0;
  ResampleFilter filter = ResampleFilter::kBicubic;
  double scale = 1.0 / 255;
  std::array<float, 3> mean{}, std{};
};

/// Does what a preprocessor_config.json says: resize, centre crop (smaller images get a black
/// frame), rescale, normalise.
///
/// Threading: immutable; may be used from any thread.
class ImageProcessor {
 public:
  /// Reads `dir`/preprocessor_config.json.
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG; UNIMPLEMENTED for other filters.
  static absl::StatusOr<ImageProcessor> Load(const std::string& dir);
  static absl::StatusOr<ImageProcessorConfig> ParseConfig(const nlohmann::json& config);
  explicit ImageProcessor(const ImageProcessorConfig& config) : config_(config) {}

  /// Returns F32 [1, 3, height, width] on the CPU.
  ///
  /// Errors: those of Resample.
  [[nodiscard]] absl::StatusOr<at::Tensor> Process(const media::Image& image) const;

  [[nodiscard]] const ImageProcessorConfig& config() const { return config_; }

 private:
  ImageProcessorConfig config_;
};

/// Returns the image as a frame of video: resized to exactly `width` x `height` with Lanczos, F32
/// [1, 3, height, width] in [-1, 1] on the CPU.
///
/// Errors: those of Resample.
absl::StatusOr<at::Tensor> FrameOfImage(const media::Image& image, std::int64_t width,
                                        std::int64_t height);

/// Returns the images as CLIP takes them, F32 [images, 3, height, width] on the CPU.
///
/// Errors: those of ImageProcessor::Process; INVALID_ARGUMENT BAD_SHAPE if a processor that does
/// not crop gives images of different sizes.
absl::StatusOr<at::Tensor> PixelValues(const ImageProcessor& processor,
                                       const std::vector<media::Image>& images);

/// Turns the frames of a video, F32 [1, 3, frames, height, width] in [-1, 1] on any device, into U8
/// [frames, height, width, 3] on the CPU. Clamps values outside of the range.
at::Tensor FramesOfVideo(const at::Tensor& video);

}  // namespace onepiece::model
