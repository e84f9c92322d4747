// All NodeManagers are lost and come back from a backup, while the nodes go on. Real programs, and
// nodes in this process.
#include <signal.h>

#include <QDir>
#include <QProcess>
#include <QTcpServer>
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"
#include "cluster/base/mutex.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/node_agent.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using Stub = v1::NodeManagerService::Stub;
using testing::Eventually;
using testing::Outcome;

const base::Duration kLong = base::Scaled(std::chrono::seconds(60));

// A node that does no work. It remembers the tables that it got.
class LightNode {
 public:
  LightNode(const std::string& id, const std::vector<std::string>& nodemanagers,
            const std::string& address)
      : agent_({.role = v1::PROXY, .node_id = id, .nodemanagers = nodemanagers, .address = address},
               view_) {
    agent_.OnRouting([this](const std::shared_ptr<const node::Routing>& routing) {
      const base::MutexLock lock(mutex_);
      tables_.push_back(routing->table());
    });
    agent_.SetState({.state = v1::Node::READY});
    agent_.Start();
  }
  [[nodiscard]] bool IsReady() { return agent_.WaitReady(kLong).ok(); }
  [[nodiscard]] std::uint64_t incarnation() const { return view_.incarnation(); }
  [[nodiscard]] std::uint64_t epoch() const { return view_.routing()->epoch(); }
  std::vector<v1::RoutingTable> tables() {
    const base::MutexLock lock(mutex_);
    return tables_;
  }

 private:
  base::Mutex mutex_;
  std::vector<v1::RoutingTable> tables_ ABSL_GUARDED_BY(mutex_);
  node::ClusterView view_;
  node::NodeAgent agent_;
};

bool IsAliveIn(const v1::RoutingTable& table, const std::string& id, std::uint64_t incarnation) {
  return std::any_of(table.alive().begin(), table.alive().end(), [&](const v1::Endpoint& endpoint) {
    return endpoint.node_id() == id && endpoint.incarnation() == incarnation;
  });
}

}  // namespace

