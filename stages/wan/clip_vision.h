// CLIP's vision transformer (transformers' CLIPVisionModel). Image-to-video is conditioned on its
// output.
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
  bool quick_gelu = false;  ///< x sigmoid(1.702 x) instead of the exact gelu.
  double epsilon = 1e-5;
  /// Returns the number of whole patches, plus one for the class token.
  [[nodiscard]] std::int64_t tokens() const {
    return (image_size / patch_size) * (image_size / patch_size) + 1;
  }
};

/// Computes in F32.
///
/// Threading: immutable after Load; Forward may be called from any thread.
class ClipVision {
 public:
  /// Reads a component folder.
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS, BAD_SAFETENSORS; UNIMPLEMENTED
  /// for variants, which names the config field; RESOURCE_EXHAUSTED.
  static absl::StatusOr<ClipVision> Load(const std::string& dir, at::Device device = at::kCPU);

  /// `pixels` is F32 [batch, channels, image_size, image_size], normalised (ImageProcessor).
  /// Returns hidden_states[-2], F32 [batch, tokens, hidden]: the input of the last layer.
  ///
  /// Errors: INVALID_ARGUMENT (shape), RESOURCE_EXHAUSTED, INTERNAL.
  [[nodiscard]] absl::StatusOr<at::Tensor> Forward(const at::Tensor& pixels) const;

  [[nodiscard]] const ClipVisionConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

  /// For tools. Parses the configuration in a config.json, and lists the tensors that it calls for
  /// and the buffers that some files hold in addition.
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
  std::vector<Layer> layers_;  // Without the last layer, whose output nobody uses.
};

}  // namespace onepiece::wan
