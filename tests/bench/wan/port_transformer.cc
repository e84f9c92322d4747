#include <cmath>
#include <vector>

#include "tests/bench/wan/port.h"

namespace onepiece::bench::port {
namespace {

struct Rotary {
  at::Tensor cos, sin;  // [1, 1, tokens, head_dim / 2]
};

at::Tensor Frequencies(std::int64_t dim, std::int64_t positions) {
  const at::TensorOptions options(at::kDouble);
  const at::Tensor inverse =
      1.0 / at::pow(10000.0, at::arange(0, dim, 2, options) / static_cast<double>(dim));
  return at::outer(at::arange(positions, options), inverse);
}

Rotary MakeRotary(const Model& model, std::int64_t frames, std::int64_t height,
                  std::int64_t width) {
  const std::int64_t head = model.Int("attention_head_dim");
  const std::int64_t side = 2 * (head / 6), time = head - 2 * side;
  const std::int64_t reach = model.Int("rope_max_seq_len");
  const at::Tensor t = Frequencies(time, reach).narrow(0, 0, frames);
  const at::Tensor h = Frequencies(side, reach).narrow(0, 0, height);
  const at::Tensor w = Frequencies(side, reach).narrow(0, 0, width);
  const at::Tensor angles =
      at::cat({t.view({frames, 1, 1, -1}).expand({frames, height, width, t.size(1)}),
               h.view({1, height, 1, -1}).expand({frames, height, width, h.size(1)}),
               w.view({1, 1, width, -1}).expand({frames, height, width, w.size(1)})},
              -1)
          .reshape({1, 1, frames * height * width, -1});
  return {at::cos(angles).to(at::kFloat), at::sin(angles).to(at::kFloat)};
}

at::Tensor Rotate(const at::Tensor& x, const Rotary& rotary) {
  const auto pairs = x.unflatten(-1, {x.size(-1) / 2, 2}).unbind(-1);
  at::Tensor out = at::empty_like(x);
  out.slice(-1, 0, c10::nullopt, 2).copy_(pairs[0] * rotary.cos - pairs[1] * rotary.sin);
  out.slice(-1, 1, c10::nullopt, 2).copy_(pairs[0] * rotary.sin + pairs[1] * rotary.cos);
  return out;
}

at::Tensor Attend(const Model& model, const std::string& name, const at::Tensor& x,
                  const at::Tensor& context, const Rotary* rotary) {
  const std::int64_t heads = model.Int("num_attention_heads");
  const double epsilon = model.config.at("eps").get<double>();
  const auto split = [&](const at::Tensor& y) {
    return y.unflatten(2, {heads, -1}).transpose(1, 2);
  };
  at::Tensor q =
      RmsNorm(Linear(model, name + ".to_q", x), model.At(name + ".norm_q.weight"), epsilon);
  at::Tensor k =
      RmsNorm(Linear(model, name + ".to_k", context), model.At(name + ".norm_k.weight"), epsilon);
  q = split(q);
  k = split(k);
  const at::Tensor v = split(Linear(model, name + ".to_v", context));
  if (rotary != nullptr) {
    q = Rotate(q, *rotary);
    k = Rotate(k, *rotary);
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
  return Linear(model, name + ".to_out.0", Attention(q, k, v, scale).transpose(1, 2).flatten(2, 3));
}

at::Tensor Norm(const at::Tensor& x, double epsilon, const at::Tensor& weight = {},
                const at::Tensor& bias = {}) {
  return at::layer_norm(x.to(at::kFloat), {x.size(-1)}, weight, bias, epsilon);
}

at::Tensor Block(const Model& model, const std::string& name, const at::Tensor& input,
                 const at::Tensor& text, const at::Tensor& time, const Rotary& rotary) {
  const double epsilon = model.config.at("eps").get<double>();
  const auto parts = (model.At(name + ".scale_shift_table") + time).chunk(6, 1);
  at::Tensor hidden = input;
  at::Tensor normed = Norm(hidden, epsilon) * (1 + parts[1]) + parts[0];
  hidden = hidden + Attend(model, name + ".attn1", normed, normed, &rotary) * parts[2];
  normed = Norm(hidden, epsilon, model.At(name + ".norm2.weight"), model.At(name + ".norm2.bias"));
  hidden = hidden + Attend(model, name + ".attn2", normed, text, nullptr);
  normed = Norm(hidden, epsilon) * (1 + parts[4]) + parts[3];
  const at::Tensor inner = at::gelu(Linear(model, name + ".ffn.net.0.proj", normed), "tanh");
  return hidden + Linear(model, name + ".ffn.net.2", inner) * parts[5];
}

at::Tensor Wave(std::int64_t dim, double timestep) {
  const std::int64_t half = dim / 2;
  const at::Tensor exponent = at::arange(half, at::TensorOptions(at::kFloat)) *
                              (-std::log(10000.0) / static_cast<double>(half));
  const at::Tensor angles = at::exp(exponent) * static_cast<float>(timestep);
  return at::cat({at::cos(angles), at::sin(angles)}, -1).unsqueeze(0);
}

}  // namespace

at::Tensor Linear(const Model& model, const std::string& name, const at::Tensor& x) {
  const auto bias = model.weights.find(name + ".bias");
  return at::linear(x, model.At(name + ".weight"),
                    bias == model.weights.end() ? at::Tensor() : bias->second);
}

at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias) {
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) * scale;
  if (bias.defined()) scores = scores + bias;
  return at::matmul(at::softmax(scores, -1), v);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + epsilon) * weight;
}

