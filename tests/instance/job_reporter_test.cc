#include "stages/instance/job_reporter.h"

#include <QtTest>
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
    if (away_) return absl::UnavailableError("away");
    updates_.push_back(request);
    changed_.NotifyAll();
    v1::JobRecord record;
    record.mutable_job()->set_state(state);
    return record;
  }
  void Set(bool away, bool held) {
    const base::MutexLock lock(mutex_);
    away_ = away;
    held_ = held;
    changed_.NotifyAll();
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
  v1::Job::State state = v1::Job::RUNNING;

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
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
