// Kernels that pass over memory once where LibTorch 1.13 would pass many times. They serve F32 on
// the CPU. Any other tensor, and one that autograd records, takes LibTorch's own operations.
// Results do not depend on the number of threads.
#pragma once

#include <ATen/ATen.h>

namespace onepiece::model {

/// Returns x / sqrt(mean(x²) + epsilon) · weight over the last dimension, as a new contiguous
/// tensor.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// The angles by which position embedding rotates pairs of values.
struct Rotary {
  at::Tensor cos, sin;  ///< F32 [tokens, head_dim / 2].
};

/// Applies RmsNorm in place over the last dimension of x, [batch, tokens, heads · head_dim]. If
/// `rotary` is given, then rotates every head's pairs of neighbouring values. If autograd records x
/// (Recorded), x becomes a new tensor.
void RmsNormRotate(at::Tensor& x, const at::Tensor& weight, double epsilon, const Rotary* rotary);

/// Writes x / max(‖x‖, 1e-12) · sqrt(channels) · gamma over the channels of [batch, channels,
/// frames, h, w] into `out`, which has the same shape and may be a part of a larger tensor.
void ChannelNorm(const at::Tensor& x, const at::Tensor& gamma, at::Tensor& out);

}  // namespace onepiece::model
