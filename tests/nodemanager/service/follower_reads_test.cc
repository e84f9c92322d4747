// Tests reads at followers: whole replicas in one process, over loopback gRPC and with real files.
#include <QTemporaryDir>
#include <QtTest>
#include <future>

#include "absl/strings/str_cat.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/node_manager_service.h"
#include "tests/nodemanager/replication/hold.h"
#include "tests/nodemanager/replication/log_node.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {

class FollowerReadsTest : public QObject {
  Q_OBJECT
 private:
  Node& Leader() {
    Node* leader = nullptr;
    const auto find = [&] {
      for (const auto& node : nodes_) {
        if (node->Leads()) leader = node.get();
      }
      return leader != nullptr;
    };
    if (!testing::Eventually(kNodeLimit, find)) qFatal("nobody leads");
    return *leader;
  }
  Node& Follower() {
    Node& leader = Leader();
    Node& follower = *(nodes_[0].get() == &leader ? nodes_[1] : nodes_[0]);
    // At first it may not have heard who leads.
    if (!testing::Eventually(kNodeLimit, [&] { return follower.log().CatchUpWithLeader().ok(); }))
      qFatal("the follower cannot read");
    return follower;
  }
  // Proposes the command until it is acknowledged.
  bool Propose(v1::Command command) {
    command.set_request_id(absl::StrCat("r", ++requests_));
    return testing::Eventually(kNodeLimit, [&] { return Leader().log().Propose(command).ok(); });
  }

 private Q_SLOTS:
  // Three replicas with seats, of which the first begins the group.
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    std::vector<paxos::Seat> seats;
    for (const char* name : {"nm-1", "nm-2", "nm-3"}) {
      ReplicatedLogOptions options{.data_dir = dir_->filePath(name).toStdString(), .name = name};
      options.paxos.version = kCommandVersion;
      nodes_.push_back(std::make_unique<Node>(options));
      QVERIFY(nodes_.back()->Open().ok());
      seats.push_back(nodes_.back()->seat());
    }
    for (const auto& node : nodes_) {
      node->End();
      node->options().seats = seats;
    }
    nodes_[0]->options().bootstrap = true;
    for (const auto& node : nodes_) QVERIFY(node->Start().ok());
    QVERIFY(testing::Eventually(kNodeLimit, [&] {
      const v1::ReplicaStatus status = Leader().log().Status();
      return std::ranges::all_of(status.members().seats(),
                                 [](const auto& seat) { return seat.replica() != 0; });
    }));
  }
  void cleanup() { nodes_.clear(); }

  // A follower hears what is chosen with the next message, so without the leader's read index it
  // would answer from before.
  void Follower_ReadsWhatWasAcknowledgedBefore() {
    // With the lease the leader answers at once. Before, a no-op tells the follower what is chosen.
    QVERIFY(testing::Eventually(kNodeLimit, [&] { return Leader().log().Status().lease(); }));
    Node& follower = Follower();
    for (int i = 0; i < 50; ++i) {
      const std::string id = absl::StrCat("p", i);
      QVERIFY(Propose(RegisterCommand(MakeNode(id, v1::PROXY))));
      QVERIFY(testing::Eventually(kNodeLimit, [&] {
        const absl::Status status = follower.log().CatchUpWithLeader();
        return status.ok() || follower.Leads();
      }));
      QVERIFY2(follower.Knows(id), id.c_str());
    }
  }

  void Follower_WaitsUntilItHasAppliedTheSlot() {
    Node& follower = Follower();
    std::future<absl::Status> read;
    {
      const Hold hold(follower.log());
      QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
      read = std::async(std::launch::async, [&] { return follower.log().CatchUpWithLeader(); });
      QVERIFY(read.wait_for(base::Scaled(std::chrono::milliseconds(300))) ==
              std::future_status::timeout);
    }
    QVERIFY(read.get().ok());
    QVERIFY(follower.Knows("p"));
  }

  void WithoutMajority_IsRefusedInTime() {
    Node& follower = Follower();
    for (const auto& node : nodes_) {
      if (node.get() != &follower) node->End();
    }
    QElapsedTimer timer;
    timer.start();
    const absl::Status status = follower.log().CatchUpWithLeader();
    QCOMPARE(status.code(), absl::StatusCode::kUnavailable);
    QCOMPARE(base::GetReason(status).reason, std::string("NOT_LEADER"));
    const base::Duration limit = 2 * follower.options().propose_timeout;
    QVERIFY(timer.elapsed() < limit / std::chrono::milliseconds(1));
  }

  void Leader_FollowsNobody() {
    const absl::Status status = Leader().log().CatchUpWithLeader();
    QCOMPARE(base::GetReason(status).reason, std::string("NOT_LEADER"));
  }

  // The service answers from the follower's state what is in the state, and sends the rest to the
  // leader.
  void Service_AnswersAtTheFollower() {
    Node& follower = Follower();
    Controller controller(follower.log(), base::SystemClock(),
                          {.cluster_id = [] { return std::string("test"); }});
    NodeManagerService service(controller, {},
                               {.addresses = [] { return std::vector<std::string>(); }});
    v1::ListWorkflowsResponse response;
    const v1::ListWorkflowsRequest request;
    // Nobody has initialised the cluster, so there is nothing to show.
    grpc::Status status = service.ListWorkflows(nullptr, &request, &response);
    QCOMPARE(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    v1::Command command;
    command.mutable_initialize()->set_cluster_id("test");
    command.mutable_initialize()->set_cluster_secret("secret");
    QVERIFY(Propose(command));
    v1::Command apply;
    *apply.mutable_apply_workflow() = MakeWorkflow("app", {"a"});
    QVERIFY(Propose(apply));
    status = service.ListWorkflows(nullptr, &request, &response);
    QVERIFY2(status.ok(), status.error_message().c_str());
    QCOMPARE(response.workflows_size(), 1);
    QCOMPARE(response.workflows(0).app_id(), std::string("app"));
    v1::Cluster cluster;
    const v1::GetClusterRequest whole;
    QCOMPARE(service.GetCluster(nullptr, &whole, &cluster).error_code(),
             grpc::StatusCode::UNAVAILABLE);
  }

 private:
  int requests_ = 0;
  std::unique_ptr<QTemporaryDir> dir_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::FollowerReadsTest)
#include "follower_reads_test.moc"
