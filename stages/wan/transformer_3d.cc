#include "stages/wan/transformer_3d.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "cluster/base/status.h"
#include "stages/model/config_reader.h"
#include "stages/model/kernels.h"
#include "stages/model/layers.h"
#include "stages/tensor/compute.h"

namespace onepiece::wan {
namespace {

constexpr double kTheta = 10000.0;  // The base of the rotary and of the timestep frequencies.
// The reference counts all but the last 512 tokens of image and text as the image's.
constexpr std::int64_t kTextTokens = 512;
constexpr double kImageEpsilon =
    1e-5;  // The image embedder's norms use this, whatever config.json says.

absl::Status BadShape(const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SHAPE", message);
}

at::Tensor LayerNorm(const at::Tensor& x, double epsilon, const at::Tensor& weight = {},
                     const at::Tensor& bias = {}) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
}

/// Runs `compute` in inference mode. If `weight` requires a gradient, runs it in the caller's mode.
template <typename Compute>
auto Computed(const at::Tensor& weight, Compute&& compute) -> decltype(compute()) {
  if (!model::Recorded(weight)) return tensor::Guarded(compute);
  try {
    return compute();
  } catch (const std::exception& error) {
    return tensor::FromException(error);
  }
}

/// Adds x · scale to `to`, in place unless autograd records x: it may have kept `to`.
void AddScaled(at::Tensor& to, const at::Tensor& x, const at::Tensor& scale) {
  if (model::Recorded(x)) {
    to = at::addcmul(to, x, scale);
  } else {
    to.addcmul_(x, scale);
  }
}

void Add(at::Tensor& to, const at::Tensor& x) {
  if (model::Recorded(x)) {
    to = to + x;
  } else {
    to.add_(x);
  }
}

at::Tensor Gelu(at::Tensor x) {
  return model::Recorded(x) ? at::gelu(x, "tanh") : at::gelu_(x, "tanh");
}

/// Returns the angles of `count` positions for `pairs` pairs, F64 [count, pairs].
at::Tensor Angles(std::int64_t count, std::int64_t pairs) {
  const at::TensorOptions options(at::kDouble);
  const at::Tensor exponents = at::arange(pairs, options) * (2.0 / static_cast<double>(2 * pairs));
  return at::outer(at::arange(count, options), at::pow(kTheta, exponents).reciprocal());
}

void ReadImage(model::ConfigReader& reader, TransformerConfig& config) {
  config.image_dim = reader.IntOr("image_dim", 1, model::kMaxExtent, 0);
  config.image_pos_len = reader.IntOr("pos_embed_seq_len", 2, model::kMaxExtent, 0);
  // The image embedder's output width is the input width of these projections.
  const std::int64_t added = reader.IntOr("added_kv_proj_dim", 1, model::kMaxExtent, 0);
  if (added != (config.image_dim > 0 ? config.dim() : 0)) {
    reader.Bad("added_kv_proj_dim",
               "must be num_attention_heads * attention_head_dim with image_dim, else null");
  }
  if (config.image_pos_len > 0 && (config.image_dim == 0 || config.image_pos_len % 2 != 0)) {
    reader.Bad("pos_embed_seq_len", "must be even, and needs image_dim");
  }
}

}  // namespace

absl::StatusOr<TransformerConfig> WanTransformer::ParseConfig(const nlohmann::json& json) {
  model::ConfigReader reader(json);
  TransformerConfig config;
  if (reader.StringOr("qk_norm", "rms_norm_across_heads") != "rms_norm_across_heads") {
    reader.Unimplemented("qk_norm", "only rms_norm_across_heads is supported");
  }
  const auto patch = reader.Ints("patch_size", 3, 1, 64);
  if (patch.size() == 3) {
    config.patch_t = patch[0], config.patch_h = patch[1], config.patch_w = patch[2];
  } else {
    reader.Bad("patch_size", "must have 3 numbers");
  }
  config.num_heads = reader.Int("num_attention_heads", 1, 4096);
  config.head_dim = reader.Int("attention_head_dim", 6, 4096);
  config.in_channels = reader.Int("in_channels", 1, 4096);
  config.out_channels = reader.IntOr("out_channels", 1, 4096, config.in_channels);
  config.text_dim = reader.Int("text_dim", 1, model::kMaxExtent);
  config.freq_dim = reader.Int("freq_dim", 2, model::kMaxExtent);
  config.ffn_dim = reader.Int("ffn_dim", 1, model::kMaxExtent);
  config.num_layers = reader.Int("num_layers", 1, model::kMaxLayers);
  config.rope_max_seq_len = reader.IntOr("rope_max_seq_len", 1, model::kMaxExtent, 1024);
  config.cross_attn_norm = reader.BoolOr("cross_attn_norm", true);
  config.epsilon = reader.PositiveOr("eps", 1e-6);
  ReadImage(reader, config);
  if (config.head_dim % 2 != 0) reader.Bad("attention_head_dim", "must be even");
  if (config.freq_dim % 2 != 0) reader.Bad("freq_dim", "must be even");
  if (!reader.status().ok()) return reader.status();
  return config;
}