at::Tensor Transformer(const Model& model, const at::Tensor& hidden, double timestep,
                       const at::Tensor& text) {
  const auto patch = model.config.at("patch_size").get<std::vector<std::int64_t>>();
  const std::int64_t frames = hidden.size(2) / patch[0], height = hidden.size(3) / patch[1],
                     width = hidden.size(4) / patch[2];
  const Rotary rotary = MakeRotary(model, frames, height, width);
  at::Tensor x = at::conv3d(hidden, model.At("patch_embedding.weight"),
                            model.At("patch_embedding.bias"), patch)
                     .flatten(2)
                     .transpose(1, 2);
  const std::string embedder = "condition_embedder.";
  const at::Tensor wave = Wave(model.Int("freq_dim"), timestep);
  const at::Tensor time =
      Linear(model, embedder + "time_embedder.linear_2",
             at::silu(Linear(model, embedder + "time_embedder.linear_1", wave)));
  const at::Tensor projected =
      Linear(model, embedder + "time_proj", at::silu(time)).unflatten(1, {6, -1});
  const at::Tensor context =
      Linear(model, embedder + "text_embedder.linear_2",
             at::gelu(Linear(model, embedder + "text_embedder.linear_1", text), "tanh"));
  for (std::int64_t i = 0; i < model.Int("num_layers"); ++i) {
    x = Block(model, "blocks." + std::to_string(i), x, context, projected, rotary);
  }
  const auto parts = (model.At("scale_shift_table") + time.unsqueeze(1)).chunk(2, 1);
  x = Norm(x, model.config.at("eps").get<double>()) * (1 + parts[1]) + parts[0];
  x = Linear(model, "proj_out", x);
  return x.reshape({hidden.size(0), frames, height, width, patch[0], patch[1], patch[2], -1})
      .permute({0, 7, 1, 4, 2, 5, 3, 6})
      .flatten(6, 7)
      .flatten(4, 5)
      .flatten(2, 3);
}

at::Tensor Encoder(const Model& model, const at::Tensor& ids, const at::Tensor& mask) {
  const double epsilon = model.config.at("layer_norm_epsilon").get<double>();
  const std::int64_t tokens = ids.size(1), heads = model.Int("num_heads");
  const std::int64_t half = model.Int("relative_attention_num_buckets") / 2, exact = half / 2;
  at::Tensor hidden = at::embedding(model.At("shared.weight"), ids);
  const at::Tensor hide = (1.0 - mask.to(at::kFloat)).view({ids.size(0), 1, 1, tokens}) *
                          static_cast<double>(std::numeric_limits<float>::lowest());
  for (std::int64_t i = 0; i < model.Int("num_layers"); ++i) {
    const std::string block = "encoder.block." + std::to_string(i);
    const std::string attention = block + ".layer.0.SelfAttention.";
    const std::string dense = block + ".layer.1.DenseReluDense.";
    const at::Tensor positions = at::arange(tokens, at::kLong);
    const at::Tensor relative = positions.view({1, -1}) - positions.view({-1, 1});
    const at::Tensor distance = relative.abs();
    const at::Tensor far =
        exact + (at::log(distance.to(at::kFloat) / static_cast<double>(exact)) /
                 std::log(static_cast<double>(model.Int("relative_attention_max_distance")) /
                          static_cast<double>(exact)) *
                 static_cast<double>(half - exact))
                    .clamp_min(0)
                    .to(at::kLong);
    const at::Tensor buckets = (relative > 0).to(at::kLong) * half +
                               at::where(distance < exact, distance, far.clamp_max(half - 1));
    const at::Tensor bias =
        at::embedding(model.At(attention + "relative_attention_bias.weight"), buckets)
            .permute({2, 0, 1})
            .unsqueeze(0) +
        hide;
    at::Tensor normed = RmsNorm(hidden, model.At(block + ".layer.0.layer_norm.weight"), epsilon);
    const auto split = [&](const char* name) {
      return Linear(model, attention + name, normed)
          .view({ids.size(0), tokens, heads, -1})
          .transpose(1, 2);
    };
    const at::Tensor attended = Attention(split("q"), split("k"), split("v"), 1.0, bias);
    hidden =
        hidden + Linear(model, attention + "o", attended.transpose(1, 2).contiguous().flatten(2));
    normed = RmsNorm(hidden, model.At(block + ".layer.1.layer_norm.weight"), epsilon);
    const at::Tensor gate = at::gelu(Linear(model, dense + "wi_0", normed), "tanh");
    hidden = hidden + Linear(model, dense + "wo", gate * Linear(model, dense + "wi_1", normed));
  }
  return RmsNorm(hidden, model.At("encoder.final_layer_norm.weight"), epsilon);
}

}  // namespace onepiece::bench::port
