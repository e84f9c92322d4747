#include "stages/wan/autoencoder_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "stages/model/kernels.h"
#include "stages/model/layers.h"

namespace onepiece::wan::vae {
namespace {

/// [batch, channels, frames, h, w] → [batch · frames, channels, h, w].
at::Tensor ToFrames(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1), x.size(3), x.size(4)});
}

at::Tensor FromFrames(const at::Tensor& frames, std::int64_t batch) {
  return frames
      .view({batch, frames.size(0) / batch, frames.size(1), frames.size(2), frames.size(3)})
      .transpose(1, 2);
}

std::vector<std::int64_t> Channels(std::int64_t base, const std::vector<std::int64_t>& multiples) {
  std::vector<std::int64_t> channels;
  for (const std::int64_t multiple : multiples) channels.push_back(base * multiple);
  return channels;
}

/// A convolution of each frame alone.
model::Convolution BindFrameConv(model::WeightBinder& weights, const std::string& name,
                                 const std::vector<std::int64_t>& shape, std::int64_t stride = 1,
                                 std::optional<std::int64_t> padding = std::nullopt) {
  const at::Tensor weight = weights.Get(name + ".weight", shape);
  const std::int64_t margin = padding.value_or(shape.back() / 2);
  return model::Convolution(weight, weights.Get(name + ".bias", {shape.front()}), {stride, stride},
                            {margin, margin});
}

Time TimeOf(bool resampled) { return resampled ? Time::kResample : Time::kKeep; }

}  // namespace

FeatureCache::Slot& FeatureCache::Next() {
  if (next_ == slots_.size()) slots_.emplace_back();
  return slots_[next_++];
}

void CausalConv::Bind(model::WeightBinder& weights, const std::string& name, std::int64_t in,
                      std::int64_t out, std::array<std::int64_t, 3> kernel) {
  const at::Tensor weight =
      weights.Get(name + ".weight", {out, in, kernel[0], kernel[1], kernel[2]});
  const at::Tensor bias = weights.Get(name + ".bias", {out});
  const std::vector<std::int64_t> padding = {0, kernel[1] / 2, kernel[2] / 2};
  high_ = kernel[1] > 1;
  conv_ = model::Convolution(weight, bias, {1, 1, 1}, padding);
  if (weight.defined() && kernel[0] == 3) {
    single_ = model::Convolution(weight.narrow(2, 2, 1), bias, {1, 1, 1}, padding);
  }
}

template <typename Fill>
at::Tensor CausalConv::Run(at::IntArrayRef shape, const at::TensorOptions& options,
                           FeatureCache::Slot& memory, Strips* strips, const Fill& fill) const {
  const std::int64_t frames = shape[2], rows = shape[3];
  const bool margins = strips != nullptr && high_;
  at::Tensor window =
      at::empty({shape[0], shape[1], 2 + frames, rows + (margins ? 2 : 0), shape[4]}, options);
  const bool first = !memory.frames.defined();
  at::Tensor before = window.narrow(2, 0, 2), now = window.narrow(2, 2, frames);
  if (first) {
    before.zero_();
  } else {
    before.copy_(memory.frames);
  }
  at::Tensor own = margins ? now.narrow(3, 1, rows) : now;
  fill(own);
  if (margins) strips->FillMargins(now);
  // A view would keep the whole window alive until the next chunk.
  memory.frames = window.narrow(2, frames, 2).clone();
  // Only zeros come before the first frame, so two thirds of the kernel would compute nothing.
  const at::Tensor y = first && frames == 1 ? single_.Apply(now) : conv_.Apply(window);
  return margins ? y.narrow(3, 1, rows) : y;
}

at::Tensor CausalConv::Apply(const at::Tensor& x, FeatureCache::Slot& memory,
                             Strips* strips) const {
  return Run(x.sizes(), x.options(), memory, strips, [&](at::Tensor& now) { now.copy_(x); });
}

at::Tensor CausalConv::ApplyNormed(const at::Tensor& x, const at::Tensor& gamma,
                                   FeatureCache& cache) const {
  return Run(x.sizes(), x.options(), cache.Next(), cache.strips(), [&](at::Tensor& now) {
    model::ChannelNorm(x, gamma, now);
    at::silu_(now);
  });
}

