// A workflow with branches on a real cluster. The branches run at the same time on instances of
// their own and meet at one, whatever dies or changes meanwhile.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "cluster/local/data_dir.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

// "left" and "read" are entrances; "read" hands on to "right" and, by a short cut, to "meet".
constexpr char kWorkflow[] =
    "app_id: diamond\n"
    "stages:\n"
    "  - {stage: left, plugin: branch}\n"
    "  - {stage: read, plugin: branch}\n"
    "  - {stage: right, plugin: branch, after: [read]}\n"
    "  - {stage: meet, plugin: branch, after: [left, read, right]}\n"
    "parameters:\n";
constexpr char kDiamondCluster[] =
    "workflow_files: [diamond.yaml]\n"
    "instances:\n"
    "  - {stage: left}\n"
    "  - {stage: read}\n"
    "  - {stage: right}\n"
    "  - {stage: meet, count: 2}\n";

QStringList Job(std::vector<std::pair<QString, double>> lengths) {
  QStringList arguments = {"--app", "diamond", "--deadline", "60"};
  for (const auto& [stage, value] : lengths)
    arguments << "--param" << QString("seconds_%1=%2").arg(stage).arg(value);
  return arguments;
}

}  // namespace

class BranchesTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    qputenv("ONEPIECE_PLUGIN_DIR", ONEPIECE_BINARY_DIR "/tests/plugins/branch");
    std::string workflow = kWorkflow;
    for (const char* stage : {"left", "read", "right", "meet"}) {
      workflow += std::string("  - {name: seconds_") + stage +
                  ", type: NUMBER, default_value: \"0\", minimum: 0, maximum: 600}\n";
    }
    std::ofstream(cluster_.Path("diamond.yaml")) << workflow;
    QVERIFY(cluster_.UpWith(kDiamondCluster));
  }

  void Branches_RunAtTheSameTimeAndMeet() {
    const Outcome done =
        cluster_.Run(QStringList{"submit", "--wait", "--json", "-o",
                                 QString::fromStdString(cluster_.Path("o"))} +
                     // The last stage takes its time: the others' timings are recorded meanwhile.
                     Job({{"left", 3}, {"right", 3}, {"meet", 0.5}}));
    QVERIFY2(done.exit_code == 0, (done.out + done.err).c_str());
    QCOMPARE(local::ReadFile(cluster_.Path("o")), std::string("meet(left() read() right(read()))"));
    // A stage's time may reach the record after the result.
    json timings;
    QVERIFY(Eventually(std::chrono::seconds(10), [&] {
      timings = cluster_.Get(done.Document().value("uid", ""))["timings"];
      return timings.size() == 4;
    }));
    std::vector<std::string> order;
    for (const auto& timing : timings) order.push_back(timing.value("stage", ""));
    QCOMPARE(order, (std::vector<std::string>{"left", "read", "right", "meet"}));
    // Both computed for 3 s. Spans say when.
    const auto [left, right] = Computing(done.Document().value("uid", ""));
    QVERIFY2(left.seconds() >= 2.9 && right.seconds() >= 2.9,
             qPrintable(QString("left %1 s, right %2 s").arg(left.seconds()).arg(right.seconds())));
    QVERIFY(right.start < left.end && left.start < right.end);
  }

  void ManyJobs_AllMeet() {
    std::vector<std::string> uids;
    for (int i = 0; i < 20; ++i) {
      uids.push_back(cluster_.Submit(Job({{"left", 0.05 * (i % 3)}, {"right", 0.05 * (i % 2)}})));
      QVERIFY(!uids.back().empty());
    }
    std::set<std::string> meeting_points;
    for (const std::string& uid : uids) {
      const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"});
      QCOMPARE(watched.Document().value("state", ""), std::string("SUCCEEDED"));
      const json job = cluster_.Get(uid);
      for (const auto& timing : job["timings"]) {
        if (timing.value("stage", "") == "meet") meeting_points.insert(timing.value("node", ""));
      }
    }
    QCOMPARE(meeting_points.size(), std::size_t{2});
  }

  void KilledBranch_IsComputedAgain_AndMeetsTheOtherHalf() {
    const std::string other = cluster_.Submit(Job({{"meet", 12}}));
    QVERIFY(Eventually(std::chrono::seconds(30), [&] {
      const json job = cluster_.Get(other);
      return job.value("stage", "") == "meet" && job.value("step", 0) > 0;
    }));
    const std::string uid = cluster_.Submit(Job({{"left", 8}}));
    QVERIFY(!uid.empty());
    // Its other branch has come as far as it can, so half of the join is held.
    QVERIFY(Eventually(std::chrono::seconds(30),
                       [&] { return cluster_.Get(uid).value("stage", "") == "meet"; }));
    QCOMPARE(kill(cluster_.PidOf("instance-left-1"), SIGKILL), 0);
    const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"});
    QVERIFY2(watched.Document().value("state", "") == "SUCCEEDED", watched.out.c_str());
    QCOMPARE(cluster_.Run({"watch", QString::fromStdString(other), "--json"})
                 .Document()
                 .value("state", ""),
             std::string("SUCCEEDED"));
    QVERIFY(Eventually(std::chrono::seconds(60), [&] { return cluster_.EveryProcessReady(); }));
    QCOMPARE(cluster_.Run(QStringList{"submit", "--wait", "--json"} + Job({})).exit_code, 0);
  }

  void StoppedMeetingPoint_HandsItsHalvesOn() {
    std::vector<std::string> uids;
    for (int i = 0; i < 6; ++i) uids.push_back(cluster_.Submit(Job({{"left", 2}})));
    // The other half of every job waits at one of the two.
    QVERIFY(Eventually(std::chrono::seconds(30), [&] {
      return std::ranges::all_of(uids, [&](const std::string& uid) {
        const std::string stage = cluster_.Get(uid).value("stage", "");
        return stage == "meet";
      });
    }));
    QCOMPARE(kill(cluster_.PidOf("instance-meet-1"), SIGTERM), 0);
    for (const std::string& uid : uids) {
      const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"});
      QVERIFY2(watched.Document().value("state", "") == "SUCCEEDED", watched.out.c_str());
    }
  }

  // Results lie in the memory of two databases. If both die the bytes are gone, and every client
  // that asks is told so.
  void BothDatabasesKilled_ResultsAreSaidToBeLost_NobodyWaits() {
    std::vector<std::string> uids;
    for (int i = 0; i < 10; ++i) uids.push_back(cluster_.Submit(Job({})));
    for (const std::string& uid : uids) {
      const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"});
      QVERIFY2(watched.exit_code == 0, (watched.out + watched.err).c_str());
    }
    const int first = cluster_.PidOf("database-1"), second = cluster_.PidOf("database-2");
    QVERIFY(first > 0 && second > 0);
    QCOMPARE(kill(first, SIGKILL), 0);
    QCOMPARE(kill(second, SIGKILL), 0);
    QElapsedTimer since;
    since.start();
    QVERIFY(Eventually(std::chrono::seconds(60), [&] {
      const int now = cluster_.PidOf("database-1"), other = cluster_.PidOf("database-2");
      return now > 0 && now != first && other > 0 && other != second &&
             cluster_.EveryProcessReady();
    }));
    qInfo("both are back after %lld ms", since.restart());
    std::size_t told = 0;
    const bool all_told = Eventually(std::chrono::seconds(30), [&] {
      while (told < uids.size()) {
        const json job = cluster_.Get(uids[told]);
        if (job.value("state", "") != "FAILED" || testing::ErrorReason(job) != "LOST_ON_RESTART") {
          return false;
        }
        ++told;
      }
      return true;
    });
    QVERIFY2(all_told, cluster_.Run({"jobs", "--json"}).out.c_str());
    qInfo("all are said to be lost after %lld ms more", since.elapsed());
    const QString uid = QString::fromStdString(uids.front());
    const Outcome watched = cluster_.Run({"watch", uid, "--json"}, 10);
    QVERIFY2(watched.exit_code == 1, (watched.out + watched.err).c_str());
    QCOMPARE(watched.ErrorReason(), std::string("LOST_ON_RESTART"));
    const Outcome fetched = cluster_.Run(
        {"get", uid, "-o", QString::fromStdString(cluster_.Path("lost")), "--json"}, 10);
    QVERIFY2(fetched.exit_code == 4, (fetched.out + fetched.err).c_str());
    QVERIFY2(fetched.Says("LOST_ON_RESTART"), (fetched.out + fetched.err).c_str());
    const Outcome next = cluster_.Run(
        QStringList{"submit", "--wait", "-o", QString::fromStdString(cluster_.Path("next"))} +
        Job({}));
    QVERIFY2(next.exit_code == 0, next.err.c_str());
    QCOMPARE(local::ReadFile(cluster_.Path("next")),
             std::string("meet(left() read() right(read()))"));
  }

 private:
  struct Interval {
    double start = 0, end = 0;  // Seconds since the job's first span.
    [[nodiscard]] double seconds() const { return end - start; }
  };
  /// Returns when `left` and `right` computed for the job, by the spans of all its processes.
  std::pair<Interval, Interval> Computing(const std::string& uid) {
    const std::string trace = cluster_.Path("trace.json");
    // The answer names slow instances and leaves them out, so the test asks again.
    const bool whole = Eventually(std::chrono::seconds(30), [&] {
      const Outcome got = cluster_.Run(
          {"get", QString::fromStdString(uid), "--trace", QString::fromStdString(trace)});
      return got.exit_code == 0 && got.err.find("no spans from") == std::string::npos;
    });
    std::pair<Interval, Interval> computing;
    if (!whole) return computing;
    const json document = json::parse(local::ReadFile(trace));
    for (const auto& event : document["traceEvents"]) {
      if (event.value("name", "") != "compute") continue;
      const double start = event.value("ts", 0.0) / 1e6;
      const std::string stage = event["args"].value("stage", "");
      const Interval interval = {start, start + event.value("dur", 0.0) / 1e6};
      if (stage == "left") computing.first = interval;
      if (stage == "right") computing.second = interval;
    }
    return computing;
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::BranchesTest)
#include "branches_test.moc"
