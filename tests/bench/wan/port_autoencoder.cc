#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/bench/wan/port.h"

namespace onepiece::bench::port {
namespace {

/// The memory of the convolutions of the last chunk, in the order in which data passes them.
struct Cache {
  struct Slot {
    at::Tensor frames;
    bool seen = false;
  };
  std::vector<Slot> slots;
  std::size_t next = 0;

  Slot& Next() {
    if (next == slots.size()) slots.emplace_back();
    return slots[next++];
  }
};

class Vae {
 public:
  Vae(const Model& model, Cache& cache) : model_(model), cache_(cache) {}

  at::Tensor Conv(const std::string& name, const at::Tensor& input, const at::Tensor& before = {},
                  at::IntArrayRef stride = {1, 1, 1}, bool padded = true) const {
    const at::Tensor& weight = model_.At(name + ".weight");
    const std::int64_t h = padded ? weight.size(3) / 2 : 0, w = padded ? weight.size(4) / 2 : 0;
    std::int64_t t = padded ? weight.size(2) - 1 : 0;
    at::Tensor x = input;
    if (before.defined() && t > 0) {
      x = at::cat({before, x}, 2);
      t -= before.size(2);
    }
    x = at::constant_pad_nd(x, {w, w, h, h, t, 0});
    return at::conv3d(x, weight, model_.At(name + ".bias"), stride);
  }

  at::Tensor CachedConv(const std::string& name, const at::Tensor& x) const {
    Cache::Slot& slot = cache_.Next();
    const at::Tensor next = LastTwo(x, slot.frames);
    at::Tensor y = Conv(name, x, slot.frames);
    slot.frames = next;
    return y;
  }

  at::Tensor Norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor length = at::norm(x, 2, 1, true).clamp_min(1e-12).expand_as(x);
    return x / length * std::sqrt(static_cast<double>(x.size(1))) * model_.At(name + ".gamma") +
           0.0;
  }

  at::Tensor Residual(const std::string& name, const at::Tensor& x) const {
    const bool shortcut = model_.weights.contains(name + ".conv_shortcut.weight");
    const at::Tensor h = shortcut ? Conv(name + ".conv_shortcut", x) : x;
    at::Tensor y = CachedConv(name + ".conv1", at::silu(Norm(name + ".norm1", x)));
    y = CachedConv(name + ".conv2", at::silu(Norm(name + ".norm2", y)));
    return y + h;
  }

  at::Tensor Middle(const std::string& name, const at::Tensor& input) const {
    const at::Tensor x = Residual(name + ".resnets.0", input);
    const std::string attention = name + ".attentions.0";
    const at::Tensor frames = ToFrames(x);
    const at::Tensor qkv =
        at::conv2d(Norm(attention + ".norm", frames), model_.At(attention + ".to_qkv.weight"),
                   model_.At(attention + ".to_qkv.bias"));
    const auto parts = qkv.reshape({frames.size(0), 1, 3 * frames.size(1), -1})
                           .permute({0, 1, 3, 2})
                           .contiguous()
                           .chunk(3, -1);
    const double scale = 1.0 / std::sqrt(static_cast<double>(frames.size(1)));
    const at::Tensor out = Attention(parts[0], parts[1], parts[2], scale)
                               .squeeze(1)
                               .permute({0, 2, 1})
                               .reshape(frames.sizes());
    const at::Tensor projected =
        at::conv2d(out, model_.At(attention + ".proj.weight"), model_.At(attention + ".proj.bias"));
    return Residual(name + ".resnets.1", FromFrames(projected, x.size(0)) + x);
  }

  at::Tensor Upsample(const std::string& name, const at::Tensor& input) const {
    at::Tensor x = input;
    const std::int64_t batch = x.size(0), channels = x.size(1);
    if (model_.weights.contains(name + ".time_conv.weight")) {
      Cache::Slot& slot = cache_.Next();
      if (slot.seen) {
        at::Tensor next = x.narrow(2, std::max<std::int64_t>(0, x.size(2) - 2),
                                   std::min<std::int64_t>(2, x.size(2)))
                              .clone();
        if (next.size(2) < 2) {
          next = at::cat({slot.frames.defined() ? slot.frames.narrow(2, slot.frames.size(2) - 1, 1)
                                                : at::zeros_like(next),
                          next},
                         2);
        }
        x = Conv(name + ".time_conv", x, slot.frames);
        slot.frames = next;
        x = x.reshape({batch, 2, channels, x.size(2), x.size(3), x.size(4)});
        x = at::stack({x.select(1, 0), x.select(1, 1)}, 3).flatten(2, 3);
      }
      slot.seen = true;
    }
    const at::Tensor frames = ToFrames(x);
    const at::Tensor larger =
        at::_upsample_nearest_exact2d(frames, {frames.size(2) * 2, frames.size(3) * 2});
    return FromFrames(at::conv2d(larger, model_.At(name + ".resample.1.weight"),
                                 model_.At(name + ".resample.1.bias"), 1, 1),
                      batch);
  }

