// Tests the client library while the NodeManager's replicas change their leader or are away.
#include <QtTest>
#include <algorithm>
#include <atomic>
#include <thread>

#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "tests/client/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kNobody = "127.0.0.1:1";

}  // namespace

class FailoverTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Manager_HintOutsideOfTheList_IsFollowed() {
    FakeNodeManager follower, leader;
    follower.Follow(leader.address());
    Client client(To({follower.address()}));
    const auto cluster = client.GetCluster();
    QVERIFY2(cluster.ok(), cluster.status().ToString().c_str());
  }

  void Manager_LeaderLeaves_TheNextIsFoundWithinASecond() {
    FakeNodeManager first, second, third;
    second.Follow(first.address());
    third.Follow(first.address());
    Client client(To({first.address(), second.address(), third.address()}));
    QVERIFY(client.GetCluster().ok());
    first.Stop();
    const auto start = base::SystemClock().Now();
    std::jthread election([&] {
      testing::Pause(milliseconds(300));  // Nobody leads for this long.
      third.Lead();
      second.Follow(third.address());
    });
    const auto cluster = client.GetCluster();
    QVERIFY2(cluster.ok(), cluster.status().ToString().c_str());
    QVERIFY(base::SystemClock().Now() - start < seconds(5));
  }

  void Manager_HintLoop_EndsWithNoLeader() {
    FakeNodeManager one, two;
    one.Follow(two.address());
    two.Follow(one.address());
    ClientOptions options = To({one.address(), two.address()});
    options.timeout = seconds(2);
    const auto cluster = Client(options).GetCluster();
    QCOMPARE(base::GetReason(cluster.status()).reason, std::string("NO_LEADER"));
    QVERIFY(absl::IsUnavailable(cluster.status()));
  }

  void Manager_AllDown_SaysSo() {
    ClientOptions options = To({kNobody, "127.0.0.1:2", "127.0.0.1:3"});
    options.timeout = milliseconds(300);
    const auto start = base::SystemClock().Now();
    const auto cluster = Client(options).GetCluster();
    QCOMPARE(base::GetReason(cluster.status()).reason, std::string("CLUSTER_UNREACHABLE"));
    QVERIFY(base::SystemClock().Now() - start < seconds(5));
  }

  void ApplyWorkflow_LostAnswers_KeepTheRequestId() {
    FakeNodeManager manager;
    Client client(To({manager.address()}));
    QVERIFY(client.ApplyWorkflow({}).ok());
    const auto ids = manager.request_ids();
    QCOMPARE(ids.size(), std::size_t{3});
    QVERIFY(!ids[0].empty());
    QCOMPARE(ids[1], ids[0]);
    QCOMPARE(ids[2], ids[0]);
  }

  void Submit_KnownProxy_NeedsNoNodeManager() {
    FakeProxy proxy("default");
    proxy.submit = Accept;
    QVERIFY(Client(To({}, {proxy.address()})).Submit({}).ok());
    QVERIFY(Client(To({kNobody}, {kNobody, proxy.address()})).Submit({}).ok());
    FakeNodeManager manager;
    QVERIFY(Client(To({manager.address()}, {proxy.address()})).Submit({}).ok());
    QCOMPARE(manager.list_calls.load(), 0);
  }

  void Submit_NodeManagerGoes_RememberedProxiesAreAskedOn() {
    FakeNodeManager manager;
    FakeProxy proxy("default");
    proxy.submit = Accept;
    manager.Serve({&proxy});
    Client client(To({manager.address()}));
    QVERIFY(client.Submit({}).ok());
    manager.Stop();
    std::atomic<int> left = 3;
    proxy.submit = [&](const v1::SubmitJobRequest& request, v1::Job& job) {
      if (left-- > 0) return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "SET_FULL", 5);
      return Accept(request, job);
    };
    const auto job = client.Submit({});
    QVERIFY2(job.ok(), job.status().ToString().c_str());
  }

  void Submit_ConfiguredProxyThatIsNotListed_IsNotForgotten() {
    FakeNodeManager manager;
    FakeProxy known("a"), listed("b");
    std::atomic<int> refusals = 2;  // One in the first round, and one after the list came.
    known.submit = [&](const v1::SubmitJobRequest& request, v1::Job& job) {
      if (refusals-- > 0) return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "SET_FULL", 5);
      return Accept(request, job);
    };
    listed.submit = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "SET_FULL", 5);
    };
    manager.Serve({&listed});
    const auto job = Client(To({manager.address()}, {known.address()})).Submit({});
    QVERIFY2(job.ok(), job.status().ToString().c_str());
  }

  void Get_UnknownToTheList_ASilentProxyThatIsNotListedHoldsNothingUp() {
    FakeNodeManager manager;
    FakeProxy listed("b");
    listed.get = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
    };
    manager.Serve({&listed});
    const auto start = base::SystemClock().Now();
    const auto job = Client(To({manager.address()}, {kNobody})).Get("uid");
    QCOMPARE(base::GetReason(job.status()).reason, std::string("JOB_UNKNOWN"));
    QVERIFY(base::SystemClock().Now() - start < seconds(5));
  }

  void Manager_AddressOfAProxy_LeadsToTheNext() {
    FakeProxy wrong("default");
    FakeNodeManager manager;
    for (int i = 0; i < 8; ++i) {  // Each client begins with a random replica.
      const auto cluster = Client(To({wrong.address(), manager.address()})).GetCluster();
      QVERIFY2(cluster.ok(), cluster.status().ToString().c_str());
    }
  }

  void Manager_IsLearnedWithTheProxies_AndFromAWatch() {
    for (const bool watch : {false, true}) {
      FakeNodeManager first, second;
      FakeProxy proxy("default");
      proxy.submit = Accept;
      first.Serve({&proxy});
      first.ListManagers({first.address(), second.address()});
      Client client(To({first.address()}));
      const auto once = [](const v1::ClusterEvent&) { return false; };
      if (watch) {
        QVERIFY(client.WatchCluster(0, once, base::SystemClock().Now() + seconds(20)).ok());
      } else {
        QVERIFY(client.Submit({}).ok());
      }
      first.Stop();
      const auto cluster = client.GetCluster();
      QVERIFY2(cluster.ok(), cluster.status().ToString().c_str());
    }
  }

  void StepDown_LostAnswer_IsNotRepeated() {
    FakeConsensus consensus;
    consensus.answer = {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
    Client client(To({consensus.address()}));
    QCOMPARE(base::GetReason(client.StepDown(consensus.address())).reason,
             std::string("OUTCOME_UNKNOWN"));
    QCOMPARE(consensus.calls.load(), 1);
    consensus.answer = Refusal(grpc::StatusCode::FAILED_PRECONDITION, "NO_SUCCESSOR");
    QCOMPARE(base::GetReason(client.StepDown(consensus.address())).reason,
             std::string("NO_SUCCESSOR"));
    QCOMPARE(consensus.calls.load(), 2);
  }

  void AddSeat_LostAnswer_ErrorSaysThatItMayBeDone() {
    FakeConsensus consensus;
    consensus.answer = {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
    ClientOptions options = To({consensus.address()});
    options.timeout = milliseconds(200);
    const auto members = Client(options).AddSeat({});
    QVERIFY(absl::IsUnavailable(members.status()));
    QVERIFY2(base::Message(members.status()).find("may have made the change") != std::string::npos,
             members.status().ToString().c_str());
  }

  void Get_UnknownToTheKnownProxy_AsksThoseThatTheNodeManagerLists() {
    FakeNodeManager manager;
    FakeProxy known("a"), other("b");
    known.get = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
    };
    other.get = [](const auto&, v1::Job& job) {
      job.set_uid("uid");
      return grpc::Status::OK;
    };
    manager.Serve({&known, &other});
    const auto job = Client(To({manager.address()}, {known.address()})).Get("uid");
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    // Without a NodeManager, the proxy's answer is final.
    for (const auto& managers : {std::vector<std::string>{}, {kNobody}}) {
      const auto start = base::SystemClock().Now();
      const auto unknown = Client(To(managers, {known.address()})).Get("uid");
      QCOMPARE(base::GetReason(unknown.status()).reason, std::string("JOB_UNKNOWN"));
      QVERIFY(base::SystemClock().Now() - start < seconds(5));
    }
  }

  void Call_NeitherNodeManagerNorProxy_IsAUsageError() {
    const auto job = Client(To(std::vector<std::string>{})).Submit({});
    QCOMPARE(base::GetReason(job.status()).reason, std::string("NO_NODEMANAGER"));
  }

  void WatchCluster_ResumesAtTheNextLeaderWithoutGapOrRepeat() {
    FakeNodeManager first, second;
    second.Follow(first.address());
    first.SetRevision(5);
    second.SetRevision(5);
    Client client(To({first.address(), second.address()}));
    std::vector<std::uint64_t> revisions;
    int heartbeats = 0;
    const absl::Status status = client.WatchCluster(
        0,
        [&](const v1::ClusterEvent& event) {
          if (event.change_case() == v1::ClusterEvent::CHANGE_NOT_SET) {
            ++heartbeats;
          } else {
            revisions.push_back(event.revision());
          }
          if (event.revision() == 5) first.SetRevision(8);
          if (event.revision() == 8) {
            second.SetRevision(11);
            second.Lead();
            first.Follow(second.address());
          }
          return event.revision() < 11 || heartbeats == 0;
        },
        base::SystemClock().Now() + seconds(20));
    QVERIFY2(status.ok(), status.ToString().c_str());
    QCOMPARE(revisions, (std::vector<std::uint64_t>{5, 6, 7, 8, 9, 10, 11}));
  }

  void WatchCluster_PassesAllTelemetryOn() {
    FakeNodeManager manager;
    manager.SetRevision(5);
    ClientOptions options = To({manager.address()});
    options.user_agent = "test-console/1";
    Client client(options);
    std::vector<std::uint64_t> changes, telemetry;
    const absl::Status status = client.WatchCluster(
        0,
        [&](const v1::ClusterEvent& event) {
          (event.has_telemetry() ? telemetry : changes).push_back(event.revision());
          if (event.has_telemetry() && event.telemetry().nodes(0).load().utilization() != 1500)
            return false;
          if (telemetry.size() == 3) manager.SetRevision(6);
          return changes.size() < 2 || telemetry.back() != 6;
        },
        base::SystemClock().Now() + seconds(20), {}, milliseconds(1500));
    QVERIFY2(status.ok(), status.ToString().c_str());
    QCOMPARE(changes, (std::vector<std::uint64_t>{5, 6}));
    // Several telemetry events came under one revision.
    QVERIFY(std::ranges::count(telemetry, 5) >= 3);
    QVERIFY(client.GetCluster().ok());
    QVERIFY2(manager.user_agent().starts_with("test-console/1 "), manager.user_agent().c_str());
  }

  void WatchCluster_OlderHistory_IsNotPassedOn() {
    FakeNodeManager manager;
    manager.SetRevision(3);
    ClientOptions options = To({manager.address()});
    options.timeout = milliseconds(300);
    bool told = false;
    const absl::Status status = Client(options).WatchCluster(
        7, [&](const v1::ClusterEvent&) { return told = true; },
        base::SystemClock().Now() + seconds(20));
    QCOMPARE(base::GetReason(status).reason, std::string("HISTORY_LOST"));
    QVERIFY(!told);
  }

  void WatchCluster_EndsAtDeadlineAndStop() {
    FakeNodeManager manager;
    Client client(To({manager.address()}));
    const auto go_on = [](const v1::ClusterEvent&) { return true; };
    QVERIFY(absl::IsDeadlineExceeded(
        client.WatchCluster(0, go_on, base::SystemClock().Now() + milliseconds(100))));
    std::stop_source stop;
    stop.request_stop();
    QVERIFY(absl::IsCancelled(
        client.WatchCluster(0, go_on, base::SystemClock().Now() + seconds(20), stop.get_token())));
  }
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::FailoverTest)
#include "failover_test.moc"
