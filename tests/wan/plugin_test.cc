#include <QtTest>
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
    QCOMPARE(infos.size(), std::size_t{4});
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
    const auto report = (*tools)->Inspect(kModel);
    QVERIFY2(report.ok(), report.status().ToString().c_str());
    QVERIFY(report->problems.empty());
    QVERIFY(report->components.size() >= 3);
  }

 private:
  PluginLoader loader_;
};

}  // namespace onepiece::sdk

QTEST_GUILESS_MAIN(onepiece::sdk::WanPluginTest)
#include "plugin_test.moc"
