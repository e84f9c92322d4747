// Operations that several models share.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace onepiece::model {

/// Returns whether autograd records computations on x. Then callers may not compute in place, and
/// only by LibTorch's own operations.
bool Recorded(const at::Tensor& x);

/// Returns softmax(q kᵀ · scale + bias) v. Computes it in slices of heads and queries, so that the
/// scores stay small. q, k, v are [batch, heads, tokens, dim]. `bias`, if defined, broadcasts to
/// [batch, heads, queries, keys] and spans all queries.
at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias = {});

/// A convolution whose weights are laid out once for the library that computes it. LibTorch would
/// lay them out on every call.
///
/// Threading: immutable.
class Convolution {
 public:
  Convolution() = default;  ///< May not be applied.
  /// `weight` is [out, in, kernel...] of two or three dimensions, or undefined.
  Convolution(const at::Tensor& weight, at::Tensor bias, std::vector<std::int64_t> stride,
              std::vector<std::int64_t> padding);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
  bool packed_ = false;
  std::vector<std::int64_t> stride_, padding_;
};

}  // namespace onepiece::model
