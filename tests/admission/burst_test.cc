// A burst of ten times the load on a pool that is slower than its measured cost says. A small model
// of the pool stands for the cluster: workers, a queue, and reports as late as they may be.
#include <QtTest>
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "cluster/base/seconds.h"
#include "tests/admission/gate.h"
#include "tests/test_main.h"

namespace onepiece::admission {
namespace {

constexpr base::Duration kTick = 1ms;
constexpr base::Duration kReportEvery = 500ms;

struct Slow {
  double told_s = 0.05;  ///< What the capacity says that a job costs.
  double real_s = 0.05;  ///< What it costs.
  int workers = 1;
  std::vector<double> shares = {1.0};  ///< One proxy for each.
};

/// Proxies before one pool. An instance reports twice a second, and each proxy hears the last
/// report half a second later.
class SlowPool {
 public:
  explicit SlowPool(Slow pool) : pool_(std::move(pool)), ends_(pool_.workers) {
    for (const double share : pool_.shares) {
      proxies_.push_back(std::make_unique<RequestMonitor>(
          RequestMonitorOptions{.max_jobs_in_flight = 1 << 20}, clock_));
      told_.push_back(OnePool(pool_.told_s, pool_.workers));
      told_.back().set_share(share);
      proxies_.back()->Update(told_.back());
    }
  }

  /// What came of a load.
  struct Outcome {
    int asked = 0, admitted = 0, done = 0;
    double most_queued_s = 0;  ///< The longest time that the queue needed to be worked off.
    double longest_s = 0;      ///< The longest time from admission to end.
  };
  /// Asks `rate` times a second, the proxies in turn.
  Outcome Offer(double rate, base::Duration time) {
    Outcome outcome;
    const base::MonotonicTime end = clock_.Now() + time;
    while (clock_.Now() < end) {
      for (owed_ += rate * base::ToSeconds(kTick); owed_ >= 1; owed_ -= 1) {
        ++outcome.asked;
        outcome.admitted += Ask();
      }
      clock_.Advance(kTick);
      Work(outcome);
      Report();
      const double queued_s = static_cast<double>(queue_.size()) * pool_.real_s / pool_.workers;
      outcome.most_queued_s = std::max(outcome.most_queued_s, queued_s);
    }
    return outcome;
  }
  void PauseFor(base::Duration time) {
    for (base::MonotonicTime& end : ends_) end = std::max(end, clock_.Now()) + time;
  }
  /// Jobs per second.
  [[nodiscard]] double Capacity() const { return pool_.workers / pool_.real_s; }

 private:
  bool Ask() {
    AdmissionRequest request;
    request.uid = base::Uid::GenerateRandom();
    request.app_id = "app";
    request.deadline = clock_.WallNow() + 24h;
    request.stages = {{"x", 1, {}}};
    RequestMonitor& proxy = *proxies_[asked_++ % proxies_.size()];
    if (!proxy.Admit(request).ok()) return false;
    proxy.Keep(request.uid);
    queue_.push_back(clock_.Now());
    return true;
  }
  void Work(Outcome& outcome) {
    for (base::MonotonicTime& end : ends_) {
      if (end > clock_.Now() || queue_.empty()) continue;
      end = clock_.Now() + base::FromSeconds(pool_.real_s);
      outcome.longest_s = std::max(outcome.longest_s, base::ToSeconds(end - queue_.front()));
      ++outcome.done;
      queue_.pop_front();
    }
  }
  void Report() {
    if (clock_.Now() < next_report_) return;
    next_report_ = clock_.Now() + kReportEvery;
    for (std::size_t i = 0; i < proxies_.size(); ++i) {
      told_[i].mutable_pools(0)->set_queued_jobs(reported_);
      proxies_[i]->Update(told_[i]);
    }
    reported_ = static_cast<std::int64_t>(queue_.size());
  }

