// An instance with two devices: its workers compute a job together, the video is that of one
// worker, and a worker that is killed costs nothing but time.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cluster/local/data_dir.h"
#include "cluster/media/media.h"
#include "tests/devices.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {

class CollaborationTest : public ClusterFixture {
  Q_OBJECT

  [[nodiscard]] static std::string Cluster() {
    const auto [first, second] = testing::TwoDevices();
    return "workflow_files: [alone.yaml, together.yaml]\n"
           "instances:\n"
           "  - {stage: text_encode}\n"
           "  - {stage: diffusion, count: 2, devices: [\"" +
           first + "\", \"" + second +
           "\"]}\n"
           "  - {stage: vae_decode}\n"
           "elasticity: {policy: static}\n";
  }

  [[nodiscard]] static QStringList Job(const QString& app, const QString& steps) {
    return {"--app", app, "--prompt", "a red circle moving right", "--seed", "7", "--steps", steps};
  }

  /// The worker processes of the instance that serves `app`.
  [[nodiscard]] std::vector<int> Workers(const std::string& app) const {
    std::vector<int> pids;
    const int instance = cluster_.Serving("diffusion", app).value("pid", 0);
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string folder = entry.path().string();
      std::ifstream stat(folder + "/stat");
      std::string line;
      if (!std::getline(stat, line) || line.find("(onepiece-worker)") == line.npos) continue;
      const auto about = line.substr(line.rfind(')') + 2);
      if (about.front() != 'Z' && std::stoi(about.substr(2)) == instance)
        pids.push_back(std::stoi(line));
    }
    return pids;
  }

  [[nodiscard]] absl::StatusOr<media::Frames> Frames(const std::string& app, std::string& bytes) {
    const std::string file = cluster_.Path(app + ".mp4");
    const Outcome job =
        cluster_.Run(QStringList{"submit", "--wait", "--json", "-o", QString::fromStdString(file)} +
                     Job(QString::fromStdString(app), "20"));
    if (job.exit_code != 0) return absl::InternalError(job.err + job.out);
    bytes = local::ReadFile(file);
    return media::Decode(std::as_bytes(std::span(bytes)));
  }

 private Q_SLOTS:
  void initTestCase() {
    std::string workflow =
        local::ReadFile(ONEPIECE_SOURCE_DIR "/resources/workflows/tiny-wan-t2v.yaml");
    std::ofstream(cluster_.Path("alone.yaml")) << workflow;
    const std::string diffusion = "  - stage: diffusion\n";
    const std::string id = "app_id: tiny-wan-t2v\n";
    workflow.replace(workflow.find(id), id.size(), "app_id: together\n");
    workflow.replace(workflow.find(diffusion), diffusion.size(),
                     diffusion + "    mode: collaboration\n    parallel: {cfg: 2, sequence: 1}\n");
    std::ofstream(cluster_.Path("together.yaml")) << workflow;
    QVERIFY(cluster_.UpWith(Cluster()));
  }

  void TheVideo_IsThatOfOneWorker() {
    std::string one_bytes, two_bytes;
    const auto one = Frames("tiny-wan-t2v", one_bytes);
    QVERIFY2(one.ok(), one.status().ToString().c_str());
    const auto two = Frames("together", two_bytes);
    QVERIFY2(two.ok(), two.status().ToString().c_str());
    QCOMPARE(two->rgb.size(), one->rgb.size());
    // Sums in another order differ in their last bits, which may round a pixel to its neighbour.
    int greatest = 0;
    for (std::size_t i = 0; i < one->rgb.size(); ++i) {
      const int difference = static_cast<int>(static_cast<unsigned char>(one->rgb[i])) -
                             static_cast<int>(static_cast<unsigned char>(two->rgb[i]));
      greatest = std::max(greatest, std::abs(difference));
    }
    qInfo("the greatest difference of a pixel: %d of 255", greatest);
    QVERIFY(greatest <= 2);
    QCOMPARE(Workers("together").size(), std::size_t{2});
  }

  void AWorkerThatIsKilled_CostsNoJob_data() {
    QTest::addColumn<int>("which");
    QTest::newRow("one") << 0;
    QTest::newRow("the other") << 1;
  }
  void AWorkerThatIsKilled_CostsNoJob() {
    QFETCH(int, which);
    const std::string uid =
        cluster_.Submit(Job("together", "100") + QStringList{"--width", "128", "--height", "128"});
    QVERIFY(!uid.empty());
    // It computes: some of its steps are done.
    QVERIFY(Eventually([&] { return cluster_.Get(uid).value("step", 0) > 2; }));
    const std::vector<int> workers = Workers("together");
    QCOMPARE(workers.size(), std::size_t{2});
    QCOMPARE(::kill(workers[static_cast<std::size_t>(which)], SIGKILL), 0);
    const json job = cluster_.Watch(uid);
    QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());
    const std::vector<int> after = Workers("together");
    QCOMPARE(after.size(), std::size_t{2});
    QVERIFY(after != workers);
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::CollaborationTest)
#include "collaboration_test.moc"
