// Attention over keys and values that come in parts.
#pragma once

#include <ATen/ATen.h>

namespace onepiece::model {

/// Computes Attention (layers.h) part by part: keeps for each query the greatest score so far, the
/// sum of the exponentials relative to it, and the sum of values weighted by them, in F32. The
/// result does not depend on how the keys are parted, up to rounding.
///
/// Threading: thread-confined. For inference only.
class OnlineAttention {
 public:
  /// `q` is [batch, heads, queries, dim].
  OnlineAttention(const at::Tensor& q, double scale);
  /// `k` and `v` are [batch, heads, keys, dim], with at least one key.
  void Add(const at::Tensor& k, const at::Tensor& v);
  /// Returns the attention over all keys that were added, [batch, heads, queries, dim], laid out
  /// like Attention's. REQUIRES: some were.
  [[nodiscard]] at::Tensor Result() const;

 private:
  const at::Tensor q_;
  const double scale_;
  at::Tensor greatest_, sum_;  // F32 [batch, heads, queries, 1].
  at::Tensor weighted_;        // F32 [batch, heads, queries, dim]. Undefined before the first part.
};

}  // namespace onepiece::model
