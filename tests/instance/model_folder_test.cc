#include "stages/instance/model_folder.h"

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>

#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::instance {

namespace fs = std::filesystem;

class ModelFolderTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    for (const char* folder : {"models/wan", "more/lora", "secret/keys"})
      fs::create_directories(Path(folder));
    config_.Clear();
    config_.set_model_root(Path("models"));
    config_.add_model_roots(Path("more"));
  }

  void RelativePath_StartsAtTheFirstRootThatHasIt() {
    QCOMPARE(*FindModel(config_, "wan"), Path("models/wan"));
    QCOMPARE(*FindModel(config_, "lora"), Path("more/lora"));
    QCOMPARE(*FindModel(config_, "wan/../wan"), Path("models/wan"));
    // Loading says that it is not there.
    QCOMPARE(*FindModel(config_, "missing"), Path("models/missing"));
    QCOMPARE(*FindModel(config_, ""), std::string());
  }

  void Path_OutOfTheRoots_IsRefused_data() {
    QTest::addColumn<QString>("model");
    QTest::newRow("up") << "../secret/keys";
    QTest::newRow("up behind a folder") << "wan/../../secret/keys";
    QTest::newRow("absolute") << QString::fromStdString(Path("secret/keys"));
    QTest::newRow("a root's name goes on") << "../models2";
    QTest::newRow("above all roots") << "/";
  }
  void Path_OutOfTheRoots_IsRefused() {
    QFETCH(QString, model);
    // The rows are made before init() makes another folder, and all that counts is where it is not.
    const auto found = FindModel(config_, model.toStdString());
    QCOMPARE(Reason(found.status()), std::string("BAD_MODEL_PATH"));
    QVERIFY(std::string(found.status().message()).find("model_roots") != std::string::npos);
  }

  void AbsolutePath_BelowARoot_IsTaken() {
    QCOMPARE(*FindModel(config_, Path("models/wan")), Path("models/wan"));
    QCOMPARE(*FindModel(config_, Path("more/lora")), Path("more/lora"));
    QCOMPARE(*FindModel(config_, Path("models/../more/lora")), Path("more/lora"));
  }

  void Link_OutOfTheRoots_IsRefused() {
    fs::create_directory_symlink(Path("secret"), Path("models/link"));
    QCOMPARE(Reason(FindModel(config_, "link/keys").status()), std::string("BAD_MODEL_PATH"));
    // What stays below them is as good as a folder.
    fs::create_directory_symlink(Path("more/lora"), Path("models/style"));
    QCOMPARE(*FindModel(config_, "style"), Path("models/style"));
    // So is a root that is a link itself.
    fs::create_directory_symlink(Path("models"), Path("linked"));
    config_.set_model_root(Path("linked"));
    QCOMPARE(*FindModel(config_, "wan"), Path("linked/wan"));
  }

 private:
  std::string Path(const std::string& name) const {
    return temp_ == nullptr ? "/nowhere/" + name
                            : temp_->filePath(QString::fromStdString(name)).toStdString();
  }
  std::unique_ptr<QTemporaryDir> temp_;
  v1::InstanceConfig config_;
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::ModelFolderTest)
#include "model_folder_test.moc"
