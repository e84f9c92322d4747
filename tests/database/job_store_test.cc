#include "cluster/database/job_store.h"

#include <QtTest>
#include <algorithm>
#include <set>

#include "cluster/base/clock.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::database {

using v1::Job;
using v1::JobRecord;
using namespace std::chrono_literals;

class JobStoreTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Create_AnswersWithTheRecordThatIsThere() {
    StoreFixture f;
    JobRecord record = f.NewRecord();
    const auto first = f.store.Create(record);
    QVERIFY(first.ok() && first->created());
    record.set_fingerprint("other");
    const auto second = f.store.Create(record);
    QVERIFY(second.ok() && !second->created());
    QCOMPARE(second->record().fingerprint(), std::string("f"));
    QCOMPARE(f.store.stats().records, 1);
  }

  void Create_RefusesIncompleteRecords() {
    StoreFixture f;
    JobRecord record = f.NewRecord();
    record.mutable_job()->set_uid("x");
    QCOMPARE(Reason(f.store.Create(record).status()), std::string("BAD_UID"));
    record = f.NewRecord();
    record.clear_time_left();
    QCOMPARE(Reason(f.store.Create(record).status()), std::string("BAD_RECORD"));
  }

  void Create_WhenFullForgetsTombstonesThenRefuses() {
    StoreFixture f({.max_records = 2});
    const std::string deleted = f.Create();
    const std::string kept = f.Create();
    QVERIFY(f.store.Delete(deleted).ok());
    const std::string third = f.Create();
    QCOMPARE(f.store.stats().tombstones_forgotten, std::uint64_t{1});
    QCOMPARE(f.State(kept), Job::QUEUED);
    QCOMPARE(f.State(third), Job::QUEUED);
    const auto refused = f.store.Create(f.NewRecord());
    QCOMPARE(refused.status().code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(f.store.stats().records, 2);
    QCOMPARE(f.store.stats().refused_records, std::uint64_t{1});
  }

  void Create_BoundsTheBytesOfRecords() {
    StoreFixture f({.max_record_bytes = 1000});
    JobRecord record = f.NewRecord();
    (*record.mutable_job()->mutable_labels())["big"] = std::string(2000, 'x');
    QCOMPARE(Reason(f.store.Create(record).status()), std::string("RECORDS_FULL"));
  }

  void Update_MovesForwardOnlyAndKeepsTheEnd() {
    StoreFixture f;
    const std::string uid = f.Create();
    QVERIFY(f.store.Update(f.Progress(uid, "a", 1, 3)).ok());
    const auto late = f.store.Update(f.Progress(uid, "a", 1, 2));
    QCOMPARE(late->job().step(), 3);
    QCOMPARE(late->job().state(), Job::RUNNING);
    v1::UpdateJobRequest cancel;
    cancel.set_uid(uid);
    cancel.set_cancelled(true);
    QCOMPARE(f.store.Update(cancel)->job().state(), Job::CANCELLED);
    QCOMPARE(f.store.Update(f.Progress(uid, "b", 2, 9))->job().state(), Job::CANCELLED);
    QCOMPARE(f.store.Get(uid)->holders_size(), 1);
    QCOMPARE(f.store.Get(uid)->holders(0).node_id(), std::string("a"));
    QCOMPARE(f.Store(uid, "late"), StoreOutcome::kLate);
    QCOMPARE(f.store.stats().late_results, std::uint64_t{1});
    QCOMPARE(f.State(uid), Job::CANCELLED);
  }

  void Update_TakesTimingsAfterTheEnd() {
    StoreFixture f;
    const std::string uid = f.Create();
    f.Store(uid, "video");
    v1::UpdateJobRequest request;
    request.set_uid(uid);
    request.mutable_timing()->set_stage("decode");
    request.mutable_timing()->set_node("n");
    QCOMPARE(f.store.Update(request)->job().timings_size(), 1);
    QCOMPARE(f.store.Update(request)->job().timings_size(), 1);
  }

  void Update_OfAnUnknownJobIsNotFound() {
    StoreFixture f;
    const auto answer =
        f.store.Update(f.Progress(base::Uid::GenerateRandom().ToString(), "a", 0, 0));
    QCOMPARE(Reason(answer.status()), std::string("JOB_UNKNOWN"));
  }

  void StoreResult_FirstOneWins() {
    StoreFixture f;
    const std::string uid = f.Create();
    QCOMPARE(f.Store(uid, "first"), StoreOutcome::kStored);
    QCOMPARE(f.Store(uid, "second"), StoreOutcome::kLate);
    const auto artifact = f.store.FindArtifact(uid, "");
    QVERIFY(artifact.ok());
    QVERIFY(artifact->data.text() == "first");
    QCOMPARE(artifact->info.sha256(),
             std::string("a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"));
    const auto job = job::PublicJob(*f.store.Get(uid));
    QCOMPARE(job.state(), Job::SUCCEEDED);
    QCOMPARE(job.expire_time().seconds() - job.end_time().seconds(), 50);
  }

  void StoreResult_WithoutRecordIsNotLost() {
    StoreFixture f;
    const std::string uid = base::Uid::GenerateRandom().ToString();
    QCOMPARE(f.Store(uid, "video"), StoreOutcome::kStored);
    QCOMPARE(f.State(uid), Job::SUCCEEDED);
    QVERIFY(f.store.FindArtifact(uid, "video").ok());
    JobRecord record = f.NewRecord();
    record.mutable_job()->set_uid(uid);
    record.mutable_job()->set_request_id("r");
    f.store.Merge(std::vector{record});
    QCOMPARE(f.store.Get(uid)->job().request_id(), std::string("r"));
    QVERIFY(f.store.FindArtifact(uid, "video").ok());
  }

  void StoreResult_BudgetEvictsStreamedThenRefuses() {
    StoreFixture f({.budget_bytes = 10});
    const std::string old = f.Create();
    f.Store(old, "aaaa");
    f.clock.Advance(1s);
    const std::string streamed = f.Create();
    f.Store(streamed, "bbbb");
    f.store.MarkStreamed(streamed, "video");
    const std::string third = f.Create();
    QCOMPARE(f.Store(third, "cccc"), StoreOutcome::kStored);
    QCOMPARE(Reason(f.store.FindArtifact(streamed, "").status()), std::string("RESULT_EVICTED"));
    QCOMPARE(f.State(streamed), Job::SUCCEEDED);
    QVERIFY(!f.store.Get(streamed)->job().result().fetched());
    QCOMPARE(f.store.stats().evicted_results, std::uint64_t{1});
    QVERIFY(f.store.FindArtifact(old, "").ok());

    const std::string refused = f.Create();
    QCOMPARE(f.Store(refused, "dddd"), StoreOutcome::kRefused);
    QCOMPARE(f.State(refused), Job::FAILED);
    QCOMPARE(f.store.Get(refused)->job().error().reason(), std::string("RESULT_BUDGET_EXCEEDED"));

    f.clock.Advance(49s + 500ms);  // Now `old` is past its TTL, and Sweep did not run.
    const std::string fifth = f.Create();
    QCOMPARE(f.Store(fifth, "eeee"), StoreOutcome::kStored);
    QCOMPARE(f.State(old), Job::EXPIRED);
    QCOMPARE(f.store.stats().result_bytes, 8);
  }

  // A fetch is no acknowledgement: only where the configuration says so does a result give way.
  void StoreResult_WithoutEviction_WhatWasSentStays() {
    StoreFixture f({.budget_bytes = 4, .evict = false});
    const std::string sent = f.Create();
    f.Store(sent, "aaaa");
    f.store.MarkStreamed(sent, "video");
    QCOMPARE(f.Store(f.Create(), "bbbb"), StoreOutcome::kRefused);
    QVERIFY(f.store.FindArtifact(sent, "").ok());
    QCOMPARE(f.store.stats().evicted_results, std::uint64_t{0});
  }

  void StoreResult_ARefusedReplicaFailsNothing() {
    StoreFixture f({.budget_bytes = 2});
    const std::string uid = f.Create();
    QCOMPARE(f.Store(uid, "video", message::Kind::kReplica), StoreOutcome::kRefused);
    QCOMPARE(f.State(uid), Job::QUEUED);
  }

  void FindArtifact_SaysWhyThereIsNone() {
    StoreFixture f;
    const std::string uid = f.Create();
    QCOMPARE(Reason(f.store.FindArtifact(uid, "").status()), std::string("JOB_NOT_DONE"));
    QCOMPARE(Reason(f.store.FindArtifact("junk", "").status()), std::string("BAD_UID"));
    f.Store(uid, "video");
    QCOMPARE(Reason(f.store.FindArtifact(uid, "nope").status()), std::string("ARTIFACT_UNKNOWN"));
    QVERIFY(f.store.Acknowledge(uid).ok());
    QVERIFY(f.store.Acknowledge(uid)->result().fetched());
    QCOMPARE(Reason(f.store.FindArtifact(uid, "").status()), std::string("RESULT_FETCHED"));
    QCOMPARE(f.State(uid), Job::SUCCEEDED);
    QCOMPARE(f.store.stats().result_bytes, 0);

    const std::string elsewhere = f.Create();
    StoreFixture peer;
    peer.store.Merge(std::vector{*f.store.Get(elsewhere)});
    peer.Store(elsewhere, "video");
    f.store.Merge(peer.store.Records(std::vector{*base::Uid::Parse(elsewhere)}));
    QCOMPARE(Reason(f.store.FindArtifact(elsewhere, "").status()), std::string("RESULT_ELSEWHERE"));
    QCOMPARE(f.Store(elsewhere, "video", message::Kind::kReplica), StoreOutcome::kStored);
    QVERIFY(f.store.FindArtifact(elsewhere, "").ok());
  }

  void Sweep_FailsJobsAtTheirDeadline() {
    StoreFixture f;
    const std::string queued = f.Create();
    const std::string held = f.Create();
    QVERIFY(f.store.Update(f.Progress(held, "a", 0, 0)).ok());
    f.clock.Advance(100s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.store.Get(queued)->job().error().reason(), std::string("LOST"));
    QCOMPARE(f.store.Get(held)->job().error().reason(), std::string("DEADLINE_EXCEEDED"));
  }

  void Sweep_FailsJobsOfADeadHolderAfterTheGrace() {
    StoreFixture f;
    const std::string uid = f.Create();
    QVERIFY(f.store.Update(f.Progress(uid, "inst-3", 1, 4)).ok());
    f.store.Sweep(NobodyAlive);
    f.clock.Advance(999ms);
    f.store.Sweep(NobodyAlive);
    QCOMPARE(f.State(uid), Job::RUNNING);
    f.clock.Advance(1ms);
    f.store.Sweep(NobodyAlive);
    QCOMPARE(f.State(uid), Job::FAILED);
    const v1::JobError error = f.store.Get(uid)->job().error();
    QCOMPARE(error.reason(), std::string("LOST"));
    QVERIFY(error.message().find("inst-3") != std::string::npos);
    QVERIFY(error.message().find("stage1") != std::string::npos);
  }

  // Whoever keeps the work gives it to another instance. It is lost when that node is dead too.
  void Sweep_AKeptJobIsLostWithItsKeeper() {
    StoreFixture f;
    const std::string uid = f.Create();
    v1::UpdateJobRequest progress = f.Progress(uid, "inst-3", 1, 4);
    progress.mutable_progress()->mutable_holder()->set_keeper("inst-2");
    progress.mutable_progress()->mutable_holder()->set_keeper_incarnation(7);
    QVERIFY(f.store.Update(progress).ok());
    // It may have gone on under a later incarnation.
    const auto keeper_alive = [](const v1::WorkHolder& holder) {
      return holder.node_id() == "inst-2" && holder.incarnation() > 7;
    };
    f.store.Sweep(keeper_alive);
    f.clock.Advance(50s);
    f.store.Sweep(keeper_alive);
    QCOMPARE(f.State(uid), Job::RUNNING);
    f.store.Sweep(NobodyAlive);
    // It may only be stopped, and comes back with what it keeps.
    f.clock.Advance(14s);
    f.store.Sweep(NobodyAlive);
    QCOMPARE(f.State(uid), Job::RUNNING);
    f.clock.Advance(1s);
    f.store.Sweep(NobodyAlive);
    QCOMPARE(f.store.Get(uid)->job().error().reason(), std::string("LOST"));
  }

  // A record may name a keeper that was told more than its database ever was.
  void Sweep_AJobWhoseKeeperKeepsNothingIsLost() {
    bool kept = true;
    base::ManualClock clock;
    JobStore store({}, clock,
                   {.changed = [](const base::Uid&, Change) {},
                    .kept = [&](const base::Uid&, const v1::WorkHolder&) { return kept; }});
    StoreFixture f;
    const v1::JobRecord record = f.NewRecord();
    const std::string uid = record.job().uid();
    StoreFixture::RequireOk(store.Create(record));
    v1::UpdateJobRequest progress = f.Progress(uid, "inst-3", 1, 4);
    progress.mutable_progress()->mutable_holder()->set_keeper("inst-2");
    StoreFixture::RequireOk(store.Update(progress));
    const auto keeper_alive = [](const v1::WorkHolder& holder) {
      return holder.node_id() == "inst-2";
    };
    store.Sweep(keeper_alive);
    clock.Advance(50s);
    store.Sweep(keeper_alive);
    QCOMPARE(store.Get(uid)->job().state(), Job::RUNNING);
    kept = false;
    store.Sweep(keeper_alive);
    clock.Advance(5s);
    store.Sweep(keeper_alive);
    const v1::JobError error = store.Get(uid)->job().error();
    QCOMPARE(error.reason(), std::string("LOST"));
    QVERIFY2(error.message().find("inst-2 keeps nothing") != std::string::npos,
             error.message().c_str());
  }

  // An instance that was taken for dead still speaks. Its job goes on elsewhere.
  void Update_TheEndOfAnEarlierAttemptIsIgnored() {
    for (const bool cancelled : {false, true}) {
      StoreFixture f;
      const std::string uid = f.Create();
      v1::UpdateJobRequest progress = f.Progress(uid, "inst-1", 1, 4);
      QVERIFY(f.store.Update(progress).ok());
      v1::UpdateJobRequest end;
      end.set_uid(uid);
      *end.mutable_ended_by() = progress.progress().holder();
      if (cancelled) {
        end.set_cancelled(true);
      } else {
        end.mutable_failed()->set_reason("BROKEN");
      }
      progress.mutable_progress()->mutable_holder()->set_node_id("inst-2");
      progress.mutable_progress()->mutable_holder()->set_attempt(1);
      QVERIFY(f.store.Update(progress).ok());
      QVERIFY(f.store.Update(end).ok());
      QCOMPARE(f.State(uid), Job::RUNNING);
      end.mutable_ended_by()->set_attempt(1);
      QVERIFY(f.store.Update(end).ok());
      QCOMPARE(f.State(uid), cancelled ? Job::CANCELLED : Job::FAILED);
    }
  }

  void FailJob_ByAnEarlierAttemptIsIgnored() {
    for (const bool joined : {false, true}) {
      StoreFixture f;
      const std::string uid = f.Create();
      message::Header result = HeaderOf(uid);
      result.from = "stage1";
      v1::UpdateJobRequest text = f.Progress(uid, "inst-1", 1, 4), image = text;
      image.mutable_progress()->mutable_holder()->set_from("image");
      const auto place = [&](v1::UpdateJobRequest& branch, int attempt) {
        branch.mutable_progress()->mutable_holder()->set_attempt(attempt);
        StoreFixture::RequireOk(f.store.Update(branch));
      };
      place(text, 0);
      if (joined) place(image, 0);
      place(text, 1);
      // The work of a join is done again when all its branches are. Its result has the largest
      // attempt of theirs.
      if (joined) {
        result.attempt = 1;
        place(image, 2);
        place(text, 2);
      }
      f.store.FailJob(result, "EMPTY_RESULT", "of the earlier attempt");
      QCOMPARE(f.State(uid), Job::RUNNING);
      QCOMPARE(f.store.stats().late_results, std::uint64_t{1});
      result.attempt = joined ? 2 : 1;
      f.store.FailJob(result, "EMPTY_RESULT", "of the later attempt");
      QCOMPARE(f.State(uid), Job::FAILED);
    }
  }

  void FailJob_OfAJoinWithABranchThatWasSentAgain_Counts() {
    StoreFixture f;
    const std::string uid = f.Create();
    v1::UpdateJobRequest text = f.Progress(uid, "inst-1", 1, 4), image = text;
    StoreFixture::RequireOk(f.store.Update(text));
    image.mutable_progress()->mutable_holder()->set_from("image");
    image.mutable_progress()->mutable_holder()->set_attempt(1);
    StoreFixture::RequireOk(f.store.Update(image));
    message::Header result = HeaderOf(uid);
    result.from = "stage1";
    f.store.FailJob(result, "EMPTY_RESULT", "of the only work there is");
    QCOMPARE(f.State(uid), Job::FAILED);
  }

  void Sweep_NewsOfTheJobRestartsTheGrace() {
    StoreFixture f;
    const std::string uid = f.Create();
    QVERIFY(f.store.Update(f.Progress(uid, "a", 0, 1)).ok());
    f.store.Sweep(NobodyAlive);
    f.clock.Advance(900ms);
    QVERIFY(f.store.Update(f.Progress(uid, "a", 0, 2)).ok());
    f.store.Sweep(NobodyAlive);
    f.clock.Advance(900ms);
    f.store.Sweep(NobodyAlive);
    QCOMPARE(f.State(uid), Job::RUNNING);
    f.store.Sweep(EveryoneAlive);
    f.clock.Advance(5s);
    f.store.Sweep(NobodyAlive);
    QCOMPARE(f.State(uid), Job::RUNNING);
  }

  // Two branches of one job: a branch that makes progress must not hide that the other is dead.
  void Sweep_OneDeadBranchLosesTheJob() {
    StoreFixture f;
    const std::string uid = f.Create();
    v1::UpdateJobRequest placed;
    placed.set_uid(uid);
    for (const char* stage : {"text", "image"}) {
      v1::WorkHolder& holder = *placed.add_placed();
      holder.set_node_id(std::string("inst-") + stage);
      holder.set_stage(stage);
      holder.set_successors(1);
    }
    QVERIFY(f.store.Update(placed).ok());
    QCOMPARE(f.State(uid), Job::QUEUED);
    v1::UpdateJobRequest progress;
    progress.set_uid(uid);
    *progress.mutable_progress()->mutable_holder() = placed.placed(0);
    const auto only_text = [](const v1::WorkHolder& holder) {
      return holder.node_id() == "inst-text";
    };
    f.store.Sweep(only_text);
    for (int step = 1; step <= 9; ++step) {
      f.clock.Advance(100ms);
      progress.mutable_progress()->set_step(step);
      QVERIFY(f.store.Update(progress).ok());
      f.store.Sweep(only_text);
      QCOMPARE(f.State(uid), Job::RUNNING);
    }
    f.clock.Advance(100ms);
    f.store.Sweep(only_text);
    const v1::JobError error = f.store.Get(uid)->job().error();
    QCOMPARE(error.reason(), std::string("LOST"));
    QVERIFY(error.message().find("inst-image") != std::string::npos);
    QVERIFY(error.message().find("stage image") != std::string::npos);
  }

  void Sweep_ABranchThatWasHandedOnMayLoseItsInstance() {
    StoreFixture f;
    const std::string uid = f.Create();
    v1::UpdateJobRequest placed;
    placed.set_uid(uid);
    const auto place = [&](const std::string& from, const std::string& stage, int index) {
      v1::WorkHolder& holder = *placed.add_placed();
      holder.set_node_id("inst-" + stage);
      holder.set_from(from);
      holder.set_stage(stage);
      holder.set_stage_index(index);
      holder.set_successors(1);
    };
    place("", "text", 0);
    place("", "image", 1);
    place("text", "paint", 2);
    QVERIFY(f.store.Update(placed).ok());
    QCOMPARE(f.State(uid), Job::RUNNING);
    QCOMPARE(f.store.Get(uid)->job().stage(), std::string("paint"));
    const auto all_but_text = [](const v1::WorkHolder& holder) {
      return holder.node_id() != "inst-text";
    };
    f.store.Sweep(all_but_text);
    f.clock.Advance(5s);
    f.store.Sweep(all_but_text);
    QCOMPARE(f.State(uid), Job::RUNNING);
    f.clock.Advance(100s);
    f.store.Sweep(all_but_text);
    const v1::JobError error = f.store.Get(uid)->job().error();
    QCOMPARE(error.reason(), std::string("DEADLINE_EXCEEDED"));
    QVERIFY(error.message().find("inst-image") != std::string::npos);
    QVERIFY(error.message().find("inst-paint") != std::string::npos);
  }

  void Sweep_ExpiresThenForgetsResults() {
    StoreFixture f({.tombstone_ttl = 20s});
    const std::string uid = f.Create();
    f.Store(uid, "video");
    f.clock.Advance(50s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.State(uid), Job::EXPIRED);
    QCOMPARE(f.store.stats().result_bytes, 0);
    QCOMPARE(Reason(f.store.FindArtifact(uid, "").status()), std::string("RESULT_EXPIRED"));
    // Another database may have the job open until 100 s.
    f.clock.Advance(69s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.State(uid), Job::EXPIRED);
    f.clock.Advance(1s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(Reason(f.store.Get(uid).status()), std::string("JOB_UNKNOWN"));
    QCOMPARE(f.store.stats().records, 0);
  }

  void Delete_CancelsAndHides() {
    StoreFixture f({.tombstone_ttl = 20s});
    const std::string uid = f.Create();
    QVERIFY(f.store.Delete(uid).ok());
    QCOMPARE(Reason(f.store.Get(uid).status()), std::string("JOB_UNKNOWN"));
    QCOMPARE(Reason(f.store.Delete(uid)), std::string("JOB_UNKNOWN"));
    QCOMPARE(f.store.List({})->jobs_size(), 0);
    // An instance that still computes the job learns that it can stop.
    QCOMPARE(f.store.Update(f.Progress(uid, "a", 0, 1))->job().state(), Job::CANCELLED);
    f.clock.Advance(170s);
    f.store.Sweep(EveryoneAlive);
    QCOMPARE(f.store.stats().records, 0);
  }

  void Merge_TellsThePeerWhatItDidNotKnow() {
    StoreFixture f;
    const std::string uid = f.Create();
    const JobRecord old = *f.store.Get(uid);
    QVERIFY(f.store.Update(f.Progress(uid, "a", 1, 1)).ok());
    f.changes.clear();
    f.store.Merge(std::vector{old});
    QCOMPARE(f.changes.size(), std::size_t{1});
    f.changes.clear();
    f.store.Merge(f.store.Records(std::vector{*base::Uid::Parse(uid)}));
    QVERIFY(f.changes.empty());
  }

  void Merge_DropsBytesThatLostAgainstAPeersResult() {
    StoreFixture a;
    const std::string uid = a.Create();
    StoreFixture b;
    b.store.Merge(std::vector{*a.store.Get(uid)});
    // Which of two different results wins follows from their bytes alone.
    a.Store(uid, "loser");
    b.Store(uid, "winner");
    b.store.Merge(a.store.Records(std::vector{*base::Uid::Parse(uid)}));
    QCOMPARE(b.store.stats().result_bytes, 0);
    QCOMPARE(Reason(b.store.FindArtifact(uid, "").status()), std::string("RESULT_ELSEWHERE"));
  }

  void Merge_DoesNotBringBackWhatIsForgotten() {
    StoreFixture a({.tombstone_ttl = 20s});
    const std::string uid = a.Create();
    a.Store(uid, "video");
    a.clock.Advance(50s);
    a.store.Sweep(EveryoneAlive);
    QCOMPARE(a.State(uid), Job::EXPIRED);
    a.clock.Advance(70s);
    StoreFixture late({.tombstone_ttl = 20s});
    late.store.Merge(a.store.Records(std::vector{*base::Uid::Parse(uid)}));
    QCOMPARE(late.store.stats().records, 0);
  }

  // A keeper whose wall clock is set expires nothing, fails nothing, and its copies live as long.
  void WallClockThatIsSet_DecidesNothing_data() {
    QTest::addColumn<int>("days");
    for (const int days : {-365, -1, 1, 365}) QTest::addRow("%d days", days) << days;
  }
  void WallClockThatIsSet_DecidesNothing() {
    QFETCH(const int, days);
    StoreFixture a, b;
    const std::string done = a.Create();
    const std::string open = a.Create();
    a.Store(done, "video");
    b.clock.StepWall(days * 24h);
    b.store.Merge(a.store.Records(std::vector{ToUid(done), ToUid(open)}));
    a.clock.StepWall(days * 24h);
    for (StoreFixture* f : {&a, &b}) {
      f->clock.Advance(49s);
      f->store.Sweep(EveryoneAlive);
      QCOMPARE(f->State(done), Job::SUCCEEDED);
      QCOMPARE(f->State(open), Job::QUEUED);
    }
    QVERIFY(a.store.FindArtifact(done, "").ok());
    for (StoreFixture* f : {&a, &b}) {
      f->clock.Advance(1s);
      f->store.Sweep(EveryoneAlive);
      QCOMPARE(f->State(done), Job::EXPIRED);
      f->clock.Advance(50s);
      f->store.Sweep(EveryoneAlive);
      QCOMPARE(f->State(open), Job::FAILED);
    }
  }

  // Copies go to and fro, and meanwhile the time goes on.
  void Merge_NeitherLengthensNorShortensALife() {
    StoreFixture a, b;
    const std::string uid = a.Create();
    a.Store(uid, "video");
    const std::vector uids{ToUid(uid)};
    for (int second = 0; second < 49; ++second) {
      // The later copy comes after the one that is older by a second.
      const auto before = a.store.Records(uids);
      a.clock.Advance(1s);
      b.clock.Advance(1s);
      b.store.Merge(a.store.Records(uids));
      b.store.Merge(before);
      a.store.Merge(b.store.Records(uids));
      a.store.Sweep(EveryoneAlive);
      b.store.Sweep(EveryoneAlive);
      QCOMPARE(a.State(uid), Job::SUCCEEDED);
      QCOMPARE(b.State(uid), Job::SUCCEEDED);
    }
    a.clock.Advance(1s);
    b.clock.Advance(1s);
    b.store.Sweep(EveryoneAlive);
    a.store.Sweep(EveryoneAlive);
    QCOMPARE(b.State(uid), Job::EXPIRED);
    QCOMPARE(a.State(uid), Job::EXPIRED);
  }

  // After a restart of its machine a database counts on from an old note. A peer's copy of the same
  // record knows better.
  void Merge_OfTheSameRecord_TakesTheLessTime() {
    StoreFixture a, b;
    const std::string uid = a.Create();
    a.Store(uid, "video");
    const std::vector uids{ToUid(uid)};
    QVERIFY(b.store.Restore(a.store.Records(uids).front()));
    a.clock.Advance(40s);
    b.store.Merge(a.store.Records(uids));
    b.clock.Advance(10s);
    b.store.Sweep(EveryoneAlive);
    QCOMPARE(b.State(uid), Job::EXPIRED);
  }

  void List_IsNewestFirstFilteredAndPaged() {
    StoreFixture f;
    std::vector<std::string> uids;
    for (int i = 0; i < 7; ++i) {
      uids.push_back(f.Create(i % 2 == 0 ? "even" : "odd"));
      f.clock.Advance(1s);
    }
    v1::ListJobsRequest request;
    request.set_page_size(3);
    std::vector<std::string> seen;
    do {
      const auto page = f.store.List(request);
      QVERIFY(page.ok());
      QVERIFY(page->jobs_size() <= 3);
      for (const Job& job : page->jobs()) seen.push_back(job.uid());
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    std::reverse(seen.begin(), seen.end());
    QVERIFY(seen == uids);

    v1::ListJobsRequest odd;
    odd.set_app_id("odd");
    QCOMPARE(f.store.List(odd)->jobs_size(), 3);
    v1::ListJobsRequest done;
    done.add_states(Job::SUCCEEDED);
    QCOMPARE(f.store.List(done)->jobs_size(), 0);
    f.Store(uids[4], "video");
    QCOMPARE(f.store.List(done)->jobs_size(), 1);
    request.set_page_token("junk");
    QCOMPARE(Reason(f.store.List(request).status()), std::string("BAD_PAGE_TOKEN"));
    request.clear_page_token();
    request.set_page_size(1001);
    QCOMPARE(Reason(f.store.List(request).status()), std::string("BAD_PAGE_SIZE"));
  }

  void List_NarrowsByLabelsAndTimes() {
    StoreFixture f;
    std::vector<std::string> uids;
    for (int i = 0; i < 4; ++i) {
      JobRecord record = f.NewRecord();
      (*record.mutable_job()->mutable_labels())["user"] = i % 2 == 0 ? "ann" : "bob";
      if (i > 1) (*record.mutable_job()->mutable_labels())["team"] = "";
      StoreFixture::RequireOk(f.store.Create(record));
      uids.push_back(record.job().uid());
      f.clock.Advance(10s);
    }
    const auto start = f.clock.WallNow() - 40s;
    const auto list = [&](const v1::ListJobsRequest& request) {
      std::vector<std::string> seen;
      const auto page = f.store.List(request);
      StoreFixture::RequireOk(page);
      for (const Job& job : page->jobs()) seen.push_back(job.uid());
      return seen;
    };
    using Uids = std::vector<std::string>;
    v1::ListJobsRequest ann;
    (*ann.mutable_labels())["user"] = "ann";
    QVERIFY(list(ann) == (Uids{uids[2], uids[0]}));
    (*ann.mutable_labels())["team"] = "";  // A label that is there and empty.
    QVERIFY(list(ann) == Uids{uids[2]});
    (*ann.mutable_labels())["team"] = "x";
    QVERIFY(list(ann).empty());
    v1::ListJobsRequest times;
    *times.mutable_created_from() = job::ToTimestamp(start + 10s);
    QVERIFY(list(times) == (Uids{uids[3], uids[2], uids[1]}));
    *times.mutable_created_before() = job::ToTimestamp(start + 30s);
    QVERIFY(list(times) == (Uids{uids[2], uids[1]}));
    times.set_page_size(1);
    const auto first = f.store.List(times);
    QCOMPARE(first->jobs(0).uid(), uids[2]);
    times.set_page_token(first->next_page_token());
    QVERIFY(list(times) == Uids{uids[1]});
    QVERIFY(f.store.List(times)->next_page_token().empty());
    *times.mutable_created_before() = job::ToTimestamp(start);
    QVERIFY(list(times).empty());
  }

  // Its times are figures to look at, not to pass.
  void List_OfManyJobs_IsStableAndQuick() {
    constexpr int kJobs = 100'000, kRunning = 100;
    StoreFixture f({.max_records = 2 * kJobs});
    std::set<std::string> running;
    for (int i = 0; i < kJobs; ++i) {
      const std::string uid = f.Create();
      if (i % 10 == 9) f.clock.Advance(1ms);  // Ten have the same time.
      if (i % (kJobs / kRunning) != 0) continue;
      StoreFixture::RequireOk(f.store.Update(f.Progress(uid, "a", 0, 1)));
      running.insert(uid);
    }
    const auto list = [&](v1::ListJobsRequest request, std::chrono::nanoseconds& slowest) {
      std::vector<Job> jobs;
      do {
        const auto start = base::SystemClock().Now();
        const auto page = f.store.List(request);
        slowest = std::max<std::chrono::nanoseconds>(slowest, base::SystemClock().Now() - start);
        StoreFixture::RequireOk(page);
        jobs.insert(jobs.end(), page->jobs().begin(), page->jobs().end());
        request.set_page_token(page->next_page_token());
        f.Create("later");  // It is newer than all others, so no later page shows it.
      } while (!request.page_token().empty());
      return jobs;
    };
    std::chrono::nanoseconds page_time{}, scan_time{};
    v1::ListJobsRequest request;
    request.set_page_size(1000);
    const std::vector<Job> all = list(request, page_time);
    QCOMPARE(all.size(), std::size_t{kJobs});
    std::set<std::string> uids;
    for (std::size_t i = 0; i < all.size(); ++i) {
      uids.insert(all[i].uid());
      const auto age = [](const Job& job) {
        return std::pair(job.create_time().seconds(), job.create_time().nanos());
      };
      QVERIFY(i == 0 || age(all[i]) <= age(all[i - 1]));
    }
    QCOMPARE(uids.size(), std::size_t{kJobs});
    request.set_page_size(30);
    request.add_states(Job::RUNNING);
    const std::vector<Job> found = list(request, scan_time);
    QCOMPARE(found.size(), std::size_t{kRunning});
    for (const Job& job : found) QVERIFY(running.erase(job.uid()) == 1);
    qInfo("%d jobs: a page of 1000 in at most %.1f ms; 30 of the %d running ones in %.1f ms", kJobs,
          static_cast<double>(page_time.count()) / 1e6, kRunning,
          static_cast<double>(scan_time.count()) / 1e6);
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::JobStoreTest)
#include "job_store_test.moc"
