// A cluster goes from an older build to this one, process by process, while jobs run. The older
// build is that of the commit before the present work (tests/upgrade/run makes it), in
// $ONEPIECE_OLD_BUILD.
#include <signal.h>

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/process.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::upgrade {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;
using testing::Eventually;
using testing::Outcome;

const QStringList kJob = {"--prompt", "a green circle", "--steps", "8", "--seed", "3"};
constexpr const char* kPrograms[] = {"onepiece",       "onepiece-model",    "onepiece-nodemanager",
                                     "onepiece-proxy", "onepiece-database", "onepiece-instance"};
const base::Duration kLimit = base::Scaled(seconds(120));

// A job that the cluster has accepted must succeed.
struct Promised {
  std::vector<std::string> uids;
  int refused = 0;  // While a proxy or a leader was away.
};

}  // namespace

class UpgradeTest : public QObject {
  Q_OBJECT
 private:
  [[nodiscard]] std::string Path(const std::string& name) const {
    return dir_.path().toStdString() + "/" + name;
  }
  // Makes `name` a link to `target`, in one step.
  static void Link(const std::string& target, const std::string& name) {
    fs::remove(name + ".new");
    fs::create_symlink(target, name + ".new");
    fs::rename(name + ".new", name);
  }
  // From now on `program` is that of this build, whoever starts it.
  void Upgrade(const std::string& program) const {
    Link(ONEPIECE_BINARY_DIR "/bin/" + program, Path("bin/" + program));
  }
  Outcome Run(const QStringList& arguments, int timeout_s = 180) const {
    const auto path = [&](const char* name) { return QString::fromStdString(Path(name)); };
    return testing::RunProgram(
        path("bin/onepiece"), arguments + QStringList{"--data-dir", path("data")}, timeout_s,
        {{"ONEPIECE_BIN_DIR", path("bin")}, {"ONEPIECE_PLUGIN_DIR", path("plugins")}});
  }
  [[nodiscard]] local::ClusterState State() const {
    const auto state = local::ReadState(local::DataDir{Path("data")});
    return state.ok() && state->has_value() ? **state : local::ClusterState();
  }
  [[nodiscard]] std::vector<std::string> NodesOf(const std::string& role) const {
    std::vector<std::string> nodes;
    for (const local::ProcessRecord& record : State().processes) {
      if (record.role == role) nodes.push_back(record.node_id);
    }
    return nodes;
  }
  [[nodiscard]] int PidOf(const std::string& node) const {
    for (const local::ProcessRecord& record : State().processes) {
      if (record.node_id == node) return record.process.pid;
    }
    return 0;
  }
  // True when the process runs the program of this build.
  static bool RunsNew(int pid) {
    std::error_code error;
    const std::string program =
        fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).string();
    return !error && program.starts_with(fs::canonical(ONEPIECE_BINARY_DIR).string() + "/");
  }
  [[nodiscard]] bool IsReady(const std::string& node) const {
    const json status = Run({"status", "--json"}).Document();
    if (!status.is_object()) return false;
    for (const auto& process : status.value("processes", json::array())) {
      if (process.value("node_id", "") == node) return process.value("state", "") == "READY";
    }
    return false;
  }
  [[nodiscard]] json Group() const { return Run({"cluster", "status", "--json"}).Document(); }
  [[nodiscard]] bool GroupIsHealthy() const {
    const json group = Group();
    return group.is_object() && group.value("healthy", false);
  }
  // The supervisor starts the program again that it finds under this name now.
  [[nodiscard]] bool Replace(const std::string& node) const {
    const int before = PidOf(node);
    if (before == 0 || kill(before, SIGTERM) != 0) return false;
    const bool replaced = Eventually(kLimit, [&] {
      const int pid = PidOf(node);
      return pid != 0 && pid != before && RunsNew(pid) && IsReady(node);
    });
    if (replaced) qInfo("%s is replaced", node.c_str());
    return replaced;
  }
  // The leader goes last, and hands over before.
  [[nodiscard]] bool ReplaceNodeManagers() const {
    for (std::size_t left = NodesOf("nodemanager").size(); left > 0; --left) {
      std::string leader;
      if (!Eventually(kLimit, [&] { return !(leader = Group().value("leader", "")).empty(); }))
        return false;
      std::string next = leader;
      for (const std::string& node : NodesOf("nodemanager")) {
        if (node != leader && !RunsNew(PidOf(node))) next = node;
      }
      if (next == leader && RunsNew(PidOf(leader))) return false;  // It has come too early.
      if (next == leader && Run({"cluster", "step-down", "--json"}).exit_code != 0) return false;
      if (!Replace(next) || !Eventually(kLimit, [&] { return GroupIsHealthy(); })) return false;
    }
    return true;
  }
  [[nodiscard]] bool ReplaceAll(const std::string& role) const {
    Upgrade("onepiece-" + role);
    for (const std::string& node : NodesOf(role)) {
      if (!Replace(node)) return false;
      // A database that went before the other has its results again would take the last copies.
      if (role == "database" && !Eventually(kLimit, [&] { return DatabasesAreEqual(); }))
        return false;
    }
    return true;
  }
  // True when each database has every result.
  [[nodiscard]] bool DatabasesAreEqual() const {
    const json stats = Run({"db", "stats", "--json"}).Document();
    if (!stats.is_object() || stats.value("databases", json::array()).size() != 2) return false;
    const json &first = stats["databases"][0], &second = stats["databases"][1];
    return first.value("results", 0) > 0 &&
           first.value("results", 0) == second.value("results", -1);
  }
  // Submits jobs until it is told to stop.
  void Load(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const json job = Run(QStringList{"submit", "--json"} + kJob, 60).Document();
      const std::string uid = job.is_object() ? job.value("uid", "") : "";
      {
        const base::MutexLock lock(mutex_);
        uid.empty() ? void(++promised_.refused) : promised_.uids.push_back(uid);
      }
      (void)Eventually(std::chrono::milliseconds(300), [&] { return stop.stop_requested(); });
    }
  }
  [[nodiscard]] std::size_t Accepted() {
    const base::MutexLock lock(mutex_);
    return promised_.uids.size();
  }
  // A change of the replicated state that must outlive the upgrade.
  bool AddWorkflow(const std::string& app) {
    return Eventually(kLimit, [&] {
      for (const std::string& address : State().nodemanagers) {
        using Stub = v1::NodeManagerService::Stub;
        const auto stub = v1::NodeManagerService::NewStub(rpc::MakeChannel(address));
        const auto cluster = rpc::Call(*stub, &Stub::GetCluster, {}, seconds(5));
        if (!cluster.ok() || cluster->workflows().empty()) continue;
        v1::ApplyWorkflowRequest request;
        v1::Workflow& workflow = *request.mutable_workflow();
        workflow = cluster->workflows(0);
        workflow.set_app_id(app);
        workflow.set_name("workflows/" + app);
        if (rpc::Call(*stub, &Stub::ApplyWorkflow, request, seconds(5)).ok()) return true;
      }
      return false;
    });
  }
  [[nodiscard]] std::string Apps() const {
    std::string apps;
    for (const auto& workflow :
         Run({"workflow", "list", "--json"}).Document().value("workflows", json::array()))
      apps += workflow.value("app", "") + " ";
    return apps;
  }
  // Every accepted job ends well, and all have the same result, whichever programs took part.
  void CheckJobs() {
    std::map<std::string, int> frames;
    for (const std::string& uid : promised_.uids) {
      json job;
      const bool ended = Eventually(kLimit, [&] {
        job = Run({"get", QString::fromStdString(uid), "--json"}).Document();
        const std::string state = job.is_object() ? job.value("state", "") : "";
        return !state.empty() && state != "QUEUED" && state != "RUNNING";
      });
      QVERIFY2(ended && job.value("state", "") == "SUCCEEDED", (uid + " " + job.dump(1)).c_str());
      for (const auto& artifact : job.value("artifacts", json::array())) {
        if (artifact.value("artifact", "") == "frames_sha256")
          ++frames[artifact.value("sha256", "")];
      }
    }
    QCOMPARE(frames.size(), std::size_t{1});
    QCOMPARE(static_cast<std::size_t>(frames.begin()->second), promised_.uids.size());
  }

 private Q_SLOTS:
  void initTestCase() {
    old_ = qEnvironmentVariable("ONEPIECE_OLD_BUILD").toStdString();
    if (old_.empty()) QSKIP("tests/upgrade/run builds the older programs and names them");
    fs::create_directory(Path("bin"));
    for (const char* program : kPrograms)
      Link(fs::absolute(old_).string() + "/bin/" + program, Path("bin/") + program);
    Link(fs::absolute(old_).string() + "/lib/onepiece/stages", Path("plugins"));
    std::ofstream(Path("cluster.yaml")) << "proxies: 2\n"
                                           "databases: 2\n"
                                           "nodemanagers: 3\n"
                                           "instances:\n"
                                           "  - {stage: text_encode, count: 1}\n"
                                           "  - {stage: diffusion, count: 2}\n"
                                           "  - {stage: vae_decode, count: 1}\n";
    const Outcome up = Run({"up", "--config", QString::fromStdString(Path("cluster.yaml"))}, 300);
    QVERIFY2(up.exit_code == 0, (up.out + up.err).c_str());
  }

  void RollingUpgradeUnderLoad_LosesNothing() {
    QCOMPARE(NodesOf("nodemanager").size(), std::size_t{3});
    QVERIFY(AddWorkflow("kept-old"));
    std::jthread load([this](const std::stop_token& stop) { Load(stop); });
    QVERIFY(Eventually(kLimit, [&] { return Accepted() >= 3; }));

    // The order of docs/versions.md.
    Upgrade("onepiece-nodemanager");
    QVERIFY2(ReplaceNodeManagers(), Group().dump(1).c_str());
    QVERIFY(AddWorkflow("kept-nodemanagers"));
    QVERIFY(ReplaceAll("database"));
    QVERIFY(ReplaceAll("proxy"));
    QVERIFY(AddWorkflow("kept-proxies"));
    // Instances load the plug-ins of their own build.
    Link(ONEPIECE_BINARY_DIR "/lib/onepiece/stages", Path("plugins"));
    QVERIFY(ReplaceAll("instance"));
    Upgrade("onepiece");
    for (const local::ProcessRecord& record : State().processes)
      QVERIFY2(RunsNew(record.process.pid), record.node_id.c_str());

    const std::size_t before = Accepted();
    const Outcome raised = Run({"cluster", "upgrade", "--json"});
    QVERIFY2(raised.exit_code == 0, raised.err.c_str());
    QVERIFY(AddWorkflow("kept-new"));
    QVERIFY(Eventually(kLimit, [&] { return Accepted() >= before + 3; }));
    load.request_stop();
    load.join();
    qInfo("%zu jobs accepted, %d refused", promised_.uids.size(), promised_.refused);

    CheckJobs();
    const std::string apps = Apps();
    for (const char* app : {"kept-old", "kept-nodemanagers", "kept-proxies", "kept-new"})
      QVERIFY2(apps.find(app) != std::string::npos, apps.c_str());
    const json status = Run({"status", "--json"}).Document();
    QCOMPARE(status.value("feature_level", 0), status.value("available_feature_level", -1));
    QVERIFY(Eventually(kLimit, [&] { return GroupIsHealthy(); }));
    for (const auto& replica : Group()["replicas"])
      QCOMPARE(replica.value("health", ""), std::string("OK"));
  }

  void cleanupTestCase() {
    if (!old_.empty()) QCOMPARE(Run({"down"}).exit_code, 0);
  }

 private:
  QTemporaryDir dir_;
  std::string old_;
  base::Mutex mutex_;
  Promised promised_;  // Guarded by mutex_ while the load runs.
};

}  // namespace onepiece::upgrade

ONEPIECE_TEST(onepiece::upgrade::UpgradeTest)
#include "upgrade_test.moc"