WanTransformer::Linear WanTransformer::BindLinear(model::WeightBinder& weights,
                                                  const std::string& name, std::int64_t in,
                                                  std::int64_t out, Held held) const {
  if (held == Held::kF32)
    return {weights.Get(name + ".weight", {out, in}), weights.Get(name + ".bias", {out})};
  return {weights.GetFactor(name + ".weight", {out, in}), weights.GetFactor(name + ".bias", {out})};
}

WanTransformer::Norm WanTransformer::BindNorm(model::WeightBinder& weights, const std::string& name,
                                              std::int64_t extent) const {
  Norm norm;
  norm.weight = weights.Get(name + ".weight", {extent});
  norm.bias = weights.Get(name + ".bias", {extent});
  return norm;
}

WanTransformer::AttentionWeights WanTransformer::BindAttention(model::WeightBinder& weights,
                                                               const std::string& name) const {
  const std::int64_t dim = config_.dim();
  AttentionWeights attention;
  attention.q = BindLinear(weights, name + ".to_q", dim, dim);
  attention.k = BindLinear(weights, name + ".to_k", dim, dim);
  attention.v = BindLinear(weights, name + ".to_v", dim, dim);
  attention.out = BindLinear(weights, name + ".to_out.0", dim, dim);
  attention.norm_q = weights.Get(name + ".norm_q.weight", {dim});
  attention.norm_k = weights.Get(name + ".norm_k.weight", {dim});
  return attention;
}

void WanTransformer::BindEmbedders(model::WeightBinder& weights) {
  const TransformerConfig& c = config_;
  const std::int64_t dim = c.dim();
  const std::string embedder = "condition_embedder.";
  patch_.weight =
      weights.Get("patch_embedding.weight", {dim, c.in_channels, c.patch_t, c.patch_h, c.patch_w});
  patch_.bias = weights.Get("patch_embedding.bias", {dim});
  time_1_ = BindLinear(weights, embedder + "time_embedder.linear_1", c.freq_dim, dim, Held::kF32);
  time_2_ = BindLinear(weights, embedder + "time_embedder.linear_2", dim, dim, Held::kF32);
  time_proj_ = BindLinear(weights, embedder + "time_proj", dim, 6 * dim, Held::kF32);
  text_1_ = BindLinear(weights, embedder + "text_embedder.linear_1", c.text_dim, dim);
  text_2_ = BindLinear(weights, embedder + "text_embedder.linear_2", dim, dim);
  if (c.image_dim == 0) return;
  const std::string image = embedder + "image_embedder.";
  if (c.image_pos_len > 0) {
    image_.positions = weights.Get(image + "pos_embed", {1, c.image_pos_len, c.image_dim});
  }
  image_.norm_in = BindNorm(weights, image + "norm1", c.image_dim);
  image_.in = BindLinear(weights, image + "ff.net.0.proj", c.image_dim, c.image_dim);
  image_.out = BindLinear(weights, image + "ff.net.2", c.image_dim, dim);
  image_.norm_out = BindNorm(weights, image + "norm2", dim);
}

