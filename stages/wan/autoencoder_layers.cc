#include "stages/wan/autoencoder_layers.h"

#include <algorithm>
#include <cmath>

#include "stages/wan/layers.h"

namespace onepiece::wan::vae {
namespace {

/// x / max(‖x‖, 1e-12) · sqrt(channels) · gamma over the channels, which are dimension 1.
at::Tensor ChannelNorm(const at::Tensor& x, const at::Tensor& gamma) {
  const at::Tensor length = x.square().sum(1, true).sqrt().clamp_min(1e-12);
  return x / length * (gamma.unsqueeze(0) * std::sqrt(static_cast<double>(x.size(1))));
}

/// [batch, channels, frames, h, w] → [batch · frames, channels, h, w].
at::Tensor ToFrames(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1), x.size(3), x.size(4)});
}

at::Tensor FromFrames(const at::Tensor& frames, std::int64_t batch) {
  return frames
      .view({batch, frames.size(0) / batch, frames.size(1), frames.size(2), frames.size(3)})
      .transpose(1, 2);
}

/// The last two frames, the first of them out of `remembered` when x has one only.
at::Tensor LastTwo(const at::Tensor& x, const at::Tensor& remembered) {
  if (x.size(2) >= 2) return x.narrow(2, x.size(2) - 2, 2).clone();
  if (!remembered.defined()) return x.clone();
  return at::cat({remembered.narrow(2, remembered.size(2) - 1, 1), x}, 2);
}

std::vector<std::int64_t> Channels(std::int64_t base, const std::vector<std::int64_t>& multiples) {
  std::vector<std::int64_t> channels;
  for (const std::int64_t multiple : multiples) channels.push_back(base * multiple);
  return channels;
}

Time TimeOf(bool resampled) { return resampled ? Time::kResample : Time::kKeep; }

}  // namespace

FeatureCache::Slot& FeatureCache::Next() {
  if (next_ == slots_.size()) slots_.emplace_back();
  return slots_[next_++];
}

void CausalConv::Bind(WeightBinder& weights, const std::string& name, std::int64_t in,
                      std::int64_t out, std::array<std::int64_t, 3> kernel) {
  kernel_ = kernel;
  weight_ = weights.Get(name + ".weight", {out, in, kernel[0], kernel[1], kernel[2]});
  bias_ = weights.Get(name + ".bias", {out});
}

at::Tensor CausalConv::Apply(const at::Tensor& x, const at::Tensor& before) const {
  std::int64_t missing = kernel_[0] - 1;
  at::Tensor padded = x;
  if (before.defined() && missing > 0) {
    padded = at::cat({before, x}, 2);
    missing -= before.size(2);
  }
  if (missing > 0) padded = at::constant_pad_nd(padded, {0, 0, 0, 0, missing, 0});
  return at::conv3d(padded, weight_, bias_, 1, {0, kernel_[1] / 2, kernel_[2] / 2});
}

at::Tensor CausalConv::Apply(const at::Tensor& x, FeatureCache& cache) const {
  FeatureCache::Slot& slot = cache.Next();
  const at::Tensor next = LastTwo(x, slot.frames);
  const at::Tensor result = Apply(x, slot.frames);
  slot.frames = next;
  return result;
}

at::Tensor CausalConv::HalveTime(const at::Tensor& x) const {
  return at::conv3d(x, weight_, bias_, {2, 1, 1});
}

void ResidualBlock::Bind(WeightBinder& weights, const std::string& name, std::int64_t in,
                         std::int64_t out) {
  norm1_ = weights.Get(name + ".norm1.gamma", {in, 1, 1, 1});
  conv1_.Bind(weights, name + ".conv1", in, out, {3, 3, 3});
  norm2_ = weights.Get(name + ".norm2.gamma", {out, 1, 1, 1});
  conv2_.Bind(weights, name + ".conv2", out, out, {3, 3, 3});
  shortcut_used_ = in != out;
  if (shortcut_used_) shortcut_.Bind(weights, name + ".conv_shortcut", in, out, {1, 1, 1});
}

at::Tensor ResidualBlock::Apply(const at::Tensor& x, FeatureCache& cache) const {
  at::Tensor y = conv1_.Apply(at::silu(ChannelNorm(x, norm1_)), cache);
  y = conv2_.Apply(at::silu(ChannelNorm(y, norm2_)), cache);
  return y + (shortcut_used_ ? shortcut_.Apply(x) : x);
}

