// An instance is told to stop. Its work continues elsewhere, from the step that it had reached.
#include <signal.h>

#include "cluster/local/data_dir.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

constexpr char kHandoverCluster[] = "workflow_files: [" ONEPIECE_SOURCE_DIR
                                    "/resources/workflows/tiny-wan-t2v.yaml]\n"
                                    "instances:\n"
                                    "  - {stage: text_encode, count: 2}\n"
                                    "  - {stage: diffusion, count: 2}\n"
                                    "  - {stage: vae_decode, count: 2}\n";
const QStringList kDrainedJob = {
    "--prompt", "a red circle moving right", "--steps", "60", "--width", "128", "--height", "128"};

}  // namespace

class HandoverTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QVERIFY(cluster_.UpWith(kHandoverCluster)); }

  void StoppedInstance_HandsItsJobsOver() {
    const Outcome whole = cluster_.Run(QStringList{"submit", "--wait", "--json"} + kDrainedJob);
    QVERIFY2(whole.exit_code == 0, whole.err.c_str());
    const std::string frames = FramesHash(whole.Document());
    QVERIFY(!frames.empty());

    // Enough jobs for both instances to compute one and queue others. The proxy admits that many
    // while it does not know their cost.
    std::vector<std::string> uids;
    for (int i = 0; i < 4; ++i) {
      uids.push_back(cluster_.Submit(kDrainedJob));
      QVERIFY(!uids.back().empty());
    }
    int begun = 0;
    QVERIFY(Eventually(std::chrono::seconds(120), [&] {
      begun = 0;
      for (const auto& uid : uids) {
        const json job = cluster_.Get(uid);
        begun += job.value("stage", "") == "diffusion" && job.value("step", 0) > 2 ? 1 : 0;
      }
      return begun >= 2;
    }));
    const int pid = cluster_.PidOf("instance-diffusion-1");
    QVERIFY(pid > 0);
    QCOMPARE(kill(pid, SIGTERM), 0);

    for (const auto& uid : uids) {
      const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"}, 300);
      const json job = cluster_.Get(uid);
      QVERIFY2(job.value("state", "") == "SUCCEEDED", (job.dump() + watched.err).c_str());
      QCOMPARE(FramesHash(job), frames);
    }
    const std::string log = LogOf("instance-diffusion-1");
    QVERIFY2(log.find("goes on elsewhere") != std::string::npos, "no job was handed over");
  }

 private:
  std::string LogOf(const std::string& node) const {
    return local::ReadFile(cluster_.Path("data/logs/" + node + ".log"));
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::HandoverTest)
#include "handover_test.moc"