void WanTransformer::Bind(model::WeightBinder& weights) {
  const TransformerConfig& c = config_;
  const std::int64_t dim = c.dim();
  BindEmbedders(weights);
  for (std::int64_t i = 0; i < c.num_layers; ++i) {
    const std::string name = "blocks." + std::to_string(i);
    Block block;
    block.modulation = weights.Get(name + ".scale_shift_table", {1, 6, dim});
    block.self = BindAttention(weights, name + ".attn1");
    block.cross = BindAttention(weights, name + ".attn2");
    if (c.image_dim > 0) {
      block.image.k = BindLinear(weights, name + ".attn2.add_k_proj", dim, dim);
      block.image.v = BindLinear(weights, name + ".attn2.add_v_proj", dim, dim);
      block.image.norm_k = weights.Get(name + ".attn2.norm_added_k.weight", {dim});
    }
    if (c.cross_attn_norm) block.norm2 = BindNorm(weights, name + ".norm2", dim);
    block.ffn_in = BindLinear(weights, name + ".ffn.net.0.proj", dim, c.ffn_dim);
    block.ffn_out = BindLinear(weights, name + ".ffn.net.2", c.ffn_dim, dim);
    blocks_.push_back(std::move(block));
  }
  modulation_ = weights.Get("scale_shift_table", {1, 2, dim});
  proj_out_ = BindLinear(weights, "proj_out", dim,
                         c.out_channels * c.patch_t * c.patch_h * c.patch_w, Held::kF32);
  weight_bytes_ = weights.bytes();
}

std::vector<model::TensorSpec> WanTransformer::Tensors(const TransformerConfig& config) {
  WanTransformer recorded;
  recorded.config_ = config;
  model::WeightBinder recorder;
  recorded.Bind(recorder);
  return recorder.specs();
}

absl::StatusOr<WanTransformer> WanTransformer::Load(const std::string& dir, at::Device device,
                                                    at::ScalarType products,
                                                    const model::WeightChange& change) {
  ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
  auto config = ParseConfig(files.config());
  if (!config.ok()) return base::Annotate(config.status(), dir + "/config.json");
  ONEPIECE_RETURN_IF_ERROR(model::CheckFit(files, Tensors(*config)));
  WanTransformer transformer;
  transformer.config_ = *config;
  transformer.device_ = device;
  model::WeightBinder weights(files, device, products, change);
  transformer.Bind(weights);
  if (!weights.status().ok()) return weights.status();
  return transformer;
}

at::Tensor WanTransformer::Heads(const at::Tensor& x) const {
  return x.view({x.size(0), x.size(1), config_.num_heads, config_.head_dim}).transpose(1, 2);
}

absl::StatusOr<at::Tensor> WanTransformer::EmbedText(const at::Tensor& text) const {
  if (text.dim() != 3 || text.numel() == 0 || text.size(2) != config_.text_dim) {
    return BadShape("text embeddings must be [batch, tokens, " + std::to_string(config_.text_dim) +
                    "]");
  }
  const at::Tensor first = text_1_.Apply(text.to(device_, at::kFloat));
  return text_2_.Apply(at::gelu(first, "tanh"));
}

absl::StatusOr<at::Tensor> WanTransformer::EmbedImage(const at::Tensor& image) const {
  const TransformerConfig& c = config_;
  if (!image.defined()) return BadShape("an image-to-video transformer needs image embeddings");
  const bool shaped = image.dim() == 3 && image.numel() > 0 && image.size(2) == c.image_dim &&
                      image.size(0) % c.images() == 0 &&
                      (c.image_pos_len == 0 || c.images() * image.size(1) == c.image_pos_len);
  if (!shaped) {
    return BadShape("image embeddings must be [batch * " + std::to_string(c.images()) + ", " +
                    (c.image_pos_len > 0 ? std::to_string(c.image_pos_len / 2) : "tokens") + ", " +
                    std::to_string(c.image_dim) + "]");
  }
  at::Tensor x = image.to(device_, at::kFloat);
  if (c.image_pos_len > 0) x = x.reshape({-1, c.image_pos_len, c.image_dim}) + image_.positions;
  x = LayerNorm(x, kImageEpsilon, image_.norm_in.weight, image_.norm_in.bias);
  x = at::gelu(image_.in.Apply(x));
  x = image_.out.Apply(x).to(at::kFloat);
  return LayerNorm(x, kImageEpsilon, image_.norm_out.weight, image_.norm_out.bias);
}

