// Compares our kernels with the same computations written out in LibTorch's operations.
#include "stages/model/kernels.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <QtTest>
#include <cmath>

#include "stages/model/layers.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

double Error(const at::Tensor& ours, const at::Tensor& expected) {
  if (ours.sizes() != expected.sizes()) return INFINITY;
  return ((ours - expected).abs().max() / expected.abs().max()).item<double>();
}

at::Tensor NormedRows(const at::Tensor& x, const at::Tensor& weight) {
  return x / at::sqrt(x.square().mean(-1, true) + 1e-6) * weight;
}

}  // namespace

class KernelsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() { at::manual_seed(7); }

  void RmsNorm_AnyWidth_data() {
    QTest::addColumn<int>("width");
    for (const int width : {1, 5, 16, 33, 128}) QTest::addRow("%d", width) << width;
  }
  void RmsNorm_AnyWidth() {
    QFETCH(int, width);
    const c10::InferenceMode guard;
    const at::Tensor x = at::randn({2, 3, width}), weight = at::randn({width});
    QVERIFY(Error(RmsNorm(x, weight, 1e-6), NormedRows(x, weight)) < 1e-6);
    // A tensor that is not laid out row by row takes the other path.
    const at::Tensor turned = at::randn({2, width, 3}).transpose(1, 2);
    QVERIFY(Error(RmsNorm(turned, weight, 1e-6), NormedRows(turned, weight)) < 1e-6);
  }

  void RmsNormRotate_TurnsPairsOfEveryHead() {
    const c10::InferenceMode guard;
    const std::int64_t tokens = 5, heads = 3, pairs = 4, dim = heads * 2 * pairs;
    const at::Tensor wide = at::randn({2, tokens, 3 * dim}), weight = at::randn({dim});
    const at::Tensor angles = at::randn({tokens, pairs});
    const Rotary rotary{at::cos(angles), at::sin(angles)};
    const at::Tensor source = wide.narrow(2, dim, dim).clone();
    at::Tensor part = wide.narrow(2, dim, dim);
    const at::Tensor before = wide.narrow(2, 0, dim).clone();
    RmsNormRotate(part, weight, 1e-6, &rotary);
    const at::Tensor turned =
        at::view_as_complex(
            NormedRows(source, weight).view({2, tokens, heads, pairs, 2}).contiguous()) *
        at::complex(rotary.cos, rotary.sin).unsqueeze(1);
    QVERIFY(Error(part, at::view_as_real(turned).flatten(2)) < 1e-6);
    QVERIFY(at::equal(wide.narrow(2, 0, dim), before));
    at::Tensor plain = source.clone();
    RmsNormRotate(plain, weight, 1e-6, nullptr);
    QVERIFY(Error(plain, NormedRows(source, weight)) < 1e-6);
  }

  void ChannelNorm_IntoPartOfATensor_data() {
    QTest::addColumn<int>("side");
    QTest::addColumn<bool>(
        "by_frame");  // Frames outermost, as a convolution of frames leaves them.
    for (const int side : {1, 7, 40}) {
      QTest::addRow("%d", side) << side << false;
      QTest::addRow("%d by frame", side) << side << true;
    }
  }
  void ChannelNorm_IntoPartOfATensor() {
    QFETCH(int, side);
    QFETCH(bool, by_frame);
    const c10::InferenceMode guard;
    at::Tensor x = at::randn({2, 6, 3, side, side});
    if (by_frame) x = x.transpose(1, 2).contiguous().transpose(1, 2);
    const at::Tensor gamma = at::randn({6, 1, 1, 1});
    const at::Tensor window = at::full({2, 6, 5, side, side}, 9.0);
    at::Tensor out = window.narrow(2, 2, 3);
    ChannelNorm(x, gamma, out);
    const at::Tensor expected =
        x / x.norm(2, {1}, true).clamp_min(1e-12) * std::sqrt(6.0) * gamma.unsqueeze(0);
    QVERIFY(Error(out, expected) < 1e-6);
    QVERIFY(window.narrow(2, 0, 2).eq(9.0).all().item<bool>());
    // Zeros stay zeros.
    at::Tensor zeros = at::zeros_like(x), result = at::empty_like(x);
    ChannelNorm(zeros, gamma, result);
    QVERIFY(result.eq(0).all().item<bool>());
  }

  void ChannelNorm_DoesNotDependOnThreads() {
    const c10::InferenceMode guard;
    const at::Tensor x = at::randn({1, 8, 4, 64, 64}), gamma = at::randn({8, 1, 1, 1});
    at::Tensor one = at::empty_like(x), two = at::empty_like(x);
    at::set_num_threads(1);
    ChannelNorm(x, gamma, one);
    at::set_num_threads(2);
    ChannelNorm(x, gamma, two);
    QVERIFY(at::equal(one, two));
  }

  void Attention_InSlices_data() {
    QTest::addColumn<int>("queries");
    QTest::addColumn<int>("keys");
    QTest::addColumn<int>("bias_heads");  // 0: no bias.
    QTest::addRow("one slice") << 5 << 7 << 2;
    QTest::addRow("slices of heads") << 300 << 5000 << 1;
    QTest::addRow("slices of queries") << 200 << 40000 << 0;
    QTest::addRow("slices of queries, with bias") << 130 << 33000 << 2;
  }
  void Attention_InSlices() {
    QFETCH(int, queries);
    QFETCH(int, keys);
    QFETCH(int, bias_heads);
    const c10::InferenceMode guard;
    const at::Tensor q = at::randn({2, 2, queries, 4}), k = at::randn({2, 2, keys, 4}),
                     v = at::randn({2, 2, keys, 4});
    at::Tensor bias;
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * 0.5;
    if (bias_heads > 0) {
      bias = at::randn({1, bias_heads, queries, keys});
      scores = scores + bias;
    }
    QVERIFY(Error(Attention(q, k, v, 0.5, bias), at::matmul(at::softmax(scores, -1), v)) < 1e-5);
  }

  void Convolution_IsThatOfLibTorch() {
    const c10::InferenceMode guard;
    const at::Tensor x = at::randn({1, 5, 4, 9, 7}), weight = at::randn({6, 5, 3, 3, 3}),
                     bias = at::randn({6});
    const Convolution volume(weight, bias, {2, 1, 1}, {0, 1, 1});
    QVERIFY(Error(volume.Apply(x), at::conv3d(x, weight, bias, {2, 1, 1}, {0, 1, 1})) < 1e-5);
    const Convolution flat(weight.select(2, 0), bias, {2, 2}, {0, 0});
    const at::Tensor frame = x.select(2, 1);
    QVERIFY(Error(flat.Apply(frame), at::conv2d(frame, weight.select(2, 0), bias, 2)) < 1e-5);
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::KernelsTest)
#include "kernels_test.moc"
