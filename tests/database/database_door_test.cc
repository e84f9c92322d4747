// What a database lets the nodes of its cluster do: each speaks for itself alone.
#include <QtTest>

#include "cluster/database/database_node.h"
#include "cluster/rpc/channel.h"
#include "tests/database/database_cluster.h"
#include "tests/node/secure_nodes.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using identity::Role;
using DoorStub = v1::DatabaseService::Stub;

constexpr std::chrono::seconds kDoorCallLimit(20);

v1::ReserveResultRequest RoomFor(const std::string& sender) {
  v1::ReserveResultRequest request;
  request.set_uid(base::Uid::GenerateRandom().ToString());
  request.set_app_id("video");
  request.set_sender(sender);
  request.mutable_create_time()->set_seconds(1'700'000'000);
  request.mutable_time_left()->set_seconds(60);
  v1::ResultArtifact& artifact = *request.add_artifacts();
  artifact.set_artifact("video");
  artifact.set_media_type("video/mp4");
  artifact.set_size_bytes(1 << 20);
  artifact.set_sha256(std::string(64, 'a'));
  return request;
}

}  // namespace

class DatabaseDoorTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void initTestCase() {
    cluster_ = std::make_unique<DatabaseCluster>();
    nodes_ = std::make_unique<testing::SecureNodes>("test");
    metrics_ = std::make_unique<telemetry::Metrics>("database", "db-1");
    spans_ = std::make_unique<telemetry::Spans>("db-1");
    DatabaseNodeOptions options;
    options.node_id = "db-1";
    options.door = &nodes_->door();
    auto node = DatabaseNode::Open(cluster_->view(), std::move(options), cluster_->fabric(),
                                   *metrics_, *spans_);
    QVERIFY(node.ok());
    node_ = *std::move(node);
    server_ = std::make_unique<rpc::Server>(nodes_->ServerOf("db-1", Role::kDatabase));
    for (grpc::Service* service : node_->services()) server_->AddService(*service);
    QVERIFY(server_->Start().ok());
    QVERIFY(node_->Recover("test").ok());
    node_->Start();
    peer_ = Connect("db-2", Role::kDatabase);
    proxy_ = Connect("p1", Role::kProxy);
    instance_ = Connect("i1", Role::kInstance);
    rogue_ = Connect("i2", Role::kInstance);
  }
  void cleanupTestCase() {
    node_->Stop();
    server_.reset();
    node_.reset();
  }

  void ReplicateJobs_NamesTheClusterAndThePeer() {
    const auto replicate = [](DoorStub& stub, const std::string& cluster, const std::string& node) {
      v1::ReplicateJobsRequest request;
      request.set_cluster_id(cluster);
      request.set_node_id(node);
      return Refusal(stub, &DoorStub::ReplicateJobs, request);
    };
    QCOMPARE(replicate(*peer_, "test", "db-2"), std::string());
    QCOMPARE(replicate(*proxy_, "test", ""), std::string());
    QCOMPARE(replicate(*peer_, "", "db-2"), std::string("OTHER_CLUSTER"));
    QCOMPARE(replicate(*proxy_, "marines", ""), std::string("OTHER_CLUSTER"));
    // An end counts when every keeper proposes it, so nobody may propose for another.
    QCOMPARE(replicate(*peer_, "test", "db-3"), std::string("FOREIGN_NODE"));
    QCOMPARE(replicate(*rogue_, "test", "db-2"), std::string("FOREIGN_NODE"));
    QCOMPARE(replicate(*rogue_, "test", "i2"), std::string("WRONG_ROLE"));
  }

  void Peers_AskForThemselves() {
    v1::CompareJobsRequest compare;
    compare.set_cluster_id("test");
    compare.set_node_id("db-3");
    QCOMPARE(Refusal(*peer_, &DoorStub::CompareJobs, compare), std::string("FOREIGN_NODE"));
    compare.set_node_id("db-2");
    QCOMPARE(Refusal(*peer_, &DoorStub::CompareJobs, compare), std::string("OTHER_VIEW"));
    compare.clear_cluster_id();
    QCOMPARE(Refusal(*peer_, &DoorStub::CompareJobs, compare), std::string("OTHER_CLUSTER"));
    v1::SendJobsRequest send;
    send.set_cluster_id("test");
    send.set_node_id("db-3");
    QCOMPARE(Refusal(*peer_, &DoorStub::SendJobs, send), std::string("FOREIGN_NODE"));
    send.set_node_id("db-2");
    send.clear_cluster_id();
    QCOMPARE(Refusal(*peer_, &DoorStub::SendJobs, send), std::string("OTHER_CLUSTER"));
  }

  void Results_AreWrittenByWhoReserved() {
    QCOMPARE(Refusal(*rogue_, &DoorStub::ReserveResult, RoomFor("i1")),
             std::string("FOREIGN_NODE"));
    const auto reserved =
        rpc::Call(*instance_, &DoorStub::ReserveResult, RoomFor("i1"), kDoorCallLimit);
    QVERIFY2(reserved.ok(), base::Message(reserved.status()).c_str());
    v1::CommitResultRequest commit;
    commit.set_reservation(reserved->reservation());
    QCOMPARE(Refusal(*rogue_, &DoorStub::CommitResult, commit), std::string("FOREIGN_RESERVATION"));
    commit.set_abandon(true);
    QCOMPARE(Refusal(*rogue_, &DoorStub::CommitResult, commit), std::string("FOREIGN_RESERVATION"));
    QCOMPARE(Refusal(*instance_, &DoorStub::CommitResult, commit), std::string());
  }

  void Segments_AreOpenedByTheNodeItself() {
    const auto dialer = *cluster_->fabric().Dial();
    v1::OpenSegmentRequest open;
    open.set_node_id("i1");
    open.set_offer(dialer->offer().Serialize());
    QCOMPARE(Refusal(*rogue_, &DoorStub::OpenSegment, open), std::string("FOREIGN_NODE"));
    QCOMPARE(Refusal(*instance_, &DoorStub::OpenSegment, open), std::string());
  }

  void Records_AreChangedInNobodyElsesName() {
    v1::UpdateJobRequest update;
    update.set_uid(base::Uid::GenerateRandom().ToString());
    update.mutable_progress()->mutable_holder()->set_node_id("i1");
    QCOMPARE(Refusal(*rogue_, &DoorStub::UpdateJob, update), std::string("FOREIGN_NODE"));
    QCOMPARE(Refusal(*instance_, &DoorStub::UpdateJob, update), std::string("JOB_UNKNOWN"));
    v1::ClaimStartRequest claim;
    claim.set_uid(update.uid());
    claim.set_claimant("p2");
    QCOMPARE(Refusal(*proxy_, &DoorStub::ClaimStart, claim), std::string("FOREIGN_NODE"));
    claim.set_claimant("p1");
    QCOMPARE(Refusal(*proxy_, &DoorStub::ClaimStart, claim), std::string("JOB_UNKNOWN"));
    // The door itself refuses roles.
    QCOMPARE(Refusal(*instance_, &DoorStub::ClaimStart, claim), std::string("WRONG_ROLE"));
  }

 private:
  std::unique_ptr<DoorStub> Connect(const std::string& id, Role role) {
    return v1::DatabaseService::NewStub(nodes_->ChannelOf(id, role, server_->address()));
  }
  /// Why it was refused; empty: it was not.
  template <typename Request, typename Response>
  static std::string Refusal(DoorStub& stub,
                             grpc::Status (DoorStub::*method)(grpc::ClientContext*, const Request&,
                                                              Response*),
                             const Request& request) {
    return Reason(rpc::Call(stub, method, request, kDoorCallLimit).status());
  }

  std::unique_ptr<DatabaseCluster> cluster_;
  std::unique_ptr<testing::SecureNodes> nodes_;
  std::unique_ptr<telemetry::Metrics> metrics_;
  std::unique_ptr<telemetry::Spans> spans_;
  std::unique_ptr<DatabaseNode> node_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<DoorStub> peer_, proxy_, instance_, rogue_;
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::DatabaseDoorTest)
#include "database_door_test.moc"
