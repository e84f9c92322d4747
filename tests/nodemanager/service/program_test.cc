// Tests onepiece-nodemanager as its supervisor sees it: a process with flags, a ready file, signals
// and exit codes.
#include <signal.h>

#include <QFile>
#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QTcpServer>
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <utility>

#include "cluster/rpc/channel.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/health.h"
#include "tests/scrape.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using Stub = v1::NodeManagerService::Stub;
constexpr int kLimitMs = 30000;

struct Ended {
  int exit_code;
  QByteArray errors;
};

}  // namespace

class ProgramTest : public QObject {
  Q_OBJECT
 private:
  std::unique_ptr<QProcess> Start(const QStringList& arguments) {
    auto process = std::make_unique<QProcess>();
    QFile::remove(ready_file_);
    process->start(QString(ONEPIECE_BINARY_DIR) + "/bin/onepiece-nodemanager",
                   QStringList{"--insecure", "--ready-file", ready_file_, "--data-dir",
                               dir_.filePath("data")} +
                       arguments);
    return process;
  }
  Ended RunToEnd(const QStringList& arguments) {
    const auto process = Start(arguments);
    if (!process->waitForFinished(kLimitMs)) qFatal("the program did not end");
    return {process->exitCode(), process->readAllStandardError()};
  }
  // Waits for the ready file and returns what it says.
  QJsonObject Ready() {
    if (!QTest::qWaitFor([&] { return QFile::exists(ready_file_); }, kLimitMs)) return {};
    QFile file(ready_file_);
    if (!file.open(QIODevice::ReadOnly)) return {};
    return QJsonDocument::fromJson(file.readAll()).object();
  }
  QString WriteFile(const QString& name, const QByteArray& text) {
    QFile file(dir_.filePath(name));
    if (!file.open(QIODevice::WriteOnly) || file.write(text) != text.size())
      qFatal("cannot write %s", qPrintable(name));
    return file.fileName();
  }
  static absl::StatusOr<v1::Cluster> GetCluster(const QJsonObject& ready) {
    return GetCluster(ready["address"].toString().toStdString());
  }
  static absl::StatusOr<v1::Cluster> GetCluster(const std::string& address) {
    const auto stub = v1::NodeManagerService::NewStub(rpc::MakeChannel(address));
    return rpc::Call(*stub, &Stub::GetCluster, {}, std::chrono::seconds(20));
  }
  // What the program has logged so far.
  static std::string FirstLogLines(const QJsonObject& ready) {
    const auto stub =
        v1::TelemetryService::NewStub(rpc::MakeChannel(ready["address"].toString().toStdString()));
    grpc::ClientContext context;
    rpc::SetTimeout(context, std::chrono::seconds(20));
    v1::TailLogsRequest request;
    request.set_backlog(100);
    const auto reader = stub->TailLogs(&context, request);
    v1::TailLogsResponse response;
    (void)reader->Read(&response);
    context.TryCancel();
    (void)reader->Finish();
    std::string text;
    for (const v1::LogLine& line : response.lines()) text += line.text() + "\n";
    return text;
  }
  const QString example_ = QString(ONEPIECE_SOURCE_DIR) + "/resources/workflows/tiny-wan-t2v.yaml";

