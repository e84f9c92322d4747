#include <QtTest>
#include <string>

#include "cluster/base/status.h"
#include "stages/model/noise.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/generation.h"
#include "stages/wan/verify_reference.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

std::string Reference(const char* name) { return kModels + "/reference/" + name + ".safetensors"; }

}  // namespace

class ReferenceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void VerifyReference_ReproducesEveryStage_data() {
    QTest::addColumn<QString>("model");
    QTest::addColumn<int>("outputs");
    for (const char* name : {"t2v_0", "t2v_1", "t2v_2", "t2v_3"})
      QTest::newRow(name) << "tiny-wan-t2v" << 11;
    for (const char* name : {"i2v_0", "i2v_1"}) QTest::newRow(name) << "tiny-wan-i2v" << 14;
  }
  void VerifyReference_ReproducesEveryStage() {
    QFETCH(QString, model);
    QFETCH(int, outputs);
    const auto report =
        VerifyReference(kModels + "/" + model.toStdString(), Reference(QTest::currentDataTag()), 1);
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    for (const sdk::OutputError& output : report->outputs) {
      qInfo("%s %s %g (tolerance %g)", output.name.c_str(), output.metric.c_str(), output.error,
            output.tolerance);
    }
    QCOMPARE(report->total, outputs);
    QCOMPARE(report->outputs.size(), static_cast<std::size_t>(outputs));
    QVERIFY(report->skipped.empty());
    QVERIFY(report->ok());
  }

  void VerifyReference_AnotherPromptIsNotOk() {
    QTemporaryDir dir;
    QFile file(QString::fromStdString(Reference("t2v_0")));
    QVERIFY(file.open(QIODevice::ReadOnly));
    QByteArray bytes = file.readAll();
    const QByteArray prompt = "a red circle moving right", other = "a red circle moving left ";
    QVERIFY(bytes.contains(prompt));
    bytes.replace(prompt, other);
    QFile changed(dir.filePath("changed.safetensors"));
    QVERIFY(changed.open(QIODevice::WriteOnly) && changed.write(bytes) == bytes.size());
    changed.close();
    const auto report = VerifyReference(kTinyModel, changed.fileName().toStdString(), 1);
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    QCOMPARE(report->outputs.size(), std::size_t{11});
    QVERIFY(!report->ok());
  }

  void VerifyReference_ImageToVideoNeedsAModelForIt() {
    QCOMPARE(VerifyReference(kTinyModel, Reference("i2v_0"), 1).status().code(),
             absl::StatusCode::kInvalidArgument);
    QCOMPARE(VerifyReference(kModels + "/tiny-wan-i2v", Reference("t2v_0"), 1).status().code(),
             absl::StatusCode::kInvalidArgument);
  }

  void EncodeCondition_MarksTheGivenFrames() {
    const WanVae vae = *WanVae::Load(kTinyModel + "/vae");
    const at::Tensor first = at::rand({1, 3, 16, 24}) * 2 - 1, last = at::rand({1, 3, 16, 24});
    const at::Tensor one = *EncodeCondition(vae, first, {}, 9);
    QCOMPARE(one.sizes().vec(), (std::vector<std::int64_t>{1, 20, 3, 2, 3}));
    const auto mask = [](const at::Tensor& condition) {
      return condition[0].narrow(0, 0, 4).select(3, 0).select(2, 0).contiguous();
    };
    at::Tensor expected = at::zeros({4, 3});
    expected.select(1, 0).fill_(1);
    QVERIFY(at::equal(mask(one), expected));
    const at::Tensor both = *EncodeCondition(vae, first, last, 9);
    expected[3][2] = 1;  // The last of the last four frames.
    QVERIFY(at::equal(mask(both), expected));
    // Frames before the last image do not see it, because the encoder is causal.
    QVERIFY(at::equal(both.narrow(2, 0, 2).narrow(1, 4, 16), one.narrow(2, 0, 2).narrow(1, 4, 16)));
    QVERIFY(!at::equal(both.select(2, 2), one.select(2, 2)));
    const at::Tensor still = *EncodeCondition(vae, first, {}, 1);
    QVERIFY(at::allclose(still, one.narrow(2, 0, 1), 1e-4, 1e-5));
    QVERIFY(!EncodeCondition(vae, first, {}, 8).ok());
  }

  void VerifyReference_SaysWhatIsWrong() {
    QCOMPARE(VerifyReference(kTinyModel, "/nonexistent.safetensors", 1).status().code(),
             absl::StatusCode::kNotFound);
    QCOMPARE(VerifyReference("/nonexistent", Reference("t2v_0"), 1).status().code(),
             absl::StatusCode::kNotFound);
    const absl::Status status =
        VerifyReference(kTinyModel, kTinyModel + "/vae/diffusion_pytorch_model.safetensors", 1)
            .status();
    QCOMPARE(status.code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(base::GetReason(status).reason, std::string("BAD_REFERENCE"));
  }

  void InitialLatents_AreTheRecordedNoiseOfTheSeed() {
    const std::pair<const char*, std::int64_t> seeds[] = {
        {"t2v_0", 100}, {"t2v_1", 101}, {"t2v_2", 102}, {"t2v_3", 103}};
    for (const auto& [name, seed] : seeds) {
      const auto file = tensor::SafetensorsFile::Open(Reference(name));
      QVERIFY(file.ok());
      const auto* entry = (*file)->index().Find("latents_init");
      QVERIFY(entry != nullptr);
      const at::Tensor recorded = tensor::ViewTensor(*file, *entry).value();
      const at::Tensor drawn = model::InitialLatents(model::MakeGenerator(seed), recorded.sizes());
      QVERIFY((drawn - recorded).abs().max().item<double>() < 1e-5);
    }
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::ReferenceTest)
#include "reference_test.moc"