absl::StatusOr<WanTransformer::Context> WanTransformer::Prepare(const at::Tensor& text,
                                                                const at::Tensor& image) const {
  return Computed(patch_.weight, [&]() -> absl::StatusOr<Context> {
    ONEPIECE_ASSIGN_OR_RETURN(at::Tensor text_tokens, EmbedText(text));
    at::Tensor image_tokens;
    if (config_.image_dim > 0) {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor embedded, EmbedImage(image));
      if (embedded.size(0) != text_tokens.size(0))
        return BadShape("text and image embeddings are of different batches");
      // If the text does not have 512 tokens, the reference does not split between image and text:
      // it slices at total - 512, which counts from the end when negative.
      const at::Tensor all = at::cat({embedded, text_tokens}, 1);
      const std::int64_t total = all.size(1), cut = total - kTextTokens;
      const std::int64_t split = cut >= 0 ? cut : std::max<std::int64_t>(total + cut, 0);
      image_tokens = all.narrow(1, 0, split);
      text_tokens = all.narrow(1, split, total - split);
    } else if (image.defined()) {
      return BadShape("a text-to-video transformer takes no image embeddings");
    }
    Context context;
    const auto add = [&](KeyValues& to, const at::Tensor& tokens, const Linear& key,
                         const at::Tensor& norm, const Linear& value) {
      const at::Tensor keys = key.Apply(tokens);
      to.keys.push_back(Heads(model::RmsNorm(keys, norm, config_.epsilon).to(keys.scalar_type())));
      to.values.push_back(Heads(value.Apply(tokens)));
    };
    for (const Block& block : blocks_) {
      add(context.text, text_tokens, block.cross.k, block.cross.norm_k, block.cross.v);
      if (image_tokens.defined() && image_tokens.size(1) > 0)
        add(context.image, image_tokens, block.image.k, block.image.norm_k, block.image.v);
    }
    return context;
  });
}

absl::Status WanTransformer::CheckInput(const at::Tensor& hidden, const Context& context) const {
  const TransformerConfig& c = config_;
  if (hidden.dim() != 5 || hidden.numel() == 0 || hidden.size(1) != c.in_channels) {
    return BadShape("latents must be [batch, " + std::to_string(c.in_channels) +
                    ", frames, height, width]");
  }
  const std::int64_t patch[] = {c.patch_t, c.patch_h, c.patch_w};
  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t extent = hidden.size(2 + axis);
    if (extent < patch[axis] || extent / patch[axis] > c.rope_max_seq_len) {
      return BadShape("a latent extent of " + std::to_string(extent) + " is not within " +
                      std::to_string(patch[axis]) + " to the model's " +
                      std::to_string(c.rope_max_seq_len * patch[axis]));
    }
  }
  if (context.text.keys.size() != blocks_.size() ||
      context.text.keys.front().size(0) != hidden.size(0)) {
    return BadShape("the text was prepared for another model or batch");
  }
  return absl::OkStatus();
}

model::Rotary WanTransformer::MakeRotary(std::int64_t frames, std::int64_t height,
                                         std::int64_t width) const {
  // A third of a head's pairs (rounded down) rotates with the row, a third with the column, and the
  // rest with the frame.
  const std::int64_t spatial = config_.head_dim / 6, temporal = config_.head_dim / 2 - 2 * spatial;
  // Only the values of each axis are computed here, in F64, and then spread on the device. Those of
  // every token would take the processor longer than a GPU takes for several layers.
  const auto table = [&](at::Tensor (*wave)(const at::Tensor&)) {
    const auto spread = [&](std::int64_t count, std::int64_t pairs, std::size_t axis) {
      std::vector<std::int64_t> shape = {1, 1, 1, pairs};
      shape[axis] = count;
      return wave(Angles(count, pairs))
          .to(device_, at::kFloat)
          .view(shape)
          .expand({frames, height, width, pairs});
    };
    return at::cat(
               {spread(frames, temporal, 0), spread(height, spatial, 1), spread(width, spatial, 2)},
               -1)
        .reshape({frames * height * width, config_.head_dim / 2});
  };
  return {table(at::cos), table(at::sin)};
}