 private Q_SLOTS:
  // What cannot be dialled never becomes READY, so no job waits for it.
  void Registration_OfAnAddressThatNobodyReaches_IsRefused() {
    const auto process = Start({"--node-id", "nm"});
    const std::string address = Ready()["address"].toString().toStdString();
    const auto stub = v1::NodeManagerService::NewStub(rpc::MakeChannel(address));
    const auto refusal = [&](const std::string& at) {
      v1::RegisterNodeRequest request;
      v1::Node& node = *request.mutable_node();
      node.set_node_id("p");
      node.set_role(v1::PROXY);
      node.set_incarnation(1);
      node.set_address(at);
      return rpc::Call(*stub, &Stub::RegisterNode, request, std::chrono::seconds(20)).status();
    };
    QTcpServer closed;
    QVERIFY(closed.listen(QHostAddress::LocalHost));
    const std::string nowhere = "127.0.0.1:" + std::to_string(closed.serverPort());
    closed.close();
    QCOMPARE(base::GetReason(refusal(nowhere)).reason, std::string("UNREACHABLE_ADDRESS"));
    QVERIFY(base::Message(refusal(nowhere)).find(nowhere) != std::string::npos);
    const absl::Status other_host = refusal("10.99.99.99:7000");
    QCOMPARE(base::GetReason(other_host).reason, std::string("LOOPBACK_ADDRESS"));
    QVERIFY(base::Message(other_host).find("nm (" + address + ")") != std::string::npos);
    QVERIFY(refusal(address).ok());  // The NodeManager's own server answers there.
    process->terminate();
    QVERIFY(process->waitForFinished(kLimitMs));
  }

  void Run_ServesTheExampleAndEndsOnSigterm() {
    const auto process =
        Start({"--workflow-file", example_, "--node-id", "nm", "--cluster-id", "test"});
    const QJsonObject ready = Ready();
    QCOMPARE(ready["pid"].toInteger(), process->processId());
    QVERIFY(!ready["metrics_address"].toString().endsWith(":0"));
    const auto cluster = GetCluster(ready);
    QVERIFY2(cluster.ok(), base::Message(cluster.status()).c_str());
    QCOMPARE(cluster->cluster_id(), std::string("test"));
    QCOMPARE(cluster->nodes(0).node_id(), std::string("nm"));
    QCOMPARE(cluster->nodes(0).state(), v1::Node::READY);
    QCOMPARE(cluster->nodes(0).address(), ready["address"].toString().toStdString());
    QVERIFY(!cluster->nodes(0).version().empty() && !cluster->nodes(0).build().empty());
    QCOMPARE(cluster->workflows(0).app_id(), std::string("tiny-wan-t2v"));
    QCOMPARE(cluster->workflows(0).stages_size(), 3);
    const std::string address = ready["address"].toString().toStdString();
    for (const char* service : {"", "onepiece.v1.NodeManagerService", "onepiece.v1.ReplicaService",
                                "onepiece.v1.ElasticityService", "onepiece.v1.ConsensusService"})
      QCOMPARE(testing::AskHealth(address, service), std::optional(testing::kServing));
    const QByteArray metrics = testing::Scrape(ready["metrics_address"].toString().toStdString());
    QVERIFY2(metrics.contains("\nonepiece_nodemanager_has_leader 1\n"), metrics);
    for (const char* histogram : {"disk_wal_fsync_duration_seconds", "apply_duration_seconds",
                                  "proposal_duration_seconds"}) {
      const QByteArray empty = QByteArray("\nonepiece_nodemanager_") + histogram + "_count 0\n";
      QVERIFY2(!metrics.contains(empty) && metrics.contains(histogram), histogram);
    }
    QVERIFY(FirstLogLines(ready).find("op=serve") != std::string::npos);
    process->terminate();
    QVERIFY(process->waitForFinished(kLimitMs));
    QCOMPARE(process->exitStatus(), QProcess::NormalExit);
    QCOMPARE(process->exitCode(), 0);
  }

  void Run_AfterKillKeepsTheCluster() {
    const auto first = Start({"--workflow-file", example_, "--node-id", "nm"});
    const auto before = GetCluster(Ready());
    QVERIFY(before.ok());
    kill(static_cast<pid_t>(first->processId()), SIGKILL);
    QVERIFY(first->waitForFinished(kLimitMs));
    const auto second = Start({"--node-id", "nm"});
    const auto after = GetCluster(Ready());
    QVERIFY(after.ok());
    QCOMPARE(after->cluster_id(), before->cluster_id());
    QCOMPARE(after->workflows_size(), 1);
    QVERIFY(after->nodes(0).incarnation() > before->nodes(0).incarnation());
    second->terminate();
    QVERIFY(second->waitForFinished(kLimitMs));
  }

