// Tests files that are not as they should be: foreign, truncated, changed, or with rows missing.
#include <sys/stat.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <map>
#include <tuple>

#include "absl/strings/match.h"
#include "cluster/base/status.h"
#include "cluster/history/codec.h"
#include "cluster/history/file.h"
#include "cluster/history/frames.h"
#include "cluster/history/recorder.h"
#include "cluster/history/recording.h"
#include "tests/history/recordings.h"
#include "tests/test_main.h"

namespace onepiece::history {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<Mark>> MarksOf(const std::string& path) {
  const auto reader = Recording::Open(path);
  if (!reader.ok()) return reader.status();
  return (*reader)->Marks({0, kStart * 2});
}

std::string Describe(const std::vector<SeriesPoint>& points) {
  std::string text;
  for (const SeriesPoint& point : points) {
    for (const double value : {point.min, point.mean, point.max})
      text += std::to_string(value) + " ";
  }
  return text;
}

/// Describes the whole recording by its windows, marks and gaps.
absl::StatusOr<std::string> WhatIsTold(Recording& reader) {
  std::string text;
  const auto points = reader.Series("node/instance-0/utilization", {kStart, kStart + 60'000}, 6);
  if (!points.ok()) return points.status();
  text += Describe(*points);
  const auto marks = reader.Marks({0, kStart * 2});
  if (!marks.ok()) return marks.status();
  for (const Mark& mark : *marks)
    text += std::to_string(mark.at_ms) + mark.entity + mark.text +
            std::to_string(static_cast<int>(mark.kind));
  const auto gaps = reader.Gaps({0, kStart * 2});
  if (!gaps.ok()) return gaps.status();
  for (const Gap& gap : *gaps)
    text += std::to_string(gap.interval.from_ms + gap.interval.to_ms) + gap.reason;
  return text;
}

}  // namespace

class RecordingFilesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    path_ = folder_->filePath("a.onepiece").toStdString();
  }

  void File_IsItsUsersAlone_WhateverTheUmask() {
    const auto mode = [&] {
      struct stat about {};
      return stat(path_.c_str(), &about) == 0 ? about.st_mode & 07777 : 0;
    };
    const mode_t before = umask(0);
    { QVERIFY(Recorder::Open(path_).ok()); }
    umask(before);
    QCOMPARE(mode(), mode_t{0600});
    // One of an earlier version, where others may read it.
    QCOMPARE(chmod(path_.c_str(), 0644), 0);
    QCOMPARE(chmod(folder_->path().toLocal8Bit(), 0755), 0);
    const absl::Status refused = Recorder::Open(path_).status();
    QCOMPARE(base::GetReason(refused).reason, std::string("MODE_TOO_WIDE"));
    QVERIFY(base::Message(refused).find("chmod 600 " + path_) != std::string::npos);
    QVERIFY(Recording::Open(path_).ok());
  }

