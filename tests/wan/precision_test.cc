// Tests products in BF16: results are near those of F32 and still F32, and weights are half as
// large.
#include <c10/core/InferenceMode.h>

#include <QtTest>

#include "cluster/base/status.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

// BF16 keeps 8 bits. Each rounding costs up to 0.4 %, and several add up.
constexpr double kPrecisionTolerance = 0.03;
// T5 does not scale its scores, so the exponential magnifies their rounding.
constexpr double kEncoderTolerance = 0.15;

at::Tensor Recorded(const std::string& golden, const std::string& name) {
  const auto file = tensor::SafetensorsFile::Open(Golden(golden) + "/io.safetensors").value();
  return tensor::ViewTensor(file, *file->index().Find(name)).value();
}

double Error(const at::Tensor& ours, const at::Tensor& expected) {
  return ((ours.cpu() - expected).abs().max() / expected.abs().max()).item<double>();
}

at::Device Device(bool gpu) { return gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU); }

}  // namespace

class PrecisionTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Transformer_BF16_data() {
    QTest::addColumn<QString>("image");  // The name of the image embeddings' recording.
    QTest::addColumn<bool>("gpu");
    QTest::newRow("transformer_t2v") << QString() << false;
    QTest::newRow("transformer_i2v") << "encoder_hidden_states_image" << false;
    QTest::newRow("transformer_t2v on a GPU") << QString() << true;
    QTest::newRow("transformer_i2v on a GPU") << "encoder_hidden_states_image" << true;
  }
  void Transformer_BF16() {
    QFETCH(QString, image);
    QFETCH(bool, gpu);
    if (gpu && !at::hasCUDA()) QSKIP("LibTorch sees no GPU");
    const c10::InferenceMode guard;
    const std::string golden = QString(QTest::currentDataTag()).section(' ', 0, 0).toStdString();
    const at::Device device = Device(gpu);
    const auto exact = WanTransformer::Load(Golden(golden));
    const auto half = WanTransformer::Load(Golden(golden), device, at::kBFloat16);
    QVERIFY2(half.ok(), base::Message(half.status()).c_str());
    // The recorded files are small, so norms and embedders in F32 are a large part of them.
    QVERIFY(half->weight_bytes() < 0.8 * static_cast<double>(exact->weight_bytes()));
    const auto context = half->Prepare(
        Recorded(golden, "encoder_hidden_states").to(device),
        image.isEmpty() ? at::Tensor() : Recorded(golden, image.toStdString()).to(device));
    QVERIFY2(context.ok(), base::Message(context.status()).c_str());
    const auto sample =
        half->Forward(Recorded(golden, "hidden_states").to(device),
                      Recorded(golden, "timestep").to(at::kDouble).item<double>(), *context);
    QVERIFY2(sample.ok(), base::Message(sample.status()).c_str());
    QCOMPARE(sample->scalar_type(), at::kFloat);
    const double error = Error(*sample, Recorded(golden, "sample"));
    qInfo("relative error %.2e", error);
    QVERIFY2(error < kPrecisionTolerance, std::to_string(error).c_str());
    QVERIFY(error > 1e-5);  // Otherwise it did not compute in BF16.
  }

  void Encoder_BF16_data() {
    QTest::addColumn<bool>("gpu");
    QTest::newRow("umt5") << false;
    QTest::newRow("umt5 on a GPU") << true;
  }
  void Encoder_BF16() {
    QFETCH(bool, gpu);
    if (gpu && !at::hasCUDA()) QSKIP("LibTorch sees no GPU");
    const c10::InferenceMode guard;
    const auto half = UMT5Encoder::Load(Golden("umt5"), Device(gpu), at::kBFloat16);
    QVERIFY2(half.ok(), base::Message(half.status()).c_str());
    const at::Tensor mask = Recorded("umt5", "attention_mask");
    const auto hidden = half->Forward(Recorded("umt5", "input_ids"), mask);
    QVERIFY2(hidden.ok(), base::Message(hidden.status()).c_str());
    QCOMPARE(hidden->scalar_type(), at::kFloat);
    const at::Tensor counted = mask.unsqueeze(-1).to(at::kFloat);
    const double error =
        Error(hidden->cpu() * counted, Recorded("umt5", "last_hidden_state") * counted);
    qInfo("relative error %.2e", error);
    QVERIFY2(error < kEncoderTolerance, std::to_string(error).c_str());
    QVERIFY(error > 1e-5);
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::PrecisionTest)
#include "precision_test.moc"
