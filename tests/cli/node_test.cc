// Tests `onepiece node` and what `status` and `cluster upgrade` say of a whole cluster, from
// outside, against a NodeManager with scripted answers.
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <QtTest>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

class FakeNodes final : public v1::NodeManagerService::Service,
                        public v1::ConsensusService::Service {
 public:
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    *response = cluster;
    return grpc::Status::OK;
  }
  grpc::Status RemoveNode(grpc::ServerContext*, const v1::RemoveNodeRequest* request,
                          google::protobuf::Empty*) override {
    const base::MutexLock lock(mutex_);
    removed_.push_back(*request);
    if (request->node_id() == "gone") return grpc::Status::OK;
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kFailedPrecondition, "NODE_ALIVE",
                                       "stop its process first"));
  }
  grpc::Status RaiseFeatureLevel(grpc::ServerContext*, const v1::RaiseFeatureLevelRequest* request,
                                 v1::RaiseFeatureLevelResponse* response) override {
    if (request->level() == 9) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kFailedPrecondition, "OLD_REPLICA",
                                         "nodemanager-2 (knows 2)"));
    }
    response->set_level(3);
    return grpc::Status::OK;
  }
  std::vector<v1::RemoveNodeRequest> removed() {
    const base::MutexLock lock(mutex_);
    return removed_;
  }

  v1::Cluster cluster;  // Set while no call is under way.

 private:
  base::Mutex mutex_;
  std::vector<v1::RemoveNodeRequest> removed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

class NodeTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    fake_ = std::make_unique<FakeNodes>();
    v1::Node& manager = *fake_->cluster.add_nodes();
    manager.set_node_id("nodemanager-1");
    manager.set_role(v1::NODE_MANAGER);
    manager.set_state(v1::Node::READY);
    manager.set_version("0.2.0");
    manager.mutable_last_report_time()->set_seconds(1000);
    v1::Node& instance = *fake_->cluster.add_nodes();
    instance.set_node_id("rack7.gpu0");
    instance.set_role(v1::INSTANCE);
    instance.set_state(v1::Node::READY);
    instance.set_activity(v1::SERVING);
    instance.set_workflow_set("default");
    instance.set_version("0.1.0");
    instance.set_zone("row-b");
    instance.set_host("rack7");
    (*instance.mutable_labels())["team"] = "video";
    v1::Device& device = *instance.add_devices();
    device.set_device("cuda:0");
    device.set_kind("cuda");
    device.set_product("H100");
    device.set_memory_bytes(std::int64_t{80} << 30);
    instance.mutable_last_report_time()->set_seconds(998);
    v1::Node& gone = *fake_->cluster.add_nodes();
    gone.set_node_id("gone");
    gone.set_role(v1::PROXY);
    gone.set_state(v1::Node::DEAD);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<v1::NodeManagerService::Service*>(fake_.get()));
    builder.RegisterService(static_cast<v1::ConsensusService::Service*>(fake_.get()));
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + QString::number(port);
  }
  void cleanup() {
    server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
    server_.reset();
  }

  void List_IsATable() {
    const testing::Outcome outcome = Run({"node", "list"});
    QCOMPARE(outcome.exit_code, 0);
    const QStringList lines = QString::fromStdString(outcome.out).split('\n', Qt::SkipEmptyParts);
    QCOMPARE(lines.size(), 4);
    QCOMPARE(lines[0].simplified(), QString("NODE ROLE SET STATE VERSION ZONE HOST REPORT"));
    // The age counts from the newest report, not from the clock of this machine.
    QCOMPARE(lines[2].simplified(),
             QString("rack7.gpu0 instance default SERVING 0.1.0 row-b rack7 2 s"));
    QCOMPARE(lines[3].simplified(), QString("gone proxy DEAD"));
    const auto document = nlohmann::json::parse(Run({"--json", "node", "list"}).out);
    const auto& instance = document.at("nodes").at(1);
    QCOMPARE(instance.at("report_age_ms").get<int>(), 2000);
    QCOMPARE(instance.at("host").get<std::string>(), std::string("rack7"));
    QVERIFY(document.at("nodes").at(2).at("report_age_ms").is_null());
  }

  void Show_HasEverything() {
    const std::string text = Run({"node", "show", "rack7.gpu0"}).out;
    for (const char* part : {"rack7.gpu0", "cuda:0, H100, 80", "team=video", "row-b", "0.1.0"})
      QVERIFY2(text.find(part) != std::string::npos, text.c_str());
    const auto document = nlohmann::json::parse(Run({"--json", "node", "show", "rack7.gpu0"}).out);
    QCOMPARE(document.at("labels").at("team").get<std::string>(), std::string("video"));
    QCOMPARE(document.at("devices").at(0).at("memory_bytes").get<std::int64_t>(),
             std::int64_t{80} << 30);
    const testing::Outcome unknown = Run({"node", "show", "nobody"});
    QVERIFY(unknown.exit_code != 0);
    QVERIFY(unknown.err.find("onepiece node list") != std::string::npos);
  }

  void Remove_SaysWhoAndWhy() {
    QCOMPARE(
        Run({"node", "remove", "gone", "--actor", "operator:ann", "--reason", "sold"}).exit_code,
        0);
    const testing::Outcome alive = Run({"node", "remove", "rack7.gpu0"});
    QVERIFY(alive.exit_code != 0);
    QVERIFY(alive.err.find("stop its process first") != std::string::npos);
    const auto requests = fake_->removed();
    QCOMPARE(requests.size(), std::size_t{2});
    QCOMPARE(requests[0].node_id(), std::string("gone"));
    QCOMPARE(requests[0].actor(), std::string("operator:ann"));
    QCOMPARE(requests[0].reason(), std::string("sold"));
    QVERIFY(!requests[0].request_id().empty());
  }

  void Status_TellsOfVersionsLevelsAndStages() {
    fake_->cluster.set_feature_level(2);
    fake_->cluster.set_available_feature_level(3);
    v1::Workflow& workflow = *fake_->cluster.add_workflows();
    workflow.set_app_id("app");
    workflow.add_stages()->set_stage("decode");
    v1::Node& proxy = *fake_->cluster.mutable_nodes(2);
    proxy.set_state(v1::Node::READY);
    proxy.set_workflow_set("default");
    const std::string text = Run({"status"}).out;
    for (const char* note :
         {"! no instance serves stage decode of application app\n",
          "! nodes run different versions (unknown: gone; 0.1.0: rack7.gpu0; 0.2.0: nodemanager-1)",
          "! feature level 2, and all replicas know 3"})
      QVERIFY2(text.find(note) != std::string::npos, text.c_str());
    const auto document = nlohmann::json::parse(Run({"--json", "status"}).out);
    QCOMPARE(document.at("feature_level").get<int>(), 2);
    QCOMPARE(document.at("available_feature_level").get<int>(), 3);
    QCOMPARE(document.at("unserved_stages").at(0).at("stage").get<std::string>(),
             std::string("decode"));
    QCOMPARE(document.at("versions").at("0.2.0").at(0).get<std::string>(),
             std::string("nodemanager-1"));
    QCOMPARE(document.at("notes").size(), std::size_t{3});
  }

  void Upgrade_RaisesTheLevel() {
    const auto document = nlohmann::json::parse(Run({"--json", "cluster", "upgrade"}).out);
    QCOMPARE(document.at("feature_level").get<int>(), 3);
    const testing::Outcome refused = Run({"cluster", "upgrade", "--level", "9"});
    QVERIFY(refused.exit_code != 0);
    QVERIFY(refused.err.find("nodemanager-2 (knows 2)") != std::string::npos);
  }

 private:
  testing::Outcome Run(const QStringList& arguments) {
    return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece",
                               QStringList{"--nodemanager", address_} + arguments);
  }

  std::unique_ptr<FakeNodes> fake_;
  std::unique_ptr<grpc::Server> server_;
  QString address_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::NodeTest)
#include "node_test.moc"
