// Two applications share a pool of text encoders and a pool of decoders. They share instances and
// weights, come and go while the other is served, and the death of one's instance does not harm the
// other.
#include <signal.h>

#include <QTcpSocket>
#include <filesystem>
#include <fstream>
#include <map>

#include "cluster/config/yaml.h"
#include "cluster/local/data_dir.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

constexpr int kWaitMs = 20'000;
const char* const kApps[] = {"one", "two"};

void ReplaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Returns the value of the line that begins with `metric`, or -1 if there is none.
double Scraped(const std::string& address, const std::string& metric) {
  const auto colon = address.rfind(':');
  QTcpSocket socket;
  socket.connectToHost(QString::fromStdString(address.substr(0, colon)),
                       static_cast<quint16>(std::stoi(address.substr(colon + 1))));
  if (!socket.waitForConnected(kWaitMs)) return -1;
  socket.write("GET /metrics HTTP/1.0\r\n\r\n");
  QByteArray answer;
  while (socket.waitForReadyRead(kWaitMs)) answer += socket.readAll();
  const std::string text = answer.toStdString();
  const auto line = text.find("\n" + metric);
  return line == std::string::npos ? -1 : std::stod(text.substr(text.find(' ', line) + 1));
}

}  // namespace

class PoolsTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const std::string source = ONEPIECE_SOURCE_DIR "/resources/";
    std::filesystem::create_directory(cluster_.Path("models"));
    for (const std::string app : kApps) {
      std::filesystem::copy(source + "models/tiny-wan-t2v", cluster_.Path("models/" + app),
                            std::filesystem::copy_options::recursive);
      std::string workflow = local::ReadFile(source + "workflows/tiny-wan-t2v.yaml");
      ReplaceAll(workflow, "tiny-wan-t2v", app);
      std::ofstream(cluster_.Path(app + ".yaml")) << workflow;
    }
    QVERIFY(cluster_.UpWith("workflow_files: [one.yaml, two.yaml]\nmodel_root: models\n"));
  }

  void Up_HasOneInstanceForEachPool() {
    std::map<std::string, int> counts;
    for (const auto& process : cluster_.Instances()) {
      const std::string stage = process.value("stage", "");
      ++counts[stage];
      QCOMPARE(process["app_ids"].size(), std::size_t{stage == "diffusion" ? 1U : 2U});
    }
    QVERIFY((counts ==
             std::map<std::string, int>{{"text_encode", 1}, {"diffusion", 2}, {"vae_decode", 1}}));
    QVERIFY(DiffusionOf("one") != DiffusionOf("two"));
  }

  void Jobs_OfBothShareInstancesAndWeights() {
    std::vector<std::string> uids;
    for (int i = 0; i < 6; ++i) uids.push_back(Submit(kApps[i % 2], "4"));
    std::string sha;
    for (const std::string& uid : uids) {
      const json job = cluster_.Watch(uid);
      QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());
      // Equal weights, prompt and seed give equal frames. The files name their jobs.
      if (sha.empty()) sha = FramesHash(job);
      QCOMPARE(FramesHash(job), sha);
    }
    const std::string address = cluster_.Serving("text_encode", "one").value("metrics_address", "");
    const std::string labels = "{stage=\"text_encode\"}";
    const double weights = Scraped(address, "onepiece_stage_weight_bytes" + labels);
    QVERIFY(weights > 0);
    QCOMPARE(Scraped(address, "onepiece_stage_weight_shared_bytes" + labels), weights);
    // Two encodings were computed for both applications together: the prompt's and the empty
    // prompt's.
    QCOMPARE(Scraped(address, "onepiece_stage_conditioning_cache_misses_total" + labels), 2.0);
    QCOMPARE(Scraped(address, "onepiece_stage_conditioning_cache_hits_total" + labels), 10.0);
  }

  void Application_LeavesAndComesBackWhileTheOtherIsServed() {
    std::vector<std::string> uids;
    const auto submit = [&] { uids.push_back(Submit("one", "20")); };
    submit();
    const auto manager = v1::NodeManagerService::NewStub(
        rpc::MakeChannel(cluster_.Status()["nodemanagers"][0].get<std::string>()));
    v1::DeleteWorkflowRequest removal;
    removal.set_name("workflows/two");
    google::protobuf::Empty nothing;
    grpc::ClientContext remove_call, apply_call;
    QVERIFY(manager->DeleteWorkflow(&remove_call, removal, &nothing).ok());
    submit();
    QVERIFY(Eventually(std::chrono::seconds(30), [&] {
      return cluster_.Serving("text_encode", "one")["app_ids"].size() == 1 &&
             DiffusionOf("two") == 0;
    }));
    submit();
    v1::ApplyWorkflowRequest application;
    v1::Workflow applied;
    QVERIFY(config::LoadYamlFile(cluster_.Path("two.yaml"), application.mutable_workflow()).ok());
    QVERIFY(manager->ApplyWorkflow(&apply_call, application, &applied).ok());
    submit();
    QVERIFY(Eventually(std::chrono::seconds(30), [&] { return DiffusionOf("two") != 0; }));
    uids.push_back(Submit("two", "4"));
    for (const std::string& uid : uids) {
      const json job = cluster_.Watch(uid);
      QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());
    }
  }

  void KilledDiffusion_OfOneLeavesTheOtherUntouched() {
    std::vector<std::string> untouched;
    // The job is large and long, so that it is still computed when its instance is killed.
    const std::string hurt =
        cluster_.Submit({"--app", "two", "--prompt", "a red circle moving right", "--steps", "100",
                         "--width", "128", "--height", "128", "--deadline", "150"});
    QVERIFY(!hurt.empty());
    for (int i = 0; i < 3; ++i) untouched.push_back(Submit("one", "20"));
    QVERIFY(Eventually(std::chrono::seconds(60), [&] {
      const json job = cluster_.Get(hurt);
      return job.value("stage", "") == "diffusion" && job.value("step", 0) > 0;
    }));
    const int pid = DiffusionOf("two");
    QVERIFY(pid > 0);
    QCOMPARE(kill(pid, SIGKILL), 0);
    for (const std::string& uid : untouched) {
      const json job = cluster_.Watch(uid);
      QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump().c_str());
    }
    const json again = cluster_.Watch(hurt);  // It was computed again.
    QVERIFY2(again.value("state", "") == "SUCCEEDED", again.dump().c_str());
    QVERIFY(Eventually(std::chrono::seconds(60), [&] { return cluster_.EveryProcessReady(); }));
    const json after = cluster_.Watch(Submit("two", "2"));
    QVERIFY2(after.value("state", "") == "SUCCEEDED", after.dump().c_str());
  }

 private:
  int DiffusionOf(const std::string& app) const {
    return cluster_.Serving("diffusion", app).value("pid", 0);
  }
  std::string Submit(const char* app, const char* steps) const {
    return cluster_.Submit({"--app", app, "--prompt", "a red circle moving right", "--seed", "5",
                            "--steps", steps, "--deadline", "150"});
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::PoolsTest)
#include "pools_test.moc"
