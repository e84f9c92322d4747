#include "stages/sdk/plugin_loader.h"

#include <QtTest>
#include <string>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::sdk {
namespace {

const std::string kPlugins = ONEPIECE_BINARY_DIR "/tests/plugins/";

}  // namespace

class PluginLoaderTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void LoadFile_OffersItsStages() {
    PluginLoader loader;
    const absl::Status status = loader.LoadFile(kPlugins + "good/sdk_good_plugin.so");
    QVERIFY2(status.ok(), status.ToString().c_str());
    QCOMPARE(loader.plugins().size(), std::size_t{1});
    const auto stage = loader.Create("nothing");
    QVERIFY2(stage.ok(), stage.status().ToString().c_str());
    QCOMPARE((*stage)->Info().name, std::string("nothing"));
    QCOMPARE(loader.ToolsFor("/model", "").status().code(), absl::StatusCode::kNotFound);
  }

  void Create_UnknownStageNamesTheKnown() {
    PluginLoader loader;
    QVERIFY(loader.LoadFile(kPlugins + "good/sdk_good_plugin.so").ok());
    const absl::Status status = loader.Create("dance").status();
    QCOMPARE(status.code(), absl::StatusCode::kNotFound);
    QCOMPARE(base::Message(status),
             std::string("no plug-in has a stage \"dance\"; there are: nothing"));
  }

  void LoadFile_TwiceIsRefused() {
    PluginLoader loader;
    QVERIFY(loader.LoadFile(kPlugins + "good/sdk_good_plugin.so").ok());
    QCOMPARE(loader.LoadFile(kPlugins + "good/sdk_good_plugin.so").code(),
             absl::StatusCode::kAlreadyExists);
    QCOMPARE(loader.plugins().size(), std::size_t{1});
  }

  void LoadFile_RefusesWhatIsNoPlugin_data() {
    QTest::addColumn<QString>("file");
    QTest::addColumn<QString>("why");
    QTest::newRow("other ABI") << "other_abi/sdk_other_abi_plugin.so"
                               << "plug-in ABI";
    QTest::newRow("no entry point") << "no_entry_point/sdk_no_entry_point_plugin.so"
                                    << "does not export onepiece_stage_plugin";
    QTest::newRow("no plug-in") << "no_plugin/sdk_no_plugin_plugin.so"
                                << "returned no plug-in";
  }
  void LoadFile_RefusesWhatIsNoPlugin() {
    QFETCH(QString, file);
    QFETCH(QString, why);
    PluginLoader loader;
    const absl::Status status = loader.LoadFile(kPlugins + file.toStdString());
    QCOMPARE(status.code(), absl::StatusCode::kFailedPrecondition);
    QVERIFY2(QString::fromStdString(base::Message(status)).contains(why),
             status.ToString().c_str());
    QVERIFY(loader.plugins().empty());
  }

  void LoadFile_RefusesWhatIsNoSharedObject() {
    QTemporaryDir dir;
    QFile file(dir.filePath("text.so"));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write("not a shared object");
    file.close();
    PluginLoader loader;
    QCOMPARE(loader.LoadFile(file.fileName().toStdString()).code(),
             absl::StatusCode::kFailedPrecondition);
    QCOMPARE(loader.LoadDirectory(dir.path().toStdString()).code(),
             absl::StatusCode::kFailedPrecondition);
    QCOMPARE(loader.LoadFile(dir.filePath("missing.so").toStdString()).code(),
             absl::StatusCode::kNotFound);
  }

  void LoadDirectory_LoadsAllOrSaysThatThereIsNothing() {
    PluginLoader loader;
    const absl::Status status = loader.LoadDirectory(kPlugins + "good");
    QVERIFY2(status.ok(), status.ToString().c_str());
    QCOMPARE(loader.plugins().size(), std::size_t{1});
    QTemporaryDir empty;
    QCOMPARE(loader.LoadDirectory(empty.path().toStdString()).code(), absl::StatusCode::kNotFound);
    QCOMPARE(loader.LoadDirectory("/nonexistent").code(), absl::StatusCode::kNotFound);
  }

  void ToolsFor_AsksEveryPlugin_data() {
    QTest::addColumn<QString>("dir");
    QTest::addColumn<QString>("expect");
    QTest::addColumn<QString>("family");
    QTest::newRow("the first one's") << "/models/apple-small"
                                     << ""
                                     << "apple";
    QTest::newRow("the second one's") << "/models/pear-small"
                                      << ""
                                      << "pear";
    QTest::newRow("a published component") << ""
                                           << "/published/pear.json"
                                           << "pear";
    QTest::newRow("the folder counts") << "/models/pear"
                                       << "/published/apple.json"
                                       << "pear";
  }
  void ToolsFor_AsksEveryPlugin() {
    QFETCH(QString, dir);
    QFETCH(QString, expect);
    QFETCH(QString, family);
    PluginLoader loader;
    const absl::Status status = loader.LoadDirectory(kPlugins + "families");
    QVERIFY2(status.ok(), status.ToString().c_str());
    QCOMPARE(loader.plugins().size(), std::size_t{2});
    const auto tools = loader.ToolsFor(dir.toStdString(), expect.toStdString());
    QVERIFY2(tools.ok(), tools.status().ToString().c_str());
    QCOMPARE((*tools)->Inspect("", "")->model, family.toStdString());
    QCOMPARE((*tools)->Verify("", 0, 1, "cpu")->component, family.toStdString());
    QCOMPARE((*tools)->ContentHash("").value(), family.toStdString());
  }

  void ToolsFor_NamesThePluginsThatItAsked() {
    PluginLoader loader;
    QVERIFY(loader.LoadDirectory(kPlugins + "good").ok());  // This plug-in has no tools.
    QVERIFY(loader.LoadDirectory(kPlugins + "families").ok());
    // This one is unclear to both, so neither may answer for it.
    QCOMPARE(loader.ToolsFor("/models/unclear", "").status().code(),
             absl::StatusCode::kUnimplemented);
    const absl::Status status = loader.ToolsFor("/models/plum", "").status();
    QCOMPARE(status.code(), absl::StatusCode::kUnimplemented);
    QCOMPARE(base::GetReason(status).reason, std::string("UNKNOWN_MODEL"));
    QCOMPARE(base::Message(status),
             std::string("/models/plum: no stage plug-in knows this model; asked: "
                         "sdk_apple_plugin, sdk_pear_plugin"));
  }

  void DefaultDirectory_IsBesideTheProgramUnlessSet() {
    qunsetenv("ONEPIECE_PLUGIN_DIR");
    QCOMPARE(PluginLoader::DefaultDirectory(),
             std::string(ONEPIECE_BINARY_DIR "/lib/onepiece/stages"));
    qputenv("ONEPIECE_PLUGIN_DIR", "/some/where");
    QCOMPARE(PluginLoader::DefaultDirectory(), std::string("/some/where"));
    qunsetenv("ONEPIECE_PLUGIN_DIR");
  }
};

}  // namespace onepiece::sdk

ONEPIECE_TEST(onepiece::sdk::PluginLoaderTest)
#include "plugin_loader_test.moc"
