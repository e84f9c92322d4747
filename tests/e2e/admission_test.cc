// Theorem 1 (docs/elasticity.md, "Capacity model") on a real cluster: jobs enter at the rate at
// which the slowest stage takes them, and none queues inside. Ten times the load costs no goodput.
// The stages compute for a known time.
#include <QScopeGuard>
#include <algorithm>
#include <numeric>

#include "tests/e2e/calibrated_cluster.h"
#include "tests/e2e/job_load.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + static_cast<long>(values.size() / 2));
  return values[values.size() / 2];
}

/// The outcome of a load.
struct Goodput {
  int done = 0, refused = 0;
  double offered_s = 0;   ///< The time during which jobs were offered.
  double span_s = 0;      ///< The time from the first offer to the last end.
  double computed_s = 0;  ///< In stage x.

  void operator+=(const Goodput& other) {
    done += other.done;
    refused += other.refused;
    offered_s += other.offered_s;
    span_s += other.span_s;
    computed_s += other.computed_s;
  }
  [[nodiscard]] double Rate() const { return done / span_s; }
  /// Of x.
  [[nodiscard]] double BusyShare() const { return computed_s / span_s; }
};

}  // namespace

class AdmissionTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    QVERIFY(UpCalibrated(cluster_, kChainCluster, {{"chain.yaml", kChainWorkflow}}));
    proxy_ = cluster_.ProxyAddress();
    QVERIFY(!proxy_.empty());
    QVERIFY(LearnCosts(proxy_));
  }

  void FreshCluster_LetsInTwoUnknownJobsForEachWorker() {
    ClusterUnderTest fresh;
    const auto restore = qScopeGuard([&] { QVERIFY(cluster_.ShowIdentity()); });
    QVERIFY(UpCalibrated(fresh, kChainCluster, {{"chain.yaml", kChainWorkflow}}));
    JobLoad load(fresh.ProxyAddress());
    // The proxy may not have heard of the instances yet.
    QVERIFY(Eventually(seconds(10), [&] {
      return !load.Offer("chain", {{"seconds_x", 5}, {"seconds_y", 5}}).uid.empty();
    }));
    for (int i = 0; i < 49; ++i) load.Offer("chain", {{"seconds_x", 5}, {"seconds_y", 5}});
    int admitted = 0;
    for (const OfferedJob& job : load.jobs()) {
      admitted += !job.uid.empty();
      if (!job.uid.empty()) continue;
      QCOMPARE(job.reason, std::string("OVERLOADED"));
      QVERIFY(job.retry);
    }
    QVERIFY(fresh.Down());
    QCOMPARE(admitted, 2);
  }

  void Theorem1_JobsEnterAtTheRateOfTheSlowestStage_data() {
    QTest::addColumn<double>("x");
    QTest::addColumn<double>("y");
    QTest::newRow("T_X = 1, T_Y = 3") << 0.1 << 0.3;
    QTest::newRow("T_X = 3, T_Y = 1") << 0.3 << 0.1;
    QTest::newRow("T_X = 1, T_Y = 2") << 0.1 << 0.2;
  }
  void Theorem1_JobsEnterAtTheRateOfTheSlowestStage() {
    QFETCH(double, x);
    QFETCH(double, y);
    const bool full = qEnvironmentVariableIsSet("ONEPIECE_LONG");
    const seconds duration(full ? 60 : 15);
    const double slowest = std::max(x, y);
    JobLoad load(proxy_);
    // Offers three times the capacity, at an even pace.
    load.OfferFor(duration, milliseconds(static_cast<int>(slowest * 1000 / 3)), "chain",
                  {{"seconds_x", x}, {"seconds_y", y}});
    QVERIFY(load.Await(seconds(60)));
    std::vector<double> rest, queued;
    double computed_x = 0, computed_y = 0;
    int refused = 0;
    for (const OfferedJob& job : load.jobs()) {
      if (job.uid.empty()) {
        ++refused;
        QCOMPARE(job.reason, std::string("OVERLOADED"));
        continue;
      }
      QVERIFY2(job.job.state() == v1::Job::SUCCEEDED, job.job.DebugString().c_str());
      queued.push_back(QueuedOf(job.job));
      computed_x += ComputedOf(job.job, "x");
      computed_y += ComputedOf(job.job, "y");
      rest.push_back(LatencyOf(job.job) - QueuedOf(job.job) - ComputedOf(job.job, "x") -
                     ComputedOf(job.job, "y") - TransferOf(job.job));
    }
    // On a busy machine stages take longer than asked for. The theorem is about the times that they
    // took.
    const auto jobs = static_cast<double>(queued.size());
    const double t_x = computed_x / jobs, t_y = computed_y / jobs;
    const double rate = jobs / static_cast<double>(duration.count());
    const double theorem = kShare / std::max(t_x, t_y);
    // The last quarter waits no longer than the first, so no queue grows inside.
    const auto quarter = static_cast<long>(queued.size() / 4);
    const double early = Median({queued.begin(), queued.begin() + quarter});
    const double late = Median({queued.end() - quarter, queued.end()});
    qInfo(
        "T_X %.1f ms, T_Y %.1f ms: rate %.3f/s of %.3f/s (%.1f %%), refused %d, queued %.1f ms at"
        " first, %.1f ms at last, records and the rest %.1f ms",
        1e3 * t_x, 1e3 * t_y, rate, theorem, 100 * rate / theorem, refused, 1e3 * early, 1e3 * late,
        1e3 * Median(rest));
    QVERIFY(refused > 0);
    // A short run counts whole jobs, and begins with the one second that an idle pool has saved up.
    const double tolerance = 0.05 + (1 + 1 / theorem) / static_cast<double>(duration.count());
    QVERIFY2(std::abs(rate / theorem - 1) <= tolerance, "the rate is not theorem 1's");
    // The one second that an idle pool has saved may wait. On a busy machine stages are for a while
    // slower than the proxy believes. But the queue must not grow.
    QVERIFY2(late <= early + (full ? 0.5 * std::max(t_x, t_y) : 2.0), "jobs queue inside");
    // Nothing else takes time: latency is the sum of computing, transfers and waits.
    QVERIFY2(Median(rest) <= 0.05 * (t_x + t_y) + 0.02, "a job waits somewhere else");
  }

  void TenTimesTheLoad_CostsNoGoodput() {
    const bool full = qEnvironmentVariableIsSet("ONEPIECE_LONG");
    const seconds window(full ? 20 : 2);
    const double aim = full ? 0.95 : 0.8;
    Goodput last = GoodputOf(seconds(1), milliseconds(50));
    Goodput once, tenfold;
    // The runs alternate, so other work on the machine affects both alike. 1 × is what the slower
    // stage can compute. Clients do not retry.
    for (int pair = 0; pair < (full ? 5 : 3); ++pair) {
      QVERIFY(last.done > 0);
      const std::chrono::duration<double> job(last.computed_s / last.done);
      const auto interval = std::chrono::duration_cast<std::chrono::microseconds>(job);
      last = GoodputOf(window, interval);
      once += last;
      tenfold += GoodputOf(window, interval / 10);
    }
    // Offers and stages share the cores, so ten times as many offers make every job slower to
    // compute. No admission can prevent that. It must keep x busy all the time.
    const double ratio = tenfold.BusyShare() / once.BusyShare();
    for (const Goodput& load : {once, tenfold}) {
      qInfo("%.1f jobs/s offered: %.2f jobs/s done (%d), %d refused, %.1f ms in x, busy %.3f",
            (load.done + load.refused) / load.offered_s, load.Rate(), load.done, load.refused,
            1e3 * load.computed_s / load.done, load.BusyShare());
    }
    qInfo("at 10 x over 1 x: jobs %.3f, time in x %.3f", tenfold.Rate() / once.Rate(), ratio);
    QVERIFY(tenfold.refused > 5 * tenfold.done);
    QVERIFY2(ratio >= aim, "overload costs goodput");
  }

  void HopelessDeadline_IsRefusedAtOnceWithTheEstimate() {
    JobLoad load(proxy_);
    const OfferedJob& job = load.Offer("chain", {{"seconds_x", 2}, {"seconds_y", 3}}, seconds(1));
    QCOMPARE(job.uid, std::string());
    QCOMPARE(job.reason, std::string("DEADLINE_TOO_SHORT"));
  }

 private:
  static constexpr double kShare = 0.95;

  /// Offers jobs whose slower stage is x. Returns zeros if they do not end.
  Goodput GoodputOf(seconds duration, std::chrono::microseconds interval) {
    JobLoad load(proxy_);
    load.OfferFor(duration, interval, "chain", {{"seconds_x", 0.05}, {"seconds_y", 0.01}});
    if (!load.Await(seconds(60))) return {};
    Goodput goodput;
    goodput.offered_s = std::chrono::duration<double>(duration).count();
    for (const OfferedJob& job : load.jobs()) {
      if (job.uid.empty()) {
        ++goodput.refused;
        continue;
      }
      goodput.done += job.job.state() == v1::Job::SUCCEEDED;
      goodput.computed_s += ComputedOf(job.job, "x");
      const std::chrono::duration<double> offered = job.at - load.jobs().front().at;
      goodput.span_s = std::max(goodput.span_s, offered.count() + LatencyOf(job.job));
    }
    return goodput;
  }

  std::string proxy_;
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::AdmissionTest)
#include "admission_test.moc"
