// The job store under pressure: budgets, held and moved results, restarts.
#include <QtTest>
#include <array>
#include <atomic>
#include <ctime>
#include <random>
#include <set>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "tests/database/job_store_fixture.h"
#include "tests/database/state_log.h"
#include "tests/test_main.h"

namespace onepiece::database {

using message::Kind;
using v1::Job;
using v1::JobRecord;
using namespace std::chrono_literals;

namespace {

v1::UpdateJobRequest Cancel(const std::string& uid) {
  v1::UpdateJobRequest request;
  request.set_uid(uid);
  request.set_cancelled(true);
  return request;
}

bool All(const base::Uid&) { return true; }

// Returns the CPU time of this process, which does not depend on how busy the machine is.
double CpuMicroseconds() { return static_cast<double>(std::clock()) * 1e6 / CLOCKS_PER_SEC; }

// The jobs whose results the store serves, as its hook says. Thread-safe.
class ServedSet {
 public:
  void Note(const base::Uid& uid, bool is_served) {
    const base::MutexLock lock(mutex_);
    if (is_served) {
      uids_.insert(uid);
    } else {
      uids_.erase(uid);
    }
  }
  [[nodiscard]] std::size_t size() const {
    const base::MutexLock lock(mutex_);
    return uids_.size();
  }

 private:
  mutable base::Mutex mutex_;
  std::set<base::Uid> uids_ ABSL_GUARDED_BY(mutex_);
};

// One step of a client, of the ring or of upkeep.
void DoAnything(JobStore& store, base::ManualClock& clock, std::mt19937& random,
                const JobRecord& record, const ResultBundle& bundle) {
  const auto pick = [&](std::size_t below) { return random() % below; };
  const std::string& uid = record.job().uid();
  switch (pick(14)) {
    case 0:
    case 1:
    case 2:
      (void)store.Create(record);
      break;
    case 3:
      (void)store.StoreResult(bundle, Kind::kResult);
      break;
    case 4:
      (void)store.StoreResult(bundle, Kind::kResult, {.hold = true, .wait_for_room = true});
      break;
    case 5:
      (void)store.StoreResult(bundle, Kind::kReplica);
      break;
    case 6:
      (void)store.Confirm(bundle.uid);
      break;
    case 7:
      store.MarkStreamed(uid, "video");
      break;
    case 8:
      (void)store.Acknowledge(uid);
      break;
    case 9:
      (void)store.Delete(uid);
      break;
    case 10:
      (void)store.Update(Cancel(uid));
      break;
    case 11:
      if (const auto oldest = store.OldestResult(); oldest.has_value()) {
        const auto result = store.FindResult(*oldest);
        if (result != nullptr) (void)store.Replace(*oldest, *result, pick(3) == 0);
      }
      break;
    case 12:
      store.Merge(store.Records(std::vector{bundle.uid}));
      (void)store.List({});
      break;
    default:
      if (pick(20) == 0) clock.Advance(1s);
      if (pick(20) == 0) clock.StepWall(pick(2) == 0 ? -24h : 24h);
      store.Sweep(pick(2) == 0 ? JobStore::IsAlive() : EveryoneAlive);
  }
}

}  // namespace

class JobStorePressureTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Hold_NobodySeesItBeforeConfirm() {
    StoreFixture f;
    const std::string uid = f.Create();
    QCOMPARE(f.Store(uid, "video", Kind::kResult, {.hold = true}), StoreOutcome::kHeld);
    QCOMPARE(f.State(uid), Job::QUEUED);
    QCOMPARE(Reason(f.store.FindArtifact(uid, "").status()), std::string("JOB_NOT_DONE"));
    QVERIFY(!f.store.Get(uid)->has_bytes());
    QVERIFY(f.store.FindResult(ToUid(uid)) != nullptr);
    QVERIFY(!f.store.OldestResult().has_value());
    QCOMPARE(f.store.stats().result_bytes, 5);
    QCOMPARE(f.Store(uid, "other"), StoreOutcome::kLate);
    QCOMPARE(f.life, std::string("made "));
    QVERIFY(f.store.Confirm(ToUid(uid)));
    QVERIFY(!f.store.Confirm(ToUid(uid)));
    QCOMPARE(f.State(uid), Job::SUCCEEDED);
    QVERIFY(f.store.FindArtifact(uid, "")->data.text() == "video");
    QCOMPARE(f.life, std::string("made SUCCEEDED served "));
  }

