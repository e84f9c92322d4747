// Tests a NodeManager that was started with --read-only.
#include "tests/read_only.h"

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/config_service.h"
#include "nodemanager/service/consensus_service.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/elasticity_service.h"
#include "nodemanager/service/node_manager_service.h"
#include "onepiece/v1/consensus.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "tests/eventually.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {

using Stub = v1::NodeManagerService::Stub;
constexpr auto kReadOnlyLimit = std::chrono::seconds(20);

class ReadOnlyTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    log_ = std::move(ReplicatedLog::Open({.data_dir = dir_->path().toStdString(), .name = "nm"}))
               .value();
    controller_ = std::make_unique<Controller>(
        *log_, base::SystemClock(),
        ControllerOptions{.cluster_id = [this] { return log_->cluster_id(); }});
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{});
    service_ = std::make_unique<NodeManagerService>(
        *controller_, server_->stopping(),
        NodeManagerServiceOptions{.addresses = [this] { return log_->Addresses(); },
                                  .read_only = true});
    elasticity_ = std::make_unique<ElasticityService>(*controller_, true);
    config_ = std::make_unique<ConfigService>(*controller_, true);
    consensus_ = std::make_unique<ConsensusService>(*log_, true);
    const std::vector<grpc::Service*> services = {service_.get(), elasticity_.get(), config_.get(),
                                                  consensus_.get(), &log_->service()};
    for (grpc::Service* service : services) server_->AddService(*service);
    log_->OnRole([this](bool) { controller_->OnRole(); });
    QVERIFY(server_->Start().ok());
    QVERIFY(log_->Start(server_->address()).ok());
    QVERIFY(testing::Eventually(kReadOnlyLimit, [this] { return controller_->TakeOver().ok(); }));
    channel_ = rpc::MakeChannel(server_->address());
  }
  void cleanup() {
    server_->Shutdown(std::chrono::seconds(5));
    log_->Stop();
  }

  void EveryChangeOfPeopleIsRefused() {
    const auto& file = *v1::RegisterNodeRequest::descriptor()->file();
    QCOMPARE(testing::CheckReadOnly(
                 channel_, *file.service(0), {"RemoveNode", "ApplyWorkflow", "DeleteWorkflow"},
                 {"RegisterNode", "ReportNode", "DeregisterNode", "WatchAssignment", "WatchRouting",
                  "ListProxies", "GetCluster", "WatchCluster", "GetWorkflow", "ListWorkflows"}),
             std::string());
    const auto& elasticity = *v1::ApplyPlanRequest::descriptor()->file();
    QCOMPARE(testing::CheckReadOnly(
                 channel_, *elasticity.service(0),
                 {"ApplyPlan", "ConfirmPlan", "UndoPlan", "SetHold", "SetPoolLimits"},
                 {"GetElasticity", "ProposePlan", "GetPlan", "ListPlans", "ListAudit"}),
             std::string());
    const auto& config = *v1::ApplyConfigRequest::descriptor()->file();
    QCOMPARE(testing::CheckReadOnly(channel_, *config.service(0), {"ApplyConfig"},
                                    {"GetConfig", "ListConfigRevisions"}),
             std::string());
    const auto& consensus = *v1::AddSeatRequest::descriptor()->file();
    QCOMPARE(testing::CheckReadOnly(channel_, *consensus.FindServiceByName("ConsensusService"),
                                    {"AddSeat", "RemoveSeat", "ReplaceSeat", "RaiseFeatureLevel",
                                     "StepDown", "TakeSnapshot"},
                                    {"GetReplica", "ListLog", "Backup"}),
             std::string());
    // The program serves all services of these files, and telemetry, which changes nothing. A new
    // service must be checked here too.
    QCOMPARE(file.service_count(), 1);
    QCOMPARE(elasticity.service_count(), 1);
    QCOMPARE(config.service_count(), 1);
    QCOMPARE(consensus.service_count(), 2);
    QCOMPARE(testing::CheckReadOnly(channel_, *consensus.FindServiceByName("ReplicaService"), {},
                                    {"Exchange"}),
             std::string());
  }

  void NodesAndChecksGoOn() {
    const auto stub = v1::NodeManagerService::NewStub(channel_);
    v1::RegisterNodeRequest request;
    *request.mutable_node() = MakeNode("p", v1::PROXY);
    QVERIFY(rpc::Call(*stub, &Stub::RegisterNode, request, kReadOnlyLimit).ok());
    v1::ReportNodeRequest report;
    report.set_node_id("p");
    report.set_incarnation(1);
    report.set_state(v1::Node::READY);
    QVERIFY(rpc::Call(*stub, &Stub::ReportNode, report, kReadOnlyLimit).ok());
    v1::ApplyWorkflowRequest apply;
    *apply.mutable_workflow() = MakeWorkflow("one", {"a"});
    const auto refused = rpc::Call(*stub, &Stub::ApplyWorkflow, apply, kReadOnlyLimit).status();
    QVERIFY(base::Message(refused).find("without it") != std::string::npos);
    apply.set_validate_only(true);
    QVERIFY(rpc::Call(*stub, &Stub::ApplyWorkflow, apply, kReadOnlyLimit).ok());
    const auto cluster = rpc::Call(*stub, &Stub::GetCluster, {}, kReadOnlyLimit);
    QCOMPARE(cluster->nodes(0).state(), v1::Node::READY);
    QVERIFY(cluster->workflows().empty());
  }

 private:
  std::unique_ptr<QTemporaryDir> dir_;
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<NodeManagerService> service_;
  std::unique_ptr<ElasticityService> elasticity_;
  std::unique_ptr<ConfigService> config_;
  std::unique_ptr<ConsensusService> consensus_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ReadOnlyTest)
#include "read_only_test.moc"
