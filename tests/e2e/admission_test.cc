// Theorem 1 on a real cluster: jobs enter at the rate that the slowest stage takes them, and none
// queues inside. The stages compute for a known time.
#include <algorithm>
#include <numeric>

#include "tests/e2e/calibrated_cluster.h"
#include "tests/e2e/job_load.h"

namespace onepiece::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::nth_element(values, values.begin() + static_cast<long>(values.size() / 2));
  return values[values.size() / 2];
}

}  // namespace

class AdmissionTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const Outcome up = UpCalibrated(cluster_, kChainCluster, {{"chain.yaml", kChainWorkflow}});
    QVERIFY2(up.exit_code == 0, (up.err + cluster_.Logs()).c_str());
    proxy_ = cluster_.ProxyAddress();
    QVERIFY(!proxy_.empty());
    QVERIFY(LearnCosts());
  }
  void cleanupTestCase() {
    const std::string left = cluster_.DownAndListLeftovers();
    QVERIFY2(left.empty(), left.c_str());
  }
  void cleanup() {
    if (QTest::currentTestFailed()) qWarning("%s", cluster_.Logs().c_str());
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
    // Three times what it can take, at an even pace.
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
    // On a busy machine stages take longer than asked for: the theorem is about what they took.
    const auto jobs = static_cast<double>(queued.size());
    const double t_x = computed_x / jobs, t_y = computed_y / jobs;
    const double rate = jobs / static_cast<double>(duration.count());
    const double theorem = kShare / std::max(t_x, t_y);
    // The last quarter waits no longer than the first: nothing grows inside.
    const auto quarter = static_cast<long>(queued.size() / 4);
    const double early = Median({queued.begin(), queued.begin() + quarter});
    const double late = Median({queued.end() - quarter, queued.end()});
    qInfo(
        "T_X %.1f ms, T_Y %.1f ms: rate %.3f/s of %.3f/s (%.1f %%), refused %d, queued %.1f ms at"
        " first, %.1f ms at last, records and the rest %.1f ms",
        1e3 * t_x, 1e3 * t_y, rate, theorem, 100 * rate / theorem, refused, 1e3 * early, 1e3 * late,
        1e3 * Median(rest));
    QVERIFY(refused > 0);
    // A short run counts whole jobs, and begins with what an idle pool has saved up: a second.
    const double tolerance = 0.05 + (1 + 1 / theorem) / static_cast<double>(duration.count());
    QVERIFY2(std::abs(rate / theorem - 1) <= tolerance, "the rate is not theorem 1's");
    // What an idle pool has saved may wait, a second of it, and on a busy machine stages are slower
    // than the proxy believes for a while: what must not happen is growth.
    QVERIFY2(late <= early + (full ? 0.5 * std::max(t_x, t_y) : 2.0), "jobs queue inside");
    // Nothing else takes time: latency is what was computed, transferred and waited for.
    QVERIFY2(Median(rest) <= 0.05 * (t_x + t_y) + 0.02, "a job waits somewhere else");
  }

  void HopelessDeadline_IsRefusedAtOnceWithTheEstimate() {
    JobLoad load(proxy_);
    const OfferedJob& job = load.Offer("chain", {{"seconds_x", 2}, {"seconds_y", 3}}, seconds(1));
    QCOMPARE(job.uid, std::string());
    QCOMPARE(job.reason, std::string("DEADLINE_TOO_SHORT"));
  }

 private:
  static constexpr double kShare = 0.95;

  /// A few jobs, one after the other, until the proxy knows what they cost and refuses what is
  /// hopeless.
  bool LearnCosts() {
    return Eventually(seconds(30), [&] {
      JobLoad load(proxy_);
      load.Offer("chain", {{"seconds_x", 0.05}, {"seconds_y", 0.05}});
      if (!load.Await(seconds(20))) return false;
      load.Offer("chain", {{"seconds_x", 2}, {"seconds_y", 3}}, seconds(1));
      return load.jobs().back().reason == "DEADLINE_TOO_SHORT";
    });
  }

  ClusterUnderTest cluster_;
  std::string proxy_;
};

}  // namespace onepiece::e2e

QTEST_GUILESS_MAIN(onepiece::e2e::AdmissionTest)
#include "admission_test.moc"