  void Run_SecondOnTheSameDataFolderIsRefused() {
    const auto first = Start({});
    const QJsonObject ready = Ready();
    QVERIFY(!ready.isEmpty());
    const Ended same_folder = RunToEnd({});
    QCOMPARE(same_folder.exit_code, 1);
    QVERIFY2(same_folder.errors.contains("in use by another process"), same_folder.errors);
    first->terminate();
    QVERIFY(first->waitForFinished(kLimitMs));
  }

  void Run_PortInUseIsNamed() {
    const auto first = Start({});
    const QJsonObject ready = Ready();
    QProcess second;
    second.start(QString(ONEPIECE_BINARY_DIR) + "/bin/onepiece-nodemanager",
                 {"--insecure", "--data-dir", dir_.filePath("other"), "--listen",
                  ready["address"].toString()});
    QVERIFY(second.waitForFinished(kLimitMs));
    QCOMPARE(second.exitCode(), 1);
    const QByteArray errors = second.readAllStandardError();
    QVERIFY2(errors.contains(ready["address"].toString().toUtf8()), errors);
    first->terminate();
    QVERIFY(first->waitForFinished(kLimitMs));
  }

  void CheckConfig_NamesWhatIsWrong_data() {
    QTest::addColumn<QByteArray>("workflow");
    QTest::addColumn<QByteArray>("expected");
    QTest::newRow("unknown field") << QByteArray("app_id: a\nstagez: []\n") << QByteArray("stagez");
    QTest::newRow("not YAML") << QByteArray("app_id: [\n") << QByteArray("workflow.yaml");
    QTest::newRow("no stages") << QByteArray("app_id: a\n") << QByteArray("stages: at least one");
    QTest::newRow("default out of bounds")
        << QByteArray(
               "app_id: a\nstages: [{stage: s, plugin: p}]\nparameters:\n"
               "  - {name: n, type: INTEGER, minimum: 1, maximum: 5, default_value: \"9\"}\n")
        << QByteArray("parameters[0].default_value");
  }
  void CheckConfig_NamesWhatIsWrong() {
    QFETCH(QByteArray, workflow);
    QFETCH(QByteArray, expected);
    const Ended ended =
        RunToEnd({"--check-config", "--workflow-file", WriteFile("workflow.yaml", workflow)});
    QCOMPARE(ended.exit_code, 78);
    QVERIFY2(ended.errors.contains("workflow.yaml") && ended.errors.contains(expected),
             ended.errors);
    QVERIFY(!QFile::exists(dir_.filePath("data")));
  }

  void CheckConfig_AcceptsAGoodFile() {
    const QString config = WriteFile(
        "config.yaml", "dead_after_ms: 5000\nworkflow_files: [" + example_.toUtf8() + "]\n");
    QCOMPARE(RunToEnd({"--check-config", "--config", config}).exit_code, 0);
    const QString bad = WriteFile("config.yaml", "dead_after_ms: 5\n");
    QCOMPARE(RunToEnd({"--check-config", "--config", bad}).exit_code, 78);
  }

  void CheckConfig_RefusesReplicasThatCannotBe_data() {
    QTest::addColumn<QString>("replicas");
    QTest::addColumn<QByteArray>("expected");
    QTest::newRow("not itself") << "b=127.0.0.1:1" << QByteArray("is not among them");
    QTest::newRow("no name") << "127.0.0.1:1" << QByteArray("is not name=host:port");
    QTest::newRow("no port") << "nm=127.0.0.1" << QByteArray("address");
    QTest::newRow("any port") << "nm=127.0.0.1:0" << QByteArray("the port that others dial");
    QTest::newRow("same name") << "nm=127.0.0.1:1,nm=127.0.0.1:2" << QByteArray("comes twice");
    QTest::newRow("same address") << "nm=127.0.0.1:1,b=127.0.0.1:1" << QByteArray("comes twice");
  }
  void CheckConfig_RefusesReplicasThatCannotBe() {
    QFETCH(QString, replicas);
    QFETCH(QByteArray, expected);
    const Ended ended = RunToEnd({"--check-config", "--node-id", "nm", "--replicas", replicas});
    QCOMPARE(ended.exit_code, 78);
    QVERIFY2(ended.errors.contains("replicas") && ended.errors.contains(expected), ended.errors);
  }

