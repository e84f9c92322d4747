// The UMT5 text encoder (transformers' UMT5EncoderModel): T5 with a relative position bias in every
// layer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/model/weights.h"

namespace onepiece::wan {

struct UMT5Config {
  std::int64_t vocab_size = 0, d_model = 0, d_kv = 0, d_ff = 0, num_layers = 0, num_heads = 0;
  std::int64_t num_buckets = 32, max_distance = 128;
  double epsilon = 1e-6;
};

/// Computes matrix products in the precision of Load and everything else in F32, whatever the file
/// holds.
///
/// Threading: immutable after Load; Forward may be called from any thread.
class UMT5Encoder {
 public:
  /// Reads a component folder.
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS, BAD_SAFETENSORS; UNIMPLEMENTED
  /// for variants, which names the config field; RESOURCE_EXHAUSTED.
  static absl::StatusOr<UMT5Encoder> Load(const std::string& dir, at::Device device = at::kCPU,
                                          at::ScalarType products = at::kFloat);

  /// `ids` and `mask` are I64 [batch, tokens], mask 1 for tokens that count. Returns F32 [batch,
  /// tokens, d_model]. Rows of padded positions hold meaningless values, which Wan's pipeline
  /// replaces by zeros.
  ///
  /// Errors: INVALID_ARGUMENT (shape, id out of range), RESOURCE_EXHAUSTED, INTERNAL.
  [[nodiscard]] absl::StatusOr<at::Tensor> Forward(const at::Tensor& ids,
                                                   const at::Tensor& mask) const;

  [[nodiscard]] const UMT5Config& config() const { return config_; }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

  /// For tools. Parses the configuration in a config.json, and lists the tensors that it calls for.
  static absl::StatusOr<UMT5Config> ParseConfig(const nlohmann::json& config);
  static std::vector<model::TensorSpec> Tensors(const UMT5Config& config);

 private:
  struct Layer {
    at::Tensor attention_norm, q, k, v, o, position_bias, ffn_norm, wi_0, wi_1, wo;
  };
  void Bind(model::WeightBinder& weights);
  [[nodiscard]] at::Tensor Attention(const Layer& layer, const at::Tensor& hidden,
                                     const at::Tensor& buckets, const at::Tensor& mask) const;

  UMT5Config config_;
  std::int64_t weight_bytes_ = 0;
  at::Tensor embedding_, final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace onepiece::wan