void MiddleBlock::Bind(WeightBinder& weights, const std::string& name, std::int64_t dim) {
  first_.Bind(weights, name + ".resnets.0", dim, dim);
  const std::string attention = name + ".attentions.0";
  norm_ = weights.Get(attention + ".norm.gamma", {dim, 1, 1});
  qkv_weight_ = weights.Get(attention + ".to_qkv.weight", {3 * dim, dim, 1, 1});
  qkv_bias_ = weights.Get(attention + ".to_qkv.bias", {3 * dim});
  out_weight_ = weights.Get(attention + ".proj.weight", {dim, dim, 1, 1});
  out_bias_ = weights.Get(attention + ".proj.bias", {dim});
  second_.Bind(weights, name + ".resnets.1", dim, dim);
}

at::Tensor MiddleBlock::Attend(const at::Tensor& x) const {
  const at::Tensor frames = ToFrames(x);
  const std::int64_t dim = frames.size(1);
  const at::Tensor qkv = at::conv2d(ChannelNorm(frames, norm_), qkv_weight_, qkv_bias_);
  // One head: [frames, 1, pixels, dim].
  const auto parts = qkv.flatten(2).transpose(1, 2).unsqueeze(1).chunk(3, -1);
  const at::Tensor attended =
      Attention(parts[0], parts[1], parts[2], 1.0 / std::sqrt(static_cast<double>(dim)));
  const at::Tensor map = attended.squeeze(1).transpose(1, 2).reshape(frames.sizes());
  return x + FromFrames(at::conv2d(map, out_weight_, out_bias_), x.size(0));
}

at::Tensor MiddleBlock::Apply(const at::Tensor& x, FeatureCache& cache) const {
  return second_.Apply(Attend(first_.Apply(x, cache)), cache);
}

void Upsample::Bind(WeightBinder& weights, const std::string& name, std::int64_t dim, Time time) {
  time_ = time;
  weight_ = weights.Get(name + ".resample.1.weight", {dim / 2, dim, 3, 3});
  bias_ = weights.Get(name + ".resample.1.bias", {dim / 2});
  if (time == Time::kResample)
    time_conv_.Bind(weights, name + ".time_conv", dim, 2 * dim, {3, 1, 1});
}

at::Tensor Upsample::Apply(const at::Tensor& x, FeatureCache& cache) const {
  at::Tensor y = x;
  if (time_ == Time::kResample) {
    FeatureCache::Slot& slot = cache.Next();
    // The first chunk is one frame and stays one; it is not remembered either: zeros stand before
    // the second.
    if (slot.chunks++ > 0) {
      const at::Tensor next = LastTwo(x, slot.frames.defined() ? slot.frames : at::zeros_like(x));
      const at::Tensor doubled = time_conv_.Apply(x, slot.frames);
      slot.frames = next;
      const std::int64_t channels = x.size(1);
      y = at::stack({doubled.narrow(1, 0, channels), doubled.narrow(1, channels, channels)}, 3)
              .flatten(2, 3);
    }
  }
  // Exact nearest of a doubling is repetition.
  const at::Tensor frames = ToFrames(y).repeat_interleave(2, 2).repeat_interleave(2, 3);
  return FromFrames(at::conv2d(frames, weight_, bias_, 1, 1), x.size(0));
}

void Downsample::Bind(WeightBinder& weights, const std::string& name, std::int64_t dim, Time time) {
  time_ = time;
  weight_ = weights.Get(name + ".resample.1.weight", {dim, dim, 3, 3});
  bias_ = weights.Get(name + ".resample.1.bias", {dim});
  if (time == Time::kResample) time_conv_.Bind(weights, name + ".time_conv", dim, dim, {3, 1, 1});
}

at::Tensor Downsample::Apply(const at::Tensor& x, FeatureCache& cache) const {
  const at::Tensor padded = at::constant_pad_nd(ToFrames(x), {0, 1, 0, 1});
  const at::Tensor y = FromFrames(at::conv2d(padded, weight_, bias_, 2), x.size(0));
  if (time_ == Time::kKeep) return y;
  FeatureCache::Slot& slot = cache.Next();
  const at::Tensor before = slot.frames;
  slot.frames = y.narrow(2, y.size(2) - 1, 1).clone();
  return before.defined() ? time_conv_.HalveTime(at::cat({before, y}, 2)) : y;
}

void Encoder::Bind(WeightBinder& weights, const VaeConfig& config) {
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
  return out_.Apply(at::silu(ChannelNorm(middle_.Apply(y, cache), norm_)), cache);
}

void Decoder::Bind(WeightBinder& weights, const VaeConfig& config) {
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
  return out_.Apply(at::silu(ChannelNorm(y, norm_)), cache);
}

}  // namespace onepiece::wan::vae
