#include "stages/model/generation_settings.h"

#include <QtTest>
#include <string>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

constexpr LatentGeometry kGeometry = {.spatial_compression = 8,
                                      .temporal_compression = 4,
                                      .side_multiple = 16,
                                      .max_side = 2048,
                                      .max_frames = 257,
                                      .max_tokens = 100'000};

sdk::Parameters Good() {
  return {{"seed", std::int64_t{7}},    {"steps", std::int64_t{20}},
          {"guidance_scale", 5.0},      {"width", std::int64_t{64}},
          {"height", std::int64_t{96}}, {"num_frames", std::int64_t{9}}};
}

}  // namespace

class GenerationSettingsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ReadSettings_TakesWhatIsGood() {
    const auto settings = ReadSettings(Good(), kGeometry);
    QVERIFY2(settings.ok(), settings.status().ToString().c_str());
    QCOMPARE(settings->seed, 7);
    QCOMPARE(settings->steps, 20);
    QCOMPARE(settings->guidance_scale, 5.0);
    QVERIFY((settings->LatentShape(kGeometry, 16) == std::array<std::int64_t, 5>{1, 16, 3, 12, 8}));
  }

  void ReadSettings_TakesOneFrameAndTheLargestPublishedSize() {
    sdk::Parameters parameters = Good();
    parameters["num_frames"] = std::int64_t{1};
    QCOMPARE(ReadSettings(parameters, kGeometry).value().LatentShape(kGeometry, 16)[2], 1);
    parameters["num_frames"] = std::int64_t{81};
    parameters["width"] = std::int64_t{1280};
    parameters["height"] = std::int64_t{720};
    QVERIFY(ReadSettings(parameters, kGeometry).ok());
  }

  void ReadSettings_NamesWhatIsWrong_data() {
    QTest::addColumn<QString>("parameter");
    QTest::addColumn<double>("value");
    QTest::addColumn<QString>("why");
    QTest::newRow("width not a multiple") << "width" << 72. << "72 is not a multiple of 16";
    QTest::newRow("height not a multiple") << "height" << 65. << "65 is not a multiple of 16";
    QTest::newRow("zero width") << "width" << 0. << "not within 16 to 2048";
    QTest::newRow("negative height") << "height" << -64. << "not within 16 to 2048";
    QTest::newRow("absurd width") << "width" << 1e12 << "not within 16 to 2048";
    QTest::newRow("frames") << "num_frames" << 10. << "10 is not 4k + 1";
    QTest::newRow("no frames") << "num_frames" << 0. << "not within 1 to 257";
    QTest::newRow("absurd frames") << "num_frames" << 100001. << "not within 1 to 257";
    QTest::newRow("no steps") << "steps" << 0. << "not within 1 to 1000";
    QTest::newRow("absurd steps") << "steps" << 1001. << "not within 1 to 1000";
    QTest::newRow("negative seed") << "seed" << -1. << "not within 0 to";
    QTest::newRow("negative guidance") << "guidance_scale" << -1. << "not within 0 to 100";
  }
  void ReadSettings_NamesWhatIsWrong() {
    QFETCH(QString, parameter);
    QFETCH(double, value);
    QFETCH(QString, why);
    sdk::Parameters parameters = Good();
    const std::string name = parameter.toStdString();
    if (name == "guidance_scale")
      parameters[name] = value;
    else
      parameters[name] = static_cast<std::int64_t>(value);
    const absl::Status status = ReadSettings(parameters, kGeometry).status();
    QCOMPARE(status.code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(base::GetReason(status).metadata["field"], name);
    QVERIFY2(QString::fromStdString(base::Message(status)).contains(why),
             status.ToString().c_str());
  }

  void ReadSettings_RefusesTooManyTokens() {
    sdk::Parameters parameters = Good();
    parameters["width"] = parameters["height"] = std::int64_t{2048};
    parameters["num_frames"] = std::int64_t{257};
    QCOMPARE(ReadSettings(parameters, kGeometry).status().code(),
             absl::StatusCode::kInvalidArgument);
  }

  void ReadSettings_OfAnotherFamily() {
    constexpr LatentGeometry other = {.spatial_compression = 32,
                                      .temporal_compression = 8,
                                      .side_multiple = 32,
                                      .max_side = 96,
                                      .max_frames = 17,
                                      .max_tokens = 18};
    sdk::Parameters parameters = Good();
    const auto settings = ReadSettings(parameters, other);
    QVERIFY2(settings.ok(), settings.status().ToString().c_str());
    QVERIFY((settings->LatentShape(other, 128) == std::array<std::int64_t, 5>{1, 128, 2, 3, 2}));
    parameters["num_frames"] = std::int64_t{13};
    QCOMPARE(base::Message(ReadSettings(parameters, other).status()),
             std::string("num_frames: 13 is not 8k + 1"));
    parameters["num_frames"] = std::int64_t{17};
    QVERIFY(ReadSettings(parameters, other).ok());  // 3 x 3 x 2 tokens.
    parameters["width"] = std::int64_t{96};
    const absl::Status large = ReadSettings(parameters, other).status();
    QVERIFY2(base::Message(large).find("too large a video") != std::string::npos,
             large.ToString().c_str());
  }

  void ReadSettings_NeedsEveryParameter() {
    for (const auto& [name, value] : Good()) {
      sdk::Parameters parameters = Good();
      parameters.erase(name);
      QCOMPARE(base::Message(ReadSettings(parameters, kGeometry).status()), name + ": missing");
    }
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::GenerationSettingsTest)
#include "generation_settings_test.moc"
