#include "cluster/job/job_record.h"

#include <QtTest>
#include <cstdlib>
#include <limits>
#include <random>

#include "cluster/base/canonical_bytes.h"
#include "tests/test_main.h"

namespace onepiece::job {
namespace {

using v1::Job;
using v1::JobRecord;

// The values come from small domains, so that ties and contradictions are common.
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
  if (pick(3) == 0) job.add_inputs()->set_name("i" + std::to_string(pick(2)));
  if (pick(3) == 0) job.set_priority(pick(2));
  record.set_result_ttl_s(10 + pick(2));
  record.set_run(static_cast<unsigned>(pick(3)));
  record.mutable_lease()->set_number(static_cast<unsigned>(pick(3)));
  record.mutable_lease()->set_claimant("p" + std::to_string(pick(2)));
  record.mutable_lease()->set_incarnation(static_cast<unsigned>(pick(2)));
  for (int i = pick(4); i > 0; --i) {
    v1::WorkHolder& holder = *record.add_holders();
    holder.set_node_id("n" + std::to_string(pick(2)));
    holder.set_stage("s" + std::to_string(pick(2)));
    holder.set_stage_index(pick(2));
    holder.set_from(pick(2) == 0 ? "" : "s0");
    holder.set_attempt(static_cast<unsigned>(pick(2)));
    holder.set_run(record.run());
    holder.set_begun(pick(2) == 0);
    holder.set_routing_epoch(static_cast<unsigned>(pick(2)));
    if (pick(2) == 0) holder.set_keeper("n" + std::to_string(pick(3)));
    holder.set_keeper_incarnation(static_cast<unsigned>(pick(2)));
  }
  record.set_attempt(static_cast<unsigned>(pick(2)));
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
  if (!IsTerminal(job.state()) && pick(2) == 0) {
    v1::JobEnd& end = *record.mutable_proposed();
    end.set_state(static_cast<Job::State>(2 + pick(4)));
    end.mutable_end_time()->set_seconds(pick(3));
    if (pick(2) == 0) end.mutable_error()->set_reason("LOST");
    if (pick(2) == 0) end.add_artifacts()->set_sha256(pick(2) == 0 ? "00" : "11");
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

v1::WorkHolder Holder(const std::string& from, const std::string& stage, int index,
                      const std::string& node, unsigned attempt = 0, int successors = 1) {
  v1::WorkHolder holder;
  holder.set_from(from);
  holder.set_stage(stage);
  holder.set_stage_index(index);
  holder.set_node_id(node);
  holder.set_attempt(attempt);
  holder.set_successors(successors);
  return holder;
}

std::string LiveNodes(const JobRecord& record) {
  std::string nodes;
  for (const v1::WorkHolder* holder : LiveHolders(record))
    nodes += (nodes.empty() ? "" : " ") + holder->node_id();
  return nodes;
}

bool Same(const JobRecord& a, const JobRecord& b) {
  return base::CanonicalBytes(a) == base::CanonicalBytes(b);
}

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

  // A change in place must have the effect of a join, or databases would not agree.
  void InPlace_IsWhatJoiningIs() {
    std::mt19937_64 random(11);
    const auto pick = [&](int n) {
      return static_cast<int>(random() % static_cast<std::uint64_t>(n));
    };
    for (int i = 0; i < 2000; ++i) {
      JobRecord raw = RandomRecord(random);
      if (pick(2) == 0) raw.MergeFrom(RandomRecord(random));  // Unsorted, with duplicates.
      if (pick(4) == 0) raw.mutable_job()->set_state(Job::RUNNING);
      raw.set_has_bytes(true);
      JobRecord normal = raw;
      Normalize(normal);
      QVERIFY(Same(normal, Join(raw, raw)));

      v1::WorkHolder holder =
          Holder(pick(2) == 0 ? "" : "s0", "s" + std::to_string(pick(3)), pick(3),
                 "n" + std::to_string(pick(2)), static_cast<unsigned>(pick(3)));
      holder.set_run(static_cast<unsigned>(pick(4)));
      JobRecord change = normal;
      change.clear_holders();
      change.set_run(holder.run());
      *change.add_holders() = holder;
      change.set_attempt(holder.attempt());
      change.mutable_job()->set_stage(holder.stage());
      change.mutable_job()->set_stage_index(holder.stage_index());
      change.mutable_job()->set_step(pick(3));
      change.mutable_job()->set_steps(2);
      JobRecord placed = normal;
      const bool news = Place(holder, change.job().step(), change.job().steps(), placed);
      QVERIFY(Same(placed, Join(normal, change)));
      QCOMPARE(news, !Same(placed, normal));

      v1::StageTiming timing;
      timing.set_stage("s" + std::to_string(pick(3)));
      timing.set_node("n" + std::to_string(pick(3)));
      timing.mutable_compute()->set_seconds(pick(3));
      change = normal;
      *change.mutable_job()->add_timings() = timing;
      JobRecord timed = normal;
      QCOMPARE(AddTiming(timing, timed), !Same(Join(normal, change), normal));
      QVERIFY(Same(timed, Join(normal, change)));

      if (IsTerminal(normal.job().state())) continue;
      JobRecord ended = normal;
      SetEnd(Job::CANCELLED, FromTimestamp(normal.job().create_time()), ended);
      QVERIFY(Same(ended, Join(normal, ended)));
    }
  }

  void FromTimestamp_OfAnyTimeLeavesRoomForATtl() {
    google::protobuf::Timestamp far;
    far.set_seconds(std::numeric_limits<std::int64_t>::max());
    QVERIFY(FromTimestamp(far) + std::chrono::seconds(std::numeric_limits<std::int32_t>::max()) >
            FromTimestamp(far));
    far.set_seconds(std::numeric_limits<std::int64_t>::min());
    QVERIFY(FromTimestamp(far) < base::WallTime());
  }

  // No clock decides: the end that came later by somebody's clock may win.
  void Join_StateOrdersEnds() {
    QCOMPARE(Join(Ended(Job::SUCCEEDED, 9), Ended(Job::CANCELLED, 5)).job().state(),
             Job::SUCCEEDED);
    QCOMPARE(Join(Ended(Job::CANCELLED, 9), Ended(Job::FAILED, 5)).job().state(), Job::CANCELLED);
    QCOMPARE(Join(Ended(Job::SUCCEEDED, 4), Ended(Job::EXPIRED, 4)).job().state(), Job::EXPIRED);
    JobRecord running = Ended(Job::RUNNING, 0);
    running.mutable_job()->clear_end_time();
    QCOMPARE(Join(running, Ended(Job::FAILED, 5)).job().state(), Job::FAILED);
  }

  void Join_EndBeatsProposal() {
    const auto proposes = [](Job::State state) {
      JobRecord record = Ended(Job::RUNNING, 0);
      record.mutable_job()->clear_end_time();
      record.mutable_proposed()->set_state(state);
      return record;
    };
    const JobRecord both = Join(proposes(Job::CANCELLED), proposes(Job::SUCCEEDED));
    QCOMPARE(both.job().state(), Job::RUNNING);
    QCOMPARE(EndOf(both), Job::SUCCEEDED);
    const JobRecord ended = Join(both, Ended(Job::FAILED, 5));
    QCOMPARE(ended.job().state(), Job::FAILED);
    QVERIFY(!ended.has_proposed());
    JobRecord settled = both;
    SettleEnd(settled);
    QCOMPARE(settled.job().state(), Job::SUCCEEDED);
    QVERIFY(SameEnd(settled, both));
    QVERIFY(!SameEnd(settled, proposes(Job::CANCELLED)));
  }

  void Join_LaterPlaceWinsAndAttemptComesFirst() {
    JobRecord far = Ended(Job::RUNNING, 0);
    far.mutable_job()->clear_end_time();
    JobRecord again = far;
    far.mutable_job()->set_stage_index(2);
    far.mutable_job()->set_step(7);
    again.set_attempt(1);
    QCOMPARE(Join(far, again).job().stage_index(), 0);
    JobRecord step8 = far;
    step8.mutable_job()->set_step(8);
    QCOMPARE(Join(step8, far).job().step(), 8);
  }

  void Join_KeepsTheLargerAttemptOfEachEdge() {
    JobRecord a = Ended(Job::RUNNING, 0), b = a;
    *a.add_holders() = Holder("text", "paint", 2, "first", 0);
    *b.add_holders() = Holder("text", "paint", 2, "second", 1);
    *b.add_holders() = Holder("image", "paint", 2, "second", 0);
    const JobRecord joined = Join(a, b);
    QCOMPARE(joined.holders_size(), 2);
    QCOMPARE(LiveNodes(joined), std::string("second second"));
  }

  // A tombstone lives long, and nobody sees a deleted job.
  void Join_ADeletedJobIsSmall() {
    JobRecord record = Ended(Job::SUCCEEDED, 4);
    record.set_fingerprint("f");
    record.mutable_lease()->set_number(7);
    *record.add_holders() = Holder("", "text", 0, "n");
    Job& job = *record.mutable_job();
    job.set_request_id("r");
    (*job.mutable_parameters()->mutable_fields())["prompt"].set_string_value("long");
    (*job.mutable_labels())["user"] = "ann";
    job.add_inputs()->set_name("image");
    job.add_timings()->set_stage("text");
    JobRecord deleted = record;
    deleted.set_deleted(true);
    const JobRecord joined = Join(record, deleted);
    QVERIFY(!joined.job().has_parameters());
    QCOMPARE(joined.job().labels_size() + joined.job().inputs_size() + joined.job().timings_size(),
             0);
    QCOMPARE(joined.holders_size(), 0);
    QVERIFY(!joined.has_lease());
    // What tells whose it is stays.
    QCOMPARE(joined.fingerprint(), std::string("f"));
    QCOMPARE(joined.job().request_id(), std::string("r"));
    Normalize(deleted);
    QVERIFY(Same(deleted, joined));
    v1::StageTiming timing;
    QVERIFY(!AddTiming(timing, deleted));
    Place(Holder("", "other", 1, "n"), 1, 2, deleted);
    QCOMPARE(deleted.holders_size(), 0);
  }

  void Join_OfTwoClaimsTheLargerNumberWins() {
    JobRecord first = Ended(Job::RUNNING, 0);
    first.mutable_job()->clear_end_time();
    JobRecord second = first;
    first.mutable_lease()->set_number(std::uint64_t{1} << kRunRandomBits | 9);
    first.mutable_lease()->set_claimant("proxy-1");
    second.mutable_lease()->set_number(std::uint64_t{2} << kRunRandomBits | 3);
    second.mutable_lease()->set_claimant("proxy-2");
    second.mutable_lease()->mutable_time_left()->set_seconds(2);
    const JobRecord joined = Join(first, second);
    QCOMPARE(joined.lease().claimant(), std::string("proxy-2"));
    QCOMPARE(RunSequence(joined.lease().number()), 2U);
    // Each database counts the time of a lease itself.
    QVERIFY(!joined.lease().has_time_left());
    Normalize(second);
    QVERIFY(!second.lease().has_time_left());
  }

  // Work that has begun is gone on with; a job that nobody has begins anew.
  void RunToStart_IsThatOfTheWorkThatHasBegun() {
    JobRecord record = Ended(Job::QUEUED, 0);
    record.mutable_job()->clear_end_time();
    record.mutable_lease()->set_number(NextRun(record, 7));
    QCOMPARE(RunToStart(record), std::uint64_t{1} << kRunRandomBits | 7);
    v1::WorkHolder text = Holder("", "text", 0, "n");
    text.set_run(RunToStart(record));
    Place(text, 0, 0, record);
    QVERIFY(!IsFenced(text.run(), record));
    record.mutable_lease()->set_number(NextRun(record, 5));
    QCOMPARE(RunSequence(record.lease().number()), 2U);
    QCOMPARE(RunToStart(record), text.run());
    NoteRun(record.lease().number(), record);
    QCOMPARE(record.holders_size(), 0);
    QVERIFY(IsFenced(text.run(), record));
    // A claim is newer than every run, and every claim, that the record knows.
    QVERIFY(NextRun(record, 0) > record.run());
  }

  void Place_MovesForwardOnly() {
    JobRecord record = Ended(Job::RUNNING, 0);
    Place(Holder("a", "b", 1, "n1"), 3, 9, record);
    QCOMPARE(record.job().step(), 3);
    Place(Holder("", "a", 0, "n0"), 1, 2, record);
    QCOMPARE(record.job().stage(), std::string("b"));
    QCOMPARE(record.holders_size(), 2);
    Place(Holder("", "a", 0, "n2", 1), 0, 0, record);
    QCOMPARE(record.job().stage(), std::string("a"));
    QCOMPARE(record.attempt(), 1U);
  }

  void Place_IsBounded() {
    JobRecord record = Ended(Job::RUNNING, 0);
    for (int i = 0; i < kMaxHolders + 5; ++i)
      Place(Holder("", "s" + std::to_string(i), i, "n"), 0, 0, record);
    QCOMPARE(record.holders_size(), kMaxHolders);
    Place(Holder("", "s0", 0, "other", 1), 0, 0, record);
    QCOMPARE(record.holders_size(), kMaxHolders);
    QCOMPARE(record.attempt(), 1U);
  }

  void LiveHolders_AreThoseThatHaveNotHandedOn() {
    JobRecord record;
    QVERIFY(LiveHolders(record).empty());
    *record.add_holders() = Holder("", "read", 0, "r", 0, 2);
    *record.add_holders() = Holder("read", "text", 1, "t");
    // One of the two successors has nothing yet.
    QCOMPARE(LiveNodes(record), std::string("r t"));
    *record.add_holders() = Holder("read", "image", 2, "i");
    QCOMPARE(LiveNodes(record), std::string("t i"));
    // The job waits for the instance that holds half of the join, and for the instance that still
    // computes the other branch.
    *record.add_holders() = Holder("text", "paint", 3, "p");
    QCOMPARE(LiveNodes(record), std::string("i p"));
    *record.add_holders() = Holder("image", "paint", 3, "p");
    QCOMPARE(LiveNodes(record), std::string("p p"));
    *record.add_holders() = Holder("paint", "decode", 4, "d", 0, 0);
    QCOMPARE(LiveNodes(record), std::string("d"));
    *record.add_holders() = Holder("decode", "decode", 5, "database", 0, 0);
    QCOMPARE(LiveNodes(record), std::string("database"));
  }

  // An instance that was declared dead may have handed on nevertheless. Nobody waits for that work.
  void LiveHolders_LeaveOutWhatIsDoneAgain() {
    JobRecord record;
    *record.add_holders() = Holder("", "a", 0, "again", 1);
    *record.add_holders() = Holder("a", "b", 1, "old", 0);
    *record.add_holders() = Holder("b", "c", 2, "older", 0);
    QCOMPARE(LiveNodes(record), std::string("again"));
    record.mutable_holders(1)->set_attempt(1);
    QCOMPARE(LiveNodes(record), std::string("old"));
    // A branch that was not done again counts as before.
    *record.add_holders() = Holder("", "x", 0, "other", 0);
    QCOMPARE(LiveNodes(record), std::string("other old"));
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

  void SortTimings_FollowsTheStages() {
    v1::Workflow workflow;
    workflow.add_stages()->set_stage("encode");
    workflow.add_stages()->set_stage("decode");
    Job job;
    job.add_timings()->set_stage("decode");
    job.add_timings()->set_stage("encode");
    SortTimings(&workflow, job);
    QCOMPARE(job.timings(0).stage(), std::string("encode"));
    SortTimings(nullptr, job);
    QCOMPARE(job.timings(1).stage(), std::string("decode"));
  }
};

}  // namespace onepiece::job

ONEPIECE_TEST(onepiece::job::JobRecordTest)
#include "job_record_test.moc"
