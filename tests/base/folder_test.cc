// Tests that names are made durable in the folder that holds them. That they survive a power cut is
// the file system's promise, so the tests see only which folder is opened.
#include "cluster/base/folder.h"

#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>
#include <cerrno>

#include "tests/test_main.h"

namespace onepiece::base {

class FolderTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Sync_OfAFolderThatIsThere() {
    const QTemporaryDir dir;
    const std::string path = dir.path().toStdString();
    QVERIFY(SyncFolder(path));
    QVERIFY(SyncFolder(path + "/"));
    QVERIFY(SyncFolderOf(path + "/file"));
    QVERIFY(SyncFolderOf(path + "/folder/"));
    QVERIFY(SyncFolderOf("name"));  // In the folder where the process runs.
  }

  void Sync_OfWhatIsNoFolderSaysWhy() {
    const QTemporaryDir dir;
    const std::string path = dir.path().toStdString();
    QFile file(dir.filePath("file"));
    QVERIFY(file.open(QIODevice::WriteOnly));
    QVERIFY(!SyncFolder(path + "/none"));
    QCOMPARE(errno, ENOENT);
    QVERIFY(!SyncFolder(path + "/file"));
    QCOMPARE(errno, ENOTDIR);
    QVERIFY(!SyncFolderOf(path + "/none/file"));
    QCOMPARE(errno, ENOENT);
    // The folder of "none/folder/" is "none", not "none/folder".
    QVERIFY(QDir(dir.path()).mkpath("some/folder"));
    QVERIFY(SyncFolderOf(path + "/some/folder/"));
    QVERIFY(!SyncFolderOf(path + "/none/folder/"));
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::FolderTest)
#include "folder_test.moc"
