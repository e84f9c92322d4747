// Who may start a job, and what becomes of a run that another one has overtaken.
#include <QtTest>
#include <string>
#include <vector>

#include "cluster/job/job_record.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

v1::ClaimStartRequest ClaimBy(const std::string& proxy, const std::string& uid,
                              std::uint64_t number) {
  v1::ClaimStartRequest request;
  request.set_uid(uid);
  request.set_claimant(proxy);
  request.set_incarnation(1);
  request.set_number(number);
  return request;
}

v1::StartLease LeaseOf(const std::string& proxy, std::uint32_t random) {
  v1::StartLease lease;
  lease.set_claimant(proxy);
  lease.set_incarnation(1);
  lease.set_number(job::NextRun({}, random));
  return lease;
}

/// A store whose only job was made by "proxy-1", which has the lease for 2 s.
struct LeasedJob : StoreFixture {
  LeasedJob() : StoreFixture({.start_lease = 2s}) {
    v1::JobRecord record = NewRecord();
    uid = record.job().uid();
    *record.mutable_lease() = LeaseOf("proxy-1", 11);
    RequireOk(store.Create(record));
  }
  v1::ClaimStartResponse Claim(const std::string& proxy, std::uint64_t number) {
    const auto answer = store.Claim(ClaimBy(proxy, uid, number));
    RequireOk(answer);
    return *answer;
  }
  v1::JobRecord Record() { return *store.Get(uid); }
  /// Sends the record as peers do.
  void CopyTo(JobStore& other) { other.Merge(store.Records(std::vector{ToUid(uid)})); }
  /// An entrance has the work of this run.
  void Place(std::uint64_t run) {
    v1::UpdateJobRequest update = Progress(uid, "node", 0, 1);
    update.mutable_progress()->mutable_holder()->set_run(run);
    RequireOk(store.Update(update));
  }
  ResultBundle ResultOf(std::uint64_t run, const std::string& bytes) {
    ResultBundle bundle = Bundle(uid, bytes);
    bundle.run = run;
    return bundle;
  }

  std::string uid;
};

}  // namespace

class StartLeaseTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void WhoeverMakesAJobMayStartIt() {
    LeasedJob f;
    QVERIFY(f.Record().lease().time_left().seconds() == 2);
    QVERIFY(!f.Claim("proxy-2", 22).granted());
    // Another call of the same proxy is another claim.
    QVERIFY(!f.Claim("proxy-1", 33).granted());
    QCOMPARE(f.Record().lease().claimant(), std::string("proxy-1"));
    QCOMPARE(f.Record().run(), std::uint64_t{0});
  }

  void AClaimIsGrantedWhenTheLeaseRanOut() {
    LeasedJob f;
    f.clock.Advance(1999ms);
    QVERIFY(!f.Claim("proxy-2", 22).granted());
    f.clock.Advance(1ms);
    QVERIFY(!f.Record().lease().has_time_left());
    const v1::ClaimStartResponse granted = f.Claim("proxy-2", 22);
    QVERIFY(granted.granted());
    const std::uint64_t number = granted.record().lease().number();
    QCOMPARE(job::RunSequence(number), 2U);
    QCOMPARE(job::RunRandom(number), 22U);
    QCOMPARE(granted.record().lease().time_left().seconds(), 2);
    // The first claimant has lost it for good, and learns who has it.
    const v1::ClaimStartResponse late = f.Claim("proxy-1", job::NextRun({}, 11));
    QVERIFY(!late.granted());
    QCOMPARE(late.record().lease().claimant(), std::string("proxy-2"));
    // A claim whose answer was lost is the same claim.
    f.clock.Advance(1s);
    QCOMPARE(f.Claim("proxy-2", 22).record().lease().number(), number);
  }

  void ARenewedLeaseLasts() {
    LeasedJob f;
    const std::uint64_t number = f.Record().lease().number();
    for (int i = 0; i < 5; ++i) {
      f.clock.Advance(1900ms);
      QVERIFY(f.Claim("proxy-1", number).granted());
    }
    QVERIFY(!f.Claim("proxy-2", 22).granted());
    // Late, but nobody has claimed since.
    f.clock.Advance(10s);
    QVERIFY(f.Claim("proxy-1", number).granted());
    QVERIFY(!f.Claim("proxy-2", 22).granted());
    v1::ClaimStartRequest release = ClaimBy("proxy-1", f.uid, number);
    release.set_release(true);
    QVERIFY(!f.store.Claim(release)->granted());
    QVERIFY(f.Claim("proxy-2", 22).granted());
    // A claim that is not the newest releases nothing.
    (void)f.store.Claim(release);
    QVERIFY(!f.Claim("proxy-3", 33).granted());
  }

  void AJobThatHasEndedIsNotStarted() {
    LeasedJob f;
    f.clock.Advance(3s);
    f.store.FailJob(HeaderOf(f.uid), "WHY", "because");
    const v1::ClaimStartResponse answer = f.Claim("proxy-2", 22);
    QVERIFY(!answer.granted());
    QCOMPARE(answer.record().job().state(), v1::Job::FAILED);
    QVERIFY(f.store.Delete(f.uid).ok());
    QCOMPARE(Reason(f.store.Claim(ClaimBy("proxy-2", f.uid, 22)).status()),
             std::string("JOB_UNKNOWN"));
  }

  // The database that granted a lease may go away. Its peer counts what was left of it.
  void ALeaseMovesWithTheTimeThatItHasLeft() {
    LeasedJob f;
    StoreFixture peer({.start_lease = 2s});
    f.clock.Advance(1500ms);
    f.CopyTo(peer.store);
    const auto claim = [&](std::uint64_t number) {
      return peer.store.Claim(ClaimBy("proxy-2", f.uid, number))->granted();
    };
    peer.clock.Advance(499ms);
    QVERIFY(!claim(22));
    // A renewal comes as a copy with more time left, and an old copy takes nothing back.
    const std::vector<v1::JobRecord> old = f.store.Records(std::vector{ToUid(f.uid)});
    QVERIFY(f.Claim("proxy-1", f.Record().lease().number()).granted());
    f.CopyTo(peer.store);
    peer.store.Merge(old);
    peer.clock.Advance(1999ms);
    QVERIFY(!claim(22));
    peer.clock.Advance(1ms);
    QVERIFY(claim(22));
    // The older claim comes again, with time left. It holds nothing here.
    f.CopyTo(peer.store);
    peer.clock.Advance(2s);
    QVERIFY(claim(44));
  }

  void AClaimantTakesItsClaimToADatabaseThatMissedIt() {
    LeasedJob f;
    StoreFixture peer({.start_lease = 2s});
    f.CopyTo(peer.store);
    f.clock.Advance(2s);
    const v1::JobRecord claimed = f.Claim("proxy-2", 22).record();
    const auto renewed = peer.store.Claim(ClaimBy("proxy-2", f.uid, claimed.lease().number()));
    QVERIFY(renewed.ok() && renewed->granted());
    QCOMPARE(renewed->record().lease().number(), claimed.lease().number());
  }

  // Work that has begun stays where it is: another claimant starts the rest of it.
  void AClaimAfterWorkHasBegunGoesOnWithItsRun() {
    LeasedJob f;
    const std::uint64_t run = job::RunToStart(f.Record());
    f.Place(run);
    f.clock.Advance(2s);
    const v1::JobRecord record = f.Claim("proxy-2", 22).record();
    QCOMPARE(record.run(), run);
    QCOMPARE(record.holders_size(), 1);
    QCOMPARE(job::RunToStart(record), run);
  }

  void AResultOfASmallerRunIsLate() {
    LeasedJob f;
    const std::uint64_t first = job::RunToStart(f.Record());
    f.clock.Advance(2s);
    const std::uint64_t second = job::RunToStart(f.Claim("proxy-2", 22).record());
    f.Place(first);
    f.Place(second);
    const auto late = f.store.StoreResult(f.ResultOf(first, "old"), message::Kind::kResult);
    QVERIFY(late.ok() && *late == StoreOutcome::kLate);
    QCOMPARE(f.store.stats().late_results, std::uint64_t{1});
    QVERIFY(f.State(f.uid) != v1::Job::SUCCEEDED);
    const auto stored = f.store.StoreResult(f.ResultOf(second, "new"), message::Kind::kResult);
    QVERIFY(stored.ok() && *stored == StoreOutcome::kStored);
    QCOMPARE(std::string(f.store.FindArtifact(f.uid, "")->data.text()), std::string("new"));
  }

  void AnUnusableResultOfASmallerRunFailsNothing() {
    LeasedJob f;
    const std::uint64_t first = job::RunToStart(f.Record());
    f.clock.Advance(2s);
    const std::uint64_t second = job::RunToStart(f.Claim("proxy-2", 22).record());
    f.Place(first);
    f.Place(second);
    f.store.FailJob(HeaderOf(f.uid, first), "EMPTY_RESULT", "of the first run");
    QCOMPARE(f.State(f.uid), v1::Job::RUNNING);
    QCOMPARE(f.store.stats().late_results, std::uint64_t{1});
    f.store.FailJob(HeaderOf(f.uid, second), "EMPTY_RESULT", "of the second run");
    QCOMPARE(f.State(f.uid), v1::Job::FAILED);
  }

  void AnEndOfASmallerRunEndsNothing() {
    LeasedJob f;
    f.Place(job::NextRun({}, 99));
    v1::UpdateJobRequest failed;
    failed.set_uid(f.uid);
    failed.mutable_ended_by()->set_run(job::NextRun({}, 11));
    failed.mutable_failed()->set_reason("STAGE_FAILED");
    QCOMPARE(f.store.Update(failed)->job().state(), v1::Job::RUNNING);
    v1::UpdateJobRequest cancelled;
    cancelled.set_uid(f.uid);
    cancelled.mutable_ended_by()->set_run(job::NextRun({}, 11));
    cancelled.set_cancelled(true);
    QCOMPARE(f.store.Update(cancelled)->job().state(), v1::Job::RUNNING);
    failed.mutable_ended_by()->set_run(job::NextRun({}, 99));
    QCOMPARE(f.store.Update(failed)->job().state(), v1::Job::FAILED);
  }

  void ARecordMadeUpFromAResultIsOfItsRun() {
    LeasedJob f;
    StoreFixture other;
    ResultBundle bundle = f.ResultOf(job::NextRun({}, 99), "bytes");
    QVERIFY(other.store.StoreResult(bundle, message::Kind::kResult).ok());
    QCOMPARE(other.store.Get(f.uid)->run(), bundle.run);
  }

  // Another call has started the job, or it would have no result.
  void ARecordMadeUpFromAResultGivesNoLease() {
    LeasedJob f;
    StoreFixture other;
    const ResultBundle bundle = f.ResultOf(job::NextRun({}, 99), "bytes");
    QVERIFY(other.store.StoreResult(bundle, message::Kind::kResult, {.hold = true}).ok());
    v1::JobRecord record = f.Record();
    *record.mutable_lease() = LeaseOf("proxy-2", 22);
    const auto created = other.store.Create(record);
    QVERIFY(created.ok());
    QVERIFY(!created->created());
    QCOMPARE(created->record().lease().number(), std::uint64_t{0});
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::StartLeaseTest)
#include "start_lease_test.moc"
