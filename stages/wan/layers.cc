#include "stages/wan/layers.h"

#include <algorithm>

namespace onepiece::wan {
namespace {

// Scores of one slice: 64 MB of F32. Also fixes the order of sums, so it does not depend on the
// machine.
constexpr std::int64_t kScoresPerSlice = 16 << 20;

}  // namespace

at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias) {
  const std::int64_t queries = q.size(2);
  const std::int64_t per_query = std::max<std::int64_t>(1, q.size(0) * q.size(1) * k.size(2));
  const std::int64_t slice = std::max<std::int64_t>(1, kScoresPerSlice / per_query);
  const at::Tensor scaled = q * scale;
  const at::Tensor keys = k.transpose(2, 3);
  const auto run = [&](const at::Tensor& part, const at::Tensor& part_bias) {
    at::Tensor scores = at::matmul(part, keys);
    if (part_bias.defined()) scores.add_(part_bias);
    return at::matmul(at::softmax(scores, -1), v);
  };
  if (queries <= slice) return run(scaled, bias);
  at::Tensor result = at::empty({q.size(0), q.size(1), queries, v.size(3)}, q.options());
  for (std::int64_t begin = 0; begin < queries; begin += slice) {
    const std::int64_t count = std::min(slice, queries - begin);
    // A bias of one row holds for every query.
    const bool sliced = bias.defined() && bias.size(2) > 1;
    result.narrow(2, begin, count)
        .copy_(run(scaled.narrow(2, begin, count), sliced ? bias.narrow(2, begin, count) : bias));
  }
  return result;
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x * at::rsqrt(x.square().mean(-1, true) + epsilon) * weight;
}

}  // namespace onepiece::wan
