// Kills every kind of process with kill -9 during a job. The job ends, the cluster heals, and
// nothing is left at the end.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <fstream>

#include "cluster/local/data_dir.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

/// A TCP port of the loopback on which somebody listens.
class TakenPort {
 public:
  TakenPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, generic, size) == 0 && listen(socket_, 1) == 0 &&
        getsockname(socket_, generic, &size) == 0) {
      number_ = ntohs(address.sin_port);
    }
  }
  ~TakenPort() { close(socket_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int socket_;
  int number_ = 0;
};

}  // namespace

class ChaosTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QVERIFY(cluster_.Up()); }

  void KilledProcess_JobEndsAndTheClusterHeals_data() {
    QTest::addColumn<QString>("node");
    for (const char* node :
         {"nodemanager-1", "proxy-1", "database-1", "database-2", "instance-text_encode-1",
          "instance-diffusion-1", "instance-vae_decode-1"}) {
      QTest::newRow(node) << node;
    }
  }
  void KilledProcess_JobEndsAndTheClusterHeals() {
    QFETCH(QString, node);
    const std::string uid =
        cluster_.Submit({"--prompt", "a red circle moving right", "--steps", "100", "--width",
                         "128", "--height", "128", "--deadline", "120"});
    QVERIFY(!uid.empty());
    QVERIFY(Eventually(std::chrono::seconds(60), [&] {
      const json job = cluster_.Get(uid);
      return job.value("state", "") == "RUNNING" && job.value("step", 0) > 0;
    }));
    const int pid = cluster_.PidOf(node.toStdString());
    QVERIFY(pid > 0);
    QCOMPARE(kill(pid, SIGKILL), 0);
    const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"}, 180);
    QVERIFY2(watched.Document().is_object(), watched.err.c_str());
    const std::string state = watched.Document().value("state", "");
    qInfo("%s killed: the job ended %s %s", qPrintable(node), state.c_str(),
          watched.Document()["error"].dump().c_str());
    QVERIFY2(state == "SUCCEEDED", watched.out.c_str());
    const bool healed = Eventually(std::chrono::seconds(60), [&] {
      return cluster_.PidOf(node.toStdString()) != pid && cluster_.EveryProcessReady();
    });
    QVERIFY2(healed, cluster_.Status().dump(1).c_str());
    const Outcome next = cluster_.Run(
        {"submit", "--prompt", "a blue circle moving up", "--steps", "2", "--wait"}, 60);
    QVERIFY2(next.exit_code == 0, next.err.c_str());
  }

  void KilledSupervisor_DownCleansUp() {
    ClusterUnderTest other;
    QVERIFY(other.Up());
    const json status = other.Status();
    QVERIFY(status["cluster_id"] != cluster_.Status()["cluster_id"]);
    QCOMPARE(kill(status["supervisor"].value("pid", 0), SIGKILL), 0);
    QVERIFY(other.Down());
  }

  void KilledSupervisor_UpStartsAfresh() {
    ClusterUnderTest other;
    QVERIFY(other.Up());
    const int supervisor = other.Status()["supervisor"].value("pid", 0);
    // While it ends its first thread may be a zombie, which has no identity any more.
    const local::ProcessId process = local::Identify(supervisor);
    QCOMPARE(kill(supervisor, SIGKILL), 0);
    QVERIFY(local::WaitGone(process, std::chrono::seconds(10)));
    QVERIFY(other.Up());
    QCOMPARE(
        other.Run({"submit", "--prompt", "a blue circle", "--steps", "2", "--wait"}, 60).exit_code,
        0);
    QVERIFY(other.Down());
  }

  void Up_AfterAWorkflowThatCouldNotBeServed_Works() {
    ClusterUnderTest other;
    std::string workflow =
        local::ReadFile(ONEPIECE_SOURCE_DIR "/resources/workflows/tiny-wan-t2v.yaml");
    for (const std::string from : {"app_id: tiny-wan-t2v", "model: tiny-wan-t2v"}) {
      for (auto at = workflow.find(from); at != std::string::npos; at = workflow.find(from, at)) {
        workflow.replace(at, from.size(), from.substr(0, from.find(' ')) + " a-wan");
      }
    }
    std::ofstream(other.Path("a-wan.yaml")) << workflow;
    std::ofstream(other.Path("cluster.yaml")) << "workflow_files: [a-wan.yaml]\n";
    QVERIFY(other.Run({"up", "--config", QString::fromStdString(other.Path("cluster.yaml"))})
                .exit_code != 0);
    QVERIFY(other.Up());
    QVERIFY(other.Down());
  }

  void Up_PortInUse_SaysSoAndLeavesNothing() {
    ClusterUnderTest other;
    TakenPort port;
    const std::string file = other.Path("cluster.yaml");
    std::ofstream(file) << "proxy_listen: 127.0.0.1:" << port.number() << "\n";
    const Outcome up = other.Run({"up", "--config", QString::fromStdString(file)});
    QCOMPARE(up.exit_code, 1);
    QVERIFY2(up.err.find(std::to_string(port.number())) != std::string::npos, up.err.c_str());
    QVERIFY(other.Down());
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::ChaosTest)
#include "chaos_test.moc"
