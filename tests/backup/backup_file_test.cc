#include "cluster/backup/backup_file.h"

#include <sys/stat.h>

#include <QFile>
#include <QTemporaryDir>
#include <QtTest>
#include <cstdlib>
#include <random>

#include "cluster/base/ids.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::backup {
namespace {

Backup Sample(std::size_t state_bytes = 3000) {
  Backup backup;
  backup.header.set_cluster_id("pirates");
  backup.header.set_replica("nm-1");
  backup.header.set_slot(1234);
  backup.header.add_seats()->set_name("nm-1");
  for (std::size_t i = 0; i < state_bytes; ++i) backup.state.push_back(static_cast<char>(i * 7));
  return backup;
}

bool IsRefused(const std::string& bytes) {
  const std::string reason = Reason(Decode(bytes).status());
  return reason == "BACKUP_DAMAGED" || reason == "NOT_A_BACKUP" || reason == "NEWER_FORMAT";
}

}  // namespace

class BackupFileTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() { dir_ = std::make_unique<QTemporaryDir>(); }

  void Decode_GivesWhatWasEncoded() {
    for (const std::size_t state_bytes : {0, 1, 100000}) {
      const Backup backup = Sample(state_bytes);
      const auto read = Decode(Encode(backup));
      QVERIFY(read.ok());
      QCOMPARE(read->header.SerializeAsString(), backup.header.SerializeAsString());
      QCOMPARE(read->state, backup.state);
    }
  }

  void Decode_RefusesEveryFlippedByteAndEveryTruncation() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    const std::string bytes = Encode(Sample());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << random() % 8));
      QVERIFY2(IsRefused(flipped), qPrintable(QString("byte %1").arg(i)));
      QVERIFY2(IsRefused(bytes.substr(0, i)), qPrintable(QString("%1 bytes").arg(i)));
    }
    QVERIFY(IsRefused(bytes + '\0'));
    QVERIFY(IsRefused(bytes + bytes));
  }

  void Decode_ANewerFormat_IsNamed() {
    std::string bytes = Encode(Sample());
    bytes[16] = 2;
    QCOMPARE(Reason(Decode(bytes).status()), std::string("NEWER_FORMAT"));
    QCOMPARE(Reason(Decode("SQLite format 3").status()), std::string("NOT_A_BACKUP"));
    QCOMPARE(Reason(Decode("").status()), std::string("BACKUP_DAMAGED"));
  }

  void WriteFile_IsReadBackAndOnlyItsOwnersToRead() {
    const std::string bytes = Encode(Sample());
    const auto written = WriteFile(Path(), [&](Sink sink) {
      const absl::Status status = sink(bytes.substr(0, 100));
      return status.ok() ? sink(bytes.substr(100)) : status;
    });
    QVERIFY2(written.ok(), written.status().ToString().c_str());
    QCOMPARE(written->bytes, bytes.size());
    QCOMPARE(written->header.slot(), std::uint64_t{1234});
    QCOMPARE(written->sha256.size(), std::size_t{64});
    struct stat about {};
    QCOMPARE(stat(Path().c_str(), &about), 0);
    QCOMPARE(about.st_mode & 0777, 0600U);
    const auto read = ReadFile(Path());
    QVERIFY(read.ok());
    QCOMPARE(read->state, Sample().state);
    QCOMPARE(Files(), QStringList{"backup"});
  }

  void WriteFile_ThatFails_LeavesTheEarlierFile() {
    const std::string bytes = Encode(Sample());
    QVERIFY(WriteFile(Path(), [&](Sink sink) { return sink(bytes); }).ok());
    // The stream broke off without an error that anybody noticed.
    const auto cut = WriteFile(Path(), [&](Sink sink) { return sink(bytes.substr(0, 2000)); });
    QCOMPARE(Reason(cut.status()), std::string("BACKUP_DAMAGED"));
    const auto failed = WriteFile(Path(), [&](Sink) { return absl::UnavailableError("gone"); });
    QVERIFY(absl::IsUnavailable(failed.status()));
    QVERIFY(ReadFile(Path()).ok());
    QCOMPARE(Files(), QStringList{"backup"});
    const std::string nowhere = Path() + "/nothing/here";
    const auto refused = WriteFile(nowhere, [&](Sink sink) { return sink(bytes); });
    QCOMPARE(Reason(refused.status()), std::string("CANNOT_WRITE"));
  }

  void ReadFile_SaysWhatIsWrong() {
    QCOMPARE(Reason(ReadFile(Path()).status()), std::string("NO_FILE"));
    QCOMPARE(Reason(ReadFile(dir_->path().toStdString()).status()), std::string("CANNOT_READ"));
  }

 private:
  std::string Path() const { return dir_->filePath("backup").toStdString(); }
  QStringList Files() const { return QDir(dir_->path()).entryList(QDir::Files); }

  std::unique_ptr<QTemporaryDir> dir_;
};

}  // namespace onepiece::backup

ONEPIECE_TEST(onepiece::backup::BackupFileTest)
#include "backup_file_test.moc"