  // The keeper with the copy tells of the success. This one must not tell of another end before.
  void Hold_NoOtherEndComesBetween_data() {
    QTest::addColumn<int>("how");
    QTest::newRow("deadline") << 0;
    QTest::newRow("cancelled") << 1;
    QTest::newRow("failed") << 2;
  }
  void Hold_NoOtherEndComesBetween() {
    QFETCH(int, how);
    StoreFixture a, b;
    const std::string uid = a.Create();
    b.store.Merge(std::vector{*a.store.Get(uid)});
    a.clock.Advance(90s);
    a.Store(uid, "video", Kind::kResult, {.hold = true});
    b.Store(uid, "video", Kind::kReplica);
    QCOMPARE(b.State(uid), Job::SUCCEEDED);
    if (how == 0) {
      a.clock.Advance(10s);
      a.store.Sweep(EveryoneAlive);
    } else if (how == 1) {
      QVERIFY(a.store.Update(Cancel(uid)).ok());
    } else {
      a.store.FailJob(HeaderOf(uid), "EMPTY_RESULT", "a second result that was empty");
    }
    QCOMPARE(a.State(uid), Job::QUEUED);
    a.store.Merge(b.store.Records(std::vector{ToUid(uid)}));
    QCOMPARE(a.State(uid), Job::SUCCEEDED);
    QVERIFY(a.store.FindArtifact(uid, "").ok());
    // Its timer is set again.
    a.clock.Advance(50s);
    a.store.Sweep(EveryoneAlive);
    QCOMPARE(a.State(uid), Job::EXPIRED);
  }

  void Hold_ThatNobodyEnds_EndsByItself() {
    StoreFixture f;
    const std::string uid = f.Create();
    f.clock.Advance(90s);
    f.Store(uid, "video", Kind::kResult, {.hold = true});
    for (int second = 0; second < 59; ++second) {
      f.clock.Advance(1s);
      f.store.Sweep(EveryoneAlive);
      QCOMPARE(f.State(uid), Job::QUEUED);
    }
    f.clock.Advance(1s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.State(uid), Job::SUCCEEDED);
    QVERIFY(f.store.FindArtifact(uid, "").ok());
  }

  void Hold_EndsWithItsDeletion() {
    StoreFixture f;
    const std::string uid = f.Create();
    f.Store(uid, "video", Kind::kResult, {.hold = true});
    QVERIFY(f.store.Delete(uid).ok());
    QVERIFY(!f.store.Confirm(ToUid(uid)));
    QCOMPARE(Reason(f.store.FindArtifact(uid, "").status()), std::string("JOB_UNKNOWN"));
    QCOMPARE(f.store.stats().result_bytes, 0);
    QCOMPARE(f.store.stats().results, 0);
    QVERIFY(f.store.FindResult(ToUid(uid)) == nullptr);
  }

  void Hold_ADeadInstanceDoesNotLoseAJobThatIsDone() {
    StoreFixture f;
    const std::string uid = f.Create();
    QVERIFY(f.store.Update(f.Progress(uid, "a", 0, 1)).ok());
    f.Store(uid, "video", Kind::kResult, {.hold = true});
    f.store.Sweep(NobodyAlive);
    f.clock.Advance(2s);
    f.store.Sweep(NobodyAlive);
    QVERIFY(f.store.Confirm(ToUid(uid)));
  }

  void Hold_APeersSuccessShowsOurBytes() {
    StoreFixture a, b;
    const std::string uid = a.Create();
    b.store.Merge(std::vector{*a.store.Get(uid)});
    a.Store(uid, "video", Kind::kResult, {.hold = true});
    b.Store(uid, "video", Kind::kReplica);
    a.store.Merge(b.store.Records(std::vector{ToUid(uid)}));
    QCOMPARE(a.State(uid), Job::SUCCEEDED);
    QVERIFY(a.store.FindArtifact(uid, "").ok());

    const std::string both = a.Create();
    a.Store(both, "video", Kind::kResult, {.hold = true});
    QCOMPARE(a.Store(both, "video", Kind::kReplica), StoreOutcome::kLate);
    QCOMPARE(a.State(both), Job::SUCCEEDED);
  }

