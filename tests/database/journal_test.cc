// The journal: after a kill it has the newest written record of each job, and a full or slow disk
// holds nobody up.
#include "cluster/database/journal.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "tests/database/kill_anywhere.h"
#include "tests/database/numbered.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kJournalKills = 30;

v1::JobRecord RecordOf(std::uint64_t number, int step = 0) {
  v1::JobRecord record;
  record.mutable_job()->set_uid(UidOf(number).ToString());
  record.mutable_job()->set_app_id("app");
  record.mutable_job()->set_step(step);
  record.set_fingerprint(std::string(200, static_cast<char>('a' + number % 26)));
  return record;
}

struct JournalProgress {
  std::atomic<std::uint64_t> forgotten{0};  // On disk: records below it are forgotten,
  std::atomic<std::uint64_t> written{0};    // those below it are there.
};

}  // namespace

class JournalTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { signal(SIGXFSZ, SIG_IGN); }
  void init() {
    // In memory, unless a test needs a real disk.
    folder_ = std::make_unique<QTemporaryDir>(QDir("/dev/shm").exists()
                                                  ? "/dev/shm/journal-XXXXXX"
                                                  : QDir::tempPath() + "/journal-XXXXXX");
    dir_ = folder_->filePath("data").toStdString();
  }

  void Noted_ComesBack_AsLastNoted() {
    const QTemporaryDir disk;
    dir_ = disk.filePath("data").toStdString();
    {
      const auto journal = Open();
      QVERIFY(journal->Recover().empty());
      for (std::uint64_t n = 0; n < 300; ++n) journal->Note(RecordOf(n));
      QVERIFY(Flush(*journal));
      for (std::uint64_t n = 0; n < 100; ++n) journal->Note(RecordOf(n, 7));
      for (std::uint64_t n = 200; n < 300; ++n) journal->Forget(UidOf(n));
      journal->Forget(UidOf(12345));
      // Noted and forgotten at once, and the other way round.
      journal->Note(RecordOf(1000));
      journal->Forget(UidOf(1000));
      journal->Forget(UidOf(5));
      journal->Note(RecordOf(5, 9));
      QVERIFY(Flush(*journal));
      QCOMPARE(journal->stats().records, 200);
      QCOMPARE(journal->stats().waiting, 0);
    }
    const auto journal = Open();
    const auto found = Found(*journal);
    QCOMPARE(found.size(), 200U);
    for (std::uint64_t n = 0; n < 200; ++n) {
      const int step = n == 5 ? 9 : n < 100 ? 7 : 0;
      QCOMPARE(found.at(UidOf(n)), base::CanonicalBytes(RecordOf(n, step)));
    }
    QVERIFY(journal->Recover().empty());  // The first call took the records.
  }

  void Files_AreTheirUsersAlone_WhateverTheUmask() {
    const mode_t before = umask(0);
    {
      const auto journal = Open();
      journal->Note(RecordOf(1));
      QVERIFY(Flush(*journal));
      int files = 0;
      for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
        ++files;
        struct stat about {};
        QCOMPARE(stat(entry.path().c_str(), &about), 0);
        QVERIFY2((about.st_mode & 0077) == 0, entry.path().c_str());
      }
      QVERIFY(files >= 3);  // The lock, the table and its write-ahead log.
    }
    umask(before);
    struct stat about {};
    QCOMPARE(stat(dir_.c_str(), &about), 0);
    QCOMPARE(about.st_mode & 07777, mode_t{0700});
  }

  void Folder_ThatOthersMayEnter_IsRefused() {
    { Open()->Note(RecordOf(1)); }
    QCOMPARE(chmod(folder_->path().toLocal8Bit(), 0755), 0);
    QCOMPARE(chmod(dir_.c_str(), 0755), 0);
    const absl::Status refused =
        Journal::Open({.folder = dir_, .cluster_id = "cluster"}, base::SystemClock()).status();
    QCOMPARE(Reason(refused), std::string("MODE_TOO_WIDE"));
    QVERIFY(base::Message(refused).find("chmod 700 " + dir_) != std::string::npos);
    // Nobody reaches it behind a closed folder. Its supervisor made it so in earlier versions.
    QCOMPARE(chmod(folder_->path().toLocal8Bit(), 0700), 0);
    QCOMPARE(Found(*Open()).size(), 1U);
  }

  void Closing_WritesTheRest() {
    { Open(1h)->Note(RecordOf(1)); }
    QCOMPARE(Found(*Open()).size(), 1U);
  }

  // Written when the delay has passed, and not before.
  void Delay_IsOfTheClock() {
    base::ManualClock clock;
    auto opened = Journal::Open({.folder = dir_, .cluster_id = "cluster", .delay = 50ms}, clock);
    QVERIFY(opened.ok());
    (*opened)->Note(RecordOf(1));
    QCOMPARE((*opened)->stats().waiting, 1);
    QVERIFY(testing::Eventually(10s, [&] {
      clock.Advance(10ms);
      return (*opened)->stats().written == 1;
    }));
    QCOMPARE((*opened)->stats().waiting, 0);
  }

  // Over a restart of the process the monotonic clock goes on; over one of the machine it begins
  // anew, and nobody knows for how long it was down.
  void TimeLeft_GoesOnInTheSameRunOfTheMachine() {
    base::ManualClock clock;
    clock.Advance(1h);
    v1::JobRecord record = RecordOf(1);
    *record.mutable_time_left() = job::ToProto(100s);
    const auto open = [&](const std::string& boot_id) {
      return *Journal::Open({.folder = dir_, .cluster_id = "cluster", .boot_id = boot_id}, clock);
    };
    open("run 1")->Note(record);
    clock.Advance(30s);
    clock.StepWall(24h);
    const auto same = open("run 1")->Recover();
    QCOMPARE(same.size(), std::size_t{1});
    QVERIFY(job::FromProto(same[0].time_left()) == 70s);
    const auto other = open("run 2")->Recover();
    QCOMPARE(other.size(), std::size_t{1});
    QVERIFY(job::FromProto(other[0].time_left()) == 100s);
    // A clock that begins anew under the same name.
    base::ManualClock again;
    const auto less =
        (*Journal::Open({.folder = dir_, .cluster_id = "cluster", .boot_id = "run 1"}, again))
            ->Recover();
    QVERIFY(job::FromProto(less[0].time_left()) == 100s);
  }

  void DamagedRecord_IsLeftOut_TheOthersStay() {
    {
      const auto journal = Open();
      for (std::uint64_t n = 0; n < 20; ++n) journal->Note(RecordOf(n));
    }
    std::string bytes = ReadBytes(Path());
    // Damages every place where the file holds the record: an older page may hold it too.
    int places = 0;
    for (std::size_t at = 0; (at = bytes.find(std::string(200, 'e'), at)) != std::string::npos;) {
      bytes[at + 50] = 'E';
      ++places;
    }
    QVERIFY(places > 0);
    WriteBytes(Path(), bytes);
    for (int start = 0; start < 2; ++start) {
      const auto journal = Open();
      const auto found = Found(*journal);
      QCOMPARE(found.size(), 19U);
      QVERIFY(!found.contains(UidOf(4)));
      QCOMPARE(journal->stats().records, 19);
    }
  }

  void DamagedFile_IsSetAside_data() {
    QTest::addColumn<int>("kind");
    QTest::newRow("empty") << 0;
    QTest::newRow("garbage") << 1;
    QTest::newRow("cut off") << 2;
    QTest::newRow("a page is wrong") << 3;
  }
  void DamagedFile_IsSetAside() {
    QFETCH(int, kind);
    {
      const auto journal = Open();
      for (std::uint64_t n = 0; n < 200; ++n) journal->Note(RecordOf(n));
    }
    std::string bytes = ReadBytes(Path());
    if (kind == 0) WriteBytes(Path(), "");
    if (kind == 1) WriteBytes(Path(), std::string(10'000, 'g'));
    if (kind == 2) WriteBytes(Path(), bytes.substr(0, bytes.size() / 2));
    if (kind == 3)
      WriteBytes(Path(), bytes.replace(bytes.size() / 2 / 4096 * 4096, 64, 64, '\xff'));
    {
      const auto journal = Open();
      QVERIFY(journal->Recover().empty());
      journal->Note(RecordOf(1));
    }
    QCOMPARE(Found(*Open()).size(), 1U);
    QCOMPARE(fs::exists(Path() + ".damaged"), kind > 0);
  }

  void OtherClusterNewerFormatSecondProcess_AreRefused() {
    const JournalOptions ours{.folder = dir_, .cluster_id = "cluster"};
    const auto reason = [](const auto& opened) { return base::GetReason(opened.status()).reason; };
    {
      const auto journal = Open();
      journal->Note(RecordOf(1));
      QCOMPARE(reason(Journal::Open(ours)), std::string("FOLDER_IN_USE"));
    }
    QCOMPARE(reason(Journal::Open({.folder = dir_, .cluster_id = "other"})),
             std::string("OTHER_CLUSTER"));
    const std::string before = ReadBytes(Path());
    std::string newer = before;
    newer[63] = 2;  // The user's version of a SQLite file.
    WriteBytes(Path(), newer);
    QCOMPARE(reason(Journal::Open(ours)), std::string("NEWER_FORMAT"));
    QCOMPARE(ReadBytes(Path()), newer);
    WriteBytes(Path(), before);
    QCOMPARE(Found(*Open()).size(), 1U);
  }

  // Records that cannot be written wait, up to a limit. Note never waits.
  void FullDisk_IsSurvived() {
    base::ManualClock clock;
    auto opened = Journal::Open({.folder = dir_, .cluster_id = "cluster"}, clock);
    QVERIFY(opened.ok());
    Journal& journal = **opened;
    rlimit limit{};
    QCOMPARE(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit tight{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    QCOMPARE(setrlimit(RLIMIT_FSIZE, &tight), 0);
    for (std::uint64_t n = 0; n < 500; ++n) journal.Note(RecordOf(n));
    const bool failed = testing::Eventually(10s, [&] {
      clock.Advance(100ms);
      return journal.stats().failed > 0;
    });
    journal.Note(RecordOf(3, 5));
    const std::int64_t waiting = journal.stats().waiting;
    QCOMPARE(setrlimit(RLIMIT_FSIZE, &limit), 0);
    QVERIFY(failed);
    QCOMPARE(waiting, 500);
    QVERIFY(testing::Eventually(10s, [&] {
      clock.Advance(100ms);
      return journal.stats().waiting == 0;
    }));
    opened->reset();
    const auto found = Found(*Open());
    QCOMPARE(found.size(), 500U);
    QCOMPARE(found.at(UidOf(3)), base::CanonicalBytes(RecordOf(3, 5)));
  }

  void TooManyWaiting_AreCounted() {
    base::ManualClock clock;  // It stands still, so nothing is written.
    auto opened = Journal::Open({.folder = dir_, .cluster_id = "cluster"}, clock);
    QVERIFY(opened.ok());
    for (std::uint64_t n = 0; n < Journal::kMaxWaiting + 10; ++n) (*opened)->Forget(UidOf(n));
    QVERIFY((*opened)->stats().waiting <= static_cast<std::int64_t>(Journal::kMaxWaiting));
    QCOMPARE((*opened)->stats().failed, 10U);
  }

  void Forgotten_GivesItsRoomBack() {
    const auto journal = Open();
    journal->Note(RecordOf(1'000'000));
    QVERIFY(Flush(*journal));
    for (int round = 0; round < 3; ++round) {
      for (std::uint64_t n = 0; n < 20'000; ++n) journal->Note(RecordOf(n));
      QVERIFY(Flush(*journal));
      QVERIFY(DiskBytes() > 4'000'000);
      for (std::uint64_t n = 0; n < 20'000; ++n) journal->Forget(UidOf(n));
      QVERIFY(Flush(*journal));
    }
    // SQLite truncates the log to its limit when it starts again at the log's beginning.
    for (int i = 0; i < 2000 && DiskBytes() > 5'000'000; ++i) {
      journal->Note(RecordOf(1'000'000, i));
      QVERIFY(Flush(*journal));
    }
    QVERIFY2(DiskBytes() <= 5'000'000, qPrintable(QString::number(DiskBytes())));
  }

  void KilledAnywhere_WhatWasFlushedIsThere() {
#ifdef __SANITIZE_THREAD__
    QSKIP("ThreadSanitizer lets the child of a process with threads start none");
#endif
    const SharedWith<JournalProgress> shared;
    const auto check = [&] {
      const auto found = Found(*Open());
      const std::uint64_t written = shared->written;
      for (std::uint64_t n = shared->forgotten + 10; n < written; ++n)
        QVERIFY2(found.contains(UidOf(n)), qPrintable(QString::number(n)));
      // At most ten records were noted or forgotten after the last report.
      QVERIFY(found.size() <= written - shared->forgotten + 10);
      for (const auto& [uid, record] : found) QVERIFY(!record.empty());
    };
    KillAnywhere(
        kJournalKills, [&] { NoteForEver(*shared); }, check);
    if (QTest::currentTestFailed()) return;
    qInfo("%llu records over %d kills", static_cast<unsigned long long>(shared->written.load()),
          kJournalKills);
    QVERIFY(shared->written > 100);
  }

 private:
  std::string Path() const { return dir_ + "/records.sqlite"; }
  std::unique_ptr<Journal> Open(base::Duration delay = 1ms) const {
    auto journal = Journal::Open({.folder = dir_, .cluster_id = "cluster", .delay = delay});
    if (!journal.ok()) qFatal("%s", journal.status().ToString().c_str());
    return *std::move(journal);
  }
  static bool Flush(Journal& journal) {
    return journal.Flush(base::SystemClock().Now() + base::Scaled(20s));
  }
  static std::map<base::Uid, std::string> Found(Journal& journal) {
    std::map<base::Uid, std::string> found;
    for (const v1::JobRecord& record : journal.Recover())
      found[*base::Uid::Parse(record.job().uid())] = base::CanonicalBytes(record);
    return found;
  }
  std::int64_t DiskBytes() const {
    std::int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(dir_))
      bytes += static_cast<std::int64_t>(entry.file_size());
    return bytes;
  }
  [[noreturn]] void NoteForEver(JournalProgress& shared) const {
    const auto journal = Journal::Open({.folder = dir_, .cluster_id = "cluster", .delay = 1ms});
    if (!journal.ok()) _exit(1);
    for (;;) {
      const std::uint64_t next = shared.written;
      for (std::uint64_t n = next; n < next + 10; ++n) (*journal)->Note(RecordOf(n));
      if (!Flush(**journal)) _exit(2);
      shared.written = next + 10;
      if (shared.written - shared.forgotten < 100) continue;
      const std::uint64_t first = shared.forgotten;
      for (std::uint64_t n = first; n < first + 10; ++n) (*journal)->Forget(UidOf(n));
      if (!Flush(**journal)) _exit(3);
      shared.forgotten = first + 10;
    }
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string dir_;
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::JournalTest)
#include "journal_test.moc"