  at::Tensor Downsample(const std::string& name, const at::Tensor& input) const {
    at::Tensor x = at::constant_pad_nd(ToFrames(input), {0, 1, 0, 1});
    x = FromFrames(at::conv2d(x, model_.At(name + ".resample.1.weight"),
                              model_.At(name + ".resample.1.bias"), 2),
                   input.size(0));
    if (!model_.weights.contains(name + ".time_conv.weight")) return x;
    Cache::Slot& slot = cache_.Next();
    if (!slot.frames.defined()) {
      slot.frames = x.clone();
      return x;
    }
    const at::Tensor last = x.narrow(2, x.size(2) - 1, 1).clone();
    x = Conv(name + ".time_conv",
             at::cat({slot.frames.narrow(2, slot.frames.size(2) - 1, 1), x}, 2), {}, {2, 1, 1},
             false);
    slot.frames = last;
    return x;
  }

  at::Tensor Decode(const at::Tensor& z) const {
    at::Tensor x = Middle("decoder.mid_block", CachedConv("decoder.conv_in", z));
    const std::size_t levels = model_.config.at("dim_mult").size();
    for (std::size_t i = 0; i < levels; ++i) {
      const std::string level = "decoder.up_blocks." + std::to_string(i);
      for (std::int64_t block = 0; block <= model_.Int("num_res_blocks"); ++block) {
        x = Residual(level + ".resnets." + std::to_string(block), x);
      }
      if (i + 1 < levels) x = Upsample(level + ".upsamplers.0", x);
    }
    return CachedConv("decoder.conv_out", at::silu(Norm("decoder.norm_out", x)));
  }

  at::Tensor Encode(const at::Tensor& video) const {
    at::Tensor x = CachedConv("encoder.conv_in", video);
    const std::size_t levels = model_.config.at("dim_mult").size();
    int index = 0;
    for (std::size_t i = 0; i < levels; ++i) {
      const auto name = [&] { return "encoder.down_blocks." + std::to_string(index++); };
      for (std::int64_t block = 0; block < model_.Int("num_res_blocks"); ++block) {
        x = Residual(name(), x);
      }
      if (i + 1 < levels) x = Downsample(name(), x);
    }
    x = Middle("encoder.mid_block", x);
    return CachedConv("encoder.conv_out", at::silu(Norm("encoder.norm_out", x)));
  }

 private:
  static at::Tensor LastTwo(const at::Tensor& x, const at::Tensor& remembered) {
    const std::int64_t count = std::min<std::int64_t>(2, x.size(2));
    at::Tensor last = x.narrow(2, x.size(2) - count, count).clone();
    if (count < 2 && remembered.defined()) {
      last = at::cat({remembered.narrow(2, remembered.size(2) - 1, 1), last}, 2);
    }
    return last;
  }

  static at::Tensor ToFrames(const at::Tensor& x) {
    return x.permute({0, 2, 1, 3, 4})
        .reshape({x.size(0) * x.size(2), x.size(1), x.size(3), x.size(4)});
  }

  static at::Tensor FromFrames(const at::Tensor& x, std::int64_t batch) {
    return x.view({batch, x.size(0) / batch, x.size(1), x.size(2), x.size(3)})
        .permute({0, 2, 1, 3, 4});
  }

  const Model& model_;
  Cache& cache_;
};

void Append(at::Tensor& all, const at::Tensor& chunk) {
  all = all.defined() ? at::cat({all, chunk}, 2) : chunk;
}

}  // namespace

at::Tensor VaeDecode(const Model& model, const at::Tensor& z) {
  Cache cache;
  const Vae vae(model, cache);
  const at::Tensor x = vae.Conv("post_quant_conv", z);
  at::Tensor out;
  for (std::int64_t i = 0; i < x.size(2); ++i) {
    cache.next = 0;
    Append(out, vae.Decode(x.narrow(2, i, 1)));
  }
  return out.clamp(-1.0, 1.0);
}

at::Tensor VaeEncode(const Model& model, const at::Tensor& video) {
  Cache cache;
  const Vae vae(model, cache);
  at::Tensor out;
  for (std::int64_t i = 0; i < 1 + (video.size(2) - 1) / 4; ++i) {
    cache.next = 0;
    Append(out, vae.Encode(i == 0 ? video.narrow(2, 0, 1) : video.narrow(2, 1 + 4 * (i - 1), 4)));
  }
  return vae.Conv("quant_conv", out).chunk(2, 1)[0];
}

}  // namespace onepiece::bench::port
