// Tests what a Store keeps over a clean restart, what it refuses to read, and what it does when it
// cannot write.
#include "nodemanager/replication/store.h"

#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "cluster/base/status.h"
#include "tests/nodemanager/replication/durable.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using paxos::Slot;

constexpr paxos::ReplicaId kSecond{8}, kThird{9};

QString ReasonText(const absl::Status& status) {
  return QString::fromStdString(base::GetReason(status).reason);
}

paxos::Writes Accept(std::vector<paxos::AcceptedEntry> accepted, Slot chosen = {}) {
  paxos::Writes writes;
  writes.accepted = std::move(accepted);
  writes.chosen = chosen;
  return writes;
}

// Opens the store of `dir` and describes what it holds, or why it does not open.
std::string Found(const std::string& dir) {
  auto store = Store::Open(dir);
  if (!store.ok()) return store.status().ToString();
  if (!(*store)->identity()) return "new";
  return Describe((*store)->TakeState());
}

// Fills a folder with a snapshot, entries of every kind, and promises.
void Fill(const std::string& dir) {
  auto store = Store::Open(dir);
  QVERIFY(store.ok());
  QVERIFY((*store)->Create(kIdentity, NewState()).ok());
  paxos::Writes writes = Accept({CommandAt(Slot{1}, 3, "one"), CommandAt(Slot{2}, 3, "two")});
  writes.promise = true;
  writes.promised = {3, kProposer};
  QVERIFY((*store)->Commit(writes).ok());
  writes =
      Accept({CommandAt(Slot{2}, 4, "zwei"),
              CommandAt(Slot{3}, 4, std::string(300, 'x')),
              {Slot{4}, {4, kThird}, {}},
              {Slot{5}, {4, kThird}, {paxos::LogEntry::Kind::kMembers, 0, nullptr, ThreeSeats()}}},
             Slot{3});
  writes.promise = true;
  writes.promised = {5, kSecond};
  writes.install = SnapshotAt(Slot{2}, "the state");
  writes.drop_through = Slot{1};
  QVERIFY((*store)->Commit(writes).ok());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Writes in place, because some file systems write a file that was emptied to the disk at once,
// which is slow.
void WriteFile(const std::string& path, const std::string& bytes) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
  std::filesystem::resize_file(path, bytes.size());
}

void Sql(const std::string& dir, const std::string& sql) {
  sqlite3* database = nullptr;
  QCOMPARE(sqlite3_open((dir + "/nodemanager.sqlite").c_str(), &database), SQLITE_OK);
  char* error = nullptr;
  const int code = sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error);
  QVERIFY2(code == SQLITE_OK, error);
  sqlite3_close(database);
}

}  // namespace

class StoreTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    // The folder is in memory, because the tests open thousands of databases and none cuts the
    // power.
    folder_ = std::make_unique<QTemporaryDir>(
        QDir("/dev/shm").exists() ? "/dev/shm/store-XXXXXX" : QDir::tempPath() + "/store-XXXXXX");
    dir_ = (folder_->path() + "/replica").toStdString();
  }

  void NewFolder_HasNoIdentity() {
    QCOMPARE(Found(dir_), std::string("new"));
    // A folder that was opened before and got no replica has no identity either.
    QCOMPARE(Found(dir_), std::string("new"));
  }

  void Reopened_HoldsWhatWasWritten() {
    Fill(dir_);
    paxos::DurableState expected{.replica = kIdentity.replica,
                                 .promised = {5, kSecond},
                                 .snapshot = *SnapshotAt(Slot{2}, "the state"),
                                 .chosen = Slot{3}};
    expected.log = {
        CommandAt(Slot{2}, 4, "zwei"),
        CommandAt(Slot{3}, 4, std::string(300, 'x')),
        {Slot{4}, {4, kThird}, {}},
        {Slot{5}, {4, kThird}, {paxos::LogEntry::Kind::kMembers, 0, nullptr, ThreeSeats()}}};
    QCOMPARE(Found(dir_), Describe(expected));
    auto store = Store::Open(dir_);
    QVERIFY(store.ok());
    const ReplicaIdentity& identity = *(*store)->identity();
    QCOMPARE(identity.cluster_id, kIdentity.cluster_id);
    QCOMPARE(identity.name, kIdentity.name);
    QCOMPARE(identity.replica, kIdentity.replica);
    QCOMPARE(identity.group.value, kIdentity.group.value);
  }

  void Create_KeepsAWholeState() {
    paxos::DurableState state = NewState();
    state.promised = {9, kThird};
    state.snapshot = *SnapshotAt(Slot{6}, "six");
    state.chosen = Slot{8};
    state.log = {CommandAt(Slot{5}, 1, "5"), CommandAt(Slot{6}, 1, ""), CommandAt(Slot{7}, 2, "7")};
    {
      auto store = Store::Open(dir_);
      QVERIFY((*store)->Create(kIdentity, state).ok());
      QCOMPARE(Describe((*store)->TakeState()), Describe(state));
    }
    QCOMPARE(Found(dir_), Describe(state));
  }

  void SetGroup_IsKept() {
    {
      auto store = Store::Open(dir_);
      QVERIFY((*store)->Create({"", "nodemanager-1", kProposer}, NewState()).ok());
      QVERIFY((*store)->SetGroup("joined", GroupId(0xfedcba9876543211)).ok());
    }
    auto store = Store::Open(dir_);
    QVERIFY(store.ok());
    QCOMPARE((*store)->identity()->cluster_id, std::string("joined"));
    QCOMPARE((*store)->identity()->group.value, 0xfedcba9876543211);
  }

  void Commit_WithoutUrgentParts_IsKeptByTheNextOne() {
    Fill(dir_);
    {
      auto store = Store::Open(dir_);
      paxos::Writes lazy;
      lazy.chosen = Slot{5};
      lazy.drop_through = Slot{2};
      QVERIFY((*store)->Commit(lazy).ok());
    }
    QVERIFY(absl::StrContains(Found(dir_), "chosen 3"));
    {
      auto store = Store::Open(dir_);
      paxos::Writes lazy;
      lazy.chosen = Slot{5};
      lazy.drop_through = Slot{2};
      QVERIFY((*store)->Commit(lazy).ok());
      QVERIFY((*store)->Commit(Accept({CommandAt(Slot{6}, 5, "six")})).ok());
    }
    const std::string found = Found(dir_);
    QVERIFY2(absl::StrContains(found, "chosen 5") && absl::StrContains(found, "log 3@"),
             found.c_str());
  }

  void Commit_OfALaterSnapshot_ReplacesTheWholeLog() {
    Fill(dir_);
    {
      auto store = Store::Open(dir_);
      paxos::Writes writes = Accept({CommandAt(Slot{101}, 9, "after")});
      writes.install = SnapshotAt(Slot{100}, "far ahead");
      writes.drop_through = Slot{100};
      QVERIFY((*store)->Commit(writes).ok());
    }
    paxos::DurableState expected{.replica = kIdentity.replica,
                                 .promised = {5, kSecond},
                                 .snapshot = *SnapshotAt(Slot{100}, "far ahead"),
                                 .chosen = Slot{100},
                                 .log = {CommandAt(Slot{101}, 9, "after")}};
    QCOMPARE(Found(dir_), Describe(expected));
  }

  void Commit_ThatWouldLeaveNonsense_WritesNothing_data() {
    QTest::addColumn<int>("kind");
    QTest::newRow("a gap in the log") << 0;
    QTest::newRow("a slot before the log") << 1;
    QTest::newRow("a gap after the snapshot") << 2;
    QTest::newRow("a promise taken back") << 3;
  }
  void Commit_ThatWouldLeaveNonsense_WritesNothing() {
    QFETCH(const int, kind);
    Fill(dir_);
    const std::string before = Found(dir_);
    paxos::Writes writes = Accept({CommandAt(Slot{6}, 5, "six")});
    if (kind == 0) writes.accepted.push_back(CommandAt(Slot{8}, 5, "eight"));
    if (kind == 1) writes.accepted.push_back(CommandAt(Slot{1}, 5, "one"));
    if (kind == 2) writes.drop_through = Slot{5};
    if (kind == 3) writes.promise = true;
    {
      auto store = Store::Open(dir_);
      QCOMPARE(ReasonText((*store)->Commit(writes)), QString("BAD_WRITES"));
      // After the error this store takes no more writes.
      QCOMPARE(ReasonText((*store)->Commit(Accept({CommandAt(Slot{6}, 5, "six")}))),
               QString("DATABASE_FAILED"));
    }
    QCOMPARE(Found(dir_), before);
  }

  void SecondProcess_IsRefused() {
    auto store = Store::Open(dir_);
    QVERIFY(store.ok());
    QVERIFY((*store)->Create(kIdentity, NewState()).ok());
    const pid_t child = fork();
    if (child == 0) {
      const auto second = Store::Open(dir_);
      _exit(base::GetReason(second.status()).reason == "DATA_DIR_IN_USE" ? 0 : 1);
    }
    int status = 0;
    QCOMPARE(waitpid(child, &status, 0), child);
    QCOMPARE(status, 0);
    QVERIFY((*store)->Commit(Accept({CommandAt(Slot{1}, 1, "one")})).ok());
  }

  void OtherFormats_AreRefused_data() {
    QTest::addColumn<QString>("sql");
    QTest::addColumn<QString>("reason");
    QTest::addColumn<QString>("advice");
    QTest::newRow("of the single replica's log")
        << "CREATE TABLE format (version INTEGER NOT NULL); INSERT INTO format VALUES (1);"
           "CREATE TABLE log (idx INTEGER PRIMARY KEY, command BLOB NOT NULL, checksum INTEGER)"
        << "DATABASE_VERSION"
        << "Move it away";
    QTest::newRow("without a group") << "CREATE TABLE format (version INTEGER NOT NULL); "
                                        "INSERT INTO format VALUES (2)"
                                     << "DATABASE_VERSION"
                                     << "Move it away";
    QTest::newRow("of a newer program")
        << "CREATE TABLE format (version INTEGER NOT NULL); INSERT INTO format VALUES (4)"
        << "DATABASE_VERSION"
        << "Run the newer program";
    QTest::newRow("not ours") << "CREATE TABLE photos (id INTEGER)"
                              << "DATABASE_CORRUPT"
                              << "Move the folder";
    QTest::newRow("no version") << "CREATE TABLE format (version INTEGER NOT NULL)"
                                << "DATABASE_CORRUPT"
                                << "Move the folder";
  }
  void OtherFormats_AreRefused() {
    QFETCH(const QString, sql);
    QFETCH(const QString, reason);
    QFETCH(const QString, advice);
    std::filesystem::create_directories(dir_);
    Sql(dir_, sql.toStdString());
    const absl::Status status = Store::Open(dir_).status();
    QCOMPARE(ReasonText(status), reason);
    QVERIFY2(absl::StrContains(base::Message(status), advice.toStdString()),
             base::Message(status).c_str());
  }

  void EveryChangedRow_IsFound_data() {
    QTest::addColumn<QString>("sql");
    for (const char* column :
         {"replica", "group_id", "promised_round", "promised_replica", "chosen", "first_slot",
          "last_slot", "log_digest", "snapshot_index", "snapshot_checksum", "checksum"}) {
      QTest::addRow("replica.%s", column) << QString("UPDATE replica SET %1 = %1 + 1").arg(column);
    }
    for (const char* column : {"slot", "round", "replica", "checksum"})
      QTest::addRow("log.%s", column)
          << QString("UPDATE log SET %1 = %1 + 1 WHERE slot = 5").arg(column);
    QTest::newRow("replica.cluster") << "UPDATE replica SET cluster = x'00'";
    QTest::newRow("replica.name") << "UPDATE replica SET name = cluster";
    QTest::newRow("cluster and name cut elsewhere")
        << "UPDATE replica SET cluster = x'636c75737465', name = x'72' || name";
    QTest::newRow("log.entry") << "UPDATE log SET entry = x'' WHERE slot = 3";
    QTest::newRow("snapshot") << "UPDATE snapshot SET snapshot = x''";
    QTest::newRow("snapshot.id") << "UPDATE snapshot SET id = 2";
    QTest::newRow("replica.id") << "UPDATE replica SET id = 2";
    QTest::newRow("no row of the replica") << "DELETE FROM replica";
    QTest::newRow("no snapshot") << "DELETE FROM snapshot";
    QTest::newRow("two snapshots") << "INSERT INTO snapshot SELECT 2, snapshot FROM snapshot";
    QTest::newRow("first entry gone") << "DELETE FROM log WHERE slot = 2";
    QTest::newRow("middle entry gone") << "DELETE FROM log WHERE slot = 3";
    QTest::newRow("last entry gone") << "DELETE FROM log WHERE slot = 5";
    QTest::newRow("all entries gone") << "DELETE FROM log";
    QTest::newRow("an entry too many") << "INSERT INTO log SELECT 6, round, replica, entry, "
                                          "checksum FROM log WHERE slot = 5";
    QTest::newRow("entries swapped") << "UPDATE log SET slot = -slot; UPDATE log SET slot = 7 + "
                                        "slot WHERE slot IN (-3, -4); UPDATE log SET slot = -slot "
                                        "WHERE slot < 0";
    QTest::newRow("table gone") << "DROP TABLE log";
    QTest::newRow("column gone") << "ALTER TABLE log DROP COLUMN round";
  }
  void EveryChangedRow_IsFound() {
    QFETCH(const QString, sql);
    Fill(dir_);
    Sql(dir_, sql.toStdString());
    const absl::Status status = Store::Open(dir_).status();
    QCOMPARE(ReasonText(status), QString("DATABASE_CORRUPT"));
    QVERIFY2(absl::StrContains(base::Message(status), "comes back as a new one"),
             base::Message(status).c_str());
    // The first look has not changed the damaged database.
    QCOMPARE(Store::Open(dir_).status(), status);
  }

  // The row was valid before it was replaced. It comes back when the disk loses one write.
  void OutdatedRow_IsFound() {
    Fill(dir_);
    Sql(dir_, "CREATE TABLE kept AS SELECT * FROM log WHERE slot = 2");
    {
      auto store = Store::Open(dir_);
      QVERIFY(store.ok());
      QVERIFY((*store)->Commit(Accept({CommandAt(Slot{2}, 5, "deux")})).ok());
    }
    Sql(dir_, "REPLACE INTO log SELECT * FROM kept");
    QCOMPARE(ReasonText(Store::Open(dir_).status()), QString("DATABASE_CORRUPT"));
  }

  // A database with any flipped bit is refused, or the bit changes nothing that we read.
  void EveryFlippedBit_IsFoundOrHarmless() {
    Fill(dir_);
    const std::string path = dir_ + "/nodemanager.sqlite";
    const std::string good = ReadFile(path), expected = Found(dir_);
    int refused = 0, harmless = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      // Most bytes of a page were never used and are zero. Of these the test flips one bit in every
      // 37th byte.
      if (good[at] == 0 && at % 37 != 0) continue;
      for (int bit = 0; bit < 8; ++bit) {
        if (good[at] == 0 && bit != static_cast<int>(at % 8)) continue;
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
        WriteFile(path, bad);
        std::filesystem::remove(path + "-wal");
        auto store = Store::Open(dir_);
        if (store.ok()) {
          const std::string found =
              (*store)->identity() ? Describe((*store)->TakeState()) : std::string("new");
          QVERIFY2(found == expected, qPrintable(QString("byte %1 bit %2: %3")
                                                     .arg(at)
                                                     .arg(bit)
                                                     .arg(QString::fromStdString(found))));
          ++harmless;
        } else {
          const QString reason = ReasonText(store.status());
          QVERIFY2(reason == "DATABASE_CORRUPT" || reason == "DATABASE_VERSION",
                   store.status().ToString().c_str());
          ++refused;
        }
      }
    }
    qInfo("%d flips refused, %d harmless", refused, harmless);
    QVERIFY(refused > 2000);
  }

  void ShortenedFile_IsFound() {
    Fill(dir_);
    const std::string path = dir_ + "/nodemanager.sqlite";
    const std::string good = ReadFile(path);
    // SQLite takes a file of less than a sector for an empty database. That is a new replica, which
    // has no vote.
    for (std::size_t size = 512; size < good.size(); size += 509) {
      WriteFile(path, good.substr(0, size));
      QCOMPARE(ReasonText(Store::Open(dir_).status()), QString("DATABASE_CORRUPT"));
    }
  }

  // The folder of a process that was killed still has a write-ahead log. SQLite alone would take a
  // damaged frame for the end of the log, and forget promises.
  void DamagedWriteAheadLog_IsFound() {
    const std::string wal = dir_ + "/nodemanager.sqlite-wal";
    const pid_t child = fork();
    if (child == 0) {
      auto store = Store::Open(dir_);
      if (!(*store)->Create(kIdentity, NewState()).ok()) _exit(1);
      for (Slot slot = paxos::kFirstSlot; slot <= Slot{6}; ++slot) {
        if (!(*store)->Commit(Accept({CommandAt(slot, 1, std::to_string(slot.value))})).ok())
          _exit(1);
      }
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    QCOMPARE(waitpid(child, &status, 0), child);
    QVERIFY(WIFSIGNALED(status));
    const std::string good_wal = ReadFile(wal);
    const std::string good = ReadFile(dir_ + "/nodemanager.sqlite");
    QVERIFY(good_wal.size() > 6 * 4096);
    // The crash could have torn the last transaction, which has two frames.
    const std::size_t last = good_wal.size() - 2 * 4120;
    for (std::size_t at = 0; at < last; at += at < 32 ? 1 : 61) {
      std::string bad = good_wal;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      WriteFile(wal, bad);
      QCOMPARE(ReasonText(Store::Open(dir_).status()), QString("DATABASE_CORRUPT"));
    }
    // The store leaves a refused database as it found it.
    QCOMPARE(ReadFile(dir_ + "/nodemanager.sqlite"), good);
    WriteFile(wal, good_wal);
    QVERIFY(absl::StrContains(Found(dir_), " 6@1/7"));
  }

  void FullDisk_RollsBack_AndGoesOnLater() {
    Fill(dir_);
    const std::string before = Found(dir_);
    const pid_t child = fork();
    if (child == 0) {
      auto store = Store::Open(dir_);
      // A limit on the size of files works like a full disk, and needs no privileges.
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{16 << 10, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &limit);
      const absl::Status full =
          (*store)->Commit(Accept({CommandAt(Slot{6}, 5, std::string(100'000, 'y'))}));
      if (full.code() != absl::StatusCode::kUnavailable) _exit(1);
      store->reset();
      // Reading works while the disk is still full.
      if (Found(dir_) != before) _exit(2);
      const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &none);
      store = Store::Open(dir_);
      if (!store.ok()) _exit(3);
      _exit((*store)->Commit(Accept({CommandAt(Slot{6}, 5, "six")})).ok() ? 0 : 4);
    }
    int status = 0;
    QCOMPARE(waitpid(child, &status, 0), child);
    QCOMPARE(WEXITSTATUS(status), 0);
    QVERIFY(absl::StrContains(Found(dir_), " 6@5/7"));
  }

 private:
  std::unique_ptr<QTemporaryDir> folder_;
  std::string dir_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::StoreTest)
#include "store_test.moc"