  void Group_HandsOverOnSigterm() {
    std::vector<std::string> addresses;
    QStringList replicas;
    {
      // All ports are held at the same time, so that they differ.
      std::vector<std::unique_ptr<QTcpServer>> ports;
      for (int i = 0; i < 3; ++i) {
        ports.push_back(std::make_unique<QTcpServer>());
        QVERIFY(ports.back()->listen(QHostAddress::LocalHost));
        addresses.push_back("127.0.0.1:" + std::to_string(ports.back()->serverPort()));
        replicas << QString("nm-%1=%2").arg(i).arg(QString::fromStdString(addresses.back()));
      }
    }
    std::vector<std::unique_ptr<QProcess>> processes;
    for (int i = 0; i < 3; ++i) {
      processes.push_back(std::make_unique<QProcess>());
      QStringList arguments = {"--insecure",
                               "--node-id",
                               QString("nm-%1").arg(i),
                               "--listen",
                               QString::fromStdString(addresses[i]),
                               "--data-dir",
                               dir_.filePath(QString("group/%1").arg(i)),
                               "--replicas",
                               replicas.join(',')};
      if (i == 0) arguments << "--bootstrap";
      processes[i]->start(QString(ONEPIECE_BINARY_DIR) + "/bin/onepiece-nodemanager", arguments);
    }
    // The leader says that all three replicas are nodes and READY.
    const auto ready = [&] {
      for (const std::string& address : addresses) {
        const auto cluster = GetCluster(address);
        if (!cluster.ok() || cluster->nodes_size() != 3) continue;
        if (std::all_of(cluster->nodes().begin(), cluster->nodes().end(),
                        [](const v1::Node& node) { return node.state() == v1::Node::READY; }))
          return true;
      }
      return false;
    };
    QVERIFY(QTest::qWaitFor(ready, kLimitMs));
    int leader = -1;
    const auto occupied_and_led = [&] {
      for (int i = 0; i < 3; ++i) {
        const auto stub = v1::ConsensusService::NewStub(rpc::MakeChannel(addresses[i]));
        const auto status =
            rpc::Call(*stub, &v1::ConsensusService::Stub::GetReplica, {}, std::chrono::seconds(5));
        if (status.ok() && status->role() == v1::ReplicaStatus::LEADER && status->lease() &&
            status->members().warnings().empty())
          leader = i;
      }
      return leader >= 0;
    };
    QVERIFY(QTest::qWaitFor(occupied_and_led, kLimitMs));
    processes[leader]->terminate();
    QVERIFY(processes[leader]->waitForFinished(kLimitMs));
    QCOMPARE(processes[leader]->exitCode(), 0);
    const int before = std::exchange(leader, -1);
    const auto another_leads = [&] {
      for (int i = 0; i < 3; ++i) {
        if (i != before && GetCluster(addresses[i]).ok()) leader = i;
      }
      return leader >= 0;
    };
    QVERIFY(QTest::qWaitFor(another_leads, kLimitMs));
    for (const auto& process : processes) {
      process->terminate();
      QVERIFY(process->waitForFinished(kLimitMs) || process->state() == QProcess::NotRunning);
    }
  }

  void init() { QDir(dir_.filePath("data")).removeRecursively(); }

 private:
  QTemporaryDir dir_;
  const QString ready_file_ = dir_.filePath("ready.json");
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ProgramTest)
#include "program_test.moc"
