// CLIP's vision transformer (transformers' CLIPVisionModel), as image-to-video conditions on it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/model/weights.h"

namespace onepiece::wan {

struct ClipVisionConfig {
  std::int64_t hidden = 0, ffn = 0, num_layers = 0, num_heads = 0;
  std::int64_t image_size = 0, patch_size = 0, channels = 0;
  bool quick_gelu = false;  ///< x sigmoid(1.702 x) in place of the exact gelu.
  double epsilon = 1e-5;
  /// One for each whole patch, and the class token.
  [[nodiscard]] std::int64_t tokens() const {
    return (image_size / patch_size) * (image_size / patch_size) + 1;
  }
};

/// Immutable after Load; Forward may be called from many threads. Computes in F32.
class ClipVision {
 public:
  /// Reads a component folder. Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS,
  /// BAD_SAFETENSORS; UNIMPLEMENTED for variants (naming the config field); RESOURCE_EXHAUSTED.
  static absl::StatusOr<ClipVision> Load(const std::string& dir, at::Device device = at::kCPU);

  /// `pixels` is F32 [batch, channels, image_size, image_size], normalised (ImageProcessor).
  /// Returns hidden_states[-2], F32 [batch, tokens, hidden]: what the last layer would get.
  /// Errors: INVALID_ARGUMENT (shape), RESOURCE_EXHAUSTED, INTERNAL.
  [[nodiscard]] absl::StatusOr<at::Tensor> Forward(const at::Tensor& pixels) const;

  [[nodiscard]] const ClipVisionConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

  /// For tools: the configuration in a config.json, the tensors that it calls for, and the buffers
  /// that some files hold beside them.
  static absl::StatusOr<ClipVisionConfig> ParseConfig(const nlohmann::json& config);
  static std::vector<model::TensorSpec> Tensors(const ClipVisionConfig& config);
  static const std::vector<std::string>& IgnoredTensors();

 private:
  struct Affine {
    at::Tensor weight, bias;
  };
  struct Layer {
    Affine norm1, norm2, fc1, fc2, q, k, v, out;
  };
  void Bind(model::WeightBinder& weights);
  [[nodiscard]] Layer BindLayer(model::WeightBinder& weights, const std::string& name) const;
  [[nodiscard]] at::Tensor Norm(const at::Tensor& x, const Affine& norm) const;
  [[nodiscard]] at::Tensor RunLayer(const Layer& layer, const at::Tensor& hidden) const;

  ClipVisionConfig config_;
  std::int64_t weight_bytes_ = 0;
  at::Device device_ = at::kCPU;
  at::Tensor class_embedding_, patch_, positions_;
  Affine pre_norm_;
  std::vector<Layer> layers_;  // Without the last: nothing looks at what it makes.
};

}  // namespace onepiece::wan
