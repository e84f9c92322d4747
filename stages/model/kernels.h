// Single passes over memory where LibTorch 1.13 would take many. On the CPU in F32; any other
// tensor, and one that autograd records, takes LibTorch's own operations. Results do not depend on
// the number of threads.
#pragma once

#include <ATen/ATen.h>

namespace onepiece::model {

/// x / sqrt(mean(x²) + epsilon) · weight over the last dimension. A new contiguous tensor.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// What position embedding turns pairs of values by.
struct Rotary {
  at::Tensor cos, sin;  ///< F32 [tokens, head_dim / 2].
};

/// RmsNorm in place over the last dimension of x, [batch, tokens, heads · head_dim], and then, when
/// `rotary` is given, the rotation of every head's pairs of neighbouring values. Where autograd
/// records x (Recorded), x becomes a new tensor.
void RmsNormRotate(at::Tensor& x, const at::Tensor& weight, double epsilon, const Rotary* rotary);

/// x / max(‖x‖, 1e-12) · sqrt(channels) · gamma over the channels of [batch, channels, frames, h,
/// w], into `out` of the same shape, which may be a part of a larger tensor.
void ChannelNorm(const at::Tensor& x, const at::Tensor& gamma, at::Tensor& out);

}  // namespace onepiece::model
