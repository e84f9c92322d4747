#include "stages/model/layers.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "stages/model/attention_slices.h"

namespace onepiece::model {
namespace {

#ifndef ONEPIECE_HAVE_SDPA
/// Computes one slice. q, k, v are [batch · heads, tokens, dim].
at::Tensor AttendSlice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                       const at::Tensor& bias) {
  // Softmax is always computed in F32.
  at::Tensor scores = at::bmm(q * scale, k.transpose(1, 2)).to(at::kFloat);
  if (bias.defined()) {
    scores.view({-1, bias.size(1), q.size(1), k.size(1)}).add_(bias);
  }
  // LibTorch's softmax on the CPU reads a row before it writes it.
  if (q.device().is_cpu() && !Recorded(scores)) {
    at::_softmax_out(scores, scores, -1, false);
  } else {
    scores = at::softmax(scores, -1);
  }
  return at::bmm(scores.to(v.scalar_type()), v);
}
#endif

at::Tensor Laid(const at::Tensor& weight, const std::vector<std::int64_t>& stride,
                const std::vector<std::int64_t>& padding) {
  const c10::InferenceMode guard;  // Such layouts have no gradients.
  const std::vector<std::int64_t> dilation(stride.size(), 1);
  const at::Tensor opaque = weight.contiguous().to_mkldnn();
  if (stride.size() == 3) {
    return at::mkldnn_reorder_conv3d_weight(opaque, padding, stride, dilation, 1);
  }
  return at::mkldnn_reorder_conv2d_weight(opaque, padding, stride, dilation, 1);
}

}  // namespace

bool Recorded(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias) {
#ifdef ONEPIECE_HAVE_SDPA
  // A bias of the smallest F32 would become -inf in BF16, and a whole row of such values NaN.
  constexpr double kSmallest = -1e30;
  const auto mask = bias.defined()
                        ? c10::optional<at::Tensor>(bias.clamp_min(kSmallest).to(q.scalar_type()))
                        : c10::nullopt;
  return at::scaled_dot_product_attention(q, k, v, mask, 0.0, false, scale);
#else
  const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), keys = k.size(2);
  const AttentionSlice slice = SliceOf(heads, queries, keys, kScoresPerSlice);
  const std::int64_t rows = slice.queries, group = slice.heads;
  const auto part = [](const at::Tensor& x, std::int64_t dim, std::int64_t begin,
                       std::int64_t count) {
    // An extent of one applies to all heads.
    return x.defined() && x.size(dim) > 1 ? x.narrow(dim, begin, count) : x;
  };
  at::Tensor result = at::empty({batch, queries, heads, v.size(3)}, q.options());
  for (std::int64_t item = 0; item < batch; ++item) {
    for (std::int64_t head = 0; head < heads; head += group) {
      const std::int64_t some = std::min(group, heads - head);
      const auto of_heads = [&](const at::Tensor& x) {
        return x.select(0, item).narrow(0, head, some);
      };
      const at::Tensor head_bias = part(part(bias, 0, item, 1), 1, head, some);
      for (std::int64_t begin = 0; begin < queries; begin += rows) {
        const std::int64_t count = std::min(rows, queries - begin);
        const at::Tensor attended =
            AttendSlice(of_heads(q).narrow(1, begin, count), of_heads(k), of_heads(v), scale,
                        part(head_bias, 2, begin, count));
        result.select(0, item)
            .narrow(0, begin, count)
            .narrow(1, head, some)
            .copy_(attended.transpose(0, 1));
      }
    }
  }
  return result.transpose(1, 2);
#endif
}

Convolution::Convolution(const at::Tensor& weight, at::Tensor bias,
                         std::vector<std::int64_t> stride, std::vector<std::int64_t> padding)
    : weight_(weight),
      bias_(std::move(bias)),
      stride_(std::move(stride)),
      padding_(std::move(padding)) {
  packed_ = weight.defined() && weight.device().is_cpu() && weight.scalar_type() == at::kFloat &&
            at::hasMKLDNN();
  if (packed_) weight_ = Laid(weight, stride_, padding_);
}

at::Tensor Convolution::Apply(const at::Tensor& x) const {
  const std::vector<std::int64_t> dilation(stride_.size(), 1);
  if (packed_) {
    return at::mkldnn_convolution(x.contiguous(), weight_, bias_, padding_, stride_, dilation, 1);
  }
  if (stride_.size() == 3) return at::conv3d(x, weight_, bias_, stride_, padding_);
  return at::conv2d(x, weight_, bias_, stride_, padding_);
}

}  // namespace onepiece::model
