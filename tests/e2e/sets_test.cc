// An instance is moved to another workflow set and brought back while it computes. It finishes the
// jobs that it has taken in either set.
#include <algorithm>

#include "cluster/base/clock.h"
#include "tests/e2e/calibrated_cluster.h"
#include "tests/e2e/job_load.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kSetsCluster[] =
    "workflow_files: [x.yaml]\n"
    "workflow_sets: 2\n"
    "databases: 1\n"
    "instances:\n"
    "  - {stage: x, count: 2}\n"
    "elasticity: {policy: static, window_s: 10}\n";
constexpr char kMoved[] = "instance-x-1";
/// The instance must have moved and taken a job within this time, also on a loaded machine.
constexpr seconds kConfirmWithin(25);

}  // namespace

class SetsTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    QVERIFY(UpCalibrated(cluster_, kSetsCluster, {{"x.yaml", OneStageWorkflow("x")}}));
  }

  void BroughtBack_FromAnotherSet_LosesNoJob_data() {
    QTest::addColumn<bool>("by_timer");
    QTest::newRow("nobody confirms the plan") << true;
    QTest::newRow("the plan is undone") << false;
  }
  void BroughtBack_FromAnotherSet_LosesNoJob() {
    QFETCH(bool, by_timer);
    JobLoad at_home(cluster_.Process("proxy-1").value("address", ""));
    JobLoad away(cluster_.Process("set-2-proxy-1").value("address", ""));
    QVERIFY(OfferUntilMovedComputes(at_home, 2));
    const QStringList timer =
        by_timer ? QStringList{"--confirm-within", QString::number(kConfirmWithin.count())}
                 : QStringList{};
    const std::string plan =
        Begin(QStringList{"apply", QString(kMoved) + "=set-2:x", "--yes"} + timer);
    QVERIFY(Reaches(plan, by_timer ? "UNCONFIRMED" : "DONE"));
    QCOMPARE(cluster_.Process(kMoved).value("workflow_set", ""), std::string("set-2"));

    // The job outlasts the timer, which has begun by now.
    const std::chrono::duration<double> timer_left = kConfirmWithin;
    QVERIFY(OfferUntilMovedComputes(away, by_timer ? timer_left.count() + 3 : 5));
    if (by_timer) QVERIFY(Reaches(plan, "REVERTING"));
    const std::string back = by_timer ? plan : Begin({"undo", QString::fromStdString(plan)});
    QVERIFY2(Computes(), cluster_.Run({"status"}).out.c_str());
    QVERIFY(Reaches(back, by_timer ? "REVERTED" : "DONE"));
    QCOMPARE(cluster_.Process(kMoved).value("workflow_set", ""), std::string("default"));
    for (JobLoad* load : {&at_home, &away}) QVERIFY2(AllSucceeded(*load), Told(*load).c_str());
    QVERIFY(std::ranges::any_of(away.jobs(), [](const OfferedJob& offered) {
      return offered.job.timings_size() == 1 && offered.job.timings(0).node() == kMoved;
    }));
    // It serves in its own set again.
    QVERIFY(OfferUntilMovedComputes(at_home, 0.5));
    QVERIFY2(AllSucceeded(at_home), Told(at_home).c_str());
  }

 private:
  bool Computes() const { return cluster_.Process(kMoved).value("running_jobs", 0) > 0; }
  /// Submits one job after the other, because nobody can say which instance gets a job.
  bool OfferUntilMovedComputes(JobLoad& load, double seconds_x) const {
    const auto until = base::SystemClock().Now() + seconds(60);
    while (base::SystemClock().Now() < until) {
      load.Offer("only-x", {{"seconds_x", seconds_x}});
      if (Eventually(milliseconds(500), [this] { return Computes(); })) return true;
    }
    return false;
  }
  /// Runs `onepiece rebalance ARGUMENTS`. Returns the id of the plan that it began.
  std::string Begin(const QStringList& arguments) const {
    const Outcome begun =
        cluster_.Run(QStringList{"rebalance"} + arguments + QStringList{"--json"});
    if (begun.exit_code != 0) qWarning("%s", (begun.out + begun.err).c_str());
    return begun.exit_code == 0 ? begun.Document().value("plan_id", "") : "";
  }
  bool Reaches(const std::string& plan, const std::string& state) const {
    return Eventually(seconds(60), [&] {
      const json shown =
          cluster_.Run({"rebalance", "show", QString::fromStdString(plan), "--json"}).Document();
      return shown.is_object() && shown.value("state", "") == state;
    });
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::SetsTest)
#include "sets_test.moc"
