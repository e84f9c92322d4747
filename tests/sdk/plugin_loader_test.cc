#include "stages/sdk/plugin_loader.h"

#include <QtTest>
#include <string>

#include "cluster/base/status.h"

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
    QCOMPARE(loader.Tools().status().code(), absl::StatusCode::kNotFound);
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

QTEST_GUILESS_MAIN(onepiece::sdk::PluginLoaderTest)
#include "plugin_loader_test.moc"
