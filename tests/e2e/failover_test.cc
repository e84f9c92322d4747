// Three NodeManager replicas: jobs, streams and operators while leaders die, stand still or lose
// their disks.
#include <signal.h>

#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "cluster/base/mutex.h"
#include "cluster/client/client.h"
#include "cluster/local/data_dir.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Some ten to thirty seconds of work.
const QStringList kLongJob = {"--prompt",   "a red circle moving right",
                              "--steps",    "100",
                              "--width",    "256",
                              "--height",   "256",
                              "--seed",     "7",
                              "--deadline", "240"};
const QStringList kShortJob = {"--prompt", "a blue circle moving up", "--steps", "2"};

/// SIGSTOP now, SIGCONT at the end of the scope.
class StandStill {
 public:
  explicit StandStill(std::vector<int> pids) : pids_(std::move(pids)) {
    for (const int pid : pids_) kill(pid, SIGSTOP);
  }
  ~StandStill() {
    for (const int pid : pids_) kill(pid, SIGCONT);
  }
  StandStill(const StandStill&) = delete;
  StandStill& operator=(const StandStill&) = delete;

 private:
  const std::vector<int> pids_;
};

}  // namespace

class FailoverTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    QVERIFY(cluster_.Up({"--nodemanagers", "3"}));
    // All three are voters, so the group survives the loss of any one from the beginning.
    const json status = ClusterStatus();
    QVERIFY2(status.value("healthy", false), status.dump(1).c_str());
    QCOMPARE(status["replicas"].size(), std::size_t{3});
  }
  void init() { QVERIFY2(Healthy(), ClusterStatus().dump(1).c_str()); }

  void Status_TellsWhoLeads() {
    const json status = cluster_.Status();
    std::map<std::string, int> roles;
    for (const auto& process : status["processes"]) {
      if (process.value("role", "") == "nodemanager") ++roles[process.value("replica_role", "")];
    }
    QCOMPARE(roles["leader"], 1);
    QCOMPARE(roles["follower"], 2);
    QCOMPARE(cluster_.Run({"up", "--nodemanagers", "2"}).exit_code, 2);
  }

  void JobInFlight_LeaderKilledAgainAndAgain_FinishesWithTheSameFrames() {
    const auto calm_begin = base::SystemClock().Now();
    const Outcome calm = cluster_.Run(QStringList{"submit", "--wait", "--json"} + kLongJob, 300);
    // At least three kills fall into the job, however fast the machine is.
    const base::Duration between_kills =
        std::min<base::Duration>(seconds(3), (base::SystemClock().Now() - calm_begin) / 4);
    QVERIFY2(calm.exit_code == 0, calm.err.c_str());
    const std::string frames = FramesHash(calm.Document());
    QVERIFY(!frames.empty());

    const std::string uid = cluster_.Submit(kLongJob);
    QVERIFY(!uid.empty());
    int kills = 0;
    std::set<std::string> leaders;
    json job;
    QVERIFY(Eventually(seconds(300), [&] {
      testing::Pause(between_kills);
      const std::string leader = ClusterStatus().value("leader", "");
      if (kill(PidOf(leader), SIGKILL) == 0 && !leader.empty()) {
        ++kills;
        leaders.insert(leader);
      }
      job = cluster_.Get(uid);
      return job.is_object() && job.value("state", "") != "QUEUED" &&
             job.value("state", "") != "RUNNING";
    }));
    QVERIFY2(job.value("state", "") == "SUCCEEDED", job.dump(1).c_str());
    qInfo("%d leaders killed, %zu replicas led", kills, leaders.size());
    QVERIFY(kills >= 3);
    QCOMPARE(FramesHash(job), frames);
  }

  void NoNodeManagerAtAll_JobsGoOnThroughAKnownProxy() {
    const auto state = State();
    std::string proxy;
    for (const auto& record : state.processes) {
      if (record.role == "proxy") proxy = record.address;
    }
    const StandStill everyone(NodeManagerPids());
    const Outcome through = cluster_.Run(
        QStringList{"submit", "--wait", "--json", "--proxy", QString::fromStdString(proxy)} +
        kShortJob);
    QVERIFY2(through.exit_code == 0, (through.out + through.err).c_str());
    QCOMPARE(through.Document().value("state", ""), std::string("SUCCEEDED"));
    // The data directory knows the proxies too.
    const std::string file = cluster_.Path("still.mp4");
    const Outcome found = cluster_.Run(
        QStringList{"submit", "--wait", "-o", QString::fromStdString(file)} + kShortJob);
    QVERIFY2(found.exit_code == 0, (found.out + found.err).c_str());
    QVERIFY(std::filesystem::file_size(file) > 0);
    QCOMPARE(cluster_.Run({"jobs", "--json"}).exit_code, 0);
    const Outcome status = cluster_.Run({"cluster", "status", "--json"});
    QCOMPARE(status.exit_code, 69);
    QVERIFY2(!status.Document()["advice"].empty(), status.out.c_str());
  }

  void WipedReplica_ComesBackUnderANewId() {
    const json before = ClusterStatus();
    const std::string follower = AFollower(before);
    const int pid = PidOf(follower);
    QVERIFY(pid > 0);
    {
      const StandStill supervisor({State().supervisor.pid});
      const local::ProcessId process = local::Identify(pid);
      kill(pid, SIGKILL);
      QVERIFY(local::WaitGone(process, seconds(10)));
      std::filesystem::remove_all(cluster_.Path("data/" + follower));
    }
    QVERIFY2(Healthy(), ClusterStatus().dump(1).c_str());
    QVERIFY(Replica(ClusterStatus(), follower).value("replica", "") !=
            Replica(before, follower).value("replica", ""));
    QCOMPARE(cluster_.Run(QStringList{"submit", "--wait"} + kShortJob).exit_code, 0);
  }

  void WatchCluster_OverAFailover_HasNoGapAndNoRepeat() {
    client::ClientOptions options;
    options.nodemanagers = State().nodemanagers;
    client::Client watcher(options), asker(options);
    base::Mutex mutex;
    std::map<std::string, std::string> nodes;  // Guarded by mutex, like all below.
    std::vector<std::uint64_t> revisions;
    std::stop_source stop;
    absl::Status end;
    std::thread watching([&] {
      end = watcher.WatchCluster(
          0,
          [&](const v1::ClusterEvent& event) {
            const base::MutexLock lock(mutex);
            if (event.change_case() == v1::ClusterEvent::CHANGE_NOT_SET) return true;
            revisions.push_back(event.revision());
            for (const auto& node : event.snapshot().nodes()) nodes[node.node_id()] = Facts(node);
            if (event.has_node()) nodes[event.node().node_id()] = Facts(event.node());
            return true;
          },
          base::SystemClock().Now() + seconds(240), stop.get_token());
    });
    for (int round = 0; round < 2; ++round) {
      kill(PidOf(ClusterStatus().value("leader", "")), SIGKILL);
      kill(PidOf("proxy-1"), SIGKILL);  // Its new incarnation is a change.
      QVERIFY2(Healthy(), ClusterStatus().dump(1).c_str());
    }
    const bool same = Eventually(seconds(30), [&] {
      const auto cluster = asker.GetCluster();
      if (!cluster.ok()) return false;
      std::map<std::string, std::string> now;
      for (const auto& node : cluster->nodes()) now[node.node_id()] = Facts(node);
      const base::MutexLock lock(mutex);
      return now == nodes;
    });
    stop.request_stop();
    watching.join();
    QVERIFY2(absl::IsCancelled(end), end.ToString().c_str());
    QVERIFY(same);
    QVERIFY(revisions.size() > 2);
    for (std::size_t i = 1; i < revisions.size(); ++i) QVERIFY(revisions[i] > revisions[i - 1]);
  }

  void StepDown_AnotherReplicaLeads() {
    const std::string before = ClusterStatus().value("leader", "");
    const Outcome outcome = cluster_.Run({"cluster", "step-down", "--json"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QCOMPARE(outcome.Document().value("stepped_down", ""), before);
    QVERIFY(Eventually(seconds(20), [&] {
      const std::string now = ClusterStatus().value("leader", "");
      return !now.empty() && now != before;
    }));
  }

  void Operators_SeeMembersLogAndSnapshot() {
    const json members = cluster_.Run({"cluster", "members", "--json"}).Document();
    QCOMPARE(members["seats"].size(), std::size_t{3});
    const Outcome snapshot = cluster_.Run({"cluster", "snapshot", "nodemanager-2", "--json"});
    QVERIFY2(snapshot.exit_code == 0, snapshot.err.c_str());
    QVERIFY(snapshot.Document().value("index", 0) > 0);
    const Outcome log = cluster_.Run({"cluster", "log", "--limit", "3", "--json"});
    QVERIFY2(log.exit_code == 0, log.err.c_str());
    QVERIFY(log.Document()["lines"].size() <= 3 && !log.Document()["lines"].empty());
    const Outcome unknown = cluster_.Run({"cluster", "log", "--replica", "nobody"});
    QCOMPARE(unknown.exit_code, 3);
    QVERIFY2(unknown.err.find("nodemanager-2") != std::string::npos, unknown.err.c_str());
  }

  void AnotherCluster_IsNamed_AndItsDataIsRefused() {
    const QStringList arguments = {"--insecure",
                                   "--node-id",
                                   "nodemanager-9",
                                   "--data-dir",
                                   QString::fromStdString(cluster_.Path("navy")),
                                   "--ready-file",
                                   QString::fromStdString(cluster_.Path("ready"))};
    const QString program = ONEPIECE_BINARY_DIR "/bin/onepiece-nodemanager";
    QProcess foreign;
    foreign.start(program, arguments + QStringList{"--cluster-id", "navy"});
    QVERIFY(
        Eventually(seconds(30), [&] { return std::filesystem::exists(cluster_.Path("ready")); }));
    const std::string address =
        json::parse(local::ReadFile(cluster_.Path("ready"))).value("address", "");
    // An operator may mix up two clusters' addresses like this.
    const std::string both = State().nodemanagers[0] + "," + address;
    const Outcome status = cluster_.Run(
        {"cluster", "status", "--json", "--nodemanager", QString::fromStdString(both)});
    // It is no node of this cluster, so it is told and shown nothing.
    QVERIFY2(status.out.find(address) != std::string::npos, status.out.c_str());
    QVERIFY(!status.Document().value("healthy", true));
    foreign.terminate();
    QVERIFY(foreign.waitForFinished(20'000));
    foreign.setProcessChannelMode(QProcess::MergedChannels);
    foreign.start(program, arguments + QStringList{"--cluster-id", "pirates"});
    QVERIFY(foreign.waitForFinished(20'000));
    QVERIFY(foreign.exitCode() != 0);
    const std::string said = foreign.readAll().toStdString();
    QVERIFY2(said.find("navy") != std::string::npos, said.c_str());
  }

 private:
  static std::string Facts(const v1::Node& node) {
    return std::to_string(node.incarnation()) + " " + v1::Node::State_Name(node.state()) + " " +
           std::to_string(node.assignment().epoch()) + " " + node.address();
  }
  static json Replica(const json& status, const std::string& name) {
    for (const auto& replica : status["replicas"]) {
      if (replica.value("name", "") == name) return replica;
    }
    return {};
  }
  static std::string AFollower(const json& status) {
    for (const auto& replica : status["replicas"]) {
      if (replica.value("role", "") == "follower") return replica.value("name", "");
    }
    return "";
  }

  json ClusterStatus() const { return cluster_.Run({"cluster", "status", "--json"}).Document(); }
  bool Healthy() const {
    return Eventually(seconds(60), [&] {
      const json status = ClusterStatus();
      return status.is_object() && status.value("healthy", false) &&
             status["replicas"].size() == 3 && cluster_.EveryProcessReady();
    });
  }
  local::ClusterState State() const {
    const auto state = local::ReadState(local::DataDir{cluster_.Path("data")});
    return state.ok() && state->has_value() ? **state : local::ClusterState();
  }
  int PidOf(const std::string& node) const {
    for (const auto& record : State().processes) {
      // The pid of a process that does not run is 0, which would mean this process's group.
      if (record.node_id == node && record.process.pid > 0) return record.process.pid;
    }
    return 1 << 30;
  }
  std::vector<int> NodeManagerPids() const {
    std::vector<int> pids;
    for (const auto& record : State().processes) {
      if (record.role == "nodemanager") pids.push_back(record.process.pid);
    }
    return pids;
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::FailoverTest)
#include "failover_test.moc"