model::Rotary WanTransformer::RotaryOf(std::int64_t frames, std::int64_t height,
                                       std::int64_t width) const {
  const std::array<std::int64_t, 3> shape = {frames, height, width};
  const base::MutexLock lock(rotary_cache_->mutex);
  if (rotary_cache_->shape != shape) {
    // Autograd cannot keep tensors that are made in inference mode.
    const c10::InferenceMode outside(false);
    rotary_cache_->rotary = MakeRotary(frames, height, width);
    rotary_cache_->shape = shape;
  }
  return rotary_cache_->rotary;
}

at::Tensor WanTransformer::TimeEmbedding(double timestep) const {
  const std::int64_t half = config_.freq_dim / 2;
  // The order of operations is the reference's, because each one rounds.
  const at::Tensor exponents = at::arange(half, at::TensorOptions(at::kFloat)) * -std::log(kTheta) /
                               static_cast<double>(half);
  const at::Tensor angles = at::exp(exponents) * static_cast<float>(timestep);
  const at::Tensor wave = at::cat({at::cos(angles), at::sin(angles)}).unsqueeze(0).to(device_);
  return time_2_.Apply(at::silu(time_1_.Apply(wave)));
}

at::Tensor WanTransformer::CrossAttention(const Block& block, const at::Tensor& hidden,
                                          const Context& context, std::size_t layer) const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
  const AttentionWeights& cross = block.cross;
  at::Tensor projected = cross.q.Apply(hidden);
  model::RmsNormRotate(projected, cross.norm_q, config_.epsilon, nullptr);
  const at::Tensor q = Heads(projected);
  at::Tensor attended =
      model::Attention(q, context.text.keys[layer], context.text.values[layer], scale);
  if (!context.image.keys.empty()) {
    Add(attended,
        model::Attention(q, context.image.keys[layer], context.image.values[layer], scale));
  }
  return cross.out.Apply(attended.transpose(1, 2).flatten(2));
}

absl::StatusOr<at::Tensor> WanTransformer::SelfAttention(const Block& block,
                                                         const at::Tensor& hidden,
                                                         const Pass& pass) const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
  // Rounds once for all three products.
  const at::Tensor x = hidden.to(block.self.q.weight.scalar_type());
  at::Tensor q = block.self.q.Apply(x), k = block.self.k.Apply(x);
  model::RmsNormRotate(q, block.self.norm_q, config_.epsilon, &pass.rotary);
  model::RmsNormRotate(k, block.self.norm_k, config_.epsilon, &pass.rotary);
  const at::Tensor v = block.self.v.Apply(x);
  if (pass.parts != nullptr) {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor attended, pass.parts->Attention(q, k, v, scale));
    return block.self.out.Apply(attended);
  }
  const at::Tensor attended = model::Attention(Heads(q), Heads(k), Heads(v), scale);
  return block.self.out.Apply(attended.transpose(1, 2).flatten(2));
}

absl::Status WanTransformer::RunBlock(const Block& block, at::Tensor& hidden, const Pass& pass,
                                      std::size_t layer) const {
  // The order is shift, scale and gate of attention, then those of the FFN. Modulation is passed as
  // the norm's gain and shift, so it costs no pass of its own.
  const at::Tensor modulation = (block.modulation + pass.time).view({6, config_.dim()});
  const auto modulated = [&](std::int64_t first) {
    return LayerNorm(hidden, config_.epsilon, 1 + modulation[first + 1], modulation[first]);
  };
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor attended, SelfAttention(block, modulated(0), pass));
  AddScaled(hidden, attended.to(at::kFloat), modulation[2]);
  Add(hidden,
      CrossAttention(block,
                     config_.cross_attn_norm
                         ? LayerNorm(hidden, config_.epsilon, block.norm2.weight, block.norm2.bias)
                         : hidden,
                     pass.context, layer));
  const at::Tensor inner = Gelu(block.ffn_in.Apply(modulated(3)));
  AddScaled(hidden, block.ffn_out.Apply(inner).to(at::kFloat), modulation[5]);
  return absl::OkStatus();
}

at::Tensor WanTransformer::Unpatchify(const at::Tensor& patches, std::int64_t batch,
                                      std::int64_t frames, std::int64_t height,
                                      std::int64_t width) const {
  const TransformerConfig& c = config_;
  return patches
      .reshape({batch, frames, height, width, c.patch_t, c.patch_h, c.patch_w, c.out_channels})
      .permute({0, 7, 1, 4, 2, 5, 3, 6})
      .reshape({batch, c.out_channels, frames * c.patch_t, height * c.patch_h, width * c.patch_w});
}