  void Lost_IsOursAloneAndHealedByBytes() {
    StoreFixture a, b;
    const std::string uid = a.Create();
    a.Store(uid, "video");
    const JobRecord journalled = a.store.Records(std::vector{ToUid(uid)}).front();
    QVERIFY(b.store.Restore(journalled));
    QCOMPARE(Reason(b.store.FindArtifact(uid, "").status()), std::string("RESULT_ELSEWHERE"));
    StateLog watched;
    const auto seen = watched.Subscribe(b.store, uid);
    const auto any = [](const base::Uid&) { return true; };
    b.store.MarkLost(b.clock.Now() - 1ns, any);
    b.store.MarkLost(b.clock.Now(), [](const base::Uid&) { return false; });
    QCOMPARE(b.store.stats().missing_results, 1);
    QCOMPARE(b.State(uid), Job::SUCCEEDED);
    b.store.MarkLost(b.clock.Now(), any);
    b.store.MarkLost(b.clock.Now(), any);
    QCOMPARE(b.store.stats().missing_results, 0);
    QCOMPARE(b.store.stats().lost_on_restart, std::uint64_t{1});
    QCOMPARE(Reason(b.store.FindArtifact(uid, "").status()), std::string("LOST_ON_RESTART"));
    QCOMPARE(Reason(b.store.Acknowledge(uid).status()), std::string("LOST_ON_RESTART"));
    QCOMPARE(b.State(uid), Job::FAILED);
    QCOMPARE(b.store.Get(uid)->job().error().reason(), std::string("LOST_ON_RESTART"));
    v1::ListJobsRequest failed;
    failed.add_states(Job::FAILED);
    QCOMPARE(b.store.List(failed)->jobs_size(), 1);
    const v1::Job shown = watched.After(seen);
    QCOMPARE(shown.state(), Job::FAILED);
    QCOMPARE(shown.result().artifacts_size(), 0);

    a.store.Merge(b.store.Records(std::vector{ToUid(uid)}));
    QCOMPARE(a.State(uid), Job::SUCCEEDED);
    QCOMPARE(b.Store(uid, "video", Kind::kReplica), StoreOutcome::kStored);
    QCOMPARE(b.State(uid), Job::SUCCEEDED);
    QVERIFY(b.store.FindArtifact(uid, "").ok());
    b.store.MarkLost(b.clock.Now(), any);
    QCOMPARE(b.State(uid), Job::SUCCEEDED);
    // FAILED is only what clients were told. When it reaches another instance as a record, the
    // journalled SUCCEEDED still wins.
    StoreFixture c;
    JobRecord told = journalled;
    told.mutable_job()->set_state(Job::FAILED);
    told.mutable_job()->mutable_error()->set_reason("LOST_ON_RESTART");
    c.store.Merge(std::vector{told});
    c.store.Merge(std::vector{journalled});
    QCOMPARE(c.State(uid), Job::SUCCEEDED);
  }

  void Restore_TakesRecordsAndTheirFiles() {
    StoreFixture a, b;
    const std::string done = a.Create();
    const std::string open = a.Create();
    a.Store(done, "video");
    const auto artifacts = a.store.FindResult(ToUid(done));
    const auto records = a.store.Records(std::vector{ToUid(done), ToUid(open)});
    QVERIFY(b.store.Restore(records[0], *artifacts));
    QVERIFY(b.store.Restore(records[1]));
    QVERIFY(b.changes.empty());
    QCOMPARE(b.life, std::string("served "));
    QCOMPARE(b.store.stats().result_bytes, 0);
    QCOMPARE(b.store.stats().spilled_bytes, 5);
    QVERIFY(b.store.FindArtifact(done, "")->data.text() == "video");
    QCOMPARE(b.State(open), Job::QUEUED);
    QCOMPARE(b.Store(open, "other"), StoreOutcome::kStored);
    // The hook reports the bytes of another result as unwanted.
    StoreFixture c;
    QVERIFY(c.store.Restore(b.store.Records(std::vector{ToUid(open)}).front(), *artifacts));
    QCOMPARE(c.life, std::string("dropped "));
    QVERIFY(!c.store.Restore(JobRecord()));
    StoreFixture late;
    JobRecord old = records[0];
    *old.mutable_time_left() = job::ToProto(-24h);
    QVERIFY(!late.store.Restore(old, *artifacts));
    QCOMPARE(late.store.stats().records, 0);
    QVERIFY(b.store.Acknowledge(done).ok());
    QCOMPARE(b.store.stats().spilled_bytes, 0);
    QCOMPARE(b.store.stats().spilled_results, 0);
  }

