#include <QTcpSocket>
#include <QTemporaryDir>
#include <QtTest>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"
#include "cluster/telemetry/metrics.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/cluster_view.h"
#include "nodemanager/service/consensus_service.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/export_metrics.h"
#include "nodemanager/service/node_manager_service.h"
#include "tests/nodemanager/service/served_node_manager.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

// The body of GET /metrics, or nothing when there is no answer.
QByteArray Scrape(const std::string& address) {
  const QStringList parts = QString::fromStdString(address).split(':');
  QTcpSocket socket;
  socket.connectToHost(parts[0], parts[1].toUShort());
  if (!socket.waitForConnected(10000)) return {};
  socket.write("GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n");
  while (socket.waitForReadyRead(10000)) continue;
  return socket.readAll();
}

}  // namespace

class ServiceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    server_ = std::make_unique<ServedNodeManager>(dir_->path().toStdString());
  }
  void cleanup() { server_.reset(); }

  void Report_IsAnsweredWithTheTime_AndTheSkewIsShown() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    v1::ReportNodeRequest report = ReadyReport("p");
    report.mutable_load()->set_clock_skew_ms(-2500);
    const auto answer = server_->Report(report);
    QVERIFY(answer.ok());
    QCOMPARE(answer->server_unix_ms(), base::ToUnixMs(server_->controller().clock().WallNow()));
    const auto cluster =
        rpc::Call(server_->stub(), &Stub::GetCluster, v1::GetClusterRequest(), kLimit);
    QVERIFY(cluster.ok());
    QCOMPARE(cluster->nodes(0).load().clock_skew_ms(), -2500);
    QVERIFY(cluster->nodes(0).detail().find("2.5 s behind") != std::string::npos);
  }

  void Instance_IsRoutedOnceItServesItsAssignment() {
    QVERIFY(server_->Apply(MakeWorkflow("app", {"a", "b"})).ok());
    const auto registered = server_->Register(MakeNode("i", v1::INSTANCE, 1, "b"));
    QVERIFY2(registered.ok(), base::Message(registered.status()).c_str());
    QCOMPARE(registered->cluster_secret(), std::string());  // Only proxies need it.
    QVERIFY(!registered->cluster_id().empty());
    QCOMPARE(registered->nodemanagers_size(), 1);
    QCOMPARE(registered->report_interval_ms(), 500);

    AssignmentReader assignments(*server_, &Stub::WatchAssignment, WatchAssignmentOf("i"));
    const v1::Assignment assignment =
        assignments.Next([](const v1::Assignment& a) { return a.has_stage(); });
    QCOMPARE(assignment.stage().stage(), std::string("b"));
    QCOMPARE(assignment.app_ids(0), std::string("app"));

    RoutingReader routing(*server_, &Stub::WatchRouting, {});
    const v1::RoutingTable before = routing.Next();
    QCOMPARE(before.routes_size(), 2);
    QCOMPARE(before.routes(1).instances_size(), 0);
    QCOMPARE(before.alive_size(), 1);
    QVERIFY(server_->Report(ReadyReport("i", assignment.epoch())).ok());
    const v1::RoutingTable after = routing.Next();
    QVERIFY(after.epoch() > before.epoch());
    QCOMPARE(after.routes(1).instances(0).node_id(), std::string("i"));

    // A changed assignment takes the instance out of the routes until it serves the new one.
    QVERIFY(server_->Apply(MakeWorkflow("other", {"b"})).ok());
    const v1::Assignment wider =
        assignments.Next([](const v1::Assignment& a) { return a.app_ids_size() == 2; });
    QVERIFY(server_->Report(ReadyReport("i", wider.epoch())).ok());
    const v1::RoutingTable both = routing.Next([](const v1::RoutingTable& table) {
      return table.routes_size() == 3 && table.routes(1).instances_size() == 1 &&
             table.routes(2).instances_size() == 1;
    });
    QCOMPARE(both.routes(2).app_id(), std::string("other"));
  }

  void FailureDetector_DeclaresASilentNodeDead() {
    for (const char* id : {"quiet", "loud"}) {
      QVERIFY(server_->Register(MakeNode(id, v1::PROXY)).ok());
      QVERIFY(server_->Report(ReadyReport(id)).ok());
    }
    RoutingReader routing(*server_, &Stub::WatchRouting, {});
    QCOMPARE(routing.Next().proxies_size(), 2);
    server_->Pass(kDeadAfter - kDeadAfter / 5, {ReadyReport("loud")});
    QVERIFY(server_->Report(ReadyReport("quiet")).ok());
    server_->Pass(kDeadAfter + kDeadAfter / 5, {ReadyReport("loud")});
    const v1::RoutingTable table = routing.Next();
    QCOMPARE(table.alive_size(), 1);
    QCOMPARE(table.proxies(0).node_id(), std::string("loud"));
    QCOMPARE(Reason(server_->Report(ReadyReport("quiet")).status()),
             std::string("STALE_INCARNATION"));
    QCOMPARE(Reason(server_->Register(MakeNode("quiet", v1::PROXY)).status()),
             std::string("STALE_INCARNATION"));
    QVERIFY(server_->Register(MakeNode("quiet", v1::PROXY, 2)).ok());
    QVERIFY(server_->Report(ReadyReport("quiet", 0, 2)).ok());
    QCOMPARE(
        routing.Next([](const v1::RoutingTable& t) { return t.proxies_size() == 2; }).alive_size(),
        2);
  }

  void FailureDetector_BlamesNobodyWhenItStoodStillItself() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    server_->StandStill(10 * kDeadAfter);
    server_->Pass(kDeadAfter / 2);
    QVERIFY(server_->Report(ReadyReport("p")).ok());
  }

  void Node_UnknownOrOldIsToldSo() {
    QCOMPARE(Reason(server_->Report(ReadyReport("nobody")).status()), std::string("NODE_UNKNOWN"));
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY, 7)).ok());
    QCOMPARE(Reason(server_->Report(ReadyReport("p", 0, 6)).status()),
             std::string("STALE_INCARNATION"));
    const absl::Status older = server_->Register(MakeNode("p", v1::PROXY, 6)).status();
    QCOMPARE(Reason(older), std::string("STALE_INCARNATION"));
    QCOMPARE(base::GetReason(older).metadata["incarnation"], std::string("7"));
    AssignmentReader stale(*server_, &Stub::WatchAssignment, WatchAssignmentOf("p", 6));
    QCOMPARE(Reason(stale.Finish()), std::string("STALE_INCARNATION"));
    AssignmentReader unknown(*server_, &Stub::WatchAssignment, WatchAssignmentOf("q"));
    QCOMPARE(Reason(unknown.Finish()), std::string("NODE_UNKNOWN"));
    v1::ReportNodeRequest dead = ReadyReport("p", 0, 7);
    dead.set_state(v1::Node::DEAD);
    QCOMPARE(Reason(server_->Report(dead).status()), std::string("BAD_NODE_STATE"));
  }

  // A state that was put back from a backup may know an earlier incarnation only.
  void Node_OfALaterIncarnation_RegistersAndKeepsIt() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY, 7)).ok());
    QCOMPARE(Reason(server_->Report(ReadyReport("p", 0, 9)).status()), std::string("NODE_UNKNOWN"));
    AssignmentReader unknown(*server_, &Stub::WatchAssignment, WatchAssignmentOf("p", 9));
    QCOMPARE(Reason(unknown.Finish()), std::string("NODE_UNKNOWN"));
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY, 9)).ok());
    QVERIFY(server_->Report(ReadyReport("p", 0, 9)).ok());
    QCOMPARE(Reason(server_->Report(ReadyReport("p", 0, 7)).status()),
             std::string("STALE_INCARNATION"));
  }

  void NewGeneration_TellsNoRoutingBeforeItsNodesAreBack() {
    QVERIFY(server_->Register(MakeNode("known", v1::PROXY)).ok());
    QVERIFY(server_->controller().Propose(BeginGenerationCommand(1)).ok());
    // The leadership that begins with the restored state.
    QVERIFY(server_->controller().TakeOver().ok());
    QVERIFY(!server_->controller().MayTellRouting());
    v1::WatchRoutingRequest request;
    RoutingReader routing(*server_, &Stub::WatchRouting, request);
    QVERIFY(server_->Register(MakeNode("unknown", v1::PROXY)).ok());
    server_->Pass(2 * kDeadAfter, {ReadyReport("known"), ReadyReport("unknown")});
    const v1::RoutingTable table = routing.Next();
    QCOMPARE(table.alive_size(), 2);
    QCOMPARE(base::GenerationOf(table.epoch()), 1U);
    // A later leader of the generation does not wait.
    QVERIFY(server_->controller().TakeOver().ok());
    QVERIFY(server_->controller().MayTellRouting());
  }

  void RegisterNode_RefusesNonsense_data() {
    QTest::addColumn<QString>("field");
    for (const char* field :
         {"node.node_id", "node.role", "node.incarnation", "node.address", "node.workflow_set",
          "node.version", "node.build", "node.zone", "node.host", "node.labels", "node.devices"}) {
      QTest::newRow(field) << field;
    }
  }
  void RegisterNode_RefusesNonsense() {
    QFETCH(QString, field);
    v1::Node node = MakeNode("p", v1::PROXY);
    if (field == "node.node_id") node.set_node_id("a/b");
    if (field == "node.role") node.set_role(static_cast<v1::Role>(99));
    if (field == "node.incarnation") node.set_incarnation(0);
    if (field == "node.address") node.clear_address();
    if (field == "node.workflow_set") node.set_workflow_set("a b");
    const std::string longest(128, 'a');
    const auto fill = [&](const std::string& text) {
      if (field == "node.version") node.set_version(text);
      if (field == "node.build") node.set_build(text);
      if (field == "node.zone") node.set_zone(text);
      if (field == "node.host") node.set_host(text);
      if (field == "node.labels") (*node.mutable_labels())["key"] = text;
      if (field == "node.devices") node.add_devices()->set_product(text);
    };
    fill(longest);
    if (node.ByteSizeLong() > longest.size()) QVERIFY(CheckNode(node).ok());
    fill(longest + "a");
    const absl::Status status = server_->Register(node).status();
    QCOMPARE(Reason(status), std::string("BAD_NODE"));
    QCOMPARE(QString::fromStdString(base::GetReason(status).metadata.at("field")), field);
  }

  void RegisterNode_BoundsLabelsAndDevices() {
    v1::Node node = MakeNode("p", v1::PROXY);
    for (int i = 0; i < 32; ++i) (*node.mutable_labels())[std::to_string(i)] = "";
    for (int i = 0; i < 64; ++i) node.add_devices()->set_device("cuda:" + std::to_string(i));
    QVERIFY(server_->Register(node).ok());
    v1::Node more = node;
    (*more.mutable_labels())["more"] = "";
    QCOMPARE(Reason(server_->Register(more).status()), std::string("BAD_NODE"));
    more = node;
    more.add_devices();
    QCOMPARE(Reason(server_->Register(more).status()), std::string("BAD_NODE"));
    more = node;
    more.mutable_labels()->clear();
    (*more.mutable_labels())[""] = "no key";
    QCOMPARE(Reason(server_->Register(more).status()), std::string("BAD_NODE"));
    // The next incarnation must be able to exceed it.
    more = node;
    more.set_incarnation(std::uint64_t{1} << 63);
    QCOMPARE(Reason(server_->Register(more).status()), std::string("BAD_NODE"));
  }

  void RegisterNode_TakesIdsOfUpTo128Characters() {
    const std::string longest = std::string(120, 'a') + "-_.Z9-_.";
    QVERIFY(server_->Register(MakeNode(longest, v1::PROXY)).ok());
    for (const std::string& bad : {longest + "a", std::string("a b"), std::string("ä")}) {
      const absl::Status status = server_->Register(MakeNode(bad, v1::PROXY)).status();
      QVERIFY2(base::Message(status).find("1 to 128 letters, digits") != std::string::npos,
               base::Message(status).c_str());
    }
  }

  void DeregisterNode_LeavesTheRoutingAtOnce() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    QVERIFY(server_->Report(ReadyReport("p")).ok());
    const auto proxies = [&] {
      return rpc::Call(server_->stub(), &Stub::ListProxies, {}, kLimit)->proxies_size();
    };
    QCOMPARE(proxies(), 1);
    v1::DeregisterNodeRequest request;
    request.set_node_id("p");
    request.set_incarnation(1);
    QVERIFY(rpc::Call(server_->stub(), &Stub::DeregisterNode, request, kLimit).ok());
    QCOMPARE(proxies(), 0);
  }

  void ListProxies_NamesOnlyReadyOnesOfTheSet() {
    v1::Node far = MakeNode("far", v1::PROXY);
    far.set_workflow_set("far");
    for (const v1::Node& node : {MakeNode("p", v1::PROXY), MakeNode("starting", v1::PROXY), far}) {
      QVERIFY(server_->Register(node).ok());
      if (node.node_id() != "starting") QVERIFY(server_->Report(ReadyReport(node.node_id())).ok());
    }
    v1::ListProxiesRequest request;
    QCOMPARE(rpc::Call(server_->stub(), &Stub::ListProxies, request, kLimit)->proxies_size(), 2);
    request.set_workflow_set("far");
    const auto proxies = rpc::Call(server_->stub(), &Stub::ListProxies, request, kLimit);
    QCOMPARE(proxies->proxies_size(), 1);
    QCOMPARE(proxies->proxies(0).endpoint().address(), far.address());
    QCOMPARE(proxies->proxies(0).workflow_set(), std::string("far"));
  }

  void GetCluster_CarriesTelemetry() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    QVERIFY(server_->Report(ReadyReport("p")).ok());
    const auto cluster = rpc::Call(server_->stub(), &Stub::GetCluster, {}, kLimit);
    QCOMPARE(cluster->nodes(0).load().utilization(), 0.5);
    QVERIFY(cluster->nodes(0).last_report_time().seconds() > 0);
    QVERIFY(!cluster->cluster_id().empty());
    QVERIFY(cluster->revision() > 0);
    QCOMPARE(cluster->api_version(), 1);
    QVERIFY(!cluster->server_version().empty());
  }

  void WatchCluster_ResumesFromARevisionAndBeats() {
    QVERIFY(server_->Apply(MakeWorkflow("one", {"a"})).ok());
    std::uint64_t known = 0;
    {
      ClusterReader events(*server_, &Stub::WatchCluster, {});
      const v1::ClusterEvent first = events.Next();
      QVERIFY(first.has_snapshot());
      QCOMPARE(first.snapshot().workflows_size(), 1);
      known = first.revision();
      const v1::ClusterEvent beat = events.Next();
      QCOMPARE(beat.change_case(), v1::ClusterEvent::CHANGE_NOT_SET);
      QCOMPARE(beat.revision(), known);
    }
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    QVERIFY(server_->Apply(MakeWorkflow("two", {"a"})).ok());
    v1::DeleteWorkflowRequest remove;
    remove.set_name("workflows/one");
    QVERIFY(rpc::Call(server_->stub(), &Stub::DeleteWorkflow, remove, kLimit).ok());
    v1::WatchClusterRequest request;
    request.set_start_revision(known);
    ClusterReader events(*server_, &Stub::WatchCluster, request);
    const v1::ClusterEvent node = events.Next(), workflow = events.Next(), deleted = events.Next();
    QCOMPARE(node.node().node_id(), std::string("p"));
    QCOMPARE(workflow.workflow().app_id(), std::string("two"));
    QCOMPARE(deleted.workflow_deleted(), std::string("one"));
    QVERIFY(known < node.revision() && node.revision() < workflow.revision());
    QVERIFY(workflow.revision() < deleted.revision());
    request.set_start_revision(deleted.revision() + 1000);
    QVERIFY(ClusterReader(*server_, &Stub::WatchCluster, request).Next().has_snapshot());
  }

  void WatchCluster_SendsTelemetry() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    QVERIFY(server_->Register(MakeNode("silent", v1::PROXY)).ok());
    QVERIFY(server_->Report(ReadyReport("p")).ok());
    v1::WatchClusterRequest request;
    request.set_telemetry_interval_ms(200);
    ClusterReader events(*server_, &Stub::WatchCluster, request);
    const v1::ClusterEvent first = events.Next();
    QVERIFY(first.has_snapshot());
    QCOMPARE(first.snapshot().api_version(), 1);
    QVERIFY(first.server_unix_ms() > 0);
    // Nothing else has changed, so telemetry comes as the heartbeat, under the same revision.
    for (const double share : {0.5, 0.75}) {
      v1::ReportNodeRequest report = ReadyReport("p");
      report.mutable_load()->set_utilization(share);
      QVERIFY(server_->Report(report).ok());
      const v1::ClusterEvent event = events.Next([&](const v1::ClusterEvent& e) {
        return e.has_telemetry() && e.telemetry().nodes(0).load().utilization() == share;
      });
      QCOMPARE(event.revision(), first.revision());
      QCOMPARE(event.server_unix_ms(), first.server_unix_ms());  // The test's clock stands still.
      QCOMPARE(event.telemetry().nodes_size(), 2);
      QCOMPARE(event.telemetry().nodes(0).node_id(), std::string("p"));
      QCOMPARE(event.telemetry().nodes(0).last_report_time().seconds(),
               first.server_unix_ms() / 1000);
      QVERIFY(!event.telemetry().nodes(1).has_load());
      QVERIFY(!event.telemetry().nodes(1).has_last_report_time());
    }
    QVERIFY(server_->Apply(MakeWorkflow("one", {"a"})).ok());
    const v1::ClusterEvent change =
        events.Next([](const v1::ClusterEvent& event) { return !event.has_telemetry(); });
    QVERIFY(change.has_workflow());
    QVERIFY(change.revision() > first.revision());
    QCOMPARE(events.Next().revision(), change.revision());
    // A watcher that resumes hears at once.
    request.set_start_revision(change.revision());
    request.set_telemetry_interval_ms(3'600'000);
    QVERIFY(ClusterReader(*server_, &Stub::WatchCluster, request).Next().has_telemetry());
    for (const int bad : {-1, 1, 199}) {
      request.set_telemetry_interval_ms(bad);
      ClusterReader refused(*server_, &Stub::WatchCluster, request);
      QCOMPARE(base::GetReason(refused.Finish()).reason, std::string("BAD_TELEMETRY_INTERVAL"));
    }
  }

  void Streams_EndAtShutdown() {
    RoutingReader routing(*server_, &Stub::WatchRouting, {});
    routing.Next();
    QElapsedTimer timer;
    timer.start();
    server_->Shutdown();
    QCOMPARE(Reason(routing.Finish()), std::string("SHUTTING_DOWN"));
    QVERIFY2(timer.elapsed() < 4000, "the server waited out its grace");
  }

  void NotLeading_EndsStreamsAndRefusesAll() {
    RoutingReader routing(*server_, &Stub::WatchRouting, {});
    routing.Next();
    server_->log().Stop();
    QCOMPARE(Reason(routing.Finish()), std::string("NOT_LEADER"));
    const auto cluster = rpc::Call(server_->stub(), &Stub::GetCluster, {}, kLimit);
    QCOMPARE(Reason(cluster.status()), std::string("NOT_LEADER"));
    QCOMPARE(Reason(server_->Report(ReadyReport("p")).status()), std::string("NOT_LEADER"));
    QCOMPARE(Reason(server_->Apply(MakeWorkflow("app", {"a"})).status()),
             std::string("NOT_LEADER"));
  }

  void Consensus_AnswersOperators() {
    ConsensusService service(server_->log());
    grpc::ServerContext context;
    v1::ReplicaStatus status;
    QVERIFY(service.GetReplica(&context, nullptr, &status).ok());
    QCOMPARE(status.role(), v1::ReplicaStatus::LEADER);
    QCOMPARE(status.members().seats_size(), 1);
    QCOMPARE(status.members().warnings_size(), 0);
    v1::AddSeatRequest add;
    v1::ConsensusMembers members;
    add.set_name("nm 2");
    add.set_address("127.0.0.1:1");
    QCOMPARE(Reason(rpc::FromGrpc(service.AddSeat(&context, &add, &members))),
             std::string("BAD_SEAT"));
    add.set_name("nm-2");
    QVERIFY(service.AddSeat(&context, &add, &members).ok());
    QCOMPARE(members.seats_size(), 2);
    QVERIFY(members.warnings(0).find("1 of 2 seats") != std::string::npos);
    google::protobuf::Empty empty;
    QCOMPARE(Reason(rpc::FromGrpc(service.StepDown(&context, nullptr, &empty))),
             std::string("NO_SUCCESSOR"));
    v1::RemoveSeatRequest remove;
    remove.set_name("nm-2");
    v1::ConsensusMembers fewer;
    QVERIFY(service.RemoveSeat(&context, &remove, &fewer).ok());
    QCOMPARE(fewer.seats_size(), 1);
    v1::TakeSnapshotResponse snapshot;
    QVERIFY(service.TakeSnapshot(&context, nullptr, &snapshot).ok());
    QVERIFY(snapshot.index() > 0);
    v1::ListLogRequest list;
    v1::ListLogResponse log;
    QVERIFY(service.ListLog(&context, &list, &log).ok());
    QCOMPARE(log.lines(log.lines_size() - 1).kind(), std::string("members"));
    list.set_limit(-1);
    QCOMPARE(Reason(rpc::FromGrpc(service.ListLog(&context, &list, &log))),
             std::string("BAD_LIMIT"));
  }

  void FeatureLevel_NeverFalls_AndIsKnownToAll() {
    ConsensusService service(server_->log());
    grpc::ServerContext context;
    v1::RaiseFeatureLevelRequest request;
    v1::RaiseFeatureLevelResponse response;
    // A new group has the newest level already.
    QVERIFY(service.RaiseFeatureLevel(&context, &request, &response).ok());
    QCOMPARE(response.level(), server_->log().Status().version());
    request.set_level(1);
    QCOMPARE(Reason(rpc::FromGrpc(service.RaiseFeatureLevel(&context, &request, &response))),
             std::string("FEATURE_LEVEL"));
    request.set_level(99);
    const absl::Status unknown =
        rpc::FromGrpc(service.RaiseFeatureLevel(&context, &request, &response));
    QCOMPARE(Reason(unknown), std::string("OLD_REPLICA"));
    QVERIFY(base::Message(unknown).find("nm (knows ") != std::string::npos);
  }

  void FeatureLevel_ThatRises_IsTold() {
    server_.reset();
    dir_ = std::make_unique<QTemporaryDir>();
    {
      ReplicatedLogOptions options{.data_dir = dir_->path().toStdString(), .name = "nm"};
      options.paxos.version = 2;
      const auto log = std::move(ReplicatedLog::Open(options)).value();
      QVERIFY(log->Start("127.0.0.1:1").ok());
      v1::Command command;
      command.mutable_initialize()->set_cluster_id("test");
      QVERIFY(testing::Eventually([&] { return log->Propose(command).ok(); }));
      log->Stop();
    }
    server_ = std::make_unique<ServedNodeManager>(dir_->path().toStdString());
    QCOMPARE(server_->log().Status().feature_level(), 2u);
    int told = 0;
    ConsensusService service(server_->log(), /*read_only=*/false, [&] { ++told; });
    grpc::ServerContext context;
    const v1::RaiseFeatureLevelRequest request;
    v1::RaiseFeatureLevelResponse response;
    QVERIFY(service.RaiseFeatureLevel(&context, &request, &response).ok());
    QCOMPARE(response.level(), kCommandVersion);
    QCOMPARE(told, 1);
    // It has this level already.
    QVERIFY(service.RaiseFeatureLevel(&context, &request, &response).ok());
    QCOMPARE(told, 1);
  }

  void FeatureLevel_NamesTheReplicasThatDoNotKnowIt() {
    v1::ReplicaStatus leader;
    leader.set_name("nm-1");
    leader.set_replica(1);
    leader.set_version(3);
    const auto add = [&](const char* name, std::uint64_t replica, bool votes, std::uint32_t knows) {
      v1::ReplicaProgress& progress = *leader.add_progress();
      progress.set_name(name);
      progress.set_replica(replica);
      progress.set_votes(votes);
      progress.set_version(knows);
    };
    add("nm-1", 1, true, 0);
    add("nm-2", 2, true, 3);
    add("learner", 5, false, 2);
    QVERIFY(CheckLevel(leader, 3).ok());
    add("nm-3", 3, true, 2);
    add("nm-4", 4, true, 0);
    const absl::Status status = CheckLevel(leader, 3);
    QCOMPARE(Reason(status), std::string("OLD_REPLICA"));
    QVERIFY(base::Message(status).find("nm-3 (knows 2), nm-4 (has not answered)") !=
            std::string::npos);
    QVERIFY(CheckLevel(leader, 0).ok());
  }

  void Warnings_NameAnUnwiseGroup_data() {
    QTest::addColumn<int>("seats");
    QTest::addColumn<int>("voters");
    QTest::addColumn<QString>("warnings");
    QTest::newRow("alone") << 1 << 1 << "";
    QTest::newRow("three") << 3 << 3 << "";
    QTest::newRow("one of three") << 3 << 1
                                  << "1 of 3 seats are occupied|with 1 voters none may fail";
    QTest::newRow("four") << 4 << 4 << "4 voters tolerate no more failures than 3: 1";
  }
  void Warnings_NameAnUnwiseGroup() {
    QFETCH(int, seats);
    QFETCH(int, voters);
    QFETCH(QString, warnings);
    v1::ConsensusMembers members;
    for (int i = 0; i < seats; ++i) members.add_seats()->set_replica(i < voters ? i + 1 : 0);
    AddWarnings(members);
    QStringList said;
    for (const std::string& warning : members.warnings()) said << QString::fromStdString(warning);
    QCOMPARE(said.join('|'), warnings);
  }

  void Warnings_NameSeatsOnOneHost() {
    v1::ConsensusMembers members;
    const auto add = [&](const char* name, const char* address) {
      v1::Seat& seat = *members.add_seats();
      seat.set_name(name);
      seat.set_address(address);
      seat.set_replica(static_cast<std::uint64_t>(members.seats_size()));
    };
    add("nm-1", "10.0.0.1:7400");
    add("nm-2", "[fd00::1]:7400");
    add("nm-3", "10.0.0.1:7401");
    AddWarnings(members);
    QCOMPARE(members.warnings_size(), 1);
    QCOMPARE(members.warnings(0),
             std::string("nm-1, nm-3 are on one host, 10.0.0.1: they may fail together"));
    members.clear_warnings();
    for (v1::Seat& seat : *members.mutable_seats()) seat.set_address("127.0.0.1:1");
    AddWarnings(members);
    QCOMPARE(members.warnings_size(), 0);
  }

  void Workflow_LivesThroughTheApi() {
    v1::ApplyWorkflowRequest apply;
    *apply.mutable_workflow() = MakeWorkflow("app", {"a"});
    apply.set_validate_only(true);
    QCOMPARE(rpc::Call(server_->stub(), &Stub::ApplyWorkflow, apply, kLimit)->name(),
             std::string("workflows/app"));
    v1::GetWorkflowRequest get;
    get.set_name("workflows/app");
    QCOMPARE(Reason(rpc::Call(server_->stub(), &Stub::GetWorkflow, get, kLimit).status()),
             std::string("WORKFLOW_UNKNOWN"));
    apply.set_validate_only(false);
    QVERIFY(rpc::Call(server_->stub(), &Stub::ApplyWorkflow, apply, kLimit).ok());
    QCOMPARE(rpc::Call(server_->stub(), &Stub::GetWorkflow, get, kLimit)->stages_size(), 1);
    get.set_name("app");
    QCOMPARE(Reason(rpc::Call(server_->stub(), &Stub::GetWorkflow, get, kLimit).status()),
             std::string("BAD_NAME"));
    const absl::Status bad = server_->Apply(MakeWorkflow("App!", {"a"})).status();
    QCOMPARE(bad.code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(base::GetReason(bad).metadata.at("field"), std::string("app_id"));
    v1::DeleteWorkflowRequest remove;
    remove.set_name("workflows/app");
    QVERIFY(rpc::Call(server_->stub(), &Stub::DeleteWorkflow, remove, kLimit).ok());
    QCOMPARE(Reason(rpc::Call(server_->stub(), &Stub::DeleteWorkflow, remove, kLimit).status()),
             std::string("WORKFLOW_UNKNOWN"));
  }

  void ListWorkflows_GoesThroughAllPages() {
    for (int i = 0; i < 7; ++i)
      QVERIFY(server_->Apply(MakeWorkflow(absl::StrCat("app-", i), {"a"})).ok());
    v1::ListWorkflowsRequest request;
    request.set_page_size(3);
    std::vector<std::string> seen;
    for (int page = 0; page < 3; ++page) {
      const auto response = rpc::Call(server_->stub(), &Stub::ListWorkflows, request, kLimit);
      QVERIFY(response.ok());
      for (const v1::Workflow& workflow : response->workflows()) seen.push_back(workflow.app_id());
      QCOMPARE(response->next_page_token().empty(), page == 2);
      request.set_page_token(response->next_page_token());
    }
    QCOMPARE(seen.size(), std::size_t{7});
    QVERIFY(std::is_sorted(seen.begin(), seen.end()));
    request.set_page_token("made up");
    QCOMPARE(Reason(rpc::Call(server_->stub(), &Stub::ListWorkflows, request, kLimit).status()),
             std::string("BAD_PAGE_TOKEN"));
    request.set_page_size(-1);
    QCOMPARE(Reason(rpc::Call(server_->stub(), &Stub::ListWorkflows, request, kLimit).status()),
             std::string("BAD_PAGE_SIZE"));
  }

  void WorkflowFiles_BringWhatIsNewAndUndoNothing() {
    const QTemporaryDir dir;
    v1::Workflow changed = MakeWorkflow("changed", {"a", "b"});
    v1::Workflow huge = MakeWorkflow("huge", {"a"});
    huge.mutable_stages(0)->set_model(std::string(9 << 20, 'x'));  // Too large for a command.
    const std::vector<v1::Workflow> files = {huge, MakeWorkflow("changed", {"a"}),
                                             MakeWorkflow("deleted", {"a"})};
    for (int start = 0; start < 2; ++start) {
      ServedNodeManager server(dir.path().toStdString(), files);
      std::map<std::string, int> stages;
      server.controller().Read([&](const StateMachine& state) {
        for (const auto& [id, record] : state.workflows())
          stages[id] = record.workflow().stages_size();
      });
      if (start == 0) {
        QCOMPARE(stages, (std::map<std::string, int>{{"changed", 1}, {"deleted", 1}}));
        QVERIFY(server.Apply(changed).ok());
        v1::DeleteWorkflowRequest remove;
        remove.set_name("workflows/deleted");
        QVERIFY(rpc::Call(server.stub(), &Stub::DeleteWorkflow, remove, kLimit).ok());
      } else {
        QCOMPARE(stages, (std::map<std::string, int>{{"changed", 2}}));
      }
    }
  }

  void Restart_KeepsWorkflowsSecretAndNodes() {
    QVERIFY(server_->Apply(MakeWorkflow("app", {"a"})).ok());
    const auto first = server_->Register(MakeNode("p", v1::PROXY));
    QVERIFY(server_->Report(ReadyReport("p")).ok());
    server_.reset();
    server_ = std::make_unique<ServedNodeManager>(dir_->path().toStdString());
    v1::GetWorkflowRequest get;
    get.set_name("workflows/app");
    QVERIFY(rpc::Call(server_->stub(), &Stub::GetWorkflow, get, kLimit).ok());
    server_->Pass(kDeadAfter / 2);  // A new leader waits anew, as the node could not report.
    QVERIFY(server_->Report(ReadyReport("p")).ok());
    const auto second = server_->Register(MakeNode("q", v1::PROXY));
    QCOMPARE(second->cluster_secret(), first->cluster_secret());
    QCOMPARE(second->cluster_id(), first->cluster_id());
    server_->Pass(kDeadAfter + kDeadAfter / 5);
    QCOMPARE(Reason(server_->Report(ReadyReport("p")).status()), std::string("STALE_INCARNATION"));
  }

  void Detector_RunsOnItsOwnThread() {
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    server_->controller().Start();
    const auto is_dead = [&] {
      server_->StandStill(kDeadAfter / 20);
      bool dead = false;
      server_->controller().Read(
          [&](const StateMachine& state) { dead = !IsAlive(state.nodes().at("p").node()); });
      return dead;
    };
    QTRY_VERIFY_WITH_TIMEOUT(is_dead(), 20000);
    server_->controller().Stop();
  }

  void Metrics_CountNodesAndProposals() {
    telemetry::Metrics metrics("nodemanager", "test");
    ExportMetrics(server_->controller(), server_->service(), server_->log(), metrics);
    const ReplicatedLogOptions::Observers observers = MakeObservers(metrics);
    observers.sync(std::chrono::milliseconds(3));
    observers.apply(std::chrono::milliseconds(3));
    observers.round_trip("nm-2", std::chrono::milliseconds(3));
    CommitHistogram(metrics).Observe(0.003);
    QVERIFY(server_->Register(MakeNode("p", v1::PROXY)).ok());
    QVERIFY(!server_->Register(MakeNode("p", v1::PROXY, 0)).ok());
    const auto address = metrics.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    const QByteArray text = Scrape(*address);
    metrics.Stop();
    QVERIFY2(text.contains("onepiece_nodemanager_nodes{role=\"proxy\",state=\"starting\"} 1\n"),
             text);
    // The three commands are the cluster's first one, its configuration and the registration.
    QVERIFY2(text.contains("onepiece_nodemanager_proposals_total{result=\"applied\"} 3\n"), text);
    QVERIFY2(text.contains("onepiece_nodemanager_epoch 1\n"), text);
    QVERIFY2(text.contains("onepiece_nodemanager_consensus_role{role=\"leader\"} 1\n"), text);
    QVERIFY2(text.contains("onepiece_nodemanager_consensus_peers_drifting 0\n"), text);
    QVERIFY2(text.contains("onepiece_nodemanager_moves_total{result=\"done\"} 0\n"), text);
    QVERIFY2(text.contains("onepiece_nodemanager_plans 0\n"), text);
    for (const char* line :
         {"has_leader 1", "is_leader 1", "lease 1", "leader_changes_seen_total 1", "corrupt 0",
          "proposals_pending 0", "proposals_failed_total 0", "slow_watchers 0",
          "routing_snapshots_total 0", "quota_state_bytes 41943040",
          "disk_wal_fsync_duration_seconds_count 1", "apply_duration_seconds_count 1",
          "proposal_duration_seconds_count 1",
          "network_peer_round_trip_time_seconds_count{peer=\"nm-2\"} 1"}) {
      const QByteArray whole = QByteArray("\nonepiece_nodemanager_") + line + "\n";
      QVERIFY2(text.contains(whole), line);
    }
    const auto value = [&](const char* name) {
      const QByteArray start = QByteArray("\nonepiece_nodemanager_") + name + " ";
      const auto at = text.indexOf(start);
      return at < 0 ? -1.0 : text.mid(at + start.size()).split('\n').first().toDouble();
    };
    QVERIFY(value("proposals_committed_total") >= 3);  // The members, the no-op, two commands.
    QCOMPARE(value("proposals_applied_total"), value("proposals_committed_total"));
    QVERIFY(value("state_size_in_bytes") > 0);
    QVERIFY(value("db_total_size_in_bytes") > 0);
    QVERIFY(value("db_available_bytes") > 0);
    QVERIFY2(text.contains("onepiece_nodemanager_hold 0\n"), text);
    QVERIFY2(text.contains("onepiece_nodemanager_clock_skew_seconds 0\n"), text);
  }

 private:
  std::unique_ptr<QTemporaryDir> dir_;
  std::unique_ptr<ServedNodeManager> server_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ServiceTest)
#include "service_test.moc"
