// Operations that several models share. Private to stages/wan.
#pragma once

#include <ATen/ATen.h>

namespace onepiece::wan {

/// softmax(q kᵀ · scale + bias) v, worked off over slices of the queries so that the scores stay
/// small. q, k, v are [batch, heads, tokens, dim]; `bias`, when defined, broadcasts to [batch,
/// heads, queries, keys] and spans all queries.
at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias = {});

/// x / sqrt(mean(x²) + epsilon) · weight over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace onepiece::wan
