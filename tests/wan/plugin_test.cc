#include <QtTest>
#include <algorithm>
#include <map>
#include <string>

#include "stages/sdk/plugin_loader.h"

namespace onepiece::sdk {
namespace {

const std::string kModel = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v";

}  // namespace

class WanPluginTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    qunsetenv("ONEPIECE_PLUGIN_DIR");
    const absl::Status status = loader_.LoadFile(PluginLoader::DefaultDirectory() + "/wan.so");
    QVERIFY2(status.ok(), status.ToString().c_str());
  }

  void Create_MakesEveryStageItLists() {
    const auto infos = loader_.plugins().front().plugin->Stages();
    QCOMPARE(infos.size(), std::size_t{7});
    for (const StageInfo& info : infos) {
      const auto stage = loader_.Create(info.name);
      QVERIFY2(stage.ok(), stage.status().ToString().c_str());
      QCOMPARE((*stage)->Info().name, info.name);
      const absl::Status status = (*stage)->Load({.model_dir = kModel});
      QVERIFY2(status.ok(), status.ToString().c_str());
      (*stage)->Unload();
    }
  }

  void Tools_InspectTheModel() {
    const auto tools = loader_.Tools();
    QVERIFY2(tools.ok(), tools.status().ToString().c_str());
    const auto report = (*tools)->Inspect(kModel, "");
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    QVERIFY(report->problems.empty());
    QVERIFY(report->components.size() >= 3);
  }

  void Tools_InspectSaysTheMemoryOfEveryStage() {
    const auto report =
        loader_.Tools().value()->Inspect(ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-i2v", "");
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    QVERIFY(report->problems.empty());
    std::map<std::string, std::int64_t> weights;
    for (const StageMemory& memory : report->stages) {
      QVERIFY2(memory.activation_bytes > 0, memory.stage.c_str());
      weights[memory.stage] += memory.weight_bytes;
    }
    QCOMPARE(weights.size(), std::size_t{4});
    QCOMPARE(weights["vae_encode"], weights["vae_decode"]);
    QVERIFY(weights["text_encode"] > 800'000);  // UMT5 and CLIP: 373 and 462 kB of files.
    QVERIFY(weights["text_encode"] < 840'000);
    QVERIFY(weights["diffusion"] > 5'000'000);
  }

  void Tools_AskForTheTensorsOfThePublishedCheckpoints_data() {
    QTest::addColumn<int>("tensors");
    QTest::newRow("umt5-xxl") << 242;
    QTest::newRow("clip-vit-h-14") << 519;
    QTest::newRow("wan2.1.vae") << 194;
    QTest::newRow("wan2.1-t2v-1.3b.transformer") << 825;
    QTest::newRow("wan2.1-t2v-14b.transformer") << 1095;
    QTest::newRow("wan2.1-i2v-14b.transformer") << 1303;
  }
  void Tools_AskForTheTensorsOfThePublishedCheckpoints() {
    QFETCH(int, tensors);
    const auto report = loader_.Tools().value()->Inspect("", Published(QTest::currentDataTag()));
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    for (const std::string& problem : report->problems) qWarning("%s", problem.c_str());
    QVERIFY(report->problems.empty());
    QCOMPARE(report->components.at(0).weights.at(0).tensors, tensors);
  }

  void Tools_InspectNamesWhatIsNotAsPublished() {
    const auto tools = loader_.Tools();
    const auto report = (*tools)->Inspect(ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v",
                                          Published("wan2.1-i2v-14b.transformer"));
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    const auto says = [&](const std::string& what) {
      return std::ranges::any_of(report->problems, [&](const std::string& problem) {
        return problem.find(what) != std::string::npos;
      });
    };
    QVERIFY(says("\"blocks.39.attn2.add_k_proj.weight\" is missing"));
    QVERIFY(says("\"proj_out.bias\"") == false);  // The same in both.
    QVERIFY(
        says("\"patch_embedding.weight\" has shape [128,16,1,2,2], published is "
             "[5120,36,1,2,2]"));
    const auto other = (*tools)->Inspect(ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v",
                                         Published("clip-vit-h-14"));
    QVERIFY(other.ok() && !other->problems.empty());
    QVERIFY(!(*tools)->Inspect("", Published("no-such-table")).ok());
  }

 private:
  static std::string Published(const std::string& name) {
    return ONEPIECE_SOURCE_DIR "/resources/models/published/" + name + ".json";
  }

  PluginLoader loader_;
};

}  // namespace onepiece::sdk

QTEST_GUILESS_MAIN(onepiece::sdk::WanPluginTest)
#include "plugin_test.moc"
