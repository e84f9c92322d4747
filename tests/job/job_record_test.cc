#include "cluster/job/job_record.h"

#include <QtTest>
#include <cstdlib>
#include <random>

namespace onepiece::job {
namespace {

using v1::Job;
using v1::JobRecord;

// Small domains, so that ties and contradictions are common.
JobRecord RandomRecord(std::mt19937_64& random) {
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  JobRecord record;
  Job& job = *record.mutable_job();
  job.set_uid("u");
  job.mutable_create_time()->set_seconds(pick(2));
  if (pick(3) > 0) record.set_fingerprint(pick(2) == 0 ? "f" : "g");
  if (pick(2) == 0) (*job.mutable_labels())["k" + std::to_string(pick(2))] = "v";
  record.set_result_ttl_s(10 + pick(2));
  if (pick(2) == 0) {
    record.mutable_holder()->set_node_id("n" + std::to_string(pick(2)));
    record.mutable_holder()->set_attempt(static_cast<unsigned>(pick(2)));
  }
  job.set_stage_index(pick(2));
  job.set_stage("s" + std::to_string(pick(2)));
  job.set_step(pick(3));
  job.set_state(static_cast<Job::State>(1 + pick(6)));
  if (IsTerminal(job.state())) job.mutable_end_time()->set_seconds(pick(3));
  if (job.state() == Job::FAILED)
    job.mutable_error()->set_reason(pick(2) == 0 ? "LOST" : "STAGE_FAILED");
  if (job.state() == Job::SUCCEEDED || job.state() == Job::EXPIRED) {
    job.mutable_result()->add_artifacts()->set_sha256(pick(2) == 0 ? "00" : "11");
    job.mutable_result()->set_fetched(pick(3) == 0);
  }
  record.set_deleted(pick(4) == 0);
  for (int i = pick(3); i > 0; --i) {
    v1::StageTiming& timing = *job.add_timings();
    timing.set_stage("s" + std::to_string(pick(2)));
    timing.set_node("n" + std::to_string(pick(2)));
    timing.mutable_compute()->set_seconds(pick(2));
  }
  return Join(record, record);
}

bool Same(const JobRecord& a, const JobRecord& b) { return CanonicalBytes(a) == CanonicalBytes(b); }

JobRecord Ended(Job::State state, int end_s) {
  JobRecord record;
  record.mutable_job()->set_uid("u");
  record.mutable_job()->set_state(state);
  record.mutable_job()->mutable_end_time()->set_seconds(end_s);
  record.set_result_ttl_s(60);
  return record;
}

}  // namespace

class JobRecordTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Join_IsCommutativeAssociativeAndIdempotent() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device()();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20000; ++i) {
      const JobRecord a = RandomRecord(random);
      const JobRecord b = RandomRecord(random);
      const JobRecord c = RandomRecord(random);
      QVERIFY(Same(Join(a, a), a));
      QVERIFY(Same(Join(a, b), Join(b, a)));
      QVERIFY(Same(Join(Join(a, b), c), Join(a, Join(b, c))));
      QVERIFY(Same(Join(Join(a, b), b), Join(a, b)));
    }
  }

  void Join_FirstEndWins() {
    QCOMPARE(Join(Ended(Job::SUCCEEDED, 9), Ended(Job::CANCELLED, 5)).job().state(),
             Job::CANCELLED);
    QCOMPARE(Join(Ended(Job::SUCCEEDED, 4), Ended(Job::FAILED, 5)).job().state(), Job::SUCCEEDED);
    JobRecord running = Ended(Job::RUNNING, 0);
    running.mutable_job()->clear_end_time();
    QCOMPARE(Join(running, Ended(Job::FAILED, 5)).job().state(), Job::FAILED);
  }

  void Join_ExpiryFollowsItsOwnSuccessOnly() {
    QCOMPARE(Join(Ended(Job::SUCCEEDED, 4), Ended(Job::EXPIRED, 4)).job().state(), Job::EXPIRED);
    QCOMPARE(Join(Ended(Job::EXPIRED, 4), Ended(Job::CANCELLED, 3)).job().state(), Job::CANCELLED);
  }

  void Join_LaterPlaceWinsAndAttemptComesFirst() {
    JobRecord far = Ended(Job::RUNNING, 0);
    far.mutable_job()->clear_end_time();
    JobRecord again = far;
    far.mutable_job()->set_stage_index(2);
    far.mutable_job()->set_step(7);
    again.mutable_holder()->set_attempt(1);
    again.mutable_holder()->set_node_id("second");
    QCOMPARE(Join(far, again).job().stage_index(), 0);
    QCOMPARE(Join(far, again).holder().node_id(), std::string("second"));
    JobRecord step8 = far;
    step8.mutable_job()->set_step(8);
    QCOMPARE(Join(step8, far).job().step(), 8);
  }

  void Join_CompleteRecordBeatsOneMadeUpFromAResult() {
    JobRecord made_up = Ended(Job::SUCCEEDED, 4);
    JobRecord complete = Ended(Job::RUNNING, 0);
    complete.mutable_job()->clear_end_time();
    complete.mutable_job()->mutable_create_time()->set_seconds(3);
    complete.mutable_job()->set_request_id("r");
    complete.set_fingerprint("f");
    const JobRecord joined = Join(made_up, complete);
    QCOMPARE(joined.job().request_id(), std::string("r"));
    QCOMPARE(joined.job().state(), Job::SUCCEEDED);
    QCOMPARE(joined.job().expire_time().seconds(), 64);
  }

  void PublicJob_AFetchedJobSucceededEvenWhenAPeerExpiredIt() {
    JobRecord fetched = Ended(Job::SUCCEEDED, 4);
    fetched.mutable_job()->mutable_result()->set_fetched(true);
    const Job job = PublicJob(Join(fetched, Ended(Job::EXPIRED, 4)));
    QCOMPARE(job.state(), Job::SUCCEEDED);
    QVERIFY(job.result().fetched());
  }
};

}  // namespace onepiece::job

QTEST_GUILESS_MAIN(onepiece::job::JobRecordTest)
#include "job_record_test.moc"