  void Replace_MovesTheOldestOutOfTheBudget() {
    StoreFixture f({.budget_bytes = 10});
    const std::string first = f.Create(), second = f.Create(), third = f.Create();
    f.Store(first, "aaaa");
    f.Store(second, "bbbb");
    QCOMPARE(f.Store(third, "cccc", Kind::kResult, {.wait_for_room = true}), StoreOutcome::kFull);
    QCOMPARE(f.State(third), Job::QUEUED);
    QCOMPARE(f.Store(third, "more than all of it", Kind::kReplica, {.wait_for_room = true}),
             StoreOutcome::kRefused);
    const auto oldest = f.store.OldestResult();
    QVERIFY(oldest == ToUid(first));
    const auto artifacts = f.store.FindResult(*oldest);
    QVERIFY(!f.store.Replace(*oldest, f.Bundle(first, "xxxx").artifacts, false));
    QVERIFY(f.store.Replace(*oldest, *artifacts, false));
    QVERIFY(f.store.OldestResult() == ToUid(second));
    QCOMPARE(f.Store(third, "cccc", Kind::kResult, {.wait_for_room = true}), StoreOutcome::kStored);
    QCOMPARE(f.store.stats().result_bytes, 8);
    QCOMPARE(f.store.stats().spilled_bytes, 4);
    QVERIFY(f.store.FindArtifact(first, "")->data.text() == "aaaa");
    QVERIFY(!f.store.Replace(*oldest, *artifacts, true));  // Memory has no room to return to.
    QVERIFY(f.store.Acknowledge(second).ok());
    QVERIFY(f.store.Replace(*oldest, *artifacts, true));
    QCOMPARE(f.store.stats().result_bytes, 8);
    QCOMPARE(f.store.stats().spilled_results, 0);
    QVERIFY(f.store.Delete(first).ok());
    QVERIFY(!f.store.Replace(*oldest, *artifacts, false));
    QCOMPARE(f.store.stats().result_bytes, 4);
  }

  // A result in a file takes no memory, so it is not evicted when memory is short.
  void Replace_WhatWasStreamedStays() {
    StoreFixture f({.budget_bytes = 8});
    const std::string first = f.Create(), second = f.Create(), third = f.Create();
    f.Store(first, "aaaa");
    f.store.MarkStreamed(first, "video");
    QVERIFY(f.store.Replace(ToUid(first), *f.store.FindResult(ToUid(first)), false));
    f.Store(second, "bbbb");
    f.Store(third, "cccc");
    QCOMPARE(f.Store(f.Create(), "dddd"), StoreOutcome::kRefused);
    QVERIFY(f.store.FindArtifact(first, "").ok());
  }

  void StoreResult_EvictsTheOldestStreamedOverAllShards() {
    constexpr int kResults = 64;
    StoreFixture f({.budget_bytes = kResults});
    std::vector<std::string> uids;
    for (int i = 0; i < kResults; ++i) {
      uids.push_back(f.Create());
      f.Store(uids.back(), "x");
    }
    for (const std::string& uid : uids) f.store.MarkStreamed(uid, "video");
    for (int i = 0; i < kResults; ++i) {
      QCOMPARE(f.Store(f.Create(), "y"), StoreOutcome::kStored);
      const auto index = static_cast<std::size_t>(i);
      QCOMPARE(Reason(f.store.FindArtifact(uids[index], "").status()),
               std::string("RESULT_EVICTED"));
      if (i + 1 < kResults) QVERIFY(f.store.FindArtifact(uids[index + 1], "").ok());
    }
    QCOMPARE(f.Store(f.Create(), "z"), StoreOutcome::kRefused);
    QCOMPARE(f.store.stats().evicted_results, std::uint64_t{kResults});
  }

