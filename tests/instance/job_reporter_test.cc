#include "stages/instance/job_reporter.h"

#include <QtTest>
#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

constexpr auto kReporterLimit = std::chrono::seconds(20);  // Only reached when a test fails.

v1::JobProgress Step(int step) {
  v1::JobProgress progress;
  progress.set_step(step);
  progress.set_steps(100);
  return progress;
}

v1::UpdateJobRequest Failed() {
  v1::UpdateJobRequest request;
  request.mutable_failed()->set_reason("STAGE_FAILED");
  return request;
}

// A database that records its updates. A test can make it unavailable, or let it answer that a job
// has ended.
class FakeDatabase {
 public:
  absl::StatusOr<v1::JobRecord> Update(const v1::UpdateJobRequest& request) {
    base::MutexLock lock(mutex_);
    ++calls_;
    changed_.NotifyAll();
    const auto let_go = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !held_; };
    if (held_) changed_.WaitFor(lock, kReporterLimit, let_go);
    if (refused_for_) return absl::Status(*refused_for_, "away");
    updates_.push_back(request);
    changed_.NotifyAll();
    v1::JobRecord record;
    record.mutable_job()->set_state(state);
    if (proposed != v1::Job::STATE_UNSPECIFIED) record.mutable_proposed()->set_state(proposed);
    return record;
  }
  void Set(bool away, bool held) {
    const base::MutexLock lock(mutex_);
    refused_for_ = away ? std::optional(absl::StatusCode::kUnavailable) : std::nullopt;
    held_ = held;
    changed_.NotifyAll();
  }
  void Refuse(absl::StatusCode code) {
    const base::MutexLock lock(mutex_);
    refused_for_ = code;
  }
  bool WaitForCalls(int count) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, kReporterLimit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return calls_ >= count;
    });
  }
  std::vector<v1::UpdateJobRequest> WaitForUpdates(std::size_t count) {
    base::MutexLock lock(mutex_);
    changed_.WaitFor(lock, kReporterLimit, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return updates_.size() >= count;
    });
    return updates_;
  }
  int calls() {
    const base::MutexLock lock(mutex_);
    return calls_;
  }
  std::atomic<v1::Job::State> state = v1::Job::RUNNING;
  std::atomic<v1::Job::State> proposed = v1::Job::STATE_UNSPECIFIED;

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::optional<absl::StatusCode> refused_for_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<v1::UpdateJobRequest> updates_ ABSL_GUARDED_BY(mutex_);
};

struct ReporterFixture {
  FakeDatabase database;
  base::Mutex mutex;
  std::vector<base::Uid> ended ABSL_GUARDED_BY(mutex);
  std::unique_ptr<JobReporter> reporter = std::make_unique<JobReporter>(
      [this](const v1::UpdateJobRequest& request) { return database.Update(request); },
      [this](const base::Uid& uid) {
        const base::MutexLock lock(mutex);
        ended.push_back(uid);
      },
      base::SystemClock());
};

}  // namespace

class JobReporterTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Progress_IsCoalescedWhileACallIsOnItsWay() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.Set(/*away=*/false, /*held=*/true);
    f.reporter->ReportProgress(uid, Step(1));
    QVERIFY(f.database.WaitForCalls(1));
    for (int step = 2; step <= 50; ++step) f.reporter->ReportProgress(uid, Step(step));
    f.database.Set(false, false);
    const auto updates = f.database.WaitForUpdates(2);
    QCOMPARE(updates.size(), std::size_t{2});
    QCOMPARE(updates[0].progress().step(), 1);
    QCOMPARE(updates[1].progress().step(), 50);
    QCOMPARE(updates[1].uid(), uid.ToString());
  }

  void Report_IsRepeatedUntilTheDatabaseIsBack() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.Set(/*away=*/true, /*held=*/false);
    f.reporter->Report(uid, Failed());
    QVERIFY(f.database.WaitForCalls(2));
    f.database.Set(false, false);
    const auto updates = f.database.WaitForUpdates(1);
    QCOMPARE(updates.size(), std::size_t{1});
    QCOMPARE(updates[0].failed().reason(), std::string("STAGE_FAILED"));
  }

  void Report_ADatabaseThatRefusesForNow_IsAskedAgain_data() {
    QTest::addColumn<int>("code");
    for (const absl::StatusCode code :
         {absl::StatusCode::kResourceExhausted, absl::StatusCode::kAborted,
          absl::StatusCode::kInternal, absl::StatusCode::kUnknown,
          absl::StatusCode::kDeadlineExceeded}) {
      QTest::newRow(absl::StatusCodeToString(code).c_str()) << static_cast<int>(code);
    }
  }
  void Report_ADatabaseThatRefusesForNow_IsAskedAgain() {
    QFETCH(int, code);
    ReporterFixture f;
    f.database.Refuse(static_cast<absl::StatusCode>(code));
    f.reporter->Report(base::Uid::GenerateRandom(), Failed());
    QVERIFY(f.database.WaitForCalls(2));
    f.database.Set(false, false);
    QCOMPARE(f.database.WaitForUpdates(1).size(), std::size_t{1});
  }

  void Report_ADatabaseThatRefusesForGood_IsNotAskedAgain() {
    ReporterFixture f;
    f.database.Refuse(absl::StatusCode::kNotFound);
    f.reporter->Report(base::Uid::GenerateRandom(), Failed());
    QVERIFY(f.database.WaitForCalls(1));
    QTRY_COMPARE(f.reporter->pending(), std::size_t{0});
  }

  // A database that dies now takes the proposal with it.
  void Report_AnEndThatIsOnlyProposed_IsToldAgainUntilItIsSettled() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.proposed = v1::Job::FAILED;
    f.reporter->Report(uid, Failed());
    const auto updates = f.database.WaitForUpdates(3);
    QVERIFY(updates.size() >= 3);
    for (const v1::UpdateJobRequest& update : updates) QVERIFY(update.has_failed());
    QCOMPARE(f.reporter->pending(), std::size_t{1});
    f.database.state = v1::Job::FAILED;
    QTRY_COMPARE(f.reporter->pending(), std::size_t{0});
  }

  // The database ignores an end of an older run, so it must not swallow that of the newer one.
  void Report_EndsOfTwoRuns_AreBothTold() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.Set(/*away=*/true, /*held=*/false);
    for (const std::uint64_t run : {1, 2}) {
      v1::UpdateJobRequest request = Failed();
      request.mutable_ended_by()->set_run(run);
      f.reporter->Report(uid, request);
    }
    QVERIFY(f.database.WaitForCalls(1));
    f.database.Set(false, false);
    const auto updates = f.database.WaitForUpdates(2);
    QCOMPARE(updates.size(), std::size_t{2});
    QCOMPARE(updates[1].ended_by().run(), std::uint64_t{2});
  }

  void Report_TheDatabasesAreAwayForLong_NoEndIsLost() {
    base::ManualClock clock;
    FakeDatabase database;
    JobReporter reporter(
        [&](const v1::UpdateJobRequest& request) { return database.Update(request); },
        [](const base::Uid&) {}, clock);
    database.Set(/*away=*/true, /*held=*/false);
    reporter.Report(base::Uid::GenerateRandom(), Failed());
    // The reporter may be between two waits when the clock moves, so the clock moves until it
    // calls.
    QTRY_VERIFY_WITH_TIMEOUT((clock.Advance(std::chrono::minutes(1)), database.calls() >= 4),
                             20000);
    database.Set(false, false);
    QTRY_VERIFY_WITH_TIMEOUT((clock.Advance(std::chrono::minutes(1)), reporter.pending() == 0),
                             20000);
    QCOMPARE(database.WaitForUpdates(1).size(), std::size_t{1});
  }

  void Report_ADatabaseThatKeepsFailing_IsAskedMoreAndMoreSeldom() {
    base::ManualClock clock;
    base::Mutex mutex;
    std::vector<base::MonotonicTime> asked;
    JobReporter reporter(
        [&](const v1::UpdateJobRequest&) -> absl::StatusOr<v1::JobRecord> {
          const base::MutexLock lock(mutex);
          asked.push_back(clock.Now());
          return absl::InternalError("a bug");
        },
        [](const base::Uid&) {}, clock);
    const auto calls = [&] {
      const base::MutexLock lock(mutex);
      return asked;
    };
    reporter.Report(base::Uid::GenerateRandom(), Failed());
    QTRY_VERIFY_WITH_TIMEOUT((clock.Advance(std::chrono::milliseconds(250)), calls().size() >= 8),
                             20000);
    // The pauses are 0.2, 0.4, 0.8, 1.6 and then 3 s, less half of them at most.
    const std::vector<base::MonotonicTime> at = calls();
    base::Duration pause = std::chrono::milliseconds(200);
    for (std::size_t i = 1; i < at.size(); ++i) {
      QVERIFY2(at[i] - at[i - 1] >= base::Scaled(pause) / 2, std::to_string(i).c_str());
      pause = std::min<base::Duration>(2 * pause, std::chrono::seconds(3));
    }
    QCOMPARE(reporter.pending(), std::size_t{1});
    // The record is over by then, whoever ends it.
    clock.Advance(JobReporter::kLongestLife);
    QTRY_VERIFY_WITH_TIMEOUT(
        (clock.Advance(std::chrono::milliseconds(250)), reporter.pending() == 0), 20000);
  }

  // A job whose updates nobody takes holds up no other job.
  void Report_OneJobThatKeepsFailing_LeavesTheOthersFast() {
    base::ManualClock clock;
    const base::Uid bad = base::Uid::GenerateRandom();
    std::atomic<int> failed = 0;
    JobReporter reporter(
        [&](const v1::UpdateJobRequest& request) -> absl::StatusOr<v1::JobRecord> {
          if (request.uid() != bad.ToString()) return v1::JobRecord();
          ++failed;
          return absl::InternalError("a bug");
        },
        [](const base::Uid&) {}, clock);
    reporter.Report(bad, Failed());
    QTRY_VERIFY_WITH_TIMEOUT((clock.Advance(std::chrono::milliseconds(100)), failed >= 6), 20000);
    const int before = failed;
    reporter.Report(base::Uid::GenerateRandom(), Failed());
    QTRY_VERIFY_WITH_TIMEOUT(
        (clock.Advance(std::chrono::milliseconds(10)), reporter.pending() == 1), 20000);
    QVERIFY2(failed <= before + 1, std::to_string(failed).c_str());
  }

  void Report_TooManyWait_OnlyProgressIsDropped() {
    ReporterFixture f;
    f.database.Set(/*away=*/false, /*held=*/true);
    f.reporter->ReportProgress(base::Uid::GenerateRandom(), Step(1));
    QVERIFY(f.database.WaitForCalls(1));
    std::vector<base::Uid> jobs;
    for (std::size_t i = 0; i < JobReporter::kMaxPending + 10; ++i) {
      jobs.push_back(base::Uid::GenerateRandom());
      f.reporter->Report(jobs.back(), Failed());
    }
    QVERIFY(f.reporter->full());
    const auto dropped = base::Uid::GenerateRandom();
    f.reporter->ReportProgress(dropped, Step(1));
    QCOMPARE(f.reporter->pending(), jobs.size() + 1);
    QVERIFY(f.reporter->AwaitSent(dropped, base::Duration::zero()));  // Nothing of it is left.
    f.database.Set(false, false);
    QCOMPARE(f.database.WaitForUpdates(jobs.size() + 1).size(), jobs.size() + 1);
  }

  // What waits for a job is one update, however often the job is placed, with its first end.
  void Report_WhatWaitsIsJoined() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.Set(/*away=*/false, /*held=*/true);
    f.reporter->ReportProgress(uid, Step(1));
    QVERIFY(f.database.WaitForCalls(1));
    const auto placed = [&](const std::string& stage, std::uint32_t attempt) {
      v1::UpdateJobRequest request;
      v1::WorkHolder& holder = *request.add_placed();
      holder.set_stage(stage);
      holder.set_attempt(attempt);
      f.reporter->Report(uid, request);
    };
    placed("a", 1);
    placed("b", 0);
    placed("a", 2);
    placed("a", 1);
    v1::UpdateJobRequest timing;
    timing.mutable_timing()->set_stage("a");
    f.reporter->Report(uid, timing);
    f.reporter->Report(uid, Failed());
    v1::UpdateJobRequest cancelled;
    cancelled.set_cancelled(true);
    f.reporter->Report(uid, cancelled);
    QCOMPARE(f.reporter->pending(), std::size_t{2});
    f.database.Set(false, false);
    const auto updates = f.database.WaitForUpdates(2);
    QCOMPARE(updates.size(), std::size_t{2});
    QCOMPARE(updates[1].placed_size(), 2);
    QCOMPARE(updates[1].placed(0).stage(), std::string("a"));
    QCOMPARE(updates[1].placed(0).attempt(), std::uint32_t{2});
    QCOMPARE(updates[1].placed(1).stage(), std::string("b"));
    QCOMPARE(updates[1].timing().stage(), std::string("a"));
    QVERIFY(updates[1].has_failed() && !updates[1].cancelled());
  }

  void Updates_OfAJobKeepTheirOrder() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.Set(/*away=*/false, /*held=*/true);
    f.reporter->ReportProgress(uid, Step(1));
    QVERIFY(f.database.WaitForCalls(1));
    f.reporter->ReportProgress(uid, Step(2));
    f.reporter->Report(uid, Failed());
    f.database.Set(false, false);
    const auto updates = f.database.WaitForUpdates(3);
    QCOMPARE(updates.size(), std::size_t{3});
    QVERIFY(updates[1].has_progress());
    QVERIFY(updates[2].has_failed());
  }

  void Answer_ThatTheJobWasCancelledIsPassedOn() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    f.database.state = v1::Job::CANCELLED;
    f.reporter->ReportProgress(uid, Step(1));
    f.database.WaitForUpdates(1);
    f.reporter.reset();
    const base::MutexLock lock(f.mutex);
    QVERIFY(f.ended == std::vector{uid});
  }

  void WhenAnswered_WaitsForWhatWasReportedBefore() {
    ReporterFixture f;
    const auto uid = base::Uid::GenerateRandom();
    std::atomic<int> first = 0, second = 0;
    f.reporter->WhenAnswered(uid, [&] { ++first; });
    QCOMPARE(first, 1);  // Nothing is pending.
    f.database.Set(/*away=*/true, /*held=*/false);
    f.reporter->Report(uid, Failed());
    f.reporter->WhenAnswered(uid, [&] { ++first; });
    QVERIFY(f.database.WaitForCalls(2));
    QCOMPARE(first, 1);
    const int before = f.database.calls();
    f.database.Set(false, /*held=*/true);
    // The call is on its way, and what is reported now goes with the next one.
    QVERIFY(f.database.WaitForCalls(before + 1));
    f.reporter->WhenAnswered(uid, [&] { ++first; });
    QCOMPARE(first, 1);
    v1::UpdateJobRequest timing;
    timing.mutable_timing()->set_stage("a");
    f.reporter->Report(uid, timing);
    f.reporter->WhenAnswered(uid, [&] { ++second; });
    f.reporter->WhenAnswered(base::Uid::GenerateRandom(), [&] { ++second; });
    QCOMPARE(second, 1);
    f.database.Set(false, false);
    QTRY_COMPARE(f.reporter->pending(), std::size_t{0});
    QCOMPARE(first, 3);
    QCOMPARE(second, 2);
    // A job that no database knows has no record that could say more.
    f.database.Refuse(absl::StatusCode::kNotFound);
    f.reporter->Report(uid, Failed());
    f.reporter->WhenAnswered(uid, [&] { ++first; });
    QTRY_COMPARE(first, 4);
  }

  void WhenAnswered_AtTheEnd_IsCalledForWhatADatabaseTook() {
    for (const bool away : {false, true}) {
      ReporterFixture f;
      const auto uid = base::Uid::GenerateRandom();
      f.database.Set(/*away=*/true, /*held=*/false);
      f.reporter->Report(uid, Failed());
      QVERIFY(f.database.WaitForCalls(1));
      f.reporter->ReportProgress(uid, Step(1));
      int told = 0;
      f.reporter->WhenAnswered(uid, [&] { ++told; });
      f.database.Set(away, false);
      f.reporter.reset();
      QCOMPARE(told, away ? 0 : 1);
    }
  }

  // A database that dies now takes the proposal with it, and then the job's work is still wanted.
  void Answer_ThatAnEndIsOnlyProposed_IsAskedForUntilItIsSettled() {
    base::ManualClock clock;
    FakeDatabase database;
    std::atomic<int> ended = 0;
    JobReporter reporter(
        [&](const v1::UpdateJobRequest& request) { return database.Update(request); },
        [&](const base::Uid&) { ++ended; }, clock);
    const auto until = [&](const std::function<bool()>& predicate) {
      const auto look = [&] {
        clock.Advance(std::chrono::milliseconds(50));
        return predicate();
      };
      return QTest::qWaitFor(look, 20000);
    };
    const auto asks = [&](int calls) {
      return until([&, enough = database.calls() + calls] { return database.calls() >= enough; });
    };
    const auto uid = base::Uid::GenerateRandom();
    database.proposed = v1::Job::CANCELLED;
    reporter.ReportProgress(uid, Step(1));
    QVERIFY(asks(3));
    // A question holds up neither those who wait for the job's updates, nor the next update.
    QVERIFY(until([&] { return reporter.AwaitSent(uid, base::Duration::zero()); }));
    reporter.ReportProgress(uid, Step(2));
    QVERIFY(until([&] {
      return std::ranges::any_of(
          database.WaitForUpdates(0),
          [](const v1::UpdateJobRequest& update) { return update.progress().step() == 2; });
    }));
    database.Set(/*away=*/true, /*held=*/false);
    QVERIFY(asks(2));
    database.proposed = v1::Job::STATE_UNSPECIFIED;
    database.Set(false, false);
    QVERIFY(until([&] { return reporter.pending() == 0; }));
    QCOMPARE(ended, 0);
    database.proposed = v1::Job::CANCELLED;
    reporter.ReportProgress(uid, Step(3));
    QVERIFY(asks(2));
    database.state = v1::Job::CANCELLED;
    QVERIFY(until([&] { return reporter.pending() == 0; }));
    QCOMPARE(ended, 1);
  }

  void Destructor_SendsWhatIsPending() {
    ReporterFixture f;
    f.reporter->Report(base::Uid::GenerateRandom(), Failed());
    f.reporter.reset();
    QCOMPARE(f.database.WaitForUpdates(1).size(), std::size_t{1});
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::JobReporterTest)
#include "job_reporter_test.moc"
