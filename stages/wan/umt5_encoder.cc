#include "stages/wan/umt5_encoder.h"

#include <cmath>
#include <limits>

#include "cluster/base/status.h"
#include "stages/model/config_reader.h"
#include "stages/model/kernels.h"
#include "stages/model/layers.h"
#include "stages/tensor/compute.h"

namespace onepiece::wan {
namespace {

/// Returns the bucket of every (query, key) distance, [tokens, tokens]. Near distances have a
/// bucket each, and far ones share buckets in logarithmic steps. Keys after the query use the upper
/// half. Computes in F32, because the reference rounds so.
at::Tensor PositionBuckets(std::int64_t tokens, const UMT5Config& config, at::Device device) {
  const std::int64_t half = config.num_buckets / 2;
  const std::int64_t exact = half / 2;
  const at::Tensor positions = at::arange(tokens, at::TensorOptions(at::kLong).device(device));
  const at::Tensor relative = positions.unsqueeze(0) - positions.unsqueeze(1);
  const at::Tensor distance = relative.abs();
  const double range =
      std::log(static_cast<double>(config.max_distance) / static_cast<double>(exact));
  // The logarithm is -inf for the distance 0. clamp_min takes care of it, and `where` below does
  // not use it.
  const at::Tensor far = (at::log(distance.to(at::kFloat) / static_cast<double>(exact)) / range *
                          static_cast<double>(half - exact))
                             .clamp_min(0)
                             .to(at::kLong) +
                         exact;
  const at::Tensor bucket = at::where(distance < exact, distance, far.clamp_max(half - 1));
  return bucket + (relative > 0).to(at::kLong) * half;
}

}  // namespace

absl::StatusOr<UMT5Config> UMT5Encoder::ParseConfig(const nlohmann::json& json) {
  model::ConfigReader reader(json);
  UMT5Config config;
  config.vocab_size = reader.Int("vocab_size", 1, 1 << 24);
  config.d_model = reader.Int("d_model", 1, model::kMaxExtent);
  config.d_kv = reader.Int("d_kv", 1, model::kMaxExtent);
  config.d_ff = reader.Int("d_ff", 1, model::kMaxExtent);
  config.num_layers = reader.Int("num_layers", 1, model::kMaxLayers);
  config.num_heads = reader.Int("num_heads", 1, model::kMaxExtent);
  config.num_buckets = reader.IntOr("relative_attention_num_buckets", 4, 4096, 32);
  config.max_distance = reader.IntOr("relative_attention_max_distance", 2, model::kMaxExtent, 128);
  config.epsilon = reader.PositiveOr("layer_norm_epsilon", 1e-6);
  if (config.num_buckets % 4 != 0)
    reader.Bad("relative_attention_num_buckets", "must be a multiple of 4");
  if (config.max_distance <= config.num_buckets / 4) {
    reader.Bad("relative_attention_max_distance", "must exceed a quarter of the buckets");
  }
  const std::string feed_forward = reader.StringOr("feed_forward_proj", "gated-gelu");
  if (feed_forward != "gated-gelu")
    reader.Unimplemented("feed_forward_proj", "only gated-gelu is supported");
  if (!reader.status().ok()) return reader.status();
  return config;
}

void UMT5Encoder::Bind(model::WeightBinder& weights) {
  const std::int64_t model = config_.d_model, inner = config_.num_heads * config_.d_kv;
  embedding_ = weights.GetFactor("shared.weight", {config_.vocab_size, model});
  for (std::int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string block = "encoder.block." + std::to_string(i);
    const std::string attention = block + ".layer.0.SelfAttention.",
                      dense = block + ".layer.1.DenseReluDense.";
    Layer layer;
    layer.attention_norm = weights.Get(block + ".layer.0.layer_norm.weight", {model});
    layer.q = weights.GetFactor(attention + "q.weight", {inner, model});
    layer.k = weights.GetFactor(attention + "k.weight", {inner, model});
    layer.v = weights.GetFactor(attention + "v.weight", {inner, model});
    layer.o = weights.GetFactor(attention + "o.weight", {model, inner});
    layer.position_bias = weights.Get(attention + "relative_attention_bias.weight",
                                      {config_.num_buckets, config_.num_heads});
    layer.ffn_norm = weights.Get(block + ".layer.1.layer_norm.weight", {model});
    layer.wi_0 = weights.GetFactor(dense + "wi_0.weight", {config_.d_ff, model});
    layer.wi_1 = weights.GetFactor(dense + "wi_1.weight", {config_.d_ff, model});
    layer.wo = weights.GetFactor(dense + "wo.weight", {model, config_.d_ff});
    layers_.push_back(std::move(layer));
  }
  final_norm_ = weights.Get("encoder.final_layer_norm.weight", {model});
  weight_bytes_ = weights.bytes();
}

std::vector<model::TensorSpec> UMT5Encoder::Tensors(const UMT5Config& config) {
  UMT5Encoder recorded;
  recorded.config_ = config;
  model::WeightBinder recorder;
  recorded.Bind(recorder);
  return recorder.specs();
}

absl::StatusOr<UMT5Encoder> UMT5Encoder::Load(const std::string& dir, at::Device device,
                                              at::ScalarType products) {
  ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
  auto config = ParseConfig(files.config());
  if (!config.ok()) return base::Annotate(config.status(), dir + "/config.json");
  // A file may hold the tied embedding a second time, under this name.
  ONEPIECE_RETURN_IF_ERROR(
      model::CheckFit(files, Tensors(*config), {"encoder.embed_tokens.weight"}));
  UMT5Encoder encoder;
  encoder.config_ = *std::move(config);
  model::WeightBinder weights(files, device, products);
  encoder.Bind(weights);
  if (!weights.status().ok()) return weights.status();
  return encoder;
}

at::Tensor UMT5Encoder::Attention(const Layer& layer, const at::Tensor& hidden,
                                  const at::Tensor& buckets, const at::Tensor& mask) const {
  const auto heads = [&](const at::Tensor& weight) {
    return at::linear(hidden, weight)
        .unflatten(-1, {config_.num_heads, config_.d_kv})
        .transpose(1, 2);
  };
  const at::Tensor position =
      at::embedding(layer.position_bias, buckets).permute({2, 0, 1}).unsqueeze(0);
  // T5 does not scale its scores. The initialisation of its weights makes up for that.
  const at::Tensor attended =
      model::Attention(heads(layer.q), heads(layer.k), heads(layer.v), 1.0, position + mask);
  return at::linear(attended.transpose(1, 2).flatten(2), layer.o);
}

absl::StatusOr<at::Tensor> UMT5Encoder::Forward(const at::Tensor& ids,
                                                const at::Tensor& mask) const {
  return tensor::Guarded([&]() -> absl::StatusOr<at::Tensor> {
    const bool shaped = ids.dim() == 2 && ids.sizes() == mask.sizes() && ids.numel() > 0 &&
                        ids.scalar_type() == at::kLong && mask.scalar_type() == at::kLong;
    if (!shaped) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SHAPE",
                             "token ids and mask must be I64 [batch, tokens]");
    }
    if (ids.min().item<std::int64_t>() < 0 ||
        ids.max().item<std::int64_t>() >= config_.vocab_size) {
      return base::MakeError(
          absl::StatusCode::kInvalidArgument, "BAD_TOKEN",
          "a token id lies outside the vocabulary of " + std::to_string(config_.vocab_size));
    }
    const at::Device device = embedding_.device();
    at::Tensor hidden = at::embedding(embedding_, ids.to(device)).to(at::kFloat, false, true);
    const at::Tensor buckets = PositionBuckets(ids.size(1), config_, device);
    const at::Tensor hide = (1.0 - mask.to(device, at::kFloat)) *
                            static_cast<double>(std::numeric_limits<float>::lowest());
    const at::Tensor additive = hide.unsqueeze(1).unsqueeze(1);
    for (const Layer& layer : layers_) {
      const at::ScalarType products = layer.q.scalar_type();
      hidden.add_(Attention(
          layer, model::RmsNorm(hidden, layer.attention_norm, config_.epsilon).to(products),
          buckets, additive));
      const at::Tensor normed =
          model::RmsNorm(hidden, layer.ffn_norm, config_.epsilon).to(products);
      at::Tensor gate = at::linear(normed, layer.wi_0);
      at::gelu_(gate, "tanh").mul_(at::linear(normed, layer.wi_1));
      hidden.add_(at::linear(gate, layer.wo));
    }
    return model::RmsNorm(hidden, final_norm_, config_.epsilon);
  });
}

}  // namespace onepiece::wan
