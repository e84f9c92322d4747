#include "stages/model/kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "stages/model/layers.h"

#if defined(__GNUC__) && !defined(__clang__) && !defined(_OPENMP)
#error "without -fopenmp, at::parallel_for runs in one thread"
#endif

namespace onepiece::model {
namespace {

constexpr std::int64_t kGrain = 16'384;  // The fewest values that are worth a thread.

bool OnCpu(const at::Tensor& x) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.stride(-1) == 1 && !Recorded(x);
}

/// Adds in sixteen partial sums, which the compiler can vectorise without changing the order of
/// additions.
float SumOfSquares(const float* x, std::int64_t count) {
  std::array<float, 16> sums{};
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const float value = x[i + static_cast<std::int64_t>(lane)];
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += x[i] * x[i];
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

void NormRow(const float* x, const float* weight, float epsilon, std::int64_t count, float* out) {
  const float mean = SumOfSquares(x, count) / static_cast<float>(count);
  const float scale = 1.0F / std::sqrt(mean + epsilon);
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] * scale * weight[i];
}

void RotateRow(float* x, const float* cos, const float* sin, std::int64_t count,
               std::int64_t pairs) {
  for (std::int64_t head = 0; head < count; head += 2 * pairs) {
    float* pair = x + head;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float real = pair[2 * i], imaginary = pair[2 * i + 1];
      pair[2 * i] = real * cos[i] - imaginary * sin[i];
      pair[2 * i + 1] = real * sin[i] + imaginary * cos[i];
    }
  }
}

/// Normalises one frame's pixels [begin, begin + count) over all channels.
void NormPixels(const float* x, std::int64_t x_step, float* out, std::int64_t out_step,
                const float* gain, std::int64_t channels, std::int64_t count) {
  constexpr std::int64_t kBlock = 256;
  std::array<float, kBlock> scale{};
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t width = std::min(kBlock, count - begin);
    scale.fill(0);
    for (std::int64_t c = 0; c < channels; ++c) {
      const float* row = x + c * x_step + begin;
      for (std::int64_t i = 0; i < width; ++i) scale[i] += row[i] * row[i];
    }
    for (float& value : scale) value = 1.0F / std::max(std::sqrt(value), 1e-12F);
    for (std::int64_t c = 0; c < channels; ++c) {
      const float* row = x + c * x_step + begin;
      float* target = out + c * out_step + begin;
      const float channel_gain = gain[c];
      for (std::int64_t i = 0; i < width; ++i) target[i] = row[i] * scale[i] * channel_gain;
    }
  }
}

at::Tensor Rotated(const at::Tensor& x, const Rotary& rotary) {
  const std::int64_t pairs = rotary.cos.size(1);
  const auto parts = x.unflatten(-1, {-1, pairs, 2}).unbind(-1);  // [batch, tokens, heads, pairs]
  const at::Tensor cos = rotary.cos.unsqueeze(1), sin = rotary.sin.unsqueeze(1);
  return at::stack({parts[0] * cos - parts[1] * sin, parts[0] * sin + parts[1] * cos}, -1)
      .flatten(2);
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (!OnCpu(x) || !x.is_contiguous() || !OnCpu(weight)) {
    const at::Tensor wide = x.to(at::kFloat);
    return wide * at::rsqrt(wide.square().mean(-1, true) + epsilon) * weight;
  }
  at::Tensor out = at::empty_like(x);
  const std::int64_t count = x.size(-1), rows = x.numel() / count;
  const float *from = x.data_ptr<float>(), *gain = weight.data_ptr<float>();
  float* to = out.data_ptr<float>();
  at::parallel_for(0, rows, std::max<std::int64_t>(1, kGrain / count),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       NormRow(from + row * count, gain, static_cast<float>(epsilon), count,
                               to + row * count);
                     }
                   });
  return out;
}

void RmsNormRotate(at::Tensor& x, const at::Tensor& weight, double epsilon, const Rotary* rotary) {
  if (!OnCpu(x) || !OnCpu(weight)) {
    const at::Tensor normed = RmsNorm(x, weight, epsilon);
    const at::Tensor result = rotary != nullptr ? Rotated(normed, *rotary) : normed;
    if (Recorded(x)) {
      x = result;
    } else {
      x.copy_(result);
    }
    return;
  }
  const std::int64_t tokens = x.size(1), count = x.size(2);
  const std::int64_t batch_step = x.stride(0), token_step = x.stride(1);
  float* data = x.data_ptr<float>();
  const float* gain = weight.data_ptr<float>();
  const float* cos = rotary != nullptr ? rotary->cos.data_ptr<float>() : nullptr;
  const float* sin = rotary != nullptr ? rotary->sin.data_ptr<float>() : nullptr;
  const std::int64_t pairs = rotary != nullptr ? rotary->cos.size(1) : 0;
  at::parallel_for(0, x.size(0) * tokens, std::max<std::int64_t>(1, kGrain / count),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const std::int64_t token = row % tokens;
                       float* values = data + row / tokens * batch_step + token * token_step;
                       NormRow(values, gain, static_cast<float>(epsilon), count, values);
                       if (pairs > 0) {
                         RotateRow(values, cos + token * pairs, sin + token * pairs, count, pairs);
                       }
                     }
                   });
}

void ChannelNorm(const at::Tensor& x, const at::Tensor& gamma, at::Tensor& out) {
  const double root = std::sqrt(static_cast<double>(x.size(1)));
  // NormPixels takes a frame for one run of pixels, so its rows must lie one after the other.
  const auto whole_frames = [](const at::Tensor& y) {
    return OnCpu(y) && (y.size(3) == 1 || y.stride(3) == y.size(4));
  };
  if (!whole_frames(x) || !whole_frames(out)) {
    const at::Tensor length = x.square().sum(1, true).sqrt().clamp_min(1e-12);
    out.copy_(x / length * (gamma.view({1, -1, 1, 1, 1}) * root));
    return;
  }
  const at::Tensor gain = (gamma * root).contiguous();
  const std::int64_t channels = x.size(1), frames = x.size(2), pixels = x.size(3) * x.size(4);
  const float *from = x.data_ptr<float>(), *gains = gain.data_ptr<float>();
  float* to = out.data_ptr<float>();
  // One thread takes a strip of a frame at a time.
  const std::int64_t strip = 1024, strips = (pixels + strip - 1) / strip;
  at::parallel_for(
      0, x.size(0) * frames * strips,
      std::max<std::int64_t>(1, kGrain / (channels * std::min(strip, pixels))),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t item = begin; item < end; ++item) {
          const std::int64_t first = item % strips * strip, frame = item / strips % frames,
                             batch = item / strips / frames;
          NormPixels(from + batch * x.stride(0) + frame * x.stride(2) + first, x.stride(1),
                     to + batch * out.stride(0) + frame * out.stride(2) + first, out.stride(1),
                     gains, channels, std::min(strip, pixels - first));
        }
      });
}

}  // namespace onepiece::model
