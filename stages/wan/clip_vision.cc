#include "stages/wan/clip_vision.h"

#include <cmath>

#include "cluster/base/status.h"
#include "stages/model/config_reader.h"
#include "stages/model/layers.h"
#include "stages/tensor/compute.h"

namespace onepiece::wan {

absl::StatusOr<ClipVisionConfig> ClipVision::ParseConfig(const nlohmann::json& json) {
  model::ConfigReader reader(json);
  ClipVisionConfig config;  // Absent fields have the defaults of transformers.
  config.hidden = reader.IntOr("hidden_size", 1, model::kMaxExtent, 768);
  config.ffn = reader.IntOr("intermediate_size", 1, model::kMaxExtent, 3072);
  config.num_layers = reader.IntOr("num_hidden_layers", 1, model::kMaxLayers, 12);
  config.num_heads = reader.IntOr("num_attention_heads", 1, 4096, 12);
  config.channels = reader.IntOr("num_channels", 1, 64, 3);
  config.image_size = reader.IntOr("image_size", 1, 4096, 224);
  config.patch_size = reader.IntOr("patch_size", 1, 4096, 32);
  config.epsilon = reader.PositiveOr("layer_norm_eps", 1e-5);
  if (config.channels != 3) reader.Unimplemented("num_channels", "only 3 is supported");
  if (config.hidden % config.num_heads != 0)
    reader.Bad("hidden_size", "must be a multiple of num_attention_heads");
  if (config.patch_size > config.image_size) reader.Bad("patch_size", "is larger than the image");
  const std::string activation = reader.StringOr("hidden_act", "quick_gelu");
  config.quick_gelu = activation == "quick_gelu";
  if (!config.quick_gelu && activation != "gelu")
    reader.Unimplemented("hidden_act", "only gelu and quick_gelu are supported");
  if (!reader.status().ok()) return reader.status();
  return config;
}

const std::vector<std::string>& ClipVision::IgnoredTensors() {
  static const std::vector<std::string> names = {"vision_model.embeddings.position_ids"};
  return names;
}

ClipVision::Layer ClipVision::BindLayer(model::WeightBinder& weights,
                                        const std::string& name) const {
  const auto affine = [&](const std::string& part, std::int64_t in, std::int64_t out) {
    Affine result;
    const std::vector<std::int64_t> shape =
        in == 0 ? std::vector<std::int64_t>{out} : std::vector<std::int64_t>{out, in};
    result.weight = weights.Get(name + part + ".weight", shape);
    result.bias = weights.Get(name + part + ".bias", {out});
    return result;
  };
  const std::int64_t hidden = config_.hidden;
  Layer layer;
  layer.norm1 = affine("layer_norm1", 0, hidden);
  layer.norm2 = affine("layer_norm2", 0, hidden);
  layer.q = affine("self_attn.q_proj", hidden, hidden);
  layer.k = affine("self_attn.k_proj", hidden, hidden);
  layer.v = affine("self_attn.v_proj", hidden, hidden);
  layer.out = affine("self_attn.out_proj", hidden, hidden);
  layer.fc1 = affine("mlp.fc1", hidden, config_.ffn);
  layer.fc2 = affine("mlp.fc2", config_.ffn, hidden);
  return layer;
}

void ClipVision::Bind(model::WeightBinder& weights) {
  const std::int64_t hidden = config_.hidden, patch = config_.patch_size;
  const std::string model = "vision_model.", embeddings = model + "embeddings.";
  class_embedding_ = weights.Get(embeddings + "class_embedding", {hidden});
  patch_ =
      weights.Get(embeddings + "patch_embedding.weight", {hidden, config_.channels, patch, patch});
  positions_ = weights.Get(embeddings + "position_embedding.weight", {config_.tokens(), hidden});
  pre_norm_.weight = weights.Get(model + "pre_layrnorm.weight", {hidden});
  pre_norm_.bias = weights.Get(model + "pre_layrnorm.bias", {hidden});
  // Nothing is computed behind the last but one hidden state. These tensors are asked for only
  // because files hold them, and CheckFit refuses those that nobody asks for.
  for (const char* part : {"weight", "bias"})
    weights.Get(model + "post_layernorm." + part, {hidden});
  for (std::int64_t i = 0; i < config_.num_layers; ++i)
    layers_.push_back(BindLayer(weights, model + "encoder.layers." + std::to_string(i) + "."));
  // For the same reason the last layer is bound and dropped.
  layers_.pop_back();
  weight_bytes_ = weights.bytes();
}

std::vector<model::TensorSpec> ClipVision::Tensors(const ClipVisionConfig& config) {
  ClipVision recorded;
  recorded.config_ = config;
  model::WeightBinder recorder;
  recorded.Bind(recorder);
  return recorder.specs();
}

absl::StatusOr<ClipVision> ClipVision::Load(const std::string& dir, at::Device device) {
  ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
  auto config = ParseConfig(files.config());
  if (!config.ok()) return base::Annotate(config.status(), dir + "/config.json");
  ONEPIECE_RETURN_IF_ERROR(model::CheckFit(files, Tensors(*config), IgnoredTensors()));
  ClipVision model;
  model.config_ = *config;
  model.device_ = device;
  model::WeightBinder weights(files, device);
  model.Bind(weights);
  if (!weights.status().ok()) return weights.status();
  return model;
}

at::Tensor ClipVision::Norm(const at::Tensor& x, const Affine& norm) const {
  return at::layer_norm(x, {config_.hidden}, norm.weight, norm.bias, config_.epsilon);
}

at::Tensor ClipVision::RunLayer(const Layer& layer, const at::Tensor& hidden) const {
  const std::int64_t head_dim = config_.hidden / config_.num_heads;
  const auto linear = [](const at::Tensor& x, const Affine& l) {
    return at::linear(x, l.weight, l.bias);
  };
  const auto heads = [&](const at::Tensor& x) {
    return x.unflatten(-1, {config_.num_heads, head_dim}).transpose(1, 2);
  };
  const at::Tensor in = Norm(hidden, layer.norm1);
  const at::Tensor attended =
      model::Attention(heads(linear(in, layer.q)), heads(linear(in, layer.k)),
                       heads(linear(in, layer.v)), 1.0 / std::sqrt(static_cast<double>(head_dim)));
  const at::Tensor middle = hidden + linear(attended.transpose(1, 2).flatten(2), layer.out);
  at::Tensor wide = linear(Norm(middle, layer.norm2), layer.fc1);
  wide = config_.quick_gelu ? wide * at::sigmoid(wide * 1.702) : at::gelu(wide);
  return middle + linear(wide, layer.fc2);
}

absl::StatusOr<at::Tensor> ClipVision::Forward(const at::Tensor& pixels) const {
  return tensor::Guarded([&]() -> absl::StatusOr<at::Tensor> {
    const std::int64_t side = config_.image_size;
    if (pixels.dim() != 4 || pixels.numel() == 0 || pixels.size(1) != config_.channels ||
        pixels.size(2) != side || pixels.size(3) != side) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SHAPE",
                             "pixels must be [batch, " + std::to_string(config_.channels) + ", " +
                                 std::to_string(side) + ", " + std::to_string(side) + "]");
    }
    const at::Tensor patches =
        at::conv2d(pixels.to(device_, at::kFloat), patch_, {}, config_.patch_size)
            .flatten(2)
            .transpose(1, 2);
    const at::Tensor first = class_embedding_.expand({pixels.size(0), 1, config_.hidden});
    at::Tensor hidden = Norm(at::cat({first, patches}, 1) + positions_, pre_norm_);
    for (const Layer& layer : layers_) hidden = RunLayer(layer, hidden);
    return hidden;
  });
}

}  // namespace onepiece::wan
