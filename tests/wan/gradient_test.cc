// Tests the transformer under autograd: it gives the same numbers as in inference, and its
// gradients are slopes.
#include <c10/core/GradMode.h>

#include <QtTest>
#include <cmath>
#include <map>
#include <string>

#include "stages/model/noise.h"
#include "stages/wan/generation.h"
#include "stages/wan/transformer_3d.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

struct TrainedModel {
  explicit TrainedModel(const std::string& name) {
    auto loaded =
        WanTransformer::Load(kModels + "/" + name + "/transformer", at::kCPU, at::kFloat,
                             [&](const std::string& weight_name, const at::Tensor& weight) {
                               return weights[weight_name] = weight.clone().set_requires_grad(true);
                             });
    if (!loaded.ok()) qFatal("%s", loaded.status().ToString().c_str());
    transformer = std::make_unique<WanTransformer>(*std::move(loaded));
    const at::Generator generator = model::MakeGenerator(7);
    const TransformerConfig& config = transformer->config();
    text = model::InitialLatents(generator, {1, 512, config.text_dim});
    if (config.image_dim > 0) image = model::InitialLatents(generator, {1, 17, config.image_dim});
    latents = model::InitialLatents(generator, {1, config.in_channels, 2, 4, 4});
    target = model::InitialLatents(generator, {1, config.out_channels, 2, 4, 4});
  }
  at::Tensor Predict() const {
    const auto context = transformer->Prepare(text, image);
    if (!context.ok()) qFatal("%s", context.status().ToString().c_str());
    const auto flow = transformer->Forward(latents, 400, *context);
    if (!flow.ok()) qFatal("%s", flow.status().ToString().c_str());
    return *flow;
  }
  at::Tensor Loss() const { return at::mse_loss(Predict(), target); }

  std::map<std::string, at::Tensor> weights;
  std::unique_ptr<WanTransformer> transformer;
  at::Tensor text, image, latents, target;
};

}  // namespace

class GradientTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Forward_SameNumbersWithAndWithoutGradients_data() { Models(); }
  void Forward_SameNumbersWithAndWithoutGradients() {
    QFETCH(QString, model);
    const TrainedModel m(model.toStdString());
    const at::Tensor recorded = m.Predict();
    QVERIFY(recorded.requires_grad());
    const c10::NoGradGuard guard;
    const at::Tensor plain = m.Predict();
    QVERIFY(!plain.requires_grad());
    const double error = ((recorded - plain).norm() / plain.norm()).item<double>();
    QVERIFY2(error < 1e-5, std::to_string(error).c_str());
  }

  /// What inference leaves in the model, autograd must be able to keep.
  void Backward_WorksAfterInference() {
    const TrainedModel m("tiny-wan-t2v");
    {
      const c10::NoGradGuard guard;
      m.Predict();
    }
    m.Loss().backward();
    QVERIFY(m.weights.begin()->second.grad().defined());
  }

  void Backward_GivesTheSlopeOfEveryWeight_data() { Models(); }
  void Backward_GivesTheSlopeOfEveryWeight() {
    QFETCH(QString, model);
    TrainedModel m(model.toStdString());
    m.Loss().backward();
    for (auto& [name, weight] : m.weights) {
      QVERIFY2(weight.grad().defined(), name.c_str());
      const double length = weight.grad().norm().item<double>();
      QVERIFY2(std::isfinite(length), name.c_str());
      if (length < 1e-4) continue;  // The slope is too flat for differences in F32.
      // Along the gradient the loss changes by the gradient's length.
      const c10::NoGradGuard guard;
      const at::Tensor kept = weight.clone();
      const double step = 3e-4 / length;
      const auto loss_at = [&, &weight = weight](double by) {
        weight.copy_(kept + weight.grad() * (by / length));
        return m.Loss().item<double>();
      };
      const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
      weight.copy_(kept);
      QVERIFY2(std::abs(slope - length) < 0.05 * length,
               (name + ": " + std::to_string(slope) + " is not " + std::to_string(length)).c_str());
    }
  }

 private:
  static void Models() {
    QTest::addColumn<QString>("model");
    QTest::newRow("text to video") << "tiny-wan-t2v";
    QTest::newRow("image to video") << "tiny-wan-i2v";
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::GradientTest)
#include "gradient_test.moc"
