// Kills and stops instances that compute. Whoever sent them the work gives it to others, so every
// job that can be computed again succeeds.
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "cluster/local/data_dir.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

constexpr char kRedoWorkflow[] =
    "app_id: chain\n"
    "stages:\n"
    "  - {stage: read, plugin: branch}\n"
    "  - {stage: right, plugin: branch}\n"
    "  - {stage: meet, plugin: branch}\n"
    "parameters:\n"
    "  - {name: seconds_right, type: NUMBER, default_value: \"0\", minimum: 0, maximum: 600}\n"
    "  - {name: kills_right, type: NUMBER, default_value: \"0\", minimum: 0, maximum: 600}\n";
constexpr char kRedoCluster[] =
    "workflow_files: [chain.yaml]\n"
    "instances:\n"
    "  - {stage: read}\n"
    "  - {stage: right, count: 2}\n"
    "  - {stage: meet}\n";

}  // namespace

class RedoTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    qputenv("ONEPIECE_PLUGIN_DIR", ONEPIECE_BINARY_DIR "/tests/plugins/branch");
    std::ofstream(cluster_.Path("chain.yaml")) << kRedoWorkflow;
    QVERIFY(cluster_.UpWith(kRedoCluster));
  }

  void KilledInstance_ItsJobsAreComputedAgain() {
    const std::vector<std::string> uids = SubmitJobs(6, 4);
    QVERIFY(AwaitBothCompute(uids));
    const int pid = cluster_.PidOf("instance-right-1");
    QCOMPARE(kill(pid, SIGKILL), 0);
    for (const std::string& uid : uids) ExpectSuccess(uid);
    QVERIFY(cluster_.Logs().find("as attempt 1") != std::string::npos);
    QVERIFY(Healed());
  }

  void StoppedInstance_ComesBackWhenOthersHaveItsJobs() {
    const std::vector<std::string> uids = SubmitJobs(6, 4);
    QVERIFY(AwaitBothCompute(uids));
    const int pid = cluster_.PidOf("instance-right-1");
    QCOMPARE(kill(pid, SIGSTOP), 0);
    for (const std::string& uid : uids) ExpectSuccess(uid);
    QCOMPARE(kill(pid, SIGCONT), 0);
    QVERIFY(Healed());
    // What it still had to say came too late.
    for (const std::string& uid : SubmitJobs(4, 0.5)) ExpectSuccess(uid);
    for (const std::string& uid : uids)
      QCOMPARE(cluster_.Get(uid).value("state", ""), std::string("SUCCEEDED"));
  }

  void JobThatKillsInstances_IsQuarantined_AndNoOther() {
    const std::string poison = cluster_.Submit({"--app", "chain", "--deadline", "120", "--param",
                                                "seconds_right=30", "--param", "kills_right=1"});
    QVERIFY(!poison.empty());
    const std::vector<std::string> uids = SubmitJobs(6, 0.2);
    const Outcome watched = cluster_.Run({"watch", QString::fromStdString(poison), "--json"});
    QCOMPARE(watched.Document().value("state", ""), std::string("FAILED"));
    QCOMPARE(watched.ErrorReason(), std::string("QUARANTINED"));
    const std::string message = watched.Document()["error"].value("message", "");
    QVERIFY2(message.find("3 instances died") != std::string::npos, message.c_str());
    QVERIFY2(message.find("stage right") != std::string::npos, message.c_str());
    for (const std::string& uid : uids) ExpectSuccess(uid);
    QVERIFY(Healed());
  }

 private:
  std::vector<std::string> SubmitJobs(int count, double seconds) {
    std::vector<std::string> uids;
    for (int i = 0; i < count; ++i) {
      uids.push_back(cluster_.Submit({"--app", "chain", "--deadline", "120", "--param",
                                      QString("seconds_right=%1").arg(seconds)}));
    }
    return uids;
  }
  // Both instances of the stage compute, and the other jobs wait or are done.
  bool AwaitBothCompute(const std::vector<std::string>& uids) {
    return Eventually(std::chrono::seconds(30), [&] {
      return std::ranges::count_if(uids, [&](const std::string& uid) {
               const json job = cluster_.Get(uid);
               return job.value("stage", "") == "right" && job.value("step", 0) > 0;
             }) >= 2;
    });
  }
  void ExpectSuccess(const std::string& uid) {
    const QString name = QString::fromStdString(uid);
    const Outcome watched = cluster_.Run({"watch", name, "--json"});
    QVERIFY2(watched.Document().value("state", "") == "SUCCEEDED", watched.out.c_str());
    const std::string file = cluster_.Path(uid);
    const Outcome got = cluster_.Run({"get", name, "-o", QString::fromStdString(file)});
    QVERIFY2(got.exit_code == 0, got.err.c_str());
    QCOMPARE(local::ReadFile(file), std::string("meet(right(read()))"));
  }
  bool Healed() {
    return Eventually(std::chrono::seconds(60), [&] { return cluster_.EveryProcessReady(); });
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::RedoTest)
#include "redo_test.moc"
