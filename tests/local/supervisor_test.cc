#include "cluster/local/supervisor.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cluster/base/status.h"
#include "cluster/local/control.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::local {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Waits with a limit that only a failing test reaches.
template <typename Condition>
bool Eventually(Condition condition) {
  return testing::Eventually(seconds(20), condition);
}

}  // namespace

class SupervisorTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    bin_ = temp_->path().toStdString() + "/bin";
    fs::create_directories(bin_);
    fs::create_directories(temp_->path().toStdString() + "/lib/onepiece/stages");
    for (const char* role : {"nodemanager", "proxy", "database", "instance"}) {
      const std::string program = bin_ + "/onepiece-" + role;
      fs::copy_file(ONEPIECE_SOURCE_DIR "/tests/local/fake_service.sh", program);
      fs::permissions(program, fs::perms::owner_all);
    }
    setenv("ONEPIECE_BIN_DIR", bin_.c_str(), 1);
    const auto dir = PrepareDataDir(temp_->path().toStdString() + "/data");
    QVERIFY2(dir.ok(), dir.status().ToString().c_str());
    dir_ = *dir;
  }
  void cleanup() { temp_.reset(); }

  void Start_RunsEveryProcess_StopLeavesNothing() {
    SupervisorSignals signals;
    Supervisor supervisor(Options(), signals);
    const absl::Status started = supervisor.Start();
    QVERIFY2(started.ok(), started.ToString().c_str());
    const ClusterState state = State();
    QVERIFY(state.ready);
    QCOMPARE(state.processes.size(), std::size_t{5});
    QCOMPARE(state.nodemanagers.size(), std::size_t{1});
    for (const auto& record : state.processes) {
      QVERIFY(IsRunning(record.process));
      QVERIFY(!record.address.empty());
    }
    // The other nodes were told where the NodeManager is.
    QVERIFY(ReadFile(dir_.ConfigFile("proxy-1")).find(state.nodemanagers[0]) != std::string::npos);
    supervisor.Stop();
    for (const auto& record : state.processes) QVERIFY(!IsRunning(record.process));
    QVERIFY(!fs::exists(dir_.State()));
    QVERIFY(fs::is_empty(dir_.RunDir()));
    const std::string ended = ReadFile(bin_ + "/ended");
    QVERIFY2(ended.ends_with("nodemanager-1\n"),
             "the NodeManager goes last, so that the others can say goodbye");
  }

  void Start_ProcessDies_TellsItsLastWordsAndStopsTheRest() {
    Behave("proxy-1", "die");
    SupervisorSignals signals;
    Supervisor supervisor(Options(), signals);
    const absl::Status started = supervisor.Start();
    QCOMPARE(base::GetReason(started).reason, std::string("START_FAILED"));
    const std::string message = base::Message(started);
    QVERIFY2(message.find("proxy-1 ended with exit code 3: the port is taken") != std::string::npos,
             message.c_str());
    QVERIFY(!fs::exists(dir_.State()));
    QVERIFY2(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD, "children are left");
  }

  void Start_ProcessNeverReady_TimesOut() {
    Behave("database-2", "mute");
    SupervisorSignals signals;
    SupervisorOptions options = Options();
    options.start_limit = milliseconds(400);
    Supervisor supervisor(options, signals);
    const absl::Status started = supervisor.Start();
    QVERIFY2(absl::IsDeadlineExceeded(started), started.ToString().c_str());
    QVERIFY(base::Message(started).find("database-2") != std::string::npos);
  }

  void Start_NobodyWaitsAnyMore_GivesUp() {
    SupervisorSignals signals;
    SupervisorOptions options = Options();
    options.on_progress = [](const Progress& progress) { return progress.ready < 2; };
    Supervisor supervisor(options, signals);
    QVERIFY(absl::IsCancelled(supervisor.Start()));
    QVERIFY(!fs::exists(dir_.State()));
  }

  void Start_StageCannotBeLoaded_FailsAtOnce() {
    SupervisorSignals signals;
    SupervisorOptions options = Options();
    options.readiness = [this](const auto&) -> absl::StatusOr<Readiness> {
      return Readiness{
          {},
          {{Record(State(), "instance-decode-1").process.pid, "loading failed: no such model"}},
          {},
          {}};
    };
    Supervisor supervisor(options, signals);
    const absl::Status started = supervisor.Start();
    QCOMPARE(base::GetReason(started).reason, std::string("START_FAILED"));
    QVERIFY(base::Message(started).find("instance-decode-1: loading failed: no such model") !=
            std::string::npos);
  }

  void Stop_StubbornProcess_IsKilled() {
    Behave("instance-decode-1", "stubborn");
    SupervisorSignals signals;
    SupervisorOptions options = Options();
    options.stop_limit = milliseconds(300);
    Supervisor supervisor(options, signals);
    QVERIFY(supervisor.Start().ok());
    supervisor.Stop();
    QVERIFY(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD);
  }

  void Run_KilledProcess_StartsAgainAndTheNodeManagerKeepsItsAddress() {
    SupervisorSignals signals;
    Supervisor supervisor(Options(), signals);
    QVERIFY(supervisor.Start().ok());
    const ClusterState before = supervisor.state();
    bool proxy_again = false, manager_again = false;
    const pthread_t supervising = pthread_self();
    std::thread tester([&] {
      kill(Record(before, "proxy-1").process.pid, SIGKILL);
      kill(Record(before, "nodemanager-1").process.pid, SIGKILL);
      const auto again = [&](const std::string& node) {
        const ProcessRecord record = Record(State(), node);
        return record.restarts == 1 && !record.address.empty() && IsRunning(record.process);
      };
      proxy_again = Eventually([&] { return again("proxy-1"); });
      manager_again = Eventually([&] { return again("nodemanager-1"); });
      // The signal must go to the supervising thread. The process's signals could go to Qt Test's
      // watchdog, which does not block them.
      pthread_kill(supervising, SIGTERM);
    });
    supervisor.Run();
    tester.join();
    QVERIFY(proxy_again);
    QVERIFY(manager_again);
    QCOMPARE(Record(supervisor.state(), "nodemanager-1").address,
             Record(before, "nodemanager-1").address);
    QVERIFY(Record(supervisor.state(), "nodemanager-1").process.pid !=
            Record(before, "nodemanager-1").process.pid);
  }

  void Run_StoppedProcess_IsKilledAndStartsAgain() {
    SupervisorSignals signals;
    SupervisorOptions options = Options();
    options.silence = {.first = milliseconds(300), .longest = seconds(60)};
    std::atomic<int> stopped = 0;
    options.readiness = [everyone = options.readiness, &stopped](const auto& nodemanagers) {
      auto readiness = everyone(nodemanagers);
      // Also a process that has the id of an earlier instance, and one of no node of ours.
      readiness->silent = {
          {"proxy-1", stopped}, {"instance-decode-1", getpid()}, {"nobody-1", getpid()}};
      return readiness;
    };
    Supervisor supervisor(options, signals);
    QVERIFY(supervisor.Start().ok());
    const ClusterState before = supervisor.state();
    bool again = false;
    const pthread_t supervising = pthread_self();
    std::thread tester([&] {
      stopped = Record(before, "proxy-1").process.pid;
      kill(stopped, SIGSTOP);
      // The NodeManager goes on naming the process that is gone, and nobody dies for it.
      again = Eventually([&] {
        const ProcessRecord record = Record(State(), "proxy-1");
        return record.restarts == 1 && !record.address.empty() && IsRunning(record.process);
      });
      pthread_kill(supervising, SIGTERM);
    });
    supervisor.Run();
    tester.join();
    QVERIFY(again);
    QVERIFY(!IsRunning(Record(before, "proxy-1").process));
    for (const auto& record : supervisor.state().processes)
      QCOMPARE(record.restarts, record.node_id == "proxy-1" ? 1 : 0);
  }

  void Replicas_KeepTheirAddresses_AndOnlyAnEmptyGroupIsBegun() {
    SupervisorSignals signals;
    Supervisor supervisor(Options(3), signals);
    const absl::Status started = supervisor.Start();
    QVERIFY2(started.ok(), started.ToString().c_str());
    const ClusterState before = supervisor.state();
    QCOMPARE(before.nodemanagers.size(), std::size_t{3});
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string name = "nodemanager-" + std::to_string(i + 1);
      QCOMPARE(Record(before, name).address, before.nodemanagers[i]);
      // Every node was told the addresses of all replicas.
      QVERIFY(ReadFile(dir_.ConfigFile("proxy-1")).find(before.nodemanagers[i]) !=
              std::string::npos);
    }
    QVERIFY(ReadFile(dir_.ConfigFile("nodemanager-1")).find("bootstrap: true") !=
            std::string::npos);
    bool again = false;
    const pthread_t supervising = pthread_self();
    std::thread tester([&] {
      kill(Record(before, "nodemanager-1").process.pid, SIGKILL);
      again = Eventually([&] {
        const ProcessRecord record = Record(State(), "nodemanager-1");
        return record.restarts == 1 && record.address == before.nodemanagers[0];
      });
      pthread_kill(supervising, SIGTERM);
    });
    supervisor.Run();
    tester.join();
    QVERIFY(again);
    QCOMPARE(supervisor.state().nodemanagers, before.nodemanagers);
    const std::string config = ReadFile(dir_.ConfigFile("nodemanager-1"));
    QVERIFY2(config.find("bootstrap") == std::string::npos, config.c_str());
    QVERIFY(config.find("nodemanager-3=" + before.nodemanagers[2]) != std::string::npos);
    supervisor.Stop();
    const std::string ended = ReadFile(bin_ + "/ended");
    QVERIFY(ended.find("instance-decode-1") < ended.find("nodemanager-"));
  }

  void Start_SeatStaysVacant_NamesTheReplica() {
    SupervisorSignals signals;
    SupervisorOptions options = Options(3);
    options.start_limit = milliseconds(1500);
    const auto everyone = options.readiness;
    options.readiness = [everyone](const auto& nodemanagers) {
      auto readiness = everyone(nodemanagers);
      readiness->vacant = {"nodemanager-2"};
      return readiness;
    };
    Supervisor supervisor(options, signals);
    const absl::Status started = supervisor.Start();
    QVERIFY2(absl::IsDeadlineExceeded(started), started.ToString().c_str());
    QVERIFY(base::Message(started).find("nodemanager-2") != std::string::npos);
  }

  void KilledSupervisor_TakesItsProcessesAlong_AndCleanUpRemovesTheRest() {
    const pid_t child = fork();
    if (child == 0) {
      const auto lock = DataDirLock::Acquire(dir_);
      SupervisorSignals signals;
      Supervisor supervisor(Options(), signals);
      if (supervisor.Start().ok()) supervisor.Run();
      _exit(0);
    }
    QVERIFY(Eventually([&] { return State().ready; }));
    const ClusterState state = State();
    kill(child, SIGKILL);
    QCOMPARE(waitpid(child, nullptr, 0), child);
    for (const auto& record : state.processes) QVERIFY(WaitGone(record.process, seconds(10)));
    QVERIFY(fs::exists(dir_.State()));
    const auto down = Down(dir_.path);
    QVERIFY2(down.ok(), down.status().ToString().c_str());
    QVERIFY(*down == DownResult::kStopped);
    QVERIFY(!fs::exists(dir_.State()));
    QVERIFY(*Down(dir_.path) == DownResult::kNothingRan);
  }

  void Lock_SecondHolder_IsToldWhatToDo() {
    const auto first = DataDirLock::Acquire(dir_);
    QVERIFY(first.ok());
    const auto second = DataDirLock::Acquire(dir_);
    QCOMPARE(base::GetReason(second.status()).reason, std::string("CLUSTER_RUNNING"));
    QVERIFY(base::Message(second.status()).find("onepiece down") != std::string::npos);
  }

  void PrepareDataDir_FileInTheWay_NamesIt() {
    const std::string path = temp_->path().toStdString() + "/file";
    std::ofstream(path) << "x";
    const auto dir = PrepareDataDir(path);
    QCOMPARE(base::GetReason(dir.status()).reason, std::string("DATA_DIR_UNUSABLE"));
    QVERIFY(base::Message(dir.status()).find(path) != std::string::npos);
  }

  void ClusterState_SurvivesJson() {
    ClusterState state;
    state.cluster_id = "abc";
    state.nodemanagers = {"127.0.0.1:1"};
    state.supervisor = {7, 8};
    state.processes = {{"proxy-1", "proxy", {9, 10}, "a:1", "b:2", "log", 3}};
    const auto read = ClusterState::FromJson(state.ToJson());
    QVERIFY(read.ok());
    QCOMPARE(read->ToJson(), state.ToJson());
    for (const char* bad : {"", "[]", "{\"cluster_id\":1}", "{"}) {
      QVERIFY(absl::IsInvalidArgument(ClusterState::FromJson(bad).status()));
    }
  }

  void ClusterId_IsStableInADirectoryAndDiffersBetweenTwo() {
    const auto id = ClusterId(dir_);
    QVERIFY(id.ok());
    QCOMPARE(*ClusterId(dir_), *id);
    const auto other = PrepareDataDir(temp_->path().toStdString() + "/other");
    QVERIFY(*ClusterId(*other) != *id);
  }

  void IsRunning_AnotherStartTime_IsAnotherProcess() {
    const ProcessId self = Identify(getpid());
    QVERIFY(IsRunning(self));
    QVERIFY(!IsRunning({.pid = self.pid, .start_time = self.start_time + 1}));
    QVERIFY(!IsRunning({}));
  }

  void LastComplaint_PrefersErrorsAndReadsPlainText() {
    const std::string path = temp_->path().toStdString() + "/log";
    std::ofstream(path)
        << "{\"level\":\"error\",\"message\":\"bad\"}\n{\"level\":\"info\",\"message\":\"bye\"}\n";
    QCOMPARE(LastComplaint(path), std::string("bad"));
    std::ofstream(path) << "first\nlast\n";
    QCOMPARE(LastComplaint(path), std::string("last"));
    QCOMPARE(LastComplaint(path + ".none"), std::string());
  }

 private:
  /// Returns the state in cluster.json, or an empty one when there is none.
  ClusterState State() const {
    const auto state = ReadState(dir_);
    ClusterState result;
    if (state.ok() && state->has_value()) result = state->value();
    return result;
  }

  static ProcessRecord Record(const ClusterState& state, const std::string& node) {
    for (const auto& record : state.processes) {
      if (record.node_id == node) return record;
    }
    return {};
  }

  void Behave(const std::string& node, const std::string& how) {
    std::ofstream(bin_ + "/behaviour." + node) << how;
  }

  SupervisorOptions Options(int nodemanagers = 1) {
    v1::LocalClusterConfig config;
    config.set_nodemanagers(nodemanagers);
    config.set_databases(2);
    config.add_workflow_files("unused.yaml");
    config.set_model_root("models");
    auto* instances = config.add_instances();
    instances->set_stage("decode");
    SupervisorOptions options;
    options.dir = dir_;
    auto plan = MakePlan(config, dir_, "test");
    if (!plan.ok()) qFatal("%s", plan.status().ToString().c_str());
    options.plan = *plan;
    options.first_backoff = milliseconds(20);
    options.readiness = [this](const auto&) -> absl::StatusOr<Readiness> {
      Readiness readiness;
      for (const auto& record : State().processes) readiness.ready.insert(record.process.pid);
      return readiness;
    };
    return options;
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::string bin_;
  DataDir dir_;
};

}  // namespace onepiece::local

ONEPIECE_TEST(onepiece::local::SupervisorTest)
#include "supervisor_test.moc"