  const Slow pool_;
  base::ManualClock clock_;
  std::vector<std::unique_ptr<RequestMonitor>> proxies_;
  std::vector<v1::Capacity> told_;
  std::deque<base::MonotonicTime> queue_;  // When each job was admitted.
  std::vector<base::MonotonicTime> ends_;  // Of each worker's job.
  base::MonotonicTime next_report_ = clock_.Now();
  std::int64_t reported_ = 0;  // The last report of the instance, which the proxies hear next.
  std::size_t asked_ = 0;
  double owed_ = 0;
};

}  // namespace

class BurstTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Twenty jobs a second are admitted by the cost that was measured, and thirteen end.
  void Burst_OnAPoolThatIsSlowerThanMeasured_IsCorrectedWithinASecond_data() {
    QTest::addColumn<double>("told_s");
    QTest::addColumn<double>("real_s");
    QTest::addColumn<int>("workers");
    QTest::addColumn<int>("proxies");
    QTest::newRow("as measured") << 0.05 << 0.05 << 1 << 1;
    QTest::newRow("13 instead of 20 jobs/s") << 0.05 << 1.0 / 13 << 1 << 1;
    QTest::newRow("three proxies") << 0.05 << 1.0 / 13 << 1 << 3;
    QTest::newRow("many workers") << 0.05 << 1.0 / 13 << 16 << 1;
    QTest::newRow("longer jobs") << 0.5 << 0.75 << 4 << 1;
  }
  void Burst_OnAPoolThatIsSlowerThanMeasured_IsCorrectedWithinASecond() {
    QFETCH(double, told_s);
    QFETCH(double, real_s);
    QFETCH(int, workers);
    QFETCH(int, proxies);
    SlowPool pool({.told_s = told_s,
                   .real_s = real_s,
                   .workers = workers,
                   .shares = std::vector<double>(proxies, 1.0 / proxies)});
    const SlowPool::Outcome first = pool.Offer(10 * pool.Capacity(), 2s);
    const SlowPool::Outcome rest = pool.Offer(10 * pool.Capacity(), 10s);
    const double most_s = std::max(first.most_queued_s, rest.most_queued_s);
    // One second of the pool, and a job for each worker, may wait by the cost that is believed.
    // They take as much longer as the cost is too low. Beyond them, a second may come until the
    // reports are heard.
    const double target_s = (1 + told_s) * real_s / told_s;
    QVERIFY2(most_s <= target_s + 1, std::to_string(most_s).c_str());
    QVERIFY2(rest.longest_s <= target_s + 1 + real_s, std::to_string(rest.longest_s).c_str());
    // It settles: the queue of the last seconds neither grows nor runs dry.
    const SlowPool::Outcome last = pool.Offer(10 * pool.Capacity(), 10s);
    QVERIFY2(last.most_queued_s <= rest.most_queued_s + real_s,
             std::to_string(last.most_queued_s).c_str());
    QVERIFY2(last.done >= 0.94 * 10 * pool.Capacity(), std::to_string(last.done).c_str());
  }

  void Burst_ThatIsOver_LeavesTheRateWithinTwoSeconds_data() {
    QTest::addColumn<double>("real_s");
    QTest::newRow("as measured") << 0.05;
    QTest::newRow("slower than measured") << 1.0 / 13;
  }
  void Burst_ThatIsOver_LeavesTheRateWithinTwoSeconds() {
    QFETCH(double, real_s);
    SlowPool pool({.real_s = real_s});
    pool.Offer(10 * pool.Capacity(), 10s);
    pool.Offer(0.9 * pool.Capacity(), 2s);
    const SlowPool::Outcome after = pool.Offer(0.9 * pool.Capacity(), 20s);
    QCOMPARE(after.admitted, after.asked);
    QVERIFY2(after.most_queued_s < 2, std::to_string(after.most_queued_s).c_str());
  }

  void SteadyLoad_OfTheAdmittedRate_IsNeverRefused() {
    for (const int workers : {1, 4, 16}) {
      SlowPool pool({.workers = workers});
      const SlowPool::Outcome steady = pool.Offer(0.95 * pool.Capacity(), 60s);
      QCOMPARE(steady.admitted, steady.asked);
      QVERIFY2(steady.longest_s < 0.2, std::to_string(steady.longest_s).c_str());
    }
  }

  // A pool that stands still for a while must not be shut for longer than its queue lasts.
  void Burst_OnAPoolThatPauses_LosesOnlyThePause() {
    SlowPool pool({});
    pool.Offer(10 * pool.Capacity(), 5s);
    pool.PauseFor(2s);
    const SlowPool::Outcome pause = pool.Offer(10 * pool.Capacity(), 2s);
    QVERIFY2(pause.most_queued_s < 2.1, std::to_string(pause.most_queued_s).c_str());
    const SlowPool::Outcome after = pool.Offer(10 * pool.Capacity(), 10s);
    QVERIFY2(after.done >= 0.94 * 10 * pool.Capacity(), std::to_string(after.done).c_str());
  }
};

}  // namespace onepiece::admission

ONEPIECE_TEST(onepiece::admission::BurstTest)
#include "burst_test.moc"