  void SetLimits_DropsNothing() {
    StoreFixture f({.budget_bytes = 8, .max_records = 3});
    const std::string first = f.Create(), second = f.Create();
    QCOMPARE(f.Store(first, "aaaa"), StoreOutcome::kStored);
    QCOMPARE(f.Store(second, "bbbb"), StoreOutcome::kStored);
    f.store.SetLimits({.budget_bytes = 4, .max_records = 1, .tombstone_ttl = 5s});
    QCOMPARE(f.store.stats().budget_bytes, std::int64_t{4});
    QVERIFY(f.store.FindArtifact(first, "").ok() && f.store.FindArtifact(second, "").ok());
    QVERIFY(!f.store.Create(f.NewRecord()).ok());
    QVERIFY(!f.store.MakeRoom(1));
    f.store.SetLimits({.budget_bytes = 12, .max_records = 4, .tombstone_ttl = 5s});
    const std::string third = f.Create();
    QCOMPARE(f.Store(third, "cccc"), StoreOutcome::kStored);
    QCOMPARE(f.store.stats().results, std::int64_t{3});
    // Tombstones from now on: a deleted job is unknown 100 s, a result's 50 s and those five later.
    QVERIFY(f.store.Delete(third).ok());
    const auto is_known = [&] {
      return base::GetReason(f.store.Get(third).status()).metadata.contains("deleted");
    };
    f.clock.Advance(154s);
    f.store.Sweep(EveryoneAlive);
    QVERIFY(is_known());
    f.clock.Advance(2s);
    f.store.Sweep(EveryoneAlive);
    QVERIFY(!is_known());
  }

  void StoreResult_TakesNothingAndRefusesTooMuch() {
    StoreFixture f({.budget_bytes = 4});
    const std::string empty = f.Create(), full = f.Create(), over = f.Create();
    QCOMPARE(f.Store(full, "aaaa"), StoreOutcome::kStored);
    QCOMPARE(f.Store(empty, ""), StoreOutcome::kStored);
    QCOMPARE(f.store.FindArtifact(empty, "")->data.size(), std::size_t{0});
    QCOMPARE(f.Store(over, "aaaaa"), StoreOutcome::kRefused);
    QVERIFY(f.store.FindArtifact(full, "").ok());  // A result that can never fit evicts nothing.
    const v1::JobError error = f.store.Get(over)->job().error();
    QCOMPARE(error.reason(), std::string("RESULT_BUDGET_EXCEEDED"));
    QVERIFY(error.message().find("budget_bytes, 4)") != std::string::npos);
    QVERIFY(error.message().find("never fits") != std::string::npos);
  }

  // Its times are figures to look at, not to pass.
  void StoreResult_CostsMicroseconds() {
    constexpr int kJobs = 20'000;
    StoreFixture f({.budget_bytes = std::int64_t{1} << 40, .max_records = kJobs});
    std::vector<JobRecord> records;
    std::vector<ResultBundle> bundles;
    ResultBundle bundle = f.Bundle(f.NewRecord().job().uid(), std::string(65536, 'x'));
    for (int i = 0; i < kJobs; ++i) {
      records.push_back(f.NewRecord());
      bundle.uid = ToUid(records.back().job().uid());
      bundles.push_back(bundle);
    }
    const auto measure = [&](const char* what, const auto& step) {
      const double start = CpuMicroseconds();
      for (std::size_t i = 0; i < kJobs; ++i) step(i);
      qInfo("%s: %.2f us", what, (CpuMicroseconds() - start) / kJobs);
    };
    measure("create", [&](std::size_t i) { (void)f.store.Create(records[i]); });
    measure("progress", [&](std::size_t i) {
      (void)f.store.Update(f.Progress(records[i].job().uid(), "a", 1, 1));
    });
    measure("store 64 KiB",
            [&](std::size_t i) { (void)f.store.StoreResult(bundles[i], Kind::kResult); });
    measure("acknowledge",
            [&](std::size_t i) { (void)f.store.Acknowledge(records[i].job().uid()); });
    QCOMPARE(f.store.stats().fetched_tombstones, kJobs);
  }

