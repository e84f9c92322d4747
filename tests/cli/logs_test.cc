// Tests `onepiece logs` from outside, against servers whose logs the test writes.
#include <grpcpp/grpcpp.h>

#include <QtTest>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/server.h"
#include "cluster/telemetry/telemetry_service.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

/// A server of the cluster with a log.
struct LoggingServer {
  explicit LoggingServer(const std::string& node_id) : id(node_id) { Start(); }
  void Start() {
    ring = std::make_unique<telemetry::LogRing>();
    server = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    service = std::make_unique<telemetry::TelemetryService>(
        spans, *ring, server->stopping(), telemetry::TelemetryServiceOptions{.node_id = id});
    server->AddService(*service);
    if (!server->Start().ok()) qFatal("Start failed");
  }
  void Say(spdlog::level::level_enum level, std::int64_t second, const std::string& text) {
    spdlog::details::log_msg message("test", level, text);
    message.time = spdlog::log_clock::time_point(std::chrono::seconds(second));
    ring->log(message);
  }
  v1::Node Describe() const {
    v1::Node node;
    node.set_node_id(id);
    node.set_address(server->address());
    node.set_state(v1::Node::READY);
    return node;
  }

  const std::string id;
  telemetry::Spans spans{id};
  std::unique_ptr<telemetry::LogRing> ring;
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<telemetry::TelemetryService> service;
};

class NodeManagerOfProcesses final : public v1::NodeManagerService::Service {
 public:
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    const base::MutexLock lock(mutex_);
    *response = cluster_;
    return grpc::Status::OK;
  }
  void Show(const std::vector<v1::Node>& nodes) {
    const base::MutexLock lock(mutex_);
    cluster_.set_cluster_id("test");
    cluster_.clear_nodes();
    for (const v1::Node& node : nodes) *cluster_.add_nodes() = node;
  }

 private:
  base::Mutex mutex_;
  v1::Cluster cluster_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

class LogsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    one_ = std::make_unique<LoggingServer>("one");
    two_ = std::make_unique<LoggingServer>("two");
    one_->Say(spdlog::level::info, 1, "first");
    two_->Say(spdlog::level::warn, 2, "se\x1b[31mcond");
    one_->Say(spdlog::level::err, 3, "third");
    dead_ = one_->Describe();
    dead_.set_node_id("dead");
    dead_.set_address("127.0.0.1:1");
    dead_.set_state(v1::Node::DEAD);
    manager_ = std::make_unique<NodeManagerOfProcesses>();
    manager_->Show({one_->Describe(), two_->Describe(), dead_});
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    server_->AddService(*manager_);
    QVERIFY(server_->Start().ok());
  }
  void cleanup() { server_.reset(); }

  void Logs_OfAllThatLive_InTheOrderOfTime() {
    const Outcome outcome = Run({"logs"});
    QCOMPARE(outcome.exit_code, 0);
    // No control character reaches the terminal.
    QCOMPARE(outcome.out,
             std::string("1970-01-01T00:00:01.000Z  one                   info     first\n"
                         "1970-01-01T00:00:02.000Z  two                   warning  se [31mcond\n"
                         "1970-01-01T00:00:03.000Z  one                   error    third\n"));
    const json document = Run({"logs", "--json"}).Document();
    QCOMPARE(document["lines"].size(), std::size_t{3});
    QCOMPARE(document["lines"][1]["text"], json("se\x1b[31mcond"));
    QCOMPARE(document["lines"][2]["number"], json(2));
    QVERIFY(document["errors"].empty());
  }

  void Logs_LevelLinesAndNodes() {
    json lines = Run({"logs", "--level", "warning", "--json"}).Document()["lines"];
    QCOMPARE(lines.size(), std::size_t{2});
    lines = Run({"logs", "one", "-n", "1", "--json"}).Document()["lines"];
    QCOMPARE(lines.size(), std::size_t{1});
    QCOMPARE(lines[0]["text"], json("third"));
    QVERIFY(Run({"logs", "one", "-n", "0", "--json"}).Document()["lines"].empty());
    for (int i = 0; i < 700; ++i) two_->Say(spdlog::level::info, 4, "more");
    QCOMPARE(Run({"logs", "two", "-n", "600", "--json"}).Document()["lines"].size(),
             std::size_t{600});
    QCOMPARE(Run({"logs", "three"}).exit_code, 3);
    const auto loud = Run({"logs", "--level", "loud"});
    QCOMPARE(loud.exit_code, 2);
    QVERIFY2(loud.err.find("warning") != std::string::npos, loud.err.c_str());
    QVERIFY2(loud.err.find("FAILED") == std::string::npos, loud.err.c_str());
    QCOMPARE(Run({"logs", "--lines", "1001"}).exit_code, 2);
  }

  void Logs_WhoDoesNotAnswer_IsNamed() {
    const Outcome outcome = Run({"logs", "one", "dead"});
    QCOMPARE(outcome.exit_code, 69);
    QVERIFY(outcome.out.find("third") != std::string::npos);
    QVERIFY2(outcome.err.find("the log of dead") != std::string::npos, outcome.err.c_str());
    QVERIFY(Run({"logs", "dead", "--json"}).Document()["errors"].contains("dead"));
  }

  void Follow_GoesOnOverARestart_AndEndsByCtrlC() {
    QProcess process;
    process.start(ONEPIECE_BINARY_DIR "/bin/onepiece",
                  {"logs", "one", "--follow", "--json", "--nodemanager",
                   QString::fromStdString(server_->address())});
    const auto next = [&]() -> json {
      if (!QTest::qWaitFor([&] { return process.canReadLine(); }, 30'000)) return {};
      return json::parse(process.readLine().toStdString(), nullptr, false);
    };
    QCOMPARE(next()["text"], json("first"));
    QCOMPARE(next()["text"], json("third"));
    one_->Say(spdlog::level::info, 4, "new");
    QCOMPARE(next()["text"], json("new"));
    one_->server->Shutdown(base::Duration::zero());
    one_->Start();
    one_->Say(spdlog::level::info, 5, "restarted");
    manager_->Show({one_->Describe()});
    QCOMPARE(next()["text"], json("restarted"));
    process.terminate();
    QVERIFY(process.waitForFinished(30'000));
    QCOMPARE(process.exitCode(), 130);
  }

 private:
  Outcome Run(const QStringList& arguments) {
    return testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        arguments + QStringList{"--nodemanager", QString::fromStdString(server_->address())});
  }

  std::unique_ptr<LoggingServer> one_, two_;
  v1::Node dead_;
  std::unique_ptr<NodeManagerOfProcesses> manager_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::LogsTest)
#include "logs_test.moc"
