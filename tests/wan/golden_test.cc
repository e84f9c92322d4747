// Compares every component with the reference implementation's recorded numbers.
#include <ATen/ATen.h>

#include <QtTest>
#include <filesystem>

#include "cluster/base/status.h"
#include "stages/wan/verify_component.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

constexpr double kGoldenTolerance = 1e-4;

}  // namespace

class GoldenTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void VerifyComponent_ReproducesTheReference_data() {
    QTest::addColumn<int>("outputs");
    QTest::newRow("transformer_t2v") << 1;
    QTest::newRow("transformer_t2v_bf16") << 1;
    QTest::newRow("transformer_i2v") << 1;
    QTest::newRow("vae") << 9;
    QTest::newRow("vae_bf16") << 3;
    QTest::newRow("umt5") << 1;
    QTest::newRow("clip_vision") << 1;
    QTest::newRow("scheduler") << 15;
  }
  void VerifyComponent_ReproducesTheReference() {
    QFETCH(int, outputs);
    const auto report = VerifyComponent(Golden(QTest::currentDataTag()), kGoldenTolerance, 1);
    QVERIFY2(report.ok(), base::Message(report.status()).c_str());
    QCOMPARE(report->total, outputs);
    QVERIFY(report->skipped.empty());
    for (const auto& output : report->outputs) {
      qInfo("%s %s: relative error %.2e", report->component.c_str(), output.name.c_str(),
            output.error);
      QVERIFY2(output.error <= kGoldenTolerance, output.name.c_str());
    }
    QVERIFY(report->ok());
  }

  void VerifyComponent_OnAGpuToo_data() { VerifyComponent_ReproducesTheReference_data(); }
  // If LibTorch sees no GPU, the error says so.
  void VerifyComponent_OnAGpuToo() {
    const auto report =
        VerifyComponent(Golden(QTest::currentDataTag()), kGoldenTolerance, 1, "cuda:0");
    if (!at::hasCUDA()) {
      QCOMPARE(base::GetReason(report.status()).reason, std::string("NO_CUDA"));
      return;
    }
    QVERIFY2(report.ok(), base::Message(report.status()).c_str());
    QVERIFY(report->ok());
  }
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::GoldenTest)
#include "golden_test.moc"
