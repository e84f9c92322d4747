#include "stages/runtime/plugin_stages.h"

#include <QFile>
#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::runtime {

namespace fs = std::filesystem;

class PluginStagesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    fs::create_directories(Folder());
    QFile file(temp_->filePath("plugins/evil.so"));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write("no library");
    file.close();
    Allow(Folder(), fs::perms::owner_all);
    Allow(Folder() + "/evil.so", fs::perms::owner_read | fs::perms::owner_write);
  }

  void Plugin_ThatOnlyItsUserMayChange_IsLoaded() {
    // It is no library, which the loader says.
    QCOMPARE(Reason(Load()), std::string("BAD_PLUGIN"));
  }

  void Folder_ThatOthersMayWrite_IsRefused() {
    Allow(Folder(), fs::perms::owner_all | fs::perms::group_write);
    const absl::Status status = Load();
    QCOMPARE(Reason(status), std::string("UNSAFE_PLUGIN"));
    const std::string mend = "chmod go-w " + Folder();
    QVERIFY2(base::Message(status).find(mend) != std::string::npos, base::Message(status).c_str());
  }

  void File_ThatOthersMayWrite_IsRefused() {
    Allow(Folder() + "/evil.so", fs::perms::owner_all | fs::perms::others_write);
    QCOMPARE(Reason(Load()), std::string("UNSAFE_PLUGIN"));
  }

  // Who may rename the folder may put another in its place.
  void FolderAbove_ThatOthersMayWrite_IsRefused_UnlessItIsSticky() {
    Allow(temp_->path().toStdString(), fs::perms::all);
    QCOMPARE(Reason(Load()), std::string("UNSAFE_PLUGIN"));
    Allow(temp_->path().toStdString(), fs::perms::all | fs::perms::sticky_bit);
    QCOMPARE(Reason(Load()), std::string("BAD_PLUGIN"));
  }

  void Link_IsAsSafeAsWhatItLeadsTo() {
    const std::string elsewhere = temp_->filePath("elsewhere").toStdString();
    fs::create_directories(elsewhere);
    fs::rename(Folder() + "/evil.so", elsewhere + "/evil.so");
    fs::create_symlink(elsewhere + "/evil.so", Folder() + "/evil.so");
    Allow(elsewhere, fs::perms::all);
    QCOMPARE(Reason(Load()), std::string("UNSAFE_PLUGIN"));
    Allow(elsewhere, fs::perms::owner_all);
    QCOMPARE(Reason(Load()), std::string("BAD_PLUGIN"));
  }

  void Plugin_ThatIsNotThere_IsNotFound() {
    fs::remove(Folder() + "/evil.so");
    QCOMPARE(Reason(Load()), std::string("PLUGIN_NOT_FOUND"));
    fs::remove_all(Folder());
    QCOMPARE(Reason(Load()), std::string("PLUGIN_NOT_FOUND"));
  }

 private:
  std::string Folder() const { return temp_->filePath("plugins").toStdString(); }
  static void Allow(const std::string& path, fs::perms mode) { fs::permissions(path, mode); }
  absl::Status Load() const { return StagesFromPlugins(Folder())("evil", "stage").status(); }

  std::unique_ptr<QTemporaryDir> temp_;
};

}  // namespace onepiece::runtime

ONEPIECE_TEST(onepiece::runtime::PluginStagesTest)
#include "plugin_stages_test.moc"
