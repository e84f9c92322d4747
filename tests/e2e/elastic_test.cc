// Moves instances in a real cluster: by hand, by the policy, and while instances are killed. Every
// accepted job is followed to its end.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "cluster/base/clock.h"
#include "tests/e2e/calibrated_cluster.h"
#include "tests/e2e/job_load.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Three instances serve x or y. Windows are seconds long, so that the test need not wait for
/// minutes.
constexpr char kElasticCluster[] =
    "workflow_files: [x.yaml, y.yaml]\n"
    "instances:\n"
    "  - {count: 3}\n"
    "elasticity: {window_s: 5, cooldown_s: 4, interval_s: 0.5, low_threshold: 0.001}\n";

std::string AppOf(const std::string& stage) { return "only-" + stage; }

bool IsLong() { return qEnvironmentVariableIsSet("ONEPIECE_LONG"); }

}  // namespace

class ElasticTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    QVERIFY(UpCalibrated(cluster_, kElasticCluster,
                         {{"x.yaml", OneStageWorkflow("x")}, {"y.yaml", OneStageWorkflow("y")}}));
    proxy_ = cluster_.ProxyAddress();
    QVERIFY(!proxy_.empty());
  }
  void init() {
    QVERIFY2(Eventually(seconds(60), [&] { return Settled(); }),
             cluster_.Run({"status"}).out.c_str());
  }

  void ManualMove_UnderLoad_LosesNothingAndIsUndone() {
    Hold(true);
    const auto [from, node] = Donor();
    const std::string to = from == "x" ? "y" : "x";
    JobLoad load(proxy_);
    Offer(load, seconds(2));
    const Outcome begun = cluster_.Run(
        {"rebalance", "apply", QString::fromStdString(node + "=" + to), "--yes", "--json"});
    QVERIFY2(begun.exit_code == 0, (begun.out + begun.err).c_str());
    const std::string plan = begun.Document().value("plan_id", "");
    QVERIFY(OfferUntilEnded(load, plan, "DONE"));
    QCOMPARE(Count(to), 2);
    // The first half of a move is not its end. It ends when the instance serves.
    QVERIFY(Eventually(seconds(10), [&, &node = node] { return StageOf(node) == to; }));
    const Outcome undo =
        cluster_.Run({"rebalance", "undo", QString::fromStdString(plan), "--json"});
    QVERIFY2(undo.exit_code == 0, (undo.out + undo.err).c_str());
    QVERIFY(OfferUntilEnded(load, undo.Document().value("plan_id", ""), "DONE"));
    QCOMPARE(Count(from), 2);
    QVERIFY2(AllSucceeded(load), Told(load).c_str());
    // A plan that has been undone cannot be undone again.
    QCOMPARE(cluster_.Run({"rebalance", "undo", QString::fromStdString(plan)}).exit_code, 4);
    Hold(false);
  }

  void Drained_CanBeRemovedAndComesBack() {
    Hold(true);
    const auto [stage, node] = Donor();
    JobLoad load(proxy_);
    Offer(load, seconds(2));
    const Outcome drained =
        cluster_.Run({"drain", QString::fromStdString(node), "--yes", "--wait", "--json"});
    QVERIFY2(drained.exit_code == 0, (drained.out + drained.err).c_str());
    Offer(load, seconds(1));
    const int pid = cluster_.PidOf(node);
    QCOMPARE(kill(pid, SIGKILL), 0);
    Offer(load, seconds(1));
    // Its next process stays out too.
    QVERIFY(Eventually(seconds(30), [&, &node = node] {
      const json shown = cluster_.Process(node);
      return shown.value("pid", 0) != pid && shown.value("activity", "") == "DRAINED";
    }));
    QCOMPARE(Count(stage), 1);
    const Outcome back =
        cluster_.Run({"drain", QString::fromStdString(node), "--cancel", "--yes", "--wait"});
    QVERIFY2(back.exit_code == 0, (back.out + back.err).c_str());
    QVERIFY(Eventually(seconds(30), [&, &stage = stage] { return Count(stage) == 2; }));
    QVERIFY2(AllSucceeded(load), Told(load).c_str());
    Hold(false);
  }

  void ShiftingLoad_InstancesFollowAndNoJobIsLost() {
    const int plans_before = AutomaticPlans();
    JobLoad load(proxy_);
    for (const std::string stage : {"x", "y", "x"}) {
      bool followed = false;
      for (int second = 0; second < 60 && !followed; ++second) {
        load.OfferFor(seconds(1), milliseconds(40), AppOf(stage), {{"seconds_" + stage, 0.1}});
        followed = Count(stage) == 2;
      }
      QVERIFY2(followed, cluster_.Run({"rebalance", "status"}).out.c_str());
    }
    QVERIFY2(AllSucceeded(load), Told(load).c_str());
    // The load shifts three times, so each move has a reason.
    const int automatic = AutomaticPlans() - plans_before;
    qInfo("%d automatic plans for 3 shifts; %s", automatic, Told(load).c_str());
    QVERIFY(automatic >= 2 && automatic <= 4);
  }

  void ShiftingLoad_WithKilledInstances_AccountsForEveryJob() {
    const unsigned seed = std::random_device()();
    qInfo("seed %u", seed);
    std::mt19937 random(seed);
    const seconds whole = IsLong() ? seconds(1800) : seconds(20);
    const seconds shift = IsLong() ? seconds(60) : seconds(10);
    const seconds between_kills = IsLong() ? seconds(20) : seconds(8);
    const int plans_before = AutomaticPlans();
    JobLoad load(proxy_);
    std::vector<Kill> kills;
    for (seconds at{0}; at < whole; ++at) {
      const std::string stage = at / shift % 2 == 0 ? "x" : "y";
      load.OfferFor(seconds(1), milliseconds(50), AppOf(stage), {{"seconds_" + stage, 0.1}});
      if (at.count() == 0 || at % between_kills != seconds(0)) continue;
      const std::vector<json> instances = cluster_.Instances();
      const json& victim = instances[random() % instances.size()];
      const auto now = base::SystemClock().Now();
      if (kill(victim.value("pid", 0), SIGKILL) == 0)
        kills.push_back({.node = victim.value("node_id", ""), .at = now});
    }
    QVERIFY(load.Await(seconds(180)));
    // The long run leaves its list for people to read.
    const std::string list =
        IsLong() ? QDir::temp().filePath(QString("onepiece_jobs_%1.txt").arg(seed)).toStdString()
                 : cluster_.Path("jobs.txt");
    std::ofstream file(list);
    int accepted = 0, told = 0, lost = 0;
    for (const OfferedJob& job : load.jobs()) {
      if (job.uid.empty()) continue;
      ++accepted;
      file << job.uid << ' ' << v1::Job::State_Name(job.job.state()) << ' '
           << job.job.error().message() << '\n';
      if (job.job.state() == v1::Job::SUCCEEDED) continue;
      ++lost;
      QVERIFY2(std::ranges::any_of(kills, [&](const Kill& one) { return WasLostWith(job, one); }),
               job.job.DebugString().c_str());
    }
    for (const auto& [state, count] : load.Counts()) told += count;
    QCOMPARE(told, accepted);
    // A kill costs what one instance held. The others go on.
    QVERIFY2(2 * lost < accepted, Told(load).c_str());
    const int plans = AutomaticPlans() - plans_before;
    const auto shifts = static_cast<int>(whole / shift);
    qInfo(
        "%zu offered, %d accepted, %s; %zu kills, %d automatic plans over %d shifts; each job: %s",
        load.jobs().size(), accepted, Told(load).c_str(), kills.size(), plans, shifts,
        list.c_str());
    // One move follows each shift, and one may make up for each killed instance. More moves are
    // flapping.
    QVERIFY2(plans <= 2 * shifts + static_cast<int>(kills.size()),
             cluster_.Run({"rebalance", "list"}).out.c_str());
  }

 private:
  struct Kill {
    std::string node;
    base::MonotonicTime at;
  };
  /// Returns whether the killed instance had the job: the error names it, and the job was on its
  /// way when it died. The others may send to it until they hear of its death.
  static bool WasLostWith(const OfferedJob& job, const Kill& killed) {
    const auto ended = job.at + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                    std::chrono::duration<double>(LatencyOf(job.job)));
    return job.job.error().reason() == "LOST" &&
           job.job.error().message().find(killed.node) != std::string::npos &&
           job.at <= killed.at + seconds(5) && ended + seconds(1) >= killed.at &&
           ended <= killed.at + seconds(40);
  }

  int AutomaticPlans() const {
    const json plans =
        cluster_.Run({"rebalance", "list", "--limit", "1000", "--json"}).Document()["plans"];
    return static_cast<int>(std::ranges::count_if(
        plans, [](const json& plan) { return plan.value("actor", "").starts_with("policy:"); }));
  }
  std::string StageOf(const std::string& node) const {
    const json instance = cluster_.Process(node);
    return instance.value("state", "") == "READY" ? instance.value("stage", "") : "";
  }
  /// Returns whether every instance serves or has left for good.
  bool Settled() const {
    const std::vector<json> instances = cluster_.Instances();
    return !instances.empty() && std::ranges::all_of(instances, [](const json& instance) {
      const std::string activity = instance.value("activity", "");
      return activity == "SERVING" || activity == "IDLE" || activity == "DRAINED";
    });
  }
  int Count(const std::string& stage) const {
    int count = 0;
    for (const auto& instance : cluster_.Instances()) {
      count += instance.value("stage", "") == stage && instance.value("state", "") == "READY";
    }
    return count;
  }
  /// Returns the stage that has two instances, and one of them.
  std::pair<std::string, std::string> Donor() const {
    const std::string stage = Count("x") == 2 ? "x" : "y";
    for (const auto& instance : cluster_.Instances()) {
      if (instance.value("stage", "") == stage) return {stage, instance.value("node_id", "")};
    }
    return {stage, ""};
  }
  void Hold(bool active) const {
    const QStringList release = active ? QStringList{} : QStringList{"--release"};
    const Outcome held = cluster_.Run(QStringList{"rebalance", "hold"} + release);
    QVERIFY2(held.exit_code == 0, held.err.c_str());
  }
  /// Offers a little of both, below what one instance of each can take.
  static void Offer(JobLoad& load, seconds duration) {
    const auto until = base::SystemClock().Now() + duration;
    while (base::SystemClock().Now() < until) {
      for (const std::string stage : {"x", "y"})
        load.OfferFor(milliseconds(100), milliseconds(100), AppOf(stage),
                      {{"seconds_" + stage, 0.05}});
    }
  }
  bool OfferUntilEnded(JobLoad& load, const std::string& plan, const std::string& state) const {
    json shown;
    for (int second = 0; second < 60; ++second) {
      Offer(load, seconds(1));
      shown =
          cluster_.Run({"rebalance", "show", QString::fromStdString(plan), "--json"}).Document();
      if (shown.is_object() && shown.value("state", "") == state) return true;
    }
    qWarning("%s", shown.dump(1).c_str());
    return false;
  }

  std::string proxy_;
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::ElasticTest)
#include "elastic_test.moc"
