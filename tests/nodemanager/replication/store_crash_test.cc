// Cuts the power at every write, and lets the disk be full or fail to sync at every write.
// Afterwards all that Commit() acknowledged is there, each batch is there whole or not at all, and
// nothing else is there.
#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <random>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "nodemanager/replication/store.h"
#include "tests/nodemanager/replication/durable.h"
#include "tests/nodemanager/replication/recording_vfs.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using Files = RecordingVfs::Files;

// Folds the write-ahead log every 20 pages. So a short history folds the log, grows it, and begins
// it again over old frames.
int FoldOften(sqlite3* database, const char**, const sqlite3_api_routines*) {
  return sqlite3_wal_autocheckpoint(database, 20);
}

struct History {
  std::vector<paxos::Writes> writes;
  std::vector<std::string> states;  ///< [n] is what is durable after n writes, [0] after Create().
};

// Does the writes to the state in a second, simple way.
void Expect(const paxos::Writes& writes, paxos::DurableState& state) {
  if (writes.promise) state.promised = writes.promised;
  for (const paxos::AcceptedEntry& accepted : writes.accepted) {
    const auto same = std::find_if(state.log.begin(), state.log.end(),
                                   [&](const auto& entry) { return entry.slot == accepted.slot; });
    if (same != state.log.end()) {
      *same = accepted;
    } else {
      state.log.push_back(accepted);
    }
  }
  if (writes.install != nullptr) state.snapshot = *writes.install;
  std::erase_if(state.log, [&](const auto& entry) { return entry.slot <= writes.drop_through; });
  state.chosen = std::max({state.chosen, writes.chosen, state.snapshot.index});
}

// Makes a replica's life: batches of all sizes, entries overwritten by later ballots, promises,
// snapshots of its own and of a leader.
History MakeHistory(std::mt19937_64& random, int steps) {
  History history;
  paxos::DurableState state = NewState();
  history.states.push_back(Describe(state));
  paxos::Slot next = paxos::kFirstSlot;
  std::uint64_t round = 1;
  for (int step = 0; step < steps; ++step) {
    paxos::Writes& writes = history.writes.emplace_back();
    if (random() % 4 == 0) {
      writes.promise = true;
      writes.promised = {++round, paxos::ReplicaId{1 + random() % 3}};
      if (next > state.chosen + 1) next = next - random() % (next - state.chosen);
    }
    const std::uint64_t size = random() % 8 == 0 ? 9000 : random() % 300;
    for (std::uint64_t count = random() % 5; count > 0; --count, ++next)
      writes.accepted.push_back(CommandAt(next, round, std::string(size, 'a' + step % 26)));
    writes.chosen = next - 1 - random() % std::min<std::uint64_t>(next.value, 3);
    if (random() % 6 == 0 && writes.chosen > state.snapshot.index) {
      writes.install = SnapshotAt(writes.chosen, std::string(random() % 6000, 's'));
      writes.drop_through =
          writes.chosen - std::min<std::uint64_t>(writes.chosen.value, random() % 4);
    }
    if (!writes.urgent()) {
      writes.promise = true;
      writes.promised = state.promised;
    }
    Expect(writes, state);
    history.states.push_back(Describe(state));
  }
  return history;
}

// Runs the history, and returns after how many events each step was acknowledged. It restarts the
// store cleanly after every `reopen` steps.
std::vector<std::size_t> Run(const History& history, const std::string& dir, RecordingVfs& disk,
                             int reopen) {
  std::vector<std::size_t> acknowledged;
  auto store = Store::Open(dir);
  if (!store.ok() || !(*store)->Create(kIdentity, NewState()).ok()) return acknowledged;
  acknowledged.push_back(disk.events().size());
  for (std::size_t step = 0; step < history.writes.size(); ++step) {
    if (!(*store)->Commit(history.writes[step]).ok()) break;
    acknowledged.push_back(disk.events().size());
    if ((step + 1) % static_cast<std::size_t>(reopen) == 0) {
      store->reset();
      store = Store::Open(dir);
      if (!store.ok()) break;
    }
  }
  return acknowledged;
}

void Put(const Files& files, const std::string& dir) {
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  for (const auto& [name, bytes] : files)
    std::ofstream(dir + "/" + name, std::ios::binary) << bytes;
}

std::string FoundAfterCrash(const std::string& dir) {
  auto store = Store::Open(dir);
  if (!store.ok()) return store.status().ToString();
  return (*store)->identity() ? Describe((*store)->TakeState()) : "new";
}

}  // namespace

class StoreCrashTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(FoldOften));
    const char* given = std::getenv("ONEPIECE_SEED");
    seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed_));
    random_.seed(seed_);
    folder_ = std::make_unique<QTemporaryDir>(
        QDir("/dev/shm").exists() ? "/dev/shm/store-XXXXXX" : QDir::tempPath() + "/store-XXXXXX");
    dir_ = (folder_->path() + "/replica").toStdString();
    crashed_ = (folder_->path() + "/crashed").toStdString();
    history_ = MakeHistory(random_, 40);
    RecordingVfs disk;
    acknowledged_ = Run(history_, dir_, disk, 17);
    events_ = disk.events();
    QCOMPARE(acknowledged_.size(), history_.states.size());
    QCOMPARE(FoundAfterCrash(dir_), history_.states.back());
  }

  void PowerCut_AtEveryWrite_KeepsWhatWasAcknowledged() {
    int cuts = 0;
    for (std::size_t count = 0; count <= events_.size(); ++count) {
      for (int kind = 0; kind < 6; ++kind) {
        const std::string wrong = Wrong(count, Reached(kind), true);
        QVERIFY2(wrong.empty(), qPrintable(QString("cut after %1 of %2 events, kind %3: %4")
                                               .arg(count)
                                               .arg(events_.size())
                                               .arg(kind)
                                               .arg(QString::fromStdString(wrong))));
        ++cuts;
      }
    }
    qInfo("%d cuts, %zu events, %zu commits", cuts, events_.size(), history_.writes.size());
  }

  // The check of the test above fails when syncs do nothing, so it can find an error.
  void PowerCut_OnADiskThatDoesNotSync_IsNoticed() {
    int wrong = 0;
    for (std::size_t count = events_.size() / 2; count <= events_.size(); count += 7)
      wrong += Wrong(count, Reached(2), false).empty() ? 0 : 1;
    QVERIFY(wrong > 5);
  }

  // A process that was killed between write and sync leaves data that others can read and that is
  // not durable. The next process must make it durable before it acts on it.
  void PowerCut_AfterAKill_KeepsWhatTheNextProcessFound() {
    for (std::size_t count = 0; count <= events_.size(); count += 3) {
      Put(RecordingVfs::Crash(events_, count, Reached(0)), crashed_);
      std::string found;
      std::vector<RecordingVfs::Event> events(events_.begin(),
                                              events_.begin() + static_cast<std::ptrdiff_t>(count));
      {
        RecordingVfs disk;
        auto store = Store::Open(crashed_);
        QVERIFY2(store.ok(), store.status().ToString().c_str());
        found = (*store)->identity() ? Describe((*store)->TakeState()) : "new";
        events.insert(events.end(), disk.events().begin(), disk.events().end());
      }
      for (const int kind : {1, 2, 3}) {
        Put(RecordingVfs::Crash(events, events.size(), Reached(kind)), crashed_);
        const std::string again = FoundAfterCrash(crashed_);
        QVERIFY2(again == found, qPrintable(QString("killed after %1 events: %2 became %3")
                                                .arg(count)
                                                .arg(QString::fromStdString(found),
                                                     QString::fromStdString(again))));
      }
    }
  }

  void FullDisk_AtEveryWrite_KeepsWhatWasAcknowledged() { FailEverywhere(true); }
  void FailingSync_AtEverySync_KeepsWhatWasAcknowledged() { FailEverywhere(false); }

 private:
  // What reached the disk: with 0 everything, with 1 nothing, with others a random share.
  RecordingVfs::Reached Reached(int kind) {
    if (kind < 2) return [kind] { return kind == 0; };
    const std::uint64_t percent = kind == 2   ? 50
                                  : kind == 3 ? 10
                                  : kind == 4 ? 90
                                              : random_() % 100;
    return [this, percent] { return random_() % 100 < percent; };
  }

  // Returns what a cut after `count` events has left, if that is not allowed, or nothing.
  std::string Wrong(std::size_t count, const RecordingVfs::Reached& reached, bool synced) {
    Put(RecordingVfs::Crash(events_, count, reached, synced), crashed_);
    const std::string found = FoundAfterCrash(crashed_);
    const auto done = static_cast<std::size_t>(
        std::upper_bound(acknowledged_.begin(), acknowledged_.end(), count) -
        acknowledged_.begin());
    const std::string before = done == 0 ? "new" : history_.states[done - 1];
    if (found == before) return "";
    if (done < history_.states.size() && found == history_.states[done]) return "";
    return absl::StrCat("acknowledged ", done, ": ", before, "\nfound: ", found);
  }

  void FailEverywhere(bool full) {
    for (std::int64_t at = 0;; ++at) {
      std::filesystem::remove_all(dir_);
      std::vector<std::size_t> acknowledged;
      {
        RecordingVfs disk;
        disk.FailFrom(full ? at : -1, full ? -1 : at);
        acknowledged = Run(history_, dir_, disk, 17);
      }
      const std::size_t done = acknowledged.size();
      const std::string found = FoundAfterCrash(dir_);
      const std::string before = done == 0 ? "new" : history_.states[done - 1];
      const bool rolled_back = found == before;
      const bool kept = done < history_.states.size() && found == history_.states[done];
      // After a failed sync the write may be durable or not. A full disk rolls it back.
      QVERIFY2(
          rolled_back || (kept && !full),
          qPrintable(QString("failing from %1: %2").arg(at).arg(QString::fromStdString(found))));
      if (done == history_.states.size()) {
        qInfo("%lld places to fail", static_cast<long long>(at));
        return;
      }
      // After the first places every fifth one is enough.
      if (at > 60) at += 4;
    }
  }

  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::unique_ptr<QTemporaryDir> folder_;
  std::string dir_, crashed_;
  History history_;
  std::vector<std::size_t> acknowledged_;  // [n] is how many events state n needed.
  std::vector<RecordingVfs::Event> events_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::StoreCrashTest)
#include "store_crash_test.moc"
