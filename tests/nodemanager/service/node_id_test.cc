// How nodes come and go: two processes with one node id, and nodes that are forgotten.
#include <QTcpServer>
#include <QTemporaryDir>
#include <QtTest>

#include "cluster/node/node_agent.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "cluster/telemetry/metrics.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/node_id_holder.h"
#include "nodemanager/service/node_manager_service.h"
#include "tests/eventually.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

// A process with a node id: it answers at its address, and its agent goes on registering.
struct IdProcess {
  explicit IdProcess(const std::string& nodemanager) {
    if (!server.Start().ok()) qFatal("a server does not start");
    agent.emplace(node::NodeAgentOptions{.role = v1::PROXY,
                                         .node_id = "twin",
                                         .nodemanagers = {nodemanager},
                                         .address = server.address(),
                                         .workflow_set = "default"},
                  view);
    agent->Start();
  }
  // True once the node is registered. Otherwise `why` says what it was told last.
  bool IsIn(std::string* why = nullptr) {
    const absl::Status status = agent->WaitReady(std::chrono::milliseconds(50));
    if (why != nullptr) *why = base::Message(status);
    return status.ok();
  }
  bool IsRefused() {
    std::string why;
    return !IsIn(&why) && why.find("--node-id") != std::string::npos;
  }

  rpc::Server server{rpc::ServerOptions{}};
  node::ClusterView view;
  std::optional<node::NodeAgent> agent;
};

}  // namespace

class NodeIdTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    ReplicatedLogOptions options{.data_dir = dir_->path().toStdString(), .name = "nm"};
    options.paxos.version = kCommandVersion;
    log_ = std::move(ReplicatedLog::Open(options)).value();
    controller_ = std::make_unique<Controller>(
        *log_, clock_,
        ControllerOptions{.report_interval = std::chrono::milliseconds(10),
                          .cluster_id = [this] { return log_->cluster_id(); }});
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    service_ = std::make_unique<NodeManagerService>(
        *controller_, server_->stopping(),
        NodeManagerServiceOptions{
            .watches = {.available_level = [this] { return log_->Status().common_version(); }},
            .addresses = [this] { return log_->Addresses(); },
            .dial_limit = std::chrono::seconds(5)});
    server_->AddService(*service_);
    server_->AddService(log_->service());
    QVERIFY(server_->Start().ok());
    QVERIFY(log_->Start(server_->address()).ok());
    QVERIFY(testing::Eventually([this] { return controller_->TakeOver().ok(); }));
    stub_ = v1::NodeManagerService::NewStub(rpc::MakeChannel(server_->address()));
  }
  void cleanup() {
    server_->Shutdown(std::chrono::seconds(5));
    log_->Stop();
    service_.reset();  // It borrows the controller, and that one the log.
    controller_.reset();
  }

  void SecondProcess_IsRefusedWhileTheFirstAnswers() {
    IdProcess first(server_->address());
    QVERIFY(testing::Eventually([&] { return first.IsIn(); }));
    const std::uint64_t incarnation = first.view.incarnation(), epoch = Epoch();
    IdProcess second(server_->address());
    std::string why;
    QVERIFY(testing::Eventually([&] {
      return !second.IsIn(&why) && why.find(first.server.address()) != std::string::npos;
    }));
    QVERIFY2(why.find(second.server.address()) != std::string::npos, why.c_str());
    QVERIFY2(why.find("--node-id") != std::string::npos, why.c_str());
    // Nobody lost a place, so there was nothing to tell the cluster.
    QCOMPARE(first.view.incarnation(), incarnation);
    QCOMPARE(Holder().incarnation(), incarnation);
    QCOMPARE(Epoch(), epoch);

    // The first process goes without a goodbye, and the second one takes its place at once and for
    // good: the agent of the first, which still runs here, is the one that is refused now.
    first.server.Shutdown(base::Duration::zero());
    QVERIFY(testing::Eventually([&] { return second.IsIn(); }));
    QVERIFY(testing::Eventually([&] { return first.IsRefused(); }));
    QCOMPARE(Holder().address(), second.server.address());
    QCOMPARE(Epoch(), epoch + 1);
  }

  // The kernel takes connections to a process that stands still, so a bare connection would say
  // that it runs. Its successor must get in.
  void HolderThatStandsStill_IsNoHolder() {
    QTcpServer silent;
    QVERIFY(silent.listen(QHostAddress::LocalHost));
    v1::Node holder = MakeNode("twin", v1::PROXY), node = MakeNode("twin", v1::PROXY, 2);
    holder.set_address("127.0.0.1:" + std::to_string(silent.serverPort()));
    holder.set_pid(1);
    const Dialling still(holder.address(), std::chrono::milliseconds(100));
    QVERIFY(CheckHolder(holder, node, {.dialling = &still}).ok());
    holder.set_address(server_->address());
    const Dialling running(holder.address(), std::chrono::seconds(20));
    QCOMPARE(Reason(CheckHolder(holder, node, {.dialling = &running})),
             std::string("NODE_ID_IN_USE"));
  }

  void Goodbye_LetsTheNextOneIn() {
    IdProcess first(server_->address());
    QVERIFY(testing::Eventually([&] { return first.IsIn(); }));
    IdProcess second(server_->address());
    QVERIFY(testing::Eventually([&] { return second.IsRefused(); }));
    first.agent->Stop();  // Its server goes on answering.
    QVERIFY(testing::Eventually([&] { return second.IsIn(); }));
  }

  void OneAddress_IsTheHoldersWhileItReports() {
    v1::Node holder = MakeNode("twin", v1::PROXY), node = MakeNode("twin", v1::PROXY, 2);
    holder.set_pid(1);
    node.set_pid(2);
    node.set_host("other");
    StateMachine state;
    QVERIFY(!FindOtherHolder(state, node));
    QCOMPARE(state.Apply(1, RegisterCommand(holder)).code(), 0);
    QVERIFY(!FindOtherHolder(state, holder));
    QVERIFY(FindOtherHolder(state, node));
    const auto check = [&](std::optional<base::Duration> silent) {
      return CheckHolder(holder, node,
                         {.silent = silent, .silence_limit = std::chrono::seconds(1)});
    };
    const absl::Status refused = check(std::chrono::seconds(1));
    QCOMPARE(refused.code(), absl::StatusCode::kAlreadyExists);
    QCOMPARE(Reason(refused), std::string("NODE_ID_IN_USE"));
    const auto metadata = base::GetReason(refused).metadata;
    QCOMPARE(metadata.at("holder_address"), holder.address());
    QCOMPARE(metadata.at("address"), node.address());
    QVERIFY(check(std::chrono::milliseconds(1001)).ok());
    // A leader that has heard nothing of the holder cannot say that it runs.
    QVERIFY(check(std::nullopt).ok());
    QCOMPARE(state.Apply(2, EndCommand("twin")).code(), 0);
    QVERIFY(!FindOtherHolder(state, node));
  }

  void RemoveNode_ForgetsADeadNodeForGood() {
    QVERIFY(Register(7).ok());
    v1::RemoveNodeRequest remove;
    remove.set_node_id("twin");
    remove.set_actor("operator:ann");
    const auto removed = [&] {
      return rpc::Call(*stub_, &Stub::RemoveNode, remove, kCallLimit).status();
    };
    QCOMPARE(removed().code(), absl::StatusCode::kFailedPrecondition);
    QCOMPARE(Reason(removed()), std::string("NODE_ALIVE"));
    End(7);
    QVERIFY(removed().ok());
    QCOMPARE(Reason(removed()), std::string("NODE_UNKNOWN"));
    const auto cluster = rpc::Call(*stub_, &Stub::GetCluster, {}, kCallLimit);
    QVERIFY(cluster.ok());
    QCOMPARE(cluster->nodes_size(), 0);
    QCOMPARE(cluster->feature_level(), kCommandVersion);
    QCOMPARE(cluster->available_feature_level(), kCommandVersion);
    // An agent that was only cut off learns from the refusal which incarnation to exceed.
    const absl::Status stale = Register(7);
    QCOMPARE(Reason(stale), std::string("STALE_INCARNATION"));
    QCOMPARE(base::GetReason(stale).metadata.at("incarnation"), std::string("7"));
    QVERIFY(Register(8).ok());
  }

  void DeadNode_IsForgottenAfterADay() {
    QVERIFY(Register(7).ok());
    const auto known = [this] {
      controller_->ForgetDead();
      bool found = false;
      controller_->Read([&](const StateMachine& state) { found = state.nodes().contains("twin"); });
      return found;
    };
    clock_.Advance(std::chrono::hours(100));
    QVERIFY(known());
    End(7);
    QVERIFY(known());
    clock_.Advance(std::chrono::hours(24) - std::chrono::seconds(1));
    QVERIFY(known());
    clock_.Advance(std::chrono::seconds(1));
    QVERIFY(!known());
  }

 private:
  using Stub = v1::NodeManagerService::Stub;
  static constexpr auto kCallLimit = std::chrono::seconds(20);

  absl::Status Register(std::uint64_t incarnation) {
    v1::RegisterNodeRequest request;
    *request.mutable_node() = MakeNode("twin", v1::PROXY, incarnation);
    request.mutable_node()->set_address(server_->address());
    return rpc::Call(*stub_, &Stub::RegisterNode, request, kCallLimit).status();
  }
  void End(std::uint64_t incarnation) {
    v1::DeregisterNodeRequest request;
    request.set_node_id("twin");
    request.set_incarnation(incarnation);
    if (!rpc::Call(*stub_, &Stub::DeregisterNode, request, kCallLimit).ok())
      qFatal("no goodbye is taken");
  }
  std::uint64_t Epoch() const {
    std::uint64_t epoch = 0;
    controller_->Read([&](const StateMachine& state) { epoch = state.epoch(); });
    return epoch;
  }
  v1::Node Holder() const {
    v1::Node node;
    controller_->Read([&](const StateMachine& state) { node = state.nodes().at("twin").node(); });
    return node;
  }

  base::ManualClock clock_;
  std::unique_ptr<QTemporaryDir> dir_;
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<NodeManagerService> service_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::NodeIdTest)
#include "node_id_test.moc"