void ResidualBlock::Bind(model::WeightBinder& weights, const std::string& name, std::int64_t in,
                         std::int64_t out) {
  norm1_ = weights.Get(name + ".norm1.gamma", {in, 1, 1, 1});
  conv1_.Bind(weights, name + ".conv1", in, out, {3, 3, 3});
  norm2_ = weights.Get(name + ".norm2.gamma", {out, 1, 1, 1});
  conv2_.Bind(weights, name + ".conv2", out, out, {3, 3, 3});
  shortcut_used_ = in != out;
  if (shortcut_used_) shortcut_.Bind(weights, name + ".conv_shortcut", in, out, {1, 1, 1});
}

at::Tensor ResidualBlock::Apply(const at::Tensor& x, FeatureCache& cache) const {
  const at::Tensor y = conv1_.ApplyNormed(x, norm1_, cache);
  return conv2_.ApplyNormed(y, norm2_, cache).add_(shortcut_used_ ? shortcut_.Apply(x) : x);
}

void MiddleBlock::Bind(model::WeightBinder& weights, const std::string& name, std::int64_t dim) {
  first_.Bind(weights, name + ".resnets.0", dim, dim);
  const std::string attention = name + ".attentions.0";
  norm_ = weights.Get(attention + ".norm.gamma", {dim, 1, 1});
  qkv_ = BindFrameConv(weights, attention + ".to_qkv", {3 * dim, dim, 1, 1});
  out_ = BindFrameConv(weights, attention + ".proj", {dim, dim, 1, 1});
  second_.Bind(weights, name + ".resnets.1", dim, dim);
}

at::Tensor MiddleBlock::Attend(const at::Tensor& x, Strips* strips) const {
  at::Tensor normed = at::empty(x.sizes(), x.options());
  model::ChannelNorm(x, norm_, normed);
  const at::Tensor frames = ToFrames(normed);
  const std::int64_t dim = frames.size(1);
  // One head: [frames, 1, pixels, dim].
  const auto by_pixel = [](const at::Tensor& map) {
    return map.flatten(2).transpose(1, 2).contiguous().unsqueeze(1);
  };
  const at::Tensor maps = qkv_.Apply(frames);
  auto parts = by_pixel(maps).chunk(3, -1);
  if (strips != nullptr) {
    // The pixels of one strip attend to those of all.
    const auto all = by_pixel(strips->Gather(maps.narrow(1, dim, 2 * dim), 1)).chunk(2, -1);
    parts = {parts[0], all[0], all[1]};
  }
  const at::Tensor attended =
      model::Attention(parts[0], parts[1], parts[2], 1.0 / std::sqrt(static_cast<double>(dim)));
  const at::Tensor map = attended.squeeze(1).transpose(1, 2).reshape(frames.sizes());
  return FromFrames(out_.Apply(map), x.size(0)).add_(x);
}

at::Tensor MiddleBlock::Apply(const at::Tensor& x, FeatureCache& cache) const {
  return second_.Apply(Attend(first_.Apply(x, cache), cache.strips()), cache);
}

void Upsample::Bind(model::WeightBinder& weights, const std::string& name, std::int64_t dim,
                    Time time) {
  time_ = time;
  conv_ = BindFrameConv(weights, name + ".resample.1", {dim / 2, dim, 3, 3});
  if (time == Time::kResample)
    time_conv_.Bind(weights, name + ".time_conv", dim, 2 * dim, {3, 1, 1});
}

at::Tensor Upsample::Apply(const at::Tensor& x, FeatureCache& cache) const {
  at::Tensor frames;
  if (time_ == Time::kResample) {
    FeatureCache::Slot& slot = cache.Next();
    // The first chunk is one frame and stays one. It is not remembered either: the second chunk
    // sees zeros before it.
    if (slot.chunks++ > 0) {
      const at::Tensor doubled = time_conv_.Apply(x, slot, cache.strips());
      // Each frame gives two: [batch, frames, 2, channels, h, w].
      frames = doubled.unflatten(1, {2, x.size(1)}).permute({0, 3, 1, 2, 4, 5}).flatten(0, 2);
    }
  }
  if (!frames.defined()) frames = ToFrames(x);
  if (cache.strips() != nullptr) frames = WithMargins(frames, *cache.strips());
  at::Tensor larger =
      conv_.Apply(at::upsample_nearest2d(frames, {2 * frames.size(2), 2 * frames.size(3)}));
  if (cache.strips() != nullptr) larger = larger.narrow(2, 2, 2 * x.size(3)).contiguous();
  return FromFrames(larger, x.size(0));
}

