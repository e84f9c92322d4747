#include "cluster/identity/secret_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 ? about.st_mode & 07777 : 0;
}

void WriteBytes(const std::string& path, const std::string& bytes, mode_t mode) {
  std::ofstream(path, std::ios::binary) << bytes;
  QCOMPARE(chmod(path.c_str(), mode), 0);
}

bool Says(const absl::Status& status, const std::string& text) {
  return base::Message(status).find(text) != std::string::npos;
}

/// Sets the umask for a scope.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  ~Umask() { umask(before_); }

 private:
  const mode_t before_;
};

}  // namespace

class SecretFilesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    folder_ = temp_->filePath("identity").toStdString();
    QVERIFY(EnsureSecretFolder(folder_).ok());
    path_ = folder_ + "/node.key";
  }

  void Folder_IsMadeWithItsParents_AndClosed() {
    const Umask wide(0);
    const std::string deep = temp_->filePath("a/b/c/").toStdString();
    QVERIFY(EnsureSecretFolder(deep).ok());
    for (const char* made : {"a", "a/b", "a/b/c"})
      QCOMPARE(ModeOf(temp_->filePath(made).toStdString()), mode_t{0700});
    QVERIFY(EnsureSecretFolder(deep).ok());
  }

  void EnsureClosed_MendsWhatNobodyCouldReach_AndRefusesTheRest() {
    const std::string inner = folder_ + "/journal", file = inner + "/records";
    QCOMPARE(mkdir(inner.c_str(), 0755), 0);
    QCOMPARE(chmod(inner.c_str(), 0755), 0);
    WriteBytes(file, "prompts", 0644);
    // folder_ is closed.
    QVERIFY(EnsureClosed(file).ok());
    QCOMPARE(ModeOf(file), mode_t{0600});
    QVERIFY(EnsureClosed(inner).ok());
    QCOMPARE(ModeOf(inner), mode_t{0700});
    QCOMPARE(Reason(EnsureClosed(folder_ + "/missing")), std::string("NO_FILE"));

    QCOMPARE(chmod(temp_->path().toLocal8Bit(), 0755), 0);
    for (const std::string& open : {folder_, inner}) QCOMPARE(chmod(open.c_str(), 0755), 0);
    QCOMPARE(chmod(file.c_str(), 0640), 0);
    const absl::Status readable = EnsureClosed(file), enterable = EnsureClosed(inner);
    QCOMPARE(Reason(readable), std::string("MODE_TOO_WIDE"));
    QVERIFY(Says(readable, "chmod 600 " + file));
    QCOMPARE(Reason(enterable), std::string("MODE_TOO_WIDE"));
    QVERIFY(Says(enterable, "chmod 700 " + inner));
    QCOMPARE(ModeOf(file), mode_t{0640});
  }

  void Folder_ThatOthersMayEnter_IsRefusedWithTheCommandThatMendsIt() {
    for (const mode_t mode : {0750, 0701, 0777}) {
      QCOMPARE(chmod(folder_.c_str(), mode), 0);
      const absl::Status refused = EnsureSecretFolder(folder_);
      QCOMPARE(Reason(refused), std::string("MODE_TOO_WIDE"));
      QVERIFY(Says(refused, "chmod 700 " + folder_));
      QCOMPARE(Reason(WriteSecretFile(path_, "x")), std::string("MODE_TOO_WIDE"));
      QCOMPARE(ModeOf(folder_), mode);
    }
  }

  void Folder_ThatIsNone_IsRefused() {
    const std::string link = temp_->filePath("link").toStdString();
    QCOMPARE(symlink(folder_.c_str(), link.c_str()), 0);
    QCOMPARE(Reason(EnsureSecretFolder(link)), std::string("NOT_A_FOLDER"));
    QCOMPARE(Reason(EnsureSecretFolder(link + "/")), std::string("NOT_A_FOLDER"));
    const std::string file = temp_->filePath("file").toStdString();
    WriteBytes(file, "x", 0600);
    QCOMPARE(Reason(EnsureSecretFolder(file)), std::string("NOT_A_FOLDER"));
    QCOMPARE(Reason(EnsureSecretFolder(file + "/below")), std::string("CANNOT_WRITE"));
    QCOMPARE(Reason(CheckSecretFolder(file + "-not-there")), std::string("NO_FILE"));
  }

  void File_IsReadBack_AndItsOwnersAlone() {
    for (const mode_t mask : {0, 077, 0777}) {
      const Umask set(mask);
      const std::string secret(3000, 'k');
      QVERIFY(WriteSecretFile(path_, secret).ok());
      QCOMPARE(ModeOf(path_), mode_t{0600});
      QCOMPARE(ReadSecretFile(path_).value(), secret);
      QVERIFY(WriteSecretFile(path_, "new").ok());
      QCOMPARE(ReadSecretFile(path_).value(), std::string("new"));
    }
    QCOMPARE(Files(), QStringList{"node.key"});
  }

  void File_ThatOthersMayReach_IsRefusedWithTheCommandThatMendsIt() {
    for (const mode_t mode : {0640, 0604, 0644, 0620, 0601}) {
      WriteBytes(path_, "secret", mode);
      const absl::Status read = ReadSecretFile(path_).status();
      QCOMPARE(Reason(read), std::string("MODE_TOO_WIDE"));
      QVERIFY(Says(read, "chmod 600 " + path_));
      QCOMPARE(Reason(WriteSecretFile(path_, "new")), std::string("MODE_TOO_WIDE"));
      QCOMPARE(ModeOf(path_), mode);
    }
    WriteBytes(path_, "secret", 0400);
    QVERIFY(ReadSecretFile(path_).ok());
  }

  void PublicFile_MayBeReadByOthers_ButNotWritten() {
    WriteBytes(path_, "certificate", 0644);
    QVERIFY(ReadSecretFile(path_, Protection::kPublic).ok());
    WriteBytes(path_, "certificate", 0664);
    const absl::Status read = ReadSecretFile(path_, Protection::kPublic).status();
    QCOMPARE(Reason(read), std::string("MODE_TOO_WIDE"));
    QVERIFY(Says(read, "chmod go-w " + path_));
  }

  void File_OfAnotherUser_IsRefused() {
    if (geteuid() != 0) QSKIP("only root can give files away");
    WriteBytes(path_, "secret", 0600);
    QCOMPARE(chown(path_.c_str(), 12345, 0), 0);
    const absl::Status read = ReadSecretFile(path_).status();
    QCOMPARE(Reason(read), std::string("OTHER_OWNER"));
    QVERIFY2(Says(read, "chown root " + path_), base::Message(read).c_str());
    QVERIFY(Says(read, "12345"));
    QCOMPARE(Reason(ReadSecretFile(path_, Protection::kPublic).status()),
             std::string("OTHER_OWNER"));
    QCOMPARE(Reason(WriteSecretFile(path_, "new")), std::string("OTHER_OWNER"));
    QCOMPARE(chown(folder_.c_str(), 12345, 0), 0);
    QCOMPARE(Reason(EnsureSecretFolder(folder_)), std::string("OTHER_OWNER"));
  }

  void Link_IsNotFollowed() {
    const std::string target = temp_->filePath("target").toStdString();
    WriteBytes(target, "theirs", 0600);
    QCOMPARE(symlink(target.c_str(), path_.c_str()), 0);
    QCOMPARE(Reason(ReadSecretFile(path_).status()), std::string("NOT_A_FILE"));
    QCOMPARE(Reason(WriteSecretFile(path_, "new")), std::string("NOT_A_FILE"));
    QCOMPARE(unlink(path_.c_str()), 0);
    // Nor one in the place of the file that is being written.
    QCOMPARE(symlink(target.c_str(), (path_ + ".part").c_str()), 0);
    QVERIFY(!WriteSecretFile(path_, "new").ok());
    QCOMPARE(ReadSecretFile(target).value(), std::string("theirs"));
  }

  void File_ThatIsNone_IsRefusedAtOnce() {
    QCOMPARE(mkfifo(path_.c_str(), 0600), 0);
    QCOMPARE(Reason(ReadSecretFile(path_).status()), std::string("NOT_A_FILE"));
    QCOMPARE(Reason(ReadSecretFile(folder_).status()), std::string("NOT_A_FILE"));
    QCOMPARE(Reason(ReadSecretFile(folder_ + "/nothing").status()), std::string("NO_FILE"));
  }

  void HalfWritten_IsToldApart() {
    // A crash left this one. It never counts as the file, and the next write replaces it.
    WriteBytes(path_ + ".part", "half of a k", 0600);
    QCOMPARE(Reason(ReadSecretFile(path_).status()), std::string("NOT_WRITTEN_YET"));
    QVERIFY(WriteSecretFile(path_, "whole").ok());
    QCOMPARE(ReadSecretFile(path_).value(), std::string("whole"));
    QCOMPARE(Files(), QStringList{"node.key"});
    // Another tool's copy broke off.
    WriteBytes(path_, "", 0600);
    QCOMPARE(Reason(ReadSecretFile(path_).status()), std::string("HALF_WRITTEN"));
  }

  void Write_ThatFails_LeavesTheEarlierFile() {
    QVERIFY(WriteSecretFile(path_, "old").ok());
    QCOMPARE(Reason(WriteSecretFile(path_, std::string(kMaxSecretBytes + 1, 'x'))),
             std::string("TOO_LARGE"));
    QCOMPARE(mkdir((path_ + ".part").c_str(), 0700), 0);
    QCOMPARE(Reason(WriteSecretFile(path_, "new")), std::string("CANNOT_WRITE"));
    QCOMPARE(ReadSecretFile(path_).value(), std::string("old"));
    QCOMPARE(Reason(WriteSecretFile(folder_ + "/no/such", "x")), std::string("NO_FILE"));
  }

  void Write_WhileAnotherProcessWrites_IsRefused() {
    const std::string part = path_ + ".part";
    const int other = open(part.c_str(), O_WRONLY | O_CREAT, 0600);
    QCOMPARE(flock(other, LOCK_EX), 0);
    const absl::Status refused = WriteSecretFile(path_, "mine");
    QCOMPARE(Reason(refused), std::string("BEING_WRITTEN"));
    close(other);
    QVERIFY(WriteSecretFile(path_, "mine").ok());
  }

  // Each write is whole or refused, and each read finds one of the whole ones.
  void Writers_AtOnce_NeverMix() {
    QVERIFY(WriteSecretFile(path_, std::string(20000, '0')).ok());
    std::atomic<int> wrong = 0, written = 0;
    std::vector<std::thread> writers;
    for (char name = '1'; name <= '4'; ++name) {
      writers.emplace_back([&, name] {
        for (int i = 0; i < 20; ++i) {
          const absl::Status status = WriteSecretFile(path_, std::string(20000, name));
          if (!status.ok() && Reason(status) != "BEING_WRITTEN") ++wrong;
          if (status.ok()) ++written;
          const auto read = ReadSecretFile(path_);
          if (!read.ok() || *read != std::string(20000, read->front())) ++wrong;
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    QCOMPARE(wrong.load(), 0);
    QVERIFY(written > 0);
    QCOMPARE(Files(), QStringList{"node.key"});
  }

  void Read_OfAFileWithoutEnd_IsBounded() {
    WriteBytes(path_, std::string(kMaxSecretBytes, 'x'), 0600);
    QCOMPARE(ReadSecretFile(path_)->size(), kMaxSecretBytes);
    WriteBytes(path_, std::string(kMaxSecretBytes + 1, 'x'), 0600);
    QCOMPARE(Reason(ReadSecretFile(path_).status()), std::string("TOO_LARGE"));
  }

  void ShellWord_QuotesWhatAShellWouldRead() {
    QCOMPARE(ShellWord("/etc/onepiece/node-1.key"), std::string("/etc/onepiece/node-1.key"));
    QCOMPARE(ShellWord("/a b/$(rm)"), std::string("'/a b/$(rm)'"));
    QCOMPARE(ShellWord("it's"), std::string("'it'\\''s'"));
    QCOMPARE(ShellWord("-rf"), std::string("'-rf'"));
    QCOMPARE(ShellWord(""), std::string("''"));
  }

 private:
  QStringList Files() const {
    return QDir(QString::fromStdString(folder_)).entryList(QDir::Files | QDir::Hidden);
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::string folder_, path_;
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::SecretFilesTest)
#include "secret_files_test.moc"
