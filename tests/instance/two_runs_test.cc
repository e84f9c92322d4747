// Two databases that cannot reach each other let two proxies start one job. What comes of the
// smaller run ends wherever it meets the larger: at a hop, at a join, and at the databases.
#include <QtTest>
#include <algorithm>
#include <string>
#include <vector>

#include "cluster/base/split_mix64.h"
#include "cluster/job/job_record.h"
#include "stages/instance/fence.h"
#include "stages/runtime/request_scheduler.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

using namespace std::chrono_literals;
using runtime::PushResult;

/// One keeper of the job, which sees only what its own side does.
struct Keeper : database::StoreFixture {
  Keeper() : StoreFixture({.start_lease = 2s}) {}
  /// Claims the job's start, and returns the run.
  std::uint64_t Start(const std::string& uid, const std::string& proxy, std::uint64_t random) {
    v1::ClaimStartRequest request;
    request.set_uid(uid);
    request.set_claimant(proxy);
    request.set_number(random);
    const auto answer = store.Claim(request);
    RequireOk(answer);
    return answer->granted() ? job::RunToStart(answer->record()) : 0;
  }
  void Begun(const std::string& uid, std::uint64_t run, const std::string& node) {
    v1::UpdateJobRequest update = Progress(uid, node, 0, 1);
    update.mutable_progress()->mutable_holder()->set_run(run);
    RequireOk(store.Update(update));
  }
  database::StoreOutcome Take(const std::string& uid, std::uint64_t run) {
    database::ResultBundle bundle = Bundle(uid, "run " + std::to_string(run));
    bundle.run = run;
    const auto outcome = store.StoreResult(bundle, message::Kind::kResult);
    RequireOk(outcome);
    return *outcome;
  }
  std::vector<v1::JobRecord> Records(const std::string& uid) {
    return store.Records(std::vector{database::ToUid(uid)});
  }
};

/// Two keepers that knew the same job before they were cut apart. Each side starts it.
struct CutApart {
  CutApart() {
    v1::JobRecord record = left.NewRecord();
    uid = record.job().uid();
    record.mutable_lease()->set_claimant("proxy-0");
    record.mutable_lease()->set_number(job::NextRun({}, 1));
    Keeper::RequireOk(left.store.Create(record));
    right.store.Merge(left.Records(uid));
    left.clock.Advance(2s);
    right.clock.Advance(2s);
    smaller = left.Start(uid, "proxy-1", 5);
    larger = right.Start(uid, "proxy-2", 6);
    left.Begun(uid, smaller, "node-1");
    right.Begun(uid, larger, "node-2");
  }
  void Meet() {
    const auto from_left = left.Records(uid);
    left.store.Merge(right.Records(uid));
    right.store.Merge(from_left);
  }
  runtime::WorkItem Item(std::uint64_t run, const std::string& stage, const std::string& from) {
    runtime::WorkItem item;
    message::Header& header = item.message.header;
    header.uid = database::ToUid(uid);
    header.run = run;
    header.stage = stage;
    header.from = from;
    header.deadline = left.clock.Now() + 60s;
    item.message.artifacts = {
        message::BytesArtifact(from + "_out", "", "run " + std::to_string(run))};
    return item;
  }

  Keeper left, right;
  std::string uid;
  std::uint64_t smaller = 0, larger = 0;
};

}  // namespace

class TwoRunsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void BothSidesStartTheJob_AndTheirRunsDiffer() {
    CutApart f;
    QVERIFY(f.smaller != 0 && f.larger != 0);
    QCOMPARE(job::RunSequence(f.smaller), job::RunSequence(f.larger));
    QVERIFY(f.smaller < f.larger);
  }

  void AtTheHop_TheLargerRunEndsTheSmaller() {
    CutApart f;
    runtime::RequestScheduler scheduler({}, std::make_unique<runtime::IndividualMode>(),
                                        f.left.clock);
    QVERIFY(*scheduler.Push(f.Item(f.smaller, "next", "stage0")) == PushResult::kQueued);
    const runtime::WorkItem running = *scheduler.Pop({}, f.left.clock.Now());
    QVERIFY(*scheduler.Push(f.Item(f.larger, "next", "stage0")) == PushResult::kQueued);
    QVERIFY(scheduler.IsFenced(running.message.header));
    QVERIFY(*scheduler.Push(f.Item(f.smaller, "next", "stage1")) == PushResult::kFenced);
    QCOMPARE(scheduler.Pop({}, f.left.clock.Now())->message.header.run, f.larger);
    QVERIFY(!scheduler.Pop({}, f.left.clock.Now()).has_value());
  }

  // The larger run may never come to the instances of the smaller one. They hear of it when they
  // report their progress.
  void AtTheAnswerToAReport_TheLargerRunEndsTheSmaller() {
    CutApart f;
    runtime::RequestScheduler scheduler({}, std::make_unique<runtime::IndividualMode>(),
                                        f.left.clock);
    QVERIFY(*scheduler.Push(f.Item(f.smaller, "next", "stage0")) == PushResult::kQueued);
    const runtime::WorkItem running = *scheduler.Pop({}, f.left.clock.Now());
    QVERIFY(*scheduler.Push(f.Item(f.smaller, "next", "stage1")) == PushResult::kQueued);
    v1::UpdateJobRequest report = f.left.Progress(f.uid, "node-1", 0, 2);
    report.mutable_progress()->mutable_holder()->set_run(f.smaller);
    FenceBy(*f.left.store.Update(report), "node-1", scheduler);
    QVERIFY(!scheduler.IsFenced(running));
    QCOMPARE(scheduler.queued(), std::size_t{1});
    f.Meet();
    FenceBy(*f.left.store.Update(report), "node-1", scheduler);
    QVERIFY(scheduler.IsFenced(running));
    QCOMPARE(scheduler.queued(), std::size_t{0});
    QVERIFY(*scheduler.Push(f.Item(f.larger, "next", "stage0")) == PushResult::kQueued);
  }

  void AtTheJoin_TheBranchesAreOfOneRun_InWhateverOrderTheyCome() {
    const std::vector<std::string> both = {"text", "image"};
    for (std::uint64_t seed = 0; seed < 24; ++seed) {
      CutApart f;
      runtime::RequestScheduler scheduler({}, std::make_unique<runtime::IndividualMode>(),
                                          f.left.clock);
      std::vector<runtime::WorkItem> parts;
      for (const std::uint64_t run : {f.smaller, f.larger}) {
        for (const std::string& from : both) parts.push_back(f.Item(run, "paint", from));
      }
      base::SplitMix64 random(seed);
      std::vector<std::uint64_t> joined;
      while (!parts.empty()) {
        const auto at = static_cast<std::ptrdiff_t>(random.Below(parts.size()));
        QVERIFY(scheduler.Push(parts[static_cast<std::size_t>(at)], both).ok());
        parts.erase(parts.begin() + at);
        while (const auto work = scheduler.Pop({}, f.left.clock.Now())) {
          for (const message::Message& part : work->parts)
            QCOMPARE(part.header.run, work->message.header.run);
          joined.push_back(work->message.header.run);
        }
      }
      QVERIFY(!joined.empty());
      QCOMPARE(joined.back(), f.larger);
      QVERIFY(std::ranges::is_sorted(joined));
    }
  }

  void AtTheDatabases_TheLargerRunIsTheJobs_AndItsResultTheOnlyOne() {
    CutApart f;
    f.Meet();
    for (Keeper* keeper : {&f.left, &f.right}) {
      const v1::JobRecord record = *keeper->store.Get(f.uid);
      QCOMPARE(record.run(), f.larger);
      QCOMPARE(record.holders_size(), 1);
      QCOMPARE(record.holders(0).node_id(), std::string("node-2"));
      QVERIFY(keeper->Take(f.uid, f.smaller) == database::StoreOutcome::kLate);
    }
    QVERIFY(f.left.Take(f.uid, f.larger) == database::StoreOutcome::kStored);
    f.Meet();
    QVERIFY(f.left.State(f.uid) == v1::Job::SUCCEEDED);
    QVERIFY(f.right.State(f.uid) == v1::Job::SUCCEEDED);
    QVERIFY(f.right.Take(f.uid, f.smaller) == database::StoreOutcome::kLate);
  }

  // Each side has told its client of a success. The databases agree on the first of the two.
  void AtTheDatabases_OfTwoResultsOneRemains() {
    CutApart f;
    QVERIFY(f.left.Take(f.uid, f.smaller) == database::StoreOutcome::kStored);
    f.right.clock.Advance(1s);
    QVERIFY(f.right.Take(f.uid, f.larger) == database::StoreOutcome::kStored);
    f.Meet();
    const v1::Job left = job::PublicJob(*f.left.store.Get(f.uid));
    const v1::Job right = job::PublicJob(*f.right.store.Get(f.uid));
    QCOMPARE(left.SerializeAsString(), right.SerializeAsString());
    QCOMPARE(left.result().artifacts_size(), 1);
    const auto fetched = f.left.store.FindArtifact(f.uid, "");
    QVERIFY(fetched.ok());
    QCOMPARE(std::string(fetched->data.text()), "run " + std::to_string(f.smaller));
    // The other side has dropped its own, and asks for the bytes.
    QCOMPARE(f.right.store.stats().missing_results, std::int64_t{1});
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::TwoRunsTest)
#include "two_runs_test.moc"