void Downsample::Bind(model::WeightBinder& weights, const std::string& name, std::int64_t dim,
                      Time time) {
  time_ = time;
  conv_ = BindFrameConv(weights, name + ".resample.1", {dim, dim, 3, 3}, 2, 0);
  if (time == Time::kResample) {
    const at::Tensor weight = weights.Get(name + ".time_conv.weight", {dim, dim, 3, 1, 1});
    time_conv_ = model::Convolution(weight, weights.Get(name + ".time_conv.bias", {dim}), {2, 1, 1},
                                    {0, 0, 0});
  }
}

at::Tensor Downsample::Apply(const at::Tensor& x, FeatureCache& cache) const {
  // The reference pads at the right and at the bottom only.
  const at::Tensor padded = at::constant_pad_nd(ToFrames(x), {0, 1, 0, 1});
  const at::Tensor y = FromFrames(conv_.Apply(padded), x.size(0));
  if (time_ == Time::kKeep) return y;
  FeatureCache::Slot& slot = cache.Next();
  const at::Tensor before = slot.frames;
  slot.frames = y.narrow(2, y.size(2) - 1, 1).clone();
  return before.defined() ? time_conv_.Apply(at::cat({before, y}, 2)) : y;
}

void Encoder::Bind(model::WeightBinder& weights, const VaeConfig& config) {
  const auto channels = Channels(config.base_dim, config.dim_mult);
  in_.Bind(weights, "encoder.conv_in", 3, config.base_dim, {3, 3, 3});
  std::int64_t current = config.base_dim, index = 0;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const auto name = [&] { return "encoder.down_blocks." + std::to_string(index++); };
    Level level;
    for (std::int64_t block = 0; block < config.num_res_blocks; ++block) {
      level.blocks.emplace_back().Bind(weights, name(), current, channels[i]);
      current = channels[i];
    }
    if (i + 1 < channels.size()) {
      level.resample.emplace_back().Bind(weights, name(), current,
                                         TimeOf(config.temporal_downsample[i]));
    }
    levels_.push_back(std::move(level));
  }
  middle_.Bind(weights, "encoder.mid_block", current);
  norm_ = weights.Get("encoder.norm_out.gamma", {current, 1, 1, 1});
  out_.Bind(weights, "encoder.conv_out", current, 2 * config.z_dim, {3, 3, 3});
}

at::Tensor Encoder::Apply(const at::Tensor& x, FeatureCache& cache) const {
  at::Tensor y = in_.Apply(x, cache);
  for (const Level& level : levels_) {
    for (const ResidualBlock& block : level.blocks) y = block.Apply(y, cache);
    for (const Downsample& resample : level.resample) y = resample.Apply(y, cache);
  }
  return out_.ApplyNormed(middle_.Apply(y, cache), norm_, cache);
}

void Decoder::Bind(model::WeightBinder& weights, const VaeConfig& config) {
  auto channels = Channels(config.decoder_base_dim, config.dim_mult);
  std::reverse(channels.begin(), channels.end());
  std::vector<bool> temporal(config.temporal_downsample.rbegin(),
                             config.temporal_downsample.rend());
  std::int64_t current = channels.front();
  in_.Bind(weights, "decoder.conv_in", config.z_dim, current, {3, 3, 3});
  middle_.Bind(weights, "decoder.mid_block", current);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    Level level;
    for (std::int64_t block = 0; block <= config.num_res_blocks; ++block) {
      level.blocks.emplace_back().Bind(weights, name + ".resnets." + std::to_string(block), current,
                                       channels[i]);
      current = channels[i];
    }
    if (i + 1 < channels.size()) {
      level.resample.emplace_back().Bind(weights, name + ".upsamplers.0", current,
                                         TimeOf(temporal[i]));
      current /= 2;
    }
    levels_.push_back(std::move(level));
  }
  norm_ = weights.Get("decoder.norm_out.gamma", {current, 1, 1, 1});
  out_.Bind(weights, "decoder.conv_out", current, 3, {3, 3, 3});
}

at::Tensor Decoder::Apply(const at::Tensor& x, FeatureCache& cache) const {
  at::Tensor y = middle_.Apply(in_.Apply(x, cache), cache);
  for (const Level& level : levels_) {
    for (const ResidualBlock& block : level.blocks) y = block.Apply(y, cache);
    for (const Upsample& resample : level.resample) y = resample.Apply(y, cache);
  }
  return out_.ApplyNormed(y, norm_, cache);
}

}  // namespace onepiece::wan::vae
