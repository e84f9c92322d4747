#include "stages/model/online_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "stages/model/attention_slices.h"

namespace onepiece::model {

OnlineAttention::OnlineAttention(const at::Tensor& q, double scale) : q_(q), scale_(scale) {
  const at::TensorOptions options = q.options().dtype(at::kFloat);
  const std::vector<std::int64_t> one = {q.size(0), q.size(1), q.size(2), 1};
  greatest_ = at::full(one, -std::numeric_limits<float>::infinity(), options);
  sum_ = at::zeros(one, options);
}

void OnlineAttention::Add(const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t heads = q_.size(1), queries = q_.size(2);
  if (!weighted_.defined())
    weighted_ = at::zeros({q_.size(0), heads, queries, v.size(3)}, sum_.options());
  const AttentionSlice slice = SliceOf(heads, queries, k.size(2), kScoresPerOnlineSlice);
  for (std::int64_t item = 0; item < q_.size(0); ++item) {
    for (std::int64_t head = 0; head < heads; head += slice.heads) {
      const std::int64_t some = std::min(slice.heads, heads - head);
      const auto of_heads = [&](const at::Tensor& x) {
        return x.select(0, item).narrow(0, head, some);
      };
      const at::Tensor keys = of_heads(k).transpose(1, 2), values = of_heads(v);
      for (std::int64_t begin = 0; begin < queries; begin += slice.queries) {
        const std::int64_t count = std::min(slice.queries, queries - begin);
        const auto of_queries = [&](const at::Tensor& x) {
          return of_heads(x).narrow(1, begin, count);
        };
        at::Tensor scores = at::bmm(of_queries(q_) * scale_, keys).to(at::kFloat);
        at::Tensor before = of_queries(greatest_), sum = of_queries(sum_),
                   weighted = of_queries(weighted_);
        const at::Tensor greatest = at::maximum(before, scores.amax(-1, /*keepdim=*/true));
        scores.sub_(greatest).exp_();
        // What earlier parts have summed is relative to a smaller score. Before the first part this
        // is exp(-inf) = 0.
        const at::Tensor share = (before - greatest).exp_();
        sum.mul_(share).add_(scores.sum(-1, /*keepdim=*/true));
        weighted.mul_(share).add_(at::bmm(scores.to(values.scalar_type()), values));
        before.copy_(greatest);
      }
    }
  }
}

at::Tensor OnlineAttention::Result() const {
  return (weighted_ / sum_).to(q_.scalar_type()).transpose(1, 2).contiguous().transpose(1, 2);
}

}  // namespace onepiece::model