model::ParallelWork WanTransformer::WorkOf(at::IntArrayRef latents, bool guided) const {
  const TransformerConfig& c = config_;
  return {.heads = c.num_heads,
          .tokens = latents[2] / c.patch_t * (latents[3] / c.patch_h) * (latents[4] / c.patch_w),
          .guided = guided};
}

at::Tensor WanTransformer::EmbedPatches(const at::Tensor& hidden,
                                        const model::TokenParts* parts) const {
  const TransformerConfig& c = config_;
  const at::Tensor x = hidden.to(device_, at::kFloat);
  const std::int64_t height = x.size(3) / c.patch_h, width = x.size(4) / c.patch_w;
  if (parts == nullptr) {
    return at::conv3d(x, patch_.weight, patch_.bias, {c.patch_t, c.patch_h, c.patch_w})
        .flatten(2)
        .transpose(1, 2)
        .contiguous();
  }
  // Patches do not overlap, so the convolution is a product of each patch with the weights. Only
  // the frames that this rank's tokens lie in are laid out as patches.
  const std::int64_t frame_tokens = height * width, first = parts->begin() / frame_tokens,
                     some = (parts->begin() + parts->count() - 1) / frame_tokens - first + 1;
  const at::Tensor patches =
      x.narrow(2, first * c.patch_t, some * c.patch_t)
          .narrow(3, 0, height * c.patch_h)
          .narrow(4, 0, width * c.patch_w)
          .reshape({x.size(0), c.in_channels, some, c.patch_t, height, c.patch_h, width, c.patch_w})
          .permute({0, 2, 4, 6, 1, 3, 5, 7})
          .reshape({x.size(0), some * frame_tokens, -1})
          .narrow(1, parts->begin() - first * frame_tokens, parts->count());
  return at::linear(patches, patch_.weight.flatten(1), patch_.bias);
}

absl::StatusOr<at::Tensor> WanTransformer::Forward(const at::Tensor& hidden, double timestep,
                                                   const Context& context,
                                                   const model::Parallel& parallel) const {
  return Computed(patch_.weight, [&]() -> absl::StatusOr<at::Tensor> {
    ONEPIECE_RETURN_IF_ERROR(CheckInput(hidden, context));
    const TransformerConfig& c = config_;
    const std::int64_t frames = hidden.size(2) / c.patch_t, height = hidden.size(3) / c.patch_h,
                       width = hidden.size(4) / c.patch_w;
    std::optional<model::TokenParts> parts;
    if (parallel.group != nullptr) {
      if (model::Recorded(patch_.weight))
        return absl::UnimplementedError("a group of workers does not train a model");
      // A plan with two branches is for guided predictions; the caller has made it so.
      ONEPIECE_ASSIGN_OR_RETURN(
          parts, model::TokenParts::Make(parallel, WorkOf(hidden.sizes(), parallel.plan.cfg == 2)));
    }
    model::Rotary rotary = RotaryOf(frames, height, width);
    if (parts) {
      rotary = {rotary.cos.narrow(0, parts->begin(), parts->count()),
                rotary.sin.narrow(0, parts->begin(), parts->count())};
    }
    at::Tensor x = EmbedPatches(hidden, parts ? &*parts : nullptr);
    const at::Tensor time = TimeEmbedding(timestep);
    const Pass pass{context, time_proj_.Apply(at::silu(time)).view({1, 6, c.dim()}), rotary,
                    parts ? &*parts : nullptr};
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      ONEPIECE_RETURN_IF_ERROR(RunBlock(blocks_[i], x, pass, i));
    const at::Tensor modulation = (modulation_ + time.unsqueeze(1)).view({2, c.dim()});
    x = LayerNorm(x, c.epsilon, 1 + modulation[1], modulation[0]);
    at::Tensor patches = proj_out_.Apply(x);
    if (parts) {
      ONEPIECE_ASSIGN_OR_RETURN(patches, parts->Gather(patches));
    }
    return Unpatchify(patches, patches.size(0), frames, height, width);
  });
}

}  // namespace onepiece::wan