  void FilesThatAreNotOurs_AreLeftAlone_data() {
    QTest::addColumn<QByteArray>("bytes");
    QTest::addColumn<QString>("sql");
    QTest::addColumn<QString>("reason");
    QTest::newRow("text") << QByteArray("dear diary, ").repeated(100) << ""
                          << "FOREIGN_FILE";
    QTest::newRow("one byte") << QByteArray("x") << ""
                              << "FOREIGN_FILE";
    QTest::newRow("zeros") << QByteArray(100'000, '\0') << ""
                           << "FOREIGN_FILE";
    QTest::newRow("the beginning of a database") << QByteArray("SQLite format 3\0", 16) << ""
                                                 << "FOREIGN_FILE";
    QTest::newRow("another database") << QByteArray() << "CREATE TABLE photos (id INTEGER)"
                                      << "FOREIGN_FILE";
    QTest::newRow("of a newer program")
        << QByteArray()
        << "PRAGMA application_id=1330655555; PRAGMA user_version=3; CREATE TABLE t (x)"
        << "NEWER_FORMAT";
    QTest::newRow("of an older program")
        << QByteArray()
        << "PRAGMA application_id=1330655555; PRAGMA user_version=1; CREATE TABLE t (x)"
        << "OLDER_FORMAT";
  }
  void FilesThatAreNotOurs_AreLeftAlone() {
    QFETCH(const QByteArray, bytes);
    QFETCH(const QString, sql);
    QFETCH(const QString, reason);
    WriteFile(path_, bytes.toStdString());
    if (!sql.isEmpty()) Sql(path_, sql.toStdString());
    const std::string before = ReadFile(path_);
    QCOMPARE(Reason(Recording::Open(path_).status()), reason);
    QCOMPARE(Reason(Recorder::Open(path_).status()), reason);
    QCOMPARE(ReadFile(path_), before);
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});
  }

  // The message tells what the file is and what can be done.
  void RecordingOfAnotherFormat_SaysWhich_AndWhatToDo() {
    for (const auto& [format, reason, advice] :
         {std::tuple(1, "OLDER_FORMAT", "move it away"), {3, "NEWER_FORMAT", "use that program"}}) {
      fs::remove(path_);
      RecordTicks(0, 3);
      Sql(path_, "PRAGMA user_version=" + std::to_string(format));
      const std::string before = ReadFile(path_);
      for (const absl::Status& status :
           {Recording::Open(path_).status(), Recorder::Open(path_).status()}) {
        QCOMPARE(Reason(status), QString(reason));
        const std::string message = base::Message(status);
        QVERIFY2(absl::StrContains(message, "format " + std::to_string(format)), message.c_str());
        QVERIFY2(absl::StrContains(message, advice), message.c_str());
      }
      QCOMPARE(ReadFile(path_), before);
      QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});
      // A truncated file is damaged, whatever wrote it.
      WriteFile(path_, before.substr(0, before.size() - 100));
      QCOMPARE(Reason(Recording::Open(path_).status()), QString("DAMAGED"));
    }
  }

  void NoFile_AndFolders_AreRefused() {
    QCOMPARE(Reason(Recording::Open(path_).status()), QString("NO_FILE"));
    QVERIFY(!fs::exists(path_));
    QCOMPARE(Reason(Recorder::Open(path_ + "/deeper/b").status()), QString("NO_FILE"));
    QCOMPARE(Reason(Recording::Open(folder_->path().toStdString()).status()),
             QString("FOREIGN_FILE"));
    WriteFile(path_, "");
    QCOMPARE(Reason(Recording::Open(path_).status()), QString("FOREIGN_FILE"));
    QVERIFY(Recorder::Open(path_).ok());  // An empty file has nothing to lose.
  }

  void FileThatWeMayNotWrite_IsReadWithoutATrace() {
    RecordTicks(0, 3);
    const std::string before = ReadFile(path_);
    chmod(path_.c_str(), 0400);
    chmod(folder_->path().toLocal8Bit(), 0500);
    auto reader = Recording::Open(path_);
    QVERIFY(reader.ok());
    QVERIFY((*reader)->At(kStart + 1000).ok());
    chmod(folder_->path().toLocal8Bit(), 0700);
    QCOMPARE(QDir(folder_->path()).entryList(QDir::Files), QStringList{"a.onepiece"});
    QCOMPARE(ReadFile(path_), before);
  }

  void WhatIsNoFile_IsRefused_data() {
    QTest::addColumn<QString>("name");
    QTest::addColumn<QString>("reason");
    QTest::newRow("pipe that nobody writes") << "pipe"
                                             << "FOREIGN_FILE";
    QTest::newRow("device") << "zero"
                            << "FOREIGN_FILE";
    QTest::newRow("link to itself") << "loop"
                                    << "FILE_FAILED";
    QTest::newRow("below a file") << "file/b"
                                  << "NO_FILE";
    QTest::newRow("a name that is too long") << QString(5000, 'n') << "FILE_FAILED";
    QTest::newRow("no name") << ""
                             << "NO_FILE";
  }
  void WhatIsNoFile_IsRefused() {
    QFETCH(const QString, name);
    QFETCH(const QString, reason);
    QCOMPARE(mkfifo(qPrintable(folder_->filePath("pipe")), 0600), 0);
    fs::create_symlink("/dev/zero", folder_->filePath("zero").toStdString());
    fs::create_symlink("loop", folder_->filePath("loop").toStdString());
    WriteFile(folder_->filePath("file").toStdString(), "x");
    const std::string path = name.isEmpty() ? "" : folder_->filePath(name).toStdString();
    QCOMPARE(Reason(Recording::Open(path).status()), reason);
    QVERIFY(!Recorder::Open(path).ok());
  }

  void FileThatWeMayNotRead_IsDenied() {
    if (geteuid() == 0) QSKIP("root may read everything");
    RecordTicks(0, 3);
    chmod(path_.c_str(), 0000);
    QCOMPARE(Recording::Open(path_).status().code(), absl::StatusCode::kPermissionDenied);
    QCOMPARE(Recorder::Open(path_).status().code(), absl::StatusCode::kPermissionDenied);
  }

  // These files are so large that reading them as a whole would not end.
  void HugeFiles_AreLookedAtInMoments() {
    const std::string huge = path_ + ".huge";
    WriteFile(huge, "");
    fs::resize_file(huge, std::uintmax_t{1} << 40);
    QCOMPARE(Reason(Recording::Open(huge).status()), QString("FOREIGN_FILE"));
    QCOMPARE(Reason(Recorder::Open(huge).status()), QString("FOREIGN_FILE"));
    fs::remove(huge);
    // A recording with a hole behind it still is the recording.
    RecordTicks(0, 30);
    fs::resize_file(path_, std::uintmax_t{1} << 40);
    const auto reader = Recording::Open(path_);
    QVERIFY2(reader.ok(), base::Message(reader.status()).c_str());
    QCOMPARE(Describe(**(*reader)->At(kStart + 11'000)), Describe(SnapshotAt(11)));
  }

  // The file says that it is a recording, but its tables are not.
  void TablesOfStrangers_AreDamage_data() {
    QTest::addColumn<QString>("sql");
    QTest::newRow("none") << "DROP TABLE frame";
    QTest::newRow("other columns") << "DROP TABLE frame; CREATE TABLE frame (a, b)";
    QTest::newRow("a view without an end")
        << "DROP TABLE frame; CREATE VIEW frame AS WITH RECURSIVE r(t_ms) AS (SELECT 1 UNION ALL "
           "SELECT t_ms + 1 FROM r) SELECT t_ms, 0 AS tick, 0 AS shape_crc, '' AS numbers, 0 AS "
           "crc FROM r";
    QTest::newRow("text for numbers") << "UPDATE frame SET numbers = 'many', crc = 'x'";
    QTest::newRow("ticks from nowhere") << "UPDATE frame SET tick = -9223372036854775808";
    QTest::newRow("no checksums") << "DROP TABLE series; CREATE TABLE series (id, name, unit)";
    QTest::newRow("more ticks than there are") << "UPDATE meta SET value = '9223372036854775807' "
                                                  "WHERE key = 'closed'";
  }
  void TablesOfStrangers_AreDamage() {
    QFETCH(const QString, sql);
    RecordTicks(0, 5);
    Sql(path_, sql.toStdString());
    const auto reader = Recording::Open(path_);
    const absl::Status status =
        reader.ok() ? (*reader)->At(kStart + 2000).status() : reader.status();
    QCOMPARE(Reason(status), QString("DAMAGED"));
  }

  // Their checksums are right. Reading on from such a time would leave the 64 bits of a number.
  void TicksThatNoRecorderWrites_AreDamage_data() {
    QTest::addColumn<qint64>("at_ms");
    QTest::addColumn<qint64>("tick");
    QTest::newRow("at the end of time") << qint64{INT64_MAX} << qint64{0};
    QTest::newRow("before 1970") << qint64{INT64_MIN} << qint64{0};
    QTest::newRow("the last number") << qint64{1000} << qint64{INT64_MAX};
    QTest::newRow("a negative number") << qint64{1000} << qint64{-1};
  }
  void TicksThatNoRecorderWrites_AreDamage() {
    QFETCH(const qint64, at_ms);
    QFETCH(const qint64, tick);
    const auto file = File::OpenToWrite(path_);
    QVERIFY(file.ok());
    Codec codec;
    const std::vector<double> values = {1.0};
    const std::string layout = codec.PackLayout({0}), numbers = codec.PackFrame(values, {});
    const std::uint32_t sum = RowSum(at_ms, layout);
    const FramePlace place{.at_ms = at_ms, .tick = tick, .layout_sum = sum};
    QVERIFY((*file)
                ->Prepare("INSERT INTO layout VALUES (?1, ?2, ?3)")
                ->Run(std::int64_t{at_ms}, Blob{layout}, std::int64_t{sum})
                .ok());
    QVERIFY((*file)
                ->Prepare("INSERT INTO frame VALUES (?1, ?2, 0, ?3, ?4)")
                ->Run(std::int64_t{at_ms}, std::int64_t{tick}, Blob{numbers},
                      std::int64_t{FrameSum(place, numbers)})
                .ok());
    auto reader = FrameReader::Create(**file);
    QVERIFY(reader.ok());
    QCOMPARE(Reason(reader->AtOrBefore(INT64_MAX).status()), QString("DAMAGED"));
    QCOMPARE(Reason(reader->Scan(INT64_MIN, INT64_MAX, [](const Frame&) {})), QString("DAMAGED"));
    const auto recording = Recording::Open(path_);
    const absl::Status told = recording.ok() ? (*recording)->Info().status() : recording.status();
    if (tick == 0) QCOMPARE(Reason(told), QString("DAMAGED"));
  }

  void BytesThatClaimTooMuch_AreRefused() {
    Codec codec;
    const std::string packed = codec.Compress(std::string(1 << 20, 'x'));
    QVERIFY(codec.Expand(packed, 1 << 20).ok());
    QCOMPARE(Reason(codec.Expand(packed, (1 << 20) - 1).status()), QString("DAMAGED"));
  }

  // Wherever the file ends, the answer is an error or what was recorded.
  void CutOffAnywhere_IsFound() {
    RecordTicks(0, 30);
    const std::string whole = ReadFile(path_);
    std::vector<std::size_t> ends = {1, 15, 16, 17, 50, 99, 100, 101, 512, 1024, 4096};
    for (std::size_t page = 8192; page < whole.size(); page += 8192) {
      for (const std::size_t end : {page - 1, page, page + 1, page + 4096}) ends.push_back(end);
    }
    for (const std::size_t end : ends) {
      if (end >= whole.size()) continue;
      WriteFile(path_, whole.substr(0, end));
      const absl::Status status = Recording::Open(path_).status();
      const QString reason = Reason(status);
      // What is left of the first page may not say what the file was.
      QVERIFY2(reason == "DAMAGED" || (end < 100 && reason == "FOREIGN_FILE"),
               qPrintable(QString("%1 of %2 bytes: %3").arg(end).arg(whole.size()).arg(reason)));
      QVERIFY(base::Message(status).size() > 20);
    }
  }

  void CutOffFile_SaysWhatIsLeft_AndIsMovedAside() {
    RecordTicks(0, 400);
    const std::string whole = ReadFile(path_);
    for (const double share : {0.99, 0.6, 0.2}) {
      const std::string cut =
          whole.substr(0, static_cast<std::size_t>(share * static_cast<double>(whole.size())));
      WriteFile(path_, cut);
      const absl::Status read = Recording::Open(path_).status();
      QCOMPARE(Reason(read), QString("DAMAGED"));
      QVERIFY2(absl::StrContains(base::Message(read), "read"), base::Message(read).c_str());
      QCOMPARE(ReadFile(path_), cut);
    }
    const absl::Status moved = Recorder::Open(path_).status();
    QCOMPARE(Reason(moved), QString("DAMAGED"));
    QVERIFY(!fs::exists(path_));
    const QStringList files = QDir(folder_->path()).entryList(QDir::Files);
    QCOMPARE(files.size(), 1);
    QVERIFY(files[0].startsWith("a.onepiece.damaged-"));
    QVERIFY(absl::StrContains(base::Message(moved), files[0].toStdString()));
    RecordTicks(0, 1);
  }

  // Whichever byte changes, the answer is an error that says so, or what was recorded.
  void ChangedBytes_AreFoundOrHarmless() {
    RecordTicks(0, 30);
    RecordTicks(40, 42);
    SetBookmarks(20);
    const std::string good = ReadFile(path_);
    std::vector<std::string> expected;
    std::string told;
    {
      auto reader = Recording::Open(path_);
      for (int tick = 0; tick < 30; ++tick)
        expected.push_back(Describe(**(*reader)->At(kStart + 1000 * tick)));
      told = WhatIsTold(**reader).value();
    }
    int found = 0, harmless = 0, other = 0;
    for (std::size_t at = 100; at < good.size(); at += 211) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x40);
      WriteFile(path_, bad);
      const auto reader = Recording::Open(path_);
      bool error = !reader.ok();
      for (int tick = 0; tick < 30 && !error; tick += 7) {
        const auto past = (*reader)->At(kStart + 1000 * tick);
        error = !past.ok();
        if (error) continue;
        // SQLite may silently lose a row of a page whose header has changed.
        if (Describe(**past) != expected[static_cast<std::size_t>(tick)]) ++other;
      }
      if (!error) {
        const auto range = WhatIsTold(**reader);
        error = !range.ok();
        if (!error && *range != told) ++other;
      }
      ++(error ? found : harmless);
    }
    qInfo("%d found, %d harmless, %d read otherwise", found, harmless, other);
    QVERIFY(found > 20);
    QCOMPARE(other, 0);
  }

  // SQLite may silently lose one row. The answer is then an error that says when, or what was
  // recorded.
  void LostRows_AreFound_data() {
    QTest::addColumn<QString>("table_name");
    for (const char* table : {"frame", "change", "keyframe", "layout", "gap"})
      QTest::newRow(table) << table;
  }
  void LostRows_AreFound() {
    QFETCH(const QString, table_name);
    const std::string table = table_name.toStdString();
    RecordTicks(0, 30);
    RecordTicks(40, 70);
    const std::string good = ReadFile(path_);
    std::vector<std::string> expected;  // Empty texts in the gap.
    {
      auto reader = Recording::Open(path_);
      for (int tick = 0; tick < 70; ++tick) {
        const auto past = (*reader)->At(kStart + 1000 * tick);
        expected.push_back(past.ok() ? Describe(**past) : "");
        QCOMPARE(past.ok(), tick < 30 || tick >= 40);
      }
    }
    const int rows = CountRows(path_, table);
    QVERIFY(rows > 0);
    for (int row = 0; row < rows; ++row) {
      WriteFile(path_, good);
      Sql(path_, "DELETE FROM " + table + " WHERE rowid = (SELECT rowid FROM " + table +
                     " ORDER BY rowid LIMIT 1 OFFSET " + std::to_string(row) + ")");
      auto reader = Recording::Open(path_);
      int found = reader.ok() ? 0 : 1;
      for (int tick = 0; tick < 70 && reader.ok(); ++tick) {
        const auto past = (*reader)->At(kStart + 1000 * tick);
        const std::string& was = expected[static_cast<std::size_t>(tick)];
        if (Reason(past.status()) == "DAMAGED") {
          ++found;
          QVERIFY(absl::StrContains(base::Message(past.status()), "2027-"));  // kStart's year.
        } else {
          QCOMPARE(past.ok() ? Describe(**past) : "", was);
        }
      }
      QVERIFY2(found > 0, qPrintable(QString("row %1").arg(row)));
    }
  }

  // A lost window must not look like a gap in a long chart.
  void LostWindows_AreFound() {
    RecordTicks(0, 205);
    RecordTicks(300, 700);
    const std::string good = ReadFile(path_);
    std::map<int, std::string> whole;
    for (const int level : {10, 60, 600}) whole[level] = Describe(*ReadWindows(level));
    for (const int level : {10, 60, 600}) {
      const std::string of_level = " FROM rollup WHERE level_s = " + std::to_string(level);
      const int rows = CountRows(path_, "(SELECT 1" + of_level + ")");
      // The recording has 700 s, of which 95 s are a gap.
      QCOMPARE(rows, level == 10 ? 60 : level == 60 ? 10 : 1);
      for (int row = 0; row < rows; ++row) {
        Sql(path_, "DELETE FROM rollup WHERE rowid = (SELECT rowid" + of_level +
                       " ORDER BY t_ms LIMIT 1 OFFSET " + std::to_string(row) + ")");
        const auto lost = ReadWindows(level);
        QCOMPARE(Reason(lost.status()), QString("DAMAGED"));
        QVERIFY(absl::StrContains(base::Message(lost.status()), "2027-"));  // kStart's year.
        for (const int other : {10, 60, 600}) {
          if (other != level) QCOMPARE(Describe(*ReadWindows(other)), whole[other]);
        }
        WriteFile(path_, good);
      }
    }
  }

  void ChangedWindows_AreFound_data() {
    QTest::addColumn<QString>("sql");
    QTest::newRow("numbers") << "UPDATE rollup SET numbers = substr(numbers, 1, 20) || x'00' || "
                                "substr(numbers, 22) WHERE level_s = 10 AND t_ms % 60000 = 0";
    QTest::newRow("of another time")
        << "UPDATE rollup SET numbers = (SELECT numbers FROM rollup LIMIT 1 OFFSET 4), crc = "
           "(SELECT crc FROM rollup LIMIT 1 OFFSET 4) WHERE t_ms = 1800000010000";
    QTest::newRow("of another length")
        << "UPDATE rollup SET numbers = (SELECT numbers FROM rollup WHERE level_s = 60 LIMIT 1), "
           "crc = (SELECT crc FROM rollup WHERE level_s = 60 LIMIT 1) WHERE t_ms = 1800000000000";
  }
  void ChangedWindows_AreFound() {
    QFETCH(const QString, sql);
    RecordTicks(0, 100);
    QVERIFY(ReadWindows(10).ok());
    Sql(path_, sql.toStdString());
    QCOMPARE(Reason(ReadWindows(10).status()), QString("DAMAGED"));
  }

  void LostMarks_AreFound() {
    RecordTicks(0, 3);
    SetBookmarks(5);
    QCOMPARE(MarksOf(path_)->size(), std::size_t{5});
    const std::string good = ReadFile(path_);
    for (int row = 0; row < 5; ++row) {
      Sql(path_, "DELETE FROM mark WHERE rowid = (SELECT rowid FROM mark LIMIT 1 OFFSET " +
                     std::to_string(row) + ")");
      QCOMPARE(Reason(MarksOf(path_).status()), QString("DAMAGED"));
      // Everything else is there, and the lost mark counts as lost in a copy, too.
      auto reader = Recording::Open(path_);
      QVERIFY((*reader)->At(kStart + 1000).ok());
      const std::string copy = path_ + std::to_string(row);
      QVERIFY((*reader)->Export({kStart, kStart + 2000}, copy).ok());
      QCOMPARE(Reason(MarksOf(copy).status()), QString("DAMAGED"));
      WriteFile(path_, good);
    }
    Sql(path_, "DELETE FROM mark");
    QCOMPARE(Reason(MarksOf(path_).status()), QString("DAMAGED"));
    WriteFile(path_, good);
    Sql(path_, "DELETE FROM meta WHERE key = 'marks'");
    QCOMPARE(Reason(MarksOf(path_).status()), QString("DAMAGED"));
  }

  void ChangedMarks_AreFound() {
    RecordTicks(0, 3);
    SetBookmarks(5);
    const std::string good = ReadFile(path_);
    for (const char* column :
         {"kind = 2", "t_ms = t_ms + 1", "entity = 'node/x'", "text = 'mark 4'", "crc = crc + 1"}) {
      Sql(path_, std::string("UPDATE mark SET ") + column + " WHERE text = 'mark 3'");
      QCOMPARE(Reason(MarksOf(path_).status()), QString("DAMAGED"));
      QVERIFY((*Recording::Open(path_))->At(kStart + 1000).ok());
      WriteFile(path_, good);
    }
    Sql(path_, "INSERT INTO mark SELECT 99, t_ms, kind, entity, text, crc FROM mark LIMIT 1");
    QCOMPARE(Reason(MarksOf(path_).status()), QString("DAMAGED"));
  }

  void ChangedGaps_AreFound() {
    RecordTicks(0, 3);
    RecordTicks(10, 13);
    const std::string good = ReadFile(path_);
    for (const char* column : {"from_ms = from_ms + 1", "to_ms = to_ms - 1", "reason = 'lunch'"}) {
      Sql(path_, std::string("UPDATE gap SET ") + column);
      auto reader = Recording::Open(path_);
      QCOMPARE(Reason((*reader)->Gaps({0, kStart * 2}).status()), QString("DAMAGED"));
      QCOMPARE(Reason((*reader)->At(kStart + 5000).status()), QString("DAMAGED"));
      WriteFile(path_, good);
    }
  }

  // Rows that were removed because they are old do not count as lost.
  void WhatIsForgotten_IsNoDamage() {
    Limits limits;
    limits.max_age_ms = 120'000;
    {
      auto recorder = OpenRecorder(path_, limits);
      for (int tick = 0; tick < 400; ++tick) {
        QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
        if (tick % 50 != 0) continue;
        // The last of these bookmarks is for a time that has been removed already.
        QVERIFY(recorder->Bookmark(kStart + tick * 1000, "now").ok());
        QVERIFY(recorder->Bookmark(kStart + 1, "then").ok());
      }
    }
    const auto marks = MarksOf(path_);
    QVERIFY2(marks.ok(), base::Message(marks.status()).c_str());
    QVERIFY(!marks->empty() && marks->size() < 16);
    auto reader = Recording::Open(path_);
    const Interval interval = (*reader)->Info()->interval;
    QVERIFY(interval.from_ms > kStart + 60'000);
    for (const int level : {10, 60, 600}) QVERIFY(ReadWindows(level).ok());
    // A copy that begins and ends inside of windows has all its values.
    const std::string copy = path_ + ".copy";
    const Interval part{kStart + 303'000, kStart + 371'000};
    QVERIFY((*reader)->Export(part, copy).ok());
    QVERIFY(MarksOf(copy).ok());
    const std::string name = "node/instance-0/utilization";
    const auto seconds = (*Recording::Open(copy))->Series(name, part, 68);
    const auto windows = (*Recording::Open(copy))->Series(name, part, 1);
    QCOMPARE((*windows)[0].max, seconds->back().max);
    QCOMPARE((*windows)[0].min, 0.5 + 0.001 * 300);  // A copy has its first minute as a whole.
  }

  void WrongRows_AreNamed() {
    RecordTicks(0, 100);
    Sql(path_,
        "UPDATE frame SET numbers = (SELECT numbers FROM frame WHERE t_ms = 1800000012000) "
        "WHERE t_ms = 1800000011000; UPDATE keyframe SET shape = zeroblob(50000000) WHERE "
        "t_ms > 1800000000000; DELETE FROM layout WHERE t_ms > 1800000030000");
    auto reader = Recording::Open(path_);
    QVERIFY(reader.ok());
    QVERIFY((*reader)->At(kStart + 10'000).ok());
    QCOMPARE(Reason((*reader)->At(kStart + 11'000).status()), QString("DAMAGED"));
    QVERIFY((*reader)->At(kStart + 12'000).ok());
    QCOMPARE(Reason((*reader)->At(kStart + 70'000).status()), QString("DAMAGED"));
    QVERIFY((*reader)->At(kStart + 13'000).ok());
  }

 private:
  void RecordTicks(int from, int to) {
    auto recorder = OpenRecorder(path_);
    for (int tick = from; tick < to; ++tick)
      QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
  }

  void SetBookmarks(int count) {
    auto recorder = OpenRecorder(path_);
    for (int i = 0; i < count; ++i)
      QVERIFY(recorder->Bookmark(kStart + 100 * i, "mark " + std::to_string(i)).ok());
  }
  /// Reads the series in buckets that are as long as the windows.
  [[nodiscard]] absl::StatusOr<std::vector<SeriesPoint>> ReadWindows(int level_s) const {
    const auto reader = Recording::Open(path_);
    if (!reader.ok()) return reader.status();
    return (*reader)->Series("node/instance-0/utilization", {kStart, kStart + 1'200'000},
                             1200 / level_s);
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string path_;
};

}  // namespace onepiece::history

ONEPIECE_TEST(onepiece::history::RecordingFilesTest)
#include "recording_files_test.moc"
