// Results on disk: written results come back whole after damage, full disks and kills, and nothing
// else is left.
#include "cluster/database/spill.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "cluster/base/crc32c.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/database/spill_file.h"
#include "tests/database/kill_anywhere.h"
#include "tests/database/numbered.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

namespace fs = std::filesystem;

constexpr int kSpillKills = 40;

// Returns bytes that depend only on the number.
std::string Content(std::uint64_t number, std::size_t bytes) {
  std::string content(bytes, '\0');
  std::mt19937_64 random(number);
  for (char& c : content) c = static_cast<char>(random());
  return content;
}

StoredArtifact Artifact(const std::string& name, std::string bytes) {
  StoredArtifact artifact;
  artifact.info.set_artifact(name);
  artifact.info.set_media_type("video/mp4");
  artifact.info.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
  artifact.info.set_sha256(base::Sha256Hex(bytes));
  artifact.data = message::Buffer::FromString(std::move(bytes));
  return artifact;
}

// Several sizes around blocks, an empty one too.
std::vector<StoredArtifact> ResultOf(std::uint64_t number) {
  return {Artifact("video", Content(number, 1 + number * 7919 % 20'000)), Artifact("empty", ""),
          Artifact("thumbnail", Content(number + 1, 4096))};
}

bool Same(const std::vector<StoredArtifact>& a, const std::vector<StoredArtifact>& b) {
  return std::ranges::equal(a, b, [](const StoredArtifact& x, const StoredArtifact& y) {
    return x.info.SerializeAsString() == y.info.SerializeAsString() &&
           x.data.text() == y.data.text();
  });
}

// What the child tells its parent; shared memory.
struct SpillProgress {
  std::atomic<std::uint64_t> first{0};  // Results below it were removed.
  std::atomic<std::uint64_t> next{0};   // Results below it were written.
};

}  // namespace

class SpillTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    // Set before any thread starts: a write above the file size limit must fail, not kill.
    signal(SIGXFSZ, SIG_IGN);
  }
  void init() {
    // In memory, unless a test needs a real disk.
    folder_ = std::make_unique<QTemporaryDir>(
        QDir("/dev/shm").exists() ? "/dev/shm/spill-XXXXXX" : QDir::tempPath() + "/spill-XXXXXX");
    dir_ = folder_->filePath("results").toStdString();
  }

  void Written_ComesBack_AlsoAfterARestart() {
    const QTemporaryDir disk;
    dir_ = disk.filePath("results").toStdString();
    {
      const auto spill = Open();
      for (std::uint64_t n = 0; n < 20; ++n) {
        const auto written = spill->Write(UidOf(n), ResultOf(n));
        QVERIFY2(written.ok(), written.status().ToString().c_str());
        QVERIFY(Same(*written, ResultOf(n)));
        for (const StoredArtifact& artifact : *written)
          QCOMPARE(reinterpret_cast<std::uintptr_t>(artifact.data.bytes().data()) % 4096, 0U);
      }
      spill->Remove(UidOf(3));
      QCOMPARE(Reason(spill->Read(UidOf(3)).status()), std::string());
      QVERIFY(absl::IsNotFound(spill->Read(UidOf(3)).status()));
      QCOMPARE(spill->stats().bytes, FileBytes());
      QCOMPARE(spill->stats().results, 19);
    }
    const auto spill = Open();
    QCOMPARE(spill->Kept().size(), 19U);
    for (std::uint64_t n = 0; n < 20; ++n) {
      const auto read = spill->Read(UidOf(n));
      if (n == 3) {
        QVERIFY(!read.ok());
      } else {
        QVERIFY(read.ok() && Same(*read, ResultOf(n)));
      }
    }
    QCOMPARE(spill->stats().bytes, FileBytes());
    for (const base::Uid& uid : spill->Kept()) spill->Remove(uid);
    QCOMPARE(spill->stats().bytes, 0);
    QCOMPARE(FileBytes(), 0);
  }

  void Removed_StaysReadable_WhereItIsMapped() {
    const auto spill = Open();
    const auto written = spill->Write(UidOf(1), ResultOf(1));
    QVERIFY(written.ok());
    spill->Remove(UidOf(1));
    QCOMPARE(FileBytes(), 0);
    QVERIFY(Same(*written, ResultOf(1)));
  }

  void WrittenAgain_TakesThePlaceOfTheFormer() {
    const auto spill = Open();
    QVERIFY(spill->Write(UidOf(1), ResultOf(1)).ok());
    QVERIFY(spill->Write(UidOf(1), ResultOf(2)).ok());
    const auto read = spill->Read(UidOf(1));
    QVERIFY(read.ok() && Same(*read, ResultOf(2)));
    QCOMPARE(spill->stats().bytes, FileBytes());
    QCOMPARE(spill->stats().results, 1);
  }

  void Budget_IsNeverPassed() {
    const std::int64_t bytes = SpillFileBytes(ResultOf(1));
    const auto spill = Open(2 * bytes);
    QVERIFY(spill->Write(UidOf(1), ResultOf(1)).ok());
    QVERIFY(spill->Write(UidOf(2), ResultOf(1)).ok());
    const auto full = spill->Write(UidOf(3), ResultOf(1));
    QVERIFY(absl::IsResourceExhausted(full.status()));
    QCOMPARE(Reason(full.status()), std::string("SPILL_FULL"));
    QCOMPARE(FileBytes(), 2 * bytes);
    spill->Remove(UidOf(1));
    QVERIFY(spill->Write(UidOf(3), ResultOf(1)).ok());
    QCOMPARE(spill->stats().bytes, 2 * bytes);
  }

  void SecondProcess_IsRefused() {
    const auto spill = Open();
    const auto second = Spill::Open({.folder = dir_, .cluster_id = "cluster"});
    QCOMPARE(Reason(second.status()), std::string("FOLDER_IN_USE"));
    QVERIFY(second.status().message().find(dir_) != absl::string_view::npos);
  }

  void OtherCluster_IsRefused_AndNothingIsTouched() {
    { QVERIFY(Open()->Write(UidOf(1), ResultOf(1)).ok()); }
    const std::string part = Files().begin()->string() + ".part";
    WriteBytes(part, "not complete");
    // With its index and without: the files name their cluster too.
    for (const bool index : {true, false}) {
      if (!index) fs::remove(dir_ + "/index.sqlite");
      for (int again = 0; again < 2; ++again) {
        const auto other = Spill::Open({.folder = dir_, .cluster_id = "other"});
        QVERIFY(absl::IsFailedPrecondition(other.status()));
        QCOMPARE(Reason(other.status()), std::string("OTHER_CLUSTER"));
      }
      QCOMPARE(Files().size(), 1U);
      QVERIFY(fs::exists(part));
    }
    const auto spill = Open();
    QVERIFY(!fs::exists(part));
    const auto read = spill->Read(UidOf(1));
    QVERIFY(read.ok() && Same(*read, ResultOf(1)));
  }

  void NewerFormat_IsRefused_AndNothingIsTouched() {
    { QVERIFY(Open()->Write(UidOf(1), ResultOf(1)).ok()); }
    const fs::path file = *Files().begin();
    const std::string before = ReadBytes(file);
    std::string newer = before;
    newer[8] = 2;
    const std::uint32_t checksum = base::Crc32c(std::as_bytes(std::span(newer)).first(60));
    std::memcpy(newer.data() + 60, &checksum, sizeof(checksum));
    WriteBytes(file, newer);
    const auto refused = Spill::Open({.folder = dir_, .cluster_id = "cluster"});
    QCOMPARE(Reason(refused.status()), std::string("NEWER_FORMAT"));
    QCOMPARE(ReadBytes(file), newer);
    WriteBytes(file, before);
    SetIndexVersion(2);
    QCOMPARE(Reason(Spill::Open({.folder = dir_, .cluster_id = "cluster"}).status()),
             std::string("NEWER_FORMAT"));
    QCOMPARE(ReadBytes(file), before);
  }

  // A small file is cut off at every length: the result is dropped as a whole.
  void Truncated_AtEveryBlock_IsDropped() {
    { QVERIFY(Open()->Write(UidOf(1), ResultOf(1)).ok()); }
    const fs::path file = *Files().begin();
    const std::string whole = ReadBytes(file);
    const std::string index = ReadBytes(dir_ + "/index.sqlite");
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 512) {
      WriteBytes(file, whole.substr(0, bytes));
      WriteBytes(dir_ + "/index.sqlite", index);
      const auto spill = Open();
      QVERIFY(spill->Kept().empty());
      QCOMPARE(spill->stats().damaged, 1U);
      QCOMPARE(spill->stats().bytes, 0);
      QVERIFY(Files().empty());
    }
    // A file that is too long is damaged as well.
    WriteBytes(file, whole + std::string(4096, 'x'));
    WriteBytes(dir_ + "/index.sqlite", index);
    QVERIFY(Open()->Kept().empty());
  }

  // Damages every byte of the header and the artifacts. The padding does not matter.
  void FlippedByte_Anywhere_IsNoticed() {
    { QVERIFY(Open()->Write(UidOf(1), {{Artifact("a", Content(1, 700))}}).ok()); }
    const fs::path file = *Files().begin();
    const std::string whole = ReadBytes(file);
    const std::string index = ReadBytes(dir_ + "/index.sqlite");
    for (std::size_t at = 0; at < 4096 + 700; at += at < 256 || at >= 4096 ? 1 : 61) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
      WriteBytes(file, bytes);
      WriteBytes(dir_ + "/index.sqlite", index);
      const auto spill = Open();
      const auto read = spill->Read(UidOf(1));
      QVERIFY2(!read.ok(), qPrintable(QString("byte %1").arg(at)));
      QCOMPARE(spill->stats().damaged, 1U);
      QCOMPARE(spill->stats().bytes, 0);
      QVERIFY(Files().empty());
      if (at >= 4096) QCOMPARE(Reason(read.status()), std::string("SPILL_DAMAGED"));
    }
  }

  // With an index and without: a file is dropped for its content only.
  void Unreadable_IsKept_UntilItCanBeRead() {
    {
      const auto spill = Open();
      for (std::uint64_t n = 0; n < 3; ++n) QVERIFY(spill->Write(UidOf(n), ResultOf(n)).ok());
    }
    const std::string file = dir_ + "/" + UidOf(1).ToString() + ".result", aside = dir_ + "/aside";
    fs::rename(file, aside);
    fs::create_symlink(file, file);  // ELOOP, for the superuser too.
    {
      const auto spill = Open();
      QCOMPARE(spill->Kept().size(), 3U);
      QCOMPARE(spill->stats().damaged, 0U);
      QCOMPARE(Reason(spill->Read(UidOf(1)).status()), std::string("DISK_FAILED"));
      QCOMPARE(spill->Kept().size(), 3U);
      QVERIFY(spill->Read(UidOf(2)).ok());
    }
    fs::remove(dir_ + "/index.sqlite");
    for (int again = 0; again < 2; ++again) {
      const auto refused = Spill::Open({.folder = dir_, .cluster_id = "cluster"});
      QCOMPARE(Reason(refused.status()), std::string("DISK_FAILED"));
    }
    fs::rename(aside, file);
    const auto spill = Open();
    for (std::uint64_t n = 0; n < 3; ++n) QVERIFY(Same(*spill->Read(UidOf(n)), ResultOf(n)));
  }

  void NoDescriptorsLeft_IsNoDamage() {
    const auto spill = Open();
    QVERIFY(spill->Write(UidOf(1), ResultOf(1)).ok());
    rlimit limit{};
    QCOMPARE(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
    QCOMPARE(setrlimit(RLIMIT_NOFILE, &none), 0);
    const auto read = spill->Read(UidOf(1));
    QCOMPARE(setrlimit(RLIMIT_NOFILE, &limit), 0);
    QCOMPARE(Reason(read.status()), std::string("DISK_FAILED"));
    QCOMPARE(spill->stats().damaged, 0U);
    QVERIFY(Same(*spill->Read(UidOf(1)), ResultOf(1)));
  }

  void ForeignAndOrphanFiles_Go_OtherNamesStay() {
    {
      const auto spill = Open();
      QVERIFY(spill->Write(UidOf(1), ResultOf(1)).ok());
      QVERIFY(spill->Write(UidOf(2), ResultOf(2)).ok());
    }
    const auto name = [&](std::uint64_t n) { return dir_ + "/" + UidOf(n).ToString() + ".result"; };
    fs::copy_file(name(1), name(7));                    // Another result's file.
    WriteBytes(name(8), "not a result");                // Foreign.
    WriteBytes(name(9) + ".part", Content(9, 10'000));  // Never finished.
    WriteBytes(dir_ + "/notes.txt", "mine");
    fs::remove(name(2));  // Missing.
    const auto spill = Open();
    QCOMPARE(spill->Kept(), std::vector{UidOf(1)});
    QCOMPARE(spill->stats().damaged, 1U);
    QCOMPARE(Files().size(), 1U);
    QCOMPARE(spill->stats().bytes, FileBytes());
    QVERIFY(!fs::exists(name(9) + ".part"));
    QCOMPARE(ReadBytes(dir_ + "/notes.txt"), std::string("mine"));
    QVERIFY(absl::IsNotFound(spill->Read(UidOf(2)).status()));
    QVERIFY(Same(*spill->Read(UidOf(1)), ResultOf(1)));
  }

  // AddressSanitizer's build finds what such a file makes of an empty table.
  void FileWithoutArtifacts_IsRead() {
    const std::string path = folder_->filePath("none.result").toStdString();
    const SpillOwner owner{.uid = UidOf(1)};
    QVERIFY(WriteSpillFile(path, owner, {}).ok());
    const auto read = CheckSpillFile(path, owner);
    QVERIFY(read.ok() && read->empty());
  }

  // The sizes add up to the file's length, but only because their sum wraps around. An artifact
  // would lie outside of the file.
  void SizesThatWrapAround_AreDamage() {
    constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 46, kBlock = 4096;
    constexpr std::uint32_t kArtifacts = 1 << 18;  // So many of kFileBytes are 2^64 bytes.
    v1::JobResult result;
    for (std::uint32_t n = 0; n < kArtifacts; ++n)
      result.add_artifacts()->set_size_bytes(kFileBytes);
    const std::size_t checksums = (kArtifacts + 1) * sizeof(std::uint32_t);
    const std::uint64_t header_bytes =
        (64 + checksums + result.ByteSizeLong() + 64 + kBlock) / kBlock * kBlock;
    result.add_artifacts()->set_size_bytes(static_cast<std::int64_t>(kFileBytes - header_bytes));
    const std::string table = std::string(checksums, '\0') + result.SerializeAsString();
    std::string header(header_bytes, '\0');
    const auto put = [&header](std::size_t at, auto value) {
      std::memcpy(header.data() + at, &value, sizeof value);
    };
    std::memcpy(header.data(), "OPSPILL\n", 8);
    put(8, std::uint32_t{1});
    put(12, static_cast<std::uint32_t>(header_bytes));
    put(40, kFileBytes);
    put(48, kArtifacts + 1);
    put(52, static_cast<std::uint32_t>(table.size() - checksums));
    std::memcpy(header.data() + 64, table.data(), table.size());
    const auto bytes = std::as_bytes(std::span(header));
    put(56, base::Crc32c(bytes.subspan(64)));
    put(60, base::Crc32c(bytes.first(60)));
    const std::string path = folder_->filePath("wraps.result").toStdString();
    std::ofstream(path, std::ios::binary) << header;
    if (truncate(path.c_str(), static_cast<off_t>(kFileBytes)) != 0)
      QSKIP("no file system for a file of 64 TiB with a hole");
    const auto read = ReadSpillHeader(path);
    QCOMPARE(Reason(read.status()), std::string("SPILL_DAMAGED"));
    QVERIFY(base::Message(read.status()).find("longer") != std::string::npos);
  }

  void Index_DamagedOrLost_IsMadeAnewFromTheFiles_data() {
    QTest::addColumn<int>("kind");
    QTest::newRow("missing") << 0;
    QTest::newRow("empty") << 1;
    QTest::newRow("garbage") << 2;
    QTest::newRow("zeros") << 3;
    QTest::newRow("cut off") << 4;
    QTest::newRow("a row's uid is another") << 5;
    QTest::newRow("a page is wrong") << 6;
  }
  void Index_DamagedOrLost_IsMadeAnewFromTheFiles() {
    QFETCH(int, kind);
    {
      const auto spill = Open();
      for (std::uint64_t n = 0; n < 5; ++n) QVERIFY(spill->Write(UidOf(n), ResultOf(n)).ok());
    }
    const std::string path = dir_ + "/index.sqlite";
    std::string bytes = ReadBytes(path);
    if (kind == 0) fs::remove(path);
    if (kind == 1) WriteBytes(path, "");
    if (kind == 2) WriteBytes(path, Content(1, 8192));
    if (kind == 3) WriteBytes(path, std::string(bytes.size(), '\0'));
    if (kind == 4) WriteBytes(path, bytes.substr(0, bytes.size() - 4096));
    if (kind == 5) {
      const std::string key(reinterpret_cast<const char*>(UidOf(4).bytes().data()), 16);
      const auto at = bytes.rfind(key);
      QVERIFY(at != std::string::npos);
      bytes[at + 2] = 'x';
      WriteBytes(path, bytes);
    }
    if (kind == 6) {
      bytes.replace(bytes.size() - 4096, 100, std::string(100, '\xff'));
      WriteBytes(path, bytes);
    }
    for (int start = 0; start < 2; ++start) {
      const auto spill = Open();
      QCOMPARE(spill->Kept().size(), 5U);
      QCOMPARE(spill->stats().bytes, FileBytes());
      for (std::uint64_t n = 0; n < 5; ++n) {
        const auto read = spill->Read(UidOf(n));
        QVERIFY(read.ok() && Same(*read, ResultOf(n)));
      }
    }
    QCOMPARE(fs::exists(path + ".damaged"), kind >= 2);
  }

  void FullDisk_LeavesNothing() {
    fs::create_directories(dir_);
    if (mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=2m") != 0)
      QSKIP("mounting a small disk needs privileges");
    const auto unmount = qScopeGuard([&] { umount(dir_.c_str()); });
    const auto spill = Open();
    std::uint64_t written = 0;
    absl::Status status;
    while (written < 100) {
      const auto result =
          spill->Write(UidOf(written), {{Artifact("a", Content(written, 300'000))}});
      status = result.status();
      if (!status.ok()) break;
      ++written;
    }
    QVERIFY(written > 0 && written < 8);
    QVERIFY2(absl::IsResourceExhausted(status), status.ToString().c_str());
    QCOMPARE(Reason(status), std::string("DISK_FULL"));
    QCOMPARE(spill->stats().failed_writes, 1U);
    QCOMPARE(Files().size(), written);
    QCOMPARE(spill->stats().bytes, FileBytes());
    // Smaller results still fit, and the earlier ones are whole.
    QVERIFY(spill->Write(UidOf(1000), {{Artifact("a", Content(5, 3000))}}).ok());
    for (std::uint64_t n = 0; n < written; ++n) QVERIFY(spill->Read(UidOf(n)).ok());
    spill->Remove(UidOf(0));
    QVERIFY(spill->Write(UidOf(1001), {{Artifact("a", Content(6, 200'000))}}).ok());
  }

  // The disk fails in the middle of a file, and at the index.
  void LimitedFile_LeavesNothing() {
    const auto spill = Open();
    QVERIFY(spill->Write(UidOf(1), ResultOf(1)).ok());
    const std::int64_t bytes = spill->stats().bytes;
    rlimit limit{};
    QCOMPARE(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (const rlim_t most : {0UL, 4096UL, 65536UL}) {
      const rlimit tight{.rlim_cur = most, .rlim_max = limit.rlim_max};
      QCOMPARE(setrlimit(RLIMIT_FSIZE, &tight), 0);
      const auto written = spill->Write(UidOf(2), {{Artifact("a", Content(2, 100'000))}});
      QCOMPARE(setrlimit(RLIMIT_FSIZE, &limit), 0);
      QCOMPARE(Reason(written.status()), std::string("DISK_FULL"));
      QCOMPARE(Files().size(), 1U);
      QCOMPARE(spill->stats().bytes, bytes);
    }
    QVERIFY(spill->Write(UidOf(2), ResultOf(2)).ok());
    QVERIFY(Same(*spill->Read(UidOf(1)), ResultOf(1)));
  }

  void FolderThatIsAFile_NamesIt() {
    WriteBytes(dir_, "x");
    const auto spill = Spill::Open({.folder = dir_, .cluster_id = "cluster"});
    QVERIFY(!spill.ok());
    QVERIFY(spill.status().message().find(dir_) != absl::string_view::npos);
  }

  void KilledAnywhere_WhatWasWrittenIsWhole_AndNothingElseIsLeft() {
#ifdef __SANITIZE_THREAD__
    QSKIP("ThreadSanitizer lets the child of a process with threads start none");
#endif
    const SharedWith<SpillProgress> shared;
    const auto check = [&] {
      const auto spill = Open();
      const std::uint64_t first = shared->first, next = shared->next;
      // One more result may have been written or removed after the last report.
      std::set<base::Uid> kept;
      for (const base::Uid& uid : spill->Kept()) kept.insert(uid);
      for (std::uint64_t n = first; n < next; ++n) {
        const auto read = spill->Read(UidOf(n));
        if (n == first && !read.ok()) continue;
        QVERIFY2(read.ok() && Same(*read, ResultOf(n)), qPrintable(QString::number(n)));
        kept.erase(UidOf(n));
      }
      kept.erase(UidOf(first));
      kept.erase(UidOf(next));
      QVERIFY(kept.empty());
      QCOMPARE(spill->stats().bytes, FileBytes());
      QCOMPARE(spill->stats().damaged, 0U);
      for (const auto& entry : fs::directory_iterator(dir_))
        QVERIFY2(entry.path().extension() != ".part", entry.path().c_str());
    };
    KillAnywhere(
        kSpillKills, [&] { WriteForEver(*shared); }, check);
    if (QTest::currentTestFailed()) return;
    qInfo("%llu results over %d kills", static_cast<unsigned long long>(shared->next.load()),
          kSpillKills);
    QVERIFY(shared->next > 50);
  }

 private:
  std::unique_ptr<Spill> Open(std::int64_t budget = 1 << 30) const {
    auto spill = Spill::Open({.folder = dir_, .cluster_id = "cluster", .budget_bytes = budget});
    if (!spill.ok()) qFatal("%s", spill.status().ToString().c_str());
    return *std::move(spill);
  }
  std::set<fs::path> Files() const {
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      if (entry.path().extension() == ".result") files.insert(entry.path());
    }
    return files;
  }
  std::int64_t FileBytes() const {
    std::int64_t bytes = 0;
    for (const auto& file : Files()) bytes += static_cast<std::int64_t>(fs::file_size(file));
    return bytes;
  }
  void SetIndexVersion(int version) const {
    // Big-endian at byte 60 of a SQLite file: the user's version.
    std::string bytes = ReadBytes(dir_ + "/index.sqlite");
    bytes[63] = static_cast<char>(version);
    WriteBytes(dir_ + "/index.sqlite", bytes);
  }
  [[noreturn]] void WriteForEver(SpillProgress& shared) const {
    const auto spill = Spill::Open({.folder = dir_, .cluster_id = "cluster"});
    if (!spill.ok()) _exit(1);
    for (;;) {
      const std::uint64_t next = shared.next;
      if (!(*spill)->Write(UidOf(next), ResultOf(next)).ok()) _exit(2);
      shared.next = next + 1;
      if (shared.next - shared.first < 12) continue;
      (*spill)->Remove(UidOf(shared.first));
      ++shared.first;
    }
  }

  std::unique_ptr<QTemporaryDir> folder_;
  std::string dir_;
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::SpillTest)
#include "spill_test.moc"
