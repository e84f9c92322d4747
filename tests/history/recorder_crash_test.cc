// Tests that a recorder which is killed at any moment leaves a file that opens and has every tick
// that was committed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <csignal>
#include <random>

#include "cluster/base/status.h"
#include "cluster/history/recorder.h"
#include "cluster/history/recording.h"
#include "tests/eventually.h"
#include "tests/history/snapshots.h"
#include "tests/test_main.h"

namespace onepiece::history {
namespace {

constexpr int kKills = 40;

struct Shared {
  std::atomic<int> committed{0};  // All ticks below this one have been recorded.
};

// Records from `shared->committed` on until it is killed. The limits remove old minutes meanwhile.
[[noreturn]] void RecordForEver(const std::string& path, Shared& shared) {
  Limits limits;
  limits.keep_free_bytes = 0;
  limits.max_age_ms = 400'000;
  auto recorder = Recorder::Open(path, limits);
  if (!recorder.ok()) {
    qWarning("%s", base::Message(recorder.status()).c_str());
    _exit(1);
  }
  for (int tick = shared.committed;; ++tick) {
    if (!(*recorder)->Record(SnapshotAt(tick), kLiveLink).ok()) _exit(2);
    shared.committed = tick + 1;
  }
}

std::string Numbers(const session::Snapshot& snapshot) {
  return snapshot.cluster.value->DebugString() + snapshot.rings.value->at(1).health.DebugString();
}

}  // namespace

class RecorderCrashTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void KilledAnywhere_NothingCommittedIsLost() {
    const QTemporaryDir folder;
    const std::string path = folder.filePath("killed.onepiece").toStdString();
    auto* shared = new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
    const auto seed = std::random_device()();
    qInfo("seed %u", seed);
    std::mt19937 random(seed);
    for (int kill = 0; kill < kKills; ++kill) {
      const pid_t child = fork();
      if (child == 0) RecordForEver(path, *shared);
      // Every third recorder dies while it opens the file, or soon after.
      const auto life = std::chrono::microseconds(random() % (kill % 3 == 0 ? 20'000 : 300'000));
      testing::Pause(life);
      ::kill(child, SIGKILL);
      int status = 0;
      QCOMPARE(waitpid(child, &status, 0), child);
      QVERIFY2(WIFSIGNALED(status), qPrintable(QString("exit %1").arg(WEXITSTATUS(status))));
      const int committed = shared->committed;
      const auto recording = Recording::Open(path);
      // Nothing was written yet, or nobody was told that it was.
      if (committed == 0 && (!recording.ok() || (*recording)->Info()->ticks == 0)) continue;
      QVERIFY2(recording.ok(), base::Message(recording.status()).c_str());
      const auto info = (*recording)->Info();
      QVERIFY(info.ok());
      QVERIFY(!info->live);
      // One tick may have been committed without anybody being told.
      const std::int64_t last = kStart + std::int64_t{1000} * (committed - 1);
      QVERIFY(info->interval.to_ms == last || info->interval.to_ms == last + 1000);
      for (std::int64_t at = info->interval.from_ms; at <= last; at += 1000) {
        const auto past = (*recording)->At(at);
        QVERIFY2(past.ok(), base::Message(past.status()).c_str());
        QCOMPARE((*past)->at_ms, at);
        const int tick = static_cast<int>((at - kStart) / 1000);
        QCOMPARE(Numbers(**past), Numbers(SnapshotAt(tick)));
      }
      shared->committed = static_cast<int>((info->interval.to_ms - kStart) / 1000) + 1;
    }
    qInfo("%d ticks over %d kills", shared->committed.load(), kKills);
    QVERIFY(shared->committed > 100);
    // A recorder that continues a minute later notes that minute as a gap.
    Limits limits;
    limits.keep_free_bytes = 0;
    const auto recorder = Recorder::Open(path, limits);
    QVERIFY2(recorder.ok(), base::Message(recorder.status()).c_str());
    QVERIFY((*recorder)->Record(SnapshotAt(shared->committed + 60), kLiveLink).ok());
    const auto recording = Recording::Open(path);
    QVERIFY2(recording.ok(), base::Message(recording.status()).c_str());
    const auto gaps = (*recording)->Gaps({0, kStart * 2});
    QVERIFY(gaps.ok() && !gaps->empty());
    QCOMPARE(QString::fromStdString(gaps->back().reason), QString("recorder ended unexpectedly"));
    munmap(shared, sizeof(Shared));
  }
};

}  // namespace onepiece::history

ONEPIECE_TEST(onepiece::history::RecorderCrashTest)
#include "recorder_crash_test.moc"
