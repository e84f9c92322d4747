#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <map>
#include <string>

#include "cluster/base/status.h"
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
    const auto tools = loader_.ToolsFor(kModel, "");
    QVERIFY2(tools.ok(), tools.status().ToString().c_str());
    const auto report = (*tools)->Inspect(kModel, "");
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    QVERIFY(report->problems.empty());
    QVERIFY(report->components.size() >= 3);
  }

  void Claim_KnowsItsModelsAndNoOthers_data() {
    QTest::addColumn<QString>("file");
    QTest::addColumn<QByteArray>("text");
    QTest::addColumn<int>("claim");
    const int mine = static_cast<int>(ModelClaim::kMine),
              unclear = static_cast<int>(ModelClaim::kUnclear),
              other = static_cast<int>(ModelClaim::kNotMine);
    const auto model = [](const char* class_name) {
      return QByteArray(
                 "{\"_class_name\":\"P\",\"text_encoder\":[\"x\",\"UMT5EncoderModel\"],\"net\":["
                 "\"x\",\"") +
             class_name + "\"]}";
    };
    QTest::newRow("model") << "model_index.json" << model("WanTransformer3DModel") << mine;
    QTest::newRow("model that has our encoder") << "model_index.json" << model("Other") << unclear;
    QTest::newRow("another family's model")
        << "model_index.json" << QByteArray("{\"net\":[\"x\",\"Other\"]}") << other;
    QTest::newRow("model of nothing") << "model_index.json" << QByteArray("{}") << unclear;
    QTest::newRow("no JSON") << "model_index.json" << QByteArray("{") << unclear;
    QTest::newRow("component") << "config.json"
                               << QByteArray("{\"_class_name\":\"AutoencoderKLWan\"}") << mine;
    QTest::newRow("encoder") << "config.json"
                             << QByteArray("{\"architectures\":[\"UMT5EncoderModel\"]}") << mine;
    QTest::newRow("another family's component")
        << "config.json" << QByteArray("{\"_class_name\":\"Other\"}") << other;
    QTest::newRow("component without a class") << "config.json" << QByteArray("{}") << unclear;
    QTest::newRow("a scheduler's recording") << "io.safetensors" << QByteArray() << mine;
    QTest::newRow("nothing of ours") << "README" << QByteArray() << unclear;
  }
  void Claim_KnowsItsModelsAndNoOthers() {
    QFETCH(QString, file);
    QFETCH(QByteArray, text);
    QFETCH(int, claim);
    const QTemporaryDir dir;
    QFile written(dir.filePath(file));
    QVERIFY(written.open(QIODevice::WriteOnly) && written.write(text) == text.size());
    written.close();
    QCOMPARE(static_cast<int>(Tools().Claim(dir.path().toStdString(), "")), claim);
    if (claim == static_cast<int>(ModelClaim::kNotMine)) {
      const absl::Status status = loader_.ToolsFor(dir.path().toStdString(), "").status();
      QCOMPARE(base::GetReason(status).reason, std::string("UNKNOWN_MODEL"));
      QVERIFY2(base::Message(status).ends_with("asked: wan"), base::Message(status).c_str());
    }
  }

  void Tools_InspectSaysTheMemoryOfEveryStage() {
    const auto report = Tools().Inspect(ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-i2v", "");
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
    const std::string table = Published(QTest::currentDataTag());
    const auto tools = loader_.ToolsFor("", table);
    QVERIFY2(tools.ok(), tools.status().ToString().c_str());
    const auto report = (*tools)->Inspect("", table);
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    for (const std::string& problem : report->problems) qWarning("%s", problem.c_str());
    QVERIFY(report->problems.empty());
    QCOMPARE(report->components.at(0).weights.at(0).tensors, tensors);
  }

  void Tools_InspectNamesWhatIsNotAsPublished() {
    const ModelTools& tools = Tools();
    const auto report = tools.Inspect(ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v",
                                      Published("wan2.1-i2v-14b.transformer"));
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    const auto says = [&](const std::string& what) {
      return std::ranges::any_of(report->problems, [&](const std::string& problem) {
        return problem.find(what) != std::string::npos;
      });
    };
    QVERIFY(says("\"blocks.39.attn2.add_k_proj.weight\" is missing"));
    QVERIFY(says("\"proj_out.bias\"") == false);  // Both have the same shape.
    QVERIFY(
        says("\"patch_embedding.weight\" has shape [128,16,1,2,2], published is "
             "[5120,36,1,2,2]"));
    const auto other = tools.Inspect(ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v",
                                     Published("clip-vit-h-14"));
    QVERIFY(other.ok() && !other->problems.empty());
    QVERIFY(!tools.Inspect("", Published("no-such-table")).ok());
  }

 private:
  const ModelTools& Tools() const { return **loader_.ToolsFor(kModel, ""); }
  static std::string Published(const std::string& name) {
    return ONEPIECE_SOURCE_DIR "/resources/models/published/" + name + ".json";
  }

  PluginLoader loader_;
};

}  // namespace onepiece::sdk

QTEST_GUILESS_MAIN(onepiece::sdk::WanPluginTest)
#include "plugin_test.moc"