class DisasterTest : public QObject {
  Q_OBJECT
 private:
  QString DataDir(int replica) const { return dir_->filePath(QString("nm-%1").arg(replica)); }
  // Draws the addresses of `count` replicas.
  void DrawAddresses(int count) {
    std::vector<std::unique_ptr<QTcpServer>> ports;  // Held together, so that they differ.
    for (int i = 0; i < count; ++i) {
      ports.push_back(std::make_unique<QTcpServer>());
      QVERIFY(ports.back()->listen(QHostAddress::LocalHost));
      addresses_.push_back("127.0.0.1:" + std::to_string(ports.back()->serverPort()));
      replicas_ << QString("nm-%1=%2").arg(i).arg(QString::fromStdString(addresses_.back()));
    }
  }
  void StartReplica(int i) {
    processes_.resize(addresses_.size());
    processes_[i] = std::make_unique<QProcess>();
    processes_[i]->setStandardErrorFile(dir_->filePath(QString("nm-%1.log").arg(i)));
    processes_[i]->start(
        QString(ONEPIECE_BINARY_DIR) + "/bin/onepiece-nodemanager",
        {"--insecure", "--node-id", QString("nm-%1").arg(i), "--listen",
         QString::fromStdString(addresses_[i]), "--data-dir", DataDir(i), "--replicas",
         replicas_.join(','), "--bootstrap", "--cluster-id", "pirates"});
  }
  void Kill(int i) {
    processes_[i]->kill();
    QVERIFY(processes_[i]->waitForFinished(30000));
  }
  Outcome Cluster(const QStringList& arguments) const {
    QStringList nodemanagers;
    for (const std::string& address : addresses_) nodemanagers << QString::fromStdString(address);
    return testing::RunProgram(
        QString(ONEPIECE_BINARY_DIR) + "/bin/onepiece",
        QStringList{"cluster"} + arguments + QStringList{"--nodemanager", nodemanagers.join(',')},
        120);
  }
  absl::StatusOr<v1::Cluster> GetCluster() const {
    absl::Status status;
    for (const std::string& address : addresses_) {
      auto cluster = rpc::Call(*v1::NodeManagerService::NewStub(rpc::MakeChannel(address)),
                               &Stub::GetCluster, {}, std::chrono::seconds(2));
      if (cluster.ok()) return cluster;
      status = cluster.status();
    }
    return status;
  }
  // How many NodeManagers are READY.
  int ReadyReplicas() const {
    const auto cluster = GetCluster();
    if (!cluster.ok()) return 0;
    return static_cast<int>(
        std::count_if(cluster->nodes().begin(), cluster->nodes().end(), [](const v1::Node& node) {
          return node.role() == v1::NODE_MANAGER && node.state() == v1::Node::READY;
        }));
  }
  bool KnowsAllSeatsOccupied(int replica) const {
    const auto status =
        rpc::Call(*v1::ConsensusService::NewStub(rpc::MakeChannel(addresses_[replica])),
                  &v1::ConsensusService::Stub::GetReplica, {}, std::chrono::seconds(5));
    return status.ok() && status->members().seats_size() == 3 &&
           status->members().warnings().empty();
  }
  bool Apply(const std::string& app_id) const {
    v1::ApplyWorkflowRequest request;
    *request.mutable_workflow() = MakeWorkflow(app_id, {"a"});
    request.set_request_id(app_id);
    return std::any_of(addresses_.begin(), addresses_.end(), [&](const std::string& address) {
      return rpc::Call(*v1::NodeManagerService::NewStub(rpc::MakeChannel(address)),
                       &Stub::ApplyWorkflow, request, std::chrono::seconds(5))
          .ok();
    });
  }
  // The workflows that the cluster knows.
  std::set<std::string> Known() const {
    std::set<std::string> known;
    if (const auto cluster = GetCluster(); cluster.ok()) {
      for (const v1::Workflow& workflow : cluster->workflows()) known.insert(workflow.app_id());
    }
    return known;
  }
  // `promised` workflows, app-0 and so on, were acknowledged before the backup began.
  void MakeBackupUnderLoad(const QString& file, int& promised) {
    std::atomic<int> acknowledged{0};
    const std::jthread load([&](const std::stop_token& stop) {
      for (int i = 0; !stop.stop_requested() && i < 900; ++i) {
        if (!Apply(absl::StrCat("app-", i))) return;
        acknowledged = i + 1;
      }
    });
    QVERIFY(Eventually(kLong, [&] { return acknowledged >= 20; }));
    promised = acknowledged;
    const Outcome backup = Cluster({"backup", file, "--json"});
    QVERIFY2(backup.exit_code == 0, backup.err.c_str());
    QCOMPARE(backup.Document()["cluster_id"].get<std::string>(), std::string("pirates"));
    QCOMPARE(backup.Document()["generation"].get<int>(), 0);
  }

 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    node_server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    QVERIFY(node_server_->Start().ok());  // Nodes must be reachable to be registered.
  }
  void cleanup() {
    for (const auto& process : processes_) {
      if (process == nullptr) continue;
      process->kill();
      process->waitForFinished(30000);
    }
    processes_.clear();
    addresses_.clear();
    replicas_.clear();
  }

  void AllReplicasLost_RestoredFromABackup_NodesKeepTheirIncarnations() {
    DrawAddresses(3);
    for (int i = 0; i < 3; ++i) StartReplica(i);
    QVERIFY(Eventually(kLong, [&] { return ReadyReplicas() == 3; }));
    const std::string& at = node_server_->address();
    LightNode before("before", addresses_, at);
    auto reborn = std::make_unique<LightNode>("reborn", addresses_, at);
    QVERIFY(before.IsReady() && reborn->IsReady());

    const QString file = dir_->filePath("pirates.backup");
    int promised = 0;
    MakeBackupUnderLoad(file, promised);
    if (QTest::currentTestFailed()) return;

    // The backup knows neither this node nor the second life of that one.
    LightNode after("after", addresses_, at);
    const std::uint64_t first_life = reborn->incarnation();
    reborn.reset();
    reborn = std::make_unique<LightNode>("reborn", addresses_, at);
    QVERIFY(after.IsReady() && reborn->IsReady());
    QVERIFY(reborn->incarnation() > first_life);
    const std::vector<std::pair<std::string, LightNode*>> nodes = {
        {"before", &before}, {"after", &after}, {"reborn", reborn.get()}};
    std::vector<std::uint64_t> incarnations;
    for (const auto& [id, node] : nodes) incarnations.push_back(node->incarnation());
    QVERIFY(Eventually(kLong, [&] {
      const std::vector<v1::RoutingTable> tables = before.tables();
      return !tables.empty() && std::ranges::all_of(nodes, [&](const auto& node) {
        return IsAliveIn(tables.back(), node.first, node.second->incarnation());
      });
    }));
    const std::size_t tables_before = before.tables().size();

    const Outcome refused = Cluster({"restore", file, "--into", dir_->filePath("new"), "--name",
                                     "nm-1", "--replicas", replicas_.join(','), "--json"});
    QCOMPARE(refused.ErrorReason(), std::string("GROUP_ALIVE"));
    QCOMPARE(refused.exit_code, 4);
    for (int i = 0; i < 3; ++i) {
      Kill(i);
      QVERIFY(QDir(DataDir(i)).removeRecursively());
    }
    const Outcome restored = Cluster({"restore", file, "--into", DataDir(1), "--name", "nm-1",
                                      "--replicas", replicas_.join(','), "--json"});
    QVERIFY2(restored.exit_code == 0, restored.err.c_str());
    QCOMPARE(restored.Document()["generation"].get<int>(), 1);
    for (int i = 0; i < 3; ++i) StartReplica(i);
    QVERIFY(Eventually(kLong, [&] { return ReadyReplicas() == 3; }));

    const std::set<std::string> known = Known();
    for (int i = 0; i < promised; ++i) QVERIFY(known.contains(absl::StrCat("app-", i)));
    for (const auto& [id, node] : nodes) {
      QVERIFY(Eventually(kLong, [&] { return base::GenerationOf(node->epoch()) == 1; }));
    }
    for (std::size_t i = 0; i < nodes.size(); ++i)
      QCOMPARE(nodes[i].second->incarnation(), incarnations[i]);
    // No table of the new generation calls a living node dead, or others would redo its jobs.
    // The node tells its epoch a moment before it tells its table.
    QVERIFY(Eventually(kLong, [&] { return before.tables().size() > tables_before; }));
    const std::vector<v1::RoutingTable> tables = before.tables();
    for (std::size_t i = tables_before; i < tables.size(); ++i) {
      for (std::size_t n = 0; n < nodes.size(); ++n)
        QVERIFY(IsAliveIn(tables[i], nodes[n].first, incarnations[n]));
    }
    QVERIFY(Eventually(kLong, [&] { return Apply("new"); }));
  }

  // The second time it begins a generation that the node has seen, and the node takes no table of
  // it. Its reports say so.
  void OneBackup_RestoredTwice_IsTakenWithoutARestart() {
    DrawAddresses(1);
    StartReplica(0);
    QVERIFY(Eventually(kLong, [&] { return ReadyReplicas() == 1; }));
    LightNode node("node", addresses_, node_server_->address());
    QVERIFY(node.IsReady());
    const std::uint64_t incarnation = node.incarnation();
    const QString file = dir_->filePath("pirates.backup");
    QCOMPARE(Cluster({"backup", file}).exit_code, 0);
    const auto restore = [&] {
      Kill(0);
      QVERIFY(QDir(DataDir(0)).removeRecursively());
      const Outcome restored = Cluster({"restore", file, "--into", DataDir(0), "--name", "nm-0",
                                        "--replicas", replicas_.join(','), "--json"});
      QVERIFY2(restored.exit_code == 0, restored.err.c_str());
      QCOMPARE(restored.Document()["generation"].get<int>(), 1);
      StartReplica(0);
      QVERIFY(Eventually(kLong, [&] { return ReadyReplicas() == 1; }));
    };
    restore();
    for (const char* app : {"one", "two", "three"})
      QVERIFY(Eventually(kLong, [&] { return Apply(app); }));
    QVERIFY(Eventually(kLong, [&] {
      return base::GenerationOf(node.epoch()) == 1 && node.epoch() > base::FirstEpochOf(1) + 2;
    }));
    restore();
    QVERIFY(Eventually(kLong, [&] { return base::GenerationOf(node.epoch()) == 2; }));
    QCOMPARE(node.incarnation(), incarnation);
    QVERIFY(!Known().contains("three"));
  }

  void MajorityLost_RecoveredFromOneDisk_GoesOnAlone() {
    DrawAddresses(3);
    for (int i = 0; i < 3; ++i) StartReplica(i);
    QVERIFY(Eventually(kLong, [&] { return ReadyReplicas() == 3; }));
    QVERIFY(Eventually(kLong, [&] { return KnowsAllSeatsOccupied(2); }));
    QVERIFY(Apply("acknowledged"));
    for (int i = 0; i < 3; ++i) Kill(i);
    const Outcome asked = Cluster({"recover", "--from", DataDir(2)});
    QCOMPARE(asked.exit_code, 4);
    QVERIFY2(asked.Says("--cluster-id pirates") && asked.Says("The disk of nm-2 knows slots"),
             (asked.out + asked.err).c_str());
    const Outcome recovered =
        Cluster({"recover", "--from", DataDir(2), "--cluster-id", "pirates", "--json"});
    QVERIFY2(recovered.exit_code == 0, recovered.err.c_str());
    QVERIFY(QDir(QString::fromStdString(recovered.Document()["kept"].get<std::string>())).exists());
    StartReplica(2);
    QVERIFY(Eventually(kLong, [&] { return Apply("new"); }));
    const auto cluster = GetCluster();
    QVERIFY(cluster.ok());
    QCOMPARE(base::GenerationOf(cluster->epoch()), 1U);
  }

  void BackupEvery_KeepsTheNewest() {
    DrawAddresses(1);
    StartReplica(0);
    QVERIFY(Eventually(kLong, [&] { return ReadyReplicas() == 1; }));
    // Neither is one of its own files.
    for (const char* name : {"b.20260101", "b.x"}) {
      QFile other(dir_->filePath(name));
      QVERIFY(other.open(QIODevice::WriteOnly));
    }
    QFile old(dir_->filePath("b.20200101T000000Z"));
    QVERIFY(old.open(QIODevice::WriteOnly));
    QProcess process;
    process.start(QString(ONEPIECE_BINARY_DIR) + "/bin/onepiece",
                  {"cluster", "backup", dir_->filePath("b"), "--every", "1s", "--keep", "2",
                   "--json", "--nodemanager", QString::fromStdString(addresses_[0])});
    QByteArray out;
    QVERIFY(Eventually(kLong, [&] {
      process.waitForReadyRead(10);
      out += process.readAllStandardOutput();
      return out.count('\n') >= 4;
    }));
    process.terminate();
    QVERIFY(process.waitForFinished(30000));
    QCOMPARE(process.exitCode(), 0);
    const QStringList files = QDir(dir_->path()).entryList({"b.*"}, QDir::Files);
    QCOMPARE(files.size(), 4);
    QVERIFY(files.contains("b.20260101") && files.contains("b.x"));
    QVERIFY(!files.contains("b.20200101T000000Z"));
    for (const QByteArray& line : out.trimmed().split('\n'))
      QVERIFY(nlohmann::json::parse(line.toStdString(), nullptr, false).contains("sha256"));
  }

 private:
  std::unique_ptr<QTemporaryDir> dir_;
  std::unique_ptr<rpc::Server> node_server_;
  std::vector<std::string> addresses_;
  QStringList replicas_;
  std::vector<std::unique_ptr<QProcess>> processes_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::DisasterTest)
#include "disaster_test.moc"