  void Tombstones_TellFetchedExpiredAndDeletedApart() {
    StoreFixture f({.tombstone_ttl = 20s});
    const std::string fetched = f.Create(), expired = f.Create(), deleted = f.Create();
    for (const std::string& uid : {fetched, expired, deleted}) f.Store(uid, "video");
    f.clock.Advance(45s);
    QVERIFY(f.store.Acknowledge(fetched).ok());
    QVERIFY(f.store.Delete(deleted).ok());
    f.clock.Advance(5s);
    f.store.Sweep(EveryoneAlive);
    const auto reason = [&](const std::string& uid) {
      return Reason(f.store.FindArtifact(uid, "").status());
    };
    const auto is_deleted = [&](const std::string& uid) {
      return base::GetReason(f.store.Get(uid).status()).metadata.contains("deleted");
    };
    QCOMPARE(reason(fetched), std::string("RESULT_FETCHED"));
    QCOMPARE(reason(expired), std::string("RESULT_EXPIRED"));
    QVERIFY(is_deleted(deleted));
    const JobStoreStats stats = f.store.stats();
    QCOMPARE(stats.fetched_tombstones, 1);
    QCOMPARE(stats.expired_tombstones, 1);
    QCOMPARE(stats.deleted_tombstones, 1);
    // Another database may have the job open until 100 s. What expired is remembered for 20 s more.
    f.clock.Advance(69s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(reason(expired), std::string("RESULT_EXPIRED"));
    f.clock.Advance(1s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(reason(expired), std::string("JOB_UNKNOWN"));
    // That database may then have it succeeded for 50 s, then expired for 20 s.
    f.clock.Advance(49s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(reason(fetched), std::string("RESULT_FETCHED"));
    QVERIFY(is_deleted(deleted));
    f.clock.Advance(1s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(reason(fetched), std::string("JOB_UNKNOWN"));
    QVERIFY(!is_deleted(deleted));
    QCOMPARE(f.store.stats().records, 0);
    QCOMPARE(f.store.stats().expired_tombstones, 0);
  }

  void Hooks_TellALifeInOrder() {
    StoreFixture f({.tombstone_ttl = 20s});
    const std::string uid = f.Create();
    f.Store(uid, "video");
    f.clock.Advance(50s);
    f.store.Sweep(EveryoneAlive);
    f.clock.Advance(70s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.life, std::string("made SUCCEEDED served EXPIRED dropped forgotten "));
  }

  void Sweep_AClockThatIsSetBackEndsNothing() {
    StoreFixture f;
    const std::string before = f.Create();
    f.clock.Advance(-1h);
    const std::string after = f.Create();
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.State(before), Job::QUEUED);
    f.clock.Advance(100s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.State(after), Job::FAILED);
    QCOMPARE(f.State(before), Job::QUEUED);
    f.clock.Advance(1h);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.State(before), Job::FAILED);
  }

  void Digests_AgreeExactlyWhenTheStoresDo() {
    StoreFixture a, b;
    std::vector<std::string> uids;
    for (int i = 0; i < 300; ++i) uids.push_back(a.Create());
    const auto copy = [&] {
      for (const std::string& uid : uids) b.store.Merge(a.store.Records(std::vector{ToUid(uid)}));
    };
    copy();
    const auto differing = [&] {
      return a.store.DigestsFor(All).Differing(b.store.DigestsFor(All).values());
    };
    QVERIFY(differing().empty());
    a.Store(uids[7], "video");
    const int bucket = BucketOf(ToUid(uids[7]));
    QCOMPARE(differing(), std::vector<int>{bucket});
    copy();
    QCOMPARE(differing(), std::vector<int>{bucket});  // The bytes are not there yet.
    const auto by_bucket = a.store.SummariesOf(std::array{bucket}, All);
    const auto& summaries = by_bucket[static_cast<std::size_t>(bucket)];
    const auto found = std::ranges::find_if(summaries, &v1::JobSummary::has_bytes);
    QVERIFY(found != summaries.end());
    QCOMPARE(found->uid().size(), std::size_t{16});
    b.Store(uids[7], "video", Kind::kReplica);
    QVERIFY(differing().empty());
    QVERIFY(std::ranges::all_of(
        a.store.SummariesOf(std::array{bucket}, [](const base::Uid&) { return false; }),
        [](const auto& jobs) { return jobs.empty(); }));
  }

  // Its times are figures to look at, not to pass.
  void Digests_OfManyJobsAreQuick() {
    constexpr int kJobs = 100'000;
    StoreFixture f({.max_records = kJobs});
    for (int i = 0; i < kJobs; ++i) f.Create();
    for (const char* when : {"first", "again"}) {
      const double start = CpuMicroseconds();
      const Digests digests = f.store.DigestsFor(All);
      qInfo("digests of %d jobs, %s: %.1f ms", kJobs, when, (CpuMicroseconds() - start) / 1e3);
      QVERIFY(
          std::ranges::none_of(digests.values(), [](std::uint64_t value) { return value == 0; }));
    }
    std::vector<int> buckets;
    for (int bucket = 0; bucket < kBuckets; ++bucket) buckets.push_back(bucket);
    const double start = CpuMicroseconds();
    const JobStore::Summaries summaries = f.store.SummariesOf(buckets, All);
    qInfo("summaries of all of them: %.1f ms", (CpuMicroseconds() - start) / 1e3);
    std::size_t jobs = 0;
    for (const auto& bucket : summaries) jobs += bucket.size();
    QCOMPARE(jobs, std::size_t{kJobs});
  }

  // Sixteen threads do random operations. No thread ever sees a budget exceeded, and in the end the
  // counters equal what the store holds.
  void Anything_KeepsTheBudgets() {
    constexpr int kThreads = 16, kSteps = 3000;
    constexpr std::int64_t kBudget = 20'000, kRecords = 400;
    const unsigned seed = std::random_device{}();
    qInfo("seed %u", seed);
    base::ManualClock clock;
    ServedSet served;
    JobStore store({.budget_bytes = kBudget, .max_records = kRecords, .tombstone_ttl = 5s}, clock,
                   {.served = [&](const base::Uid& uid, const Artifacts* artifacts) {
                     served.Note(uid, artifacts != nullptr);
                   }});
    StoreFixture maker;  // Only makes records and bundles; its store is not used.
    std::vector<JobRecord> records;
    std::vector<std::array<ResultBundle, 2>> bundles;
    for (int i = 0; i < 2 * kRecords; ++i) {
      records.push_back(maker.NewRecord());
      records.back().mutable_job()->set_tenant(i % 3 == 0 ? "films" : "games");
      const std::string& uid = records.back().job().uid();
      bundles.push_back({maker.Bundle(uid, std::string(static_cast<std::size_t>(i), 'a')),
                         maker.Bundle(uid, std::string(static_cast<std::size_t>(i % 50), 'b'))});
    }
    std::atomic<bool> exceeded{false};
    const auto work = [&](unsigned thread) {
      std::mt19937 random(seed + thread);
      for (int step = 0; step < kSteps; ++step) {
        const std::size_t i = random() % records.size();
        const ResultBundle& bundle = bundles[i][random() % 2];
        DoAnything(store, clock, random, records[i], bundle);
        const JobStoreStats stats = store.stats();
        if (stats.result_bytes > kBudget || stats.records > kRecords || stats.result_bytes < 0) {
          exceeded = true;
        }
      }
    };
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    threads.clear();
    QVERIFY(!exceeded);

    std::int64_t bytes = 0, held = 0, results = 0, count = 0;
    for (const JobRecord& record : records) {
      const base::Uid uid = ToUid(record.job().uid());
      count += static_cast<std::int64_t>(store.Records(std::vector{uid}).size());
      const auto result = store.FindResult(uid);
      if (result == nullptr) continue;
      ++results;
      for (const StoredArtifact& artifact : *result) bytes += artifact.info.size_bytes();
      if (!store.FindArtifact(record.job().uid(), "").ok()) ++held;
    }
    const JobStoreStats stats = store.stats();
    QCOMPARE(stats.records, count);
    QCOMPARE(stats.result_bytes + stats.spilled_bytes, bytes);
    QCOMPARE(store.BytesOf("films") + store.BytesOf("games") + store.BytesOf(""), bytes);
    QVERIFY(store.BytesOf("films") > 0 && store.BytesOf("games") > 0);
    QCOMPARE(stats.results + stats.spilled_results, results);
    QCOMPARE(static_cast<std::int64_t>(served.size()), results - held);
    // A day later nothing is left.
    for (int i = 0; i < 3; ++i) {
      clock.Advance(24h);
      store.Sweep({});
    }
    const JobStoreStats after = store.stats();
    QCOMPARE(after.records, 0);
    QCOMPARE(after.result_bytes, 0);
    QCOMPARE(after.spilled_bytes, 0);
    for (const char* tenant : {"films", "games", ""}) QCOMPARE(store.BytesOf(tenant), 0);
    QCOMPARE(after.results + after.spilled_results, 0);
    QCOMPARE(after.fetched_tombstones + after.expired_tombstones + after.deleted_tombstones, 0);
    QCOMPARE(served.size(), std::size_t{0});
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::JobStorePressureTest)
#include "job_store_pressure_test.moc"
