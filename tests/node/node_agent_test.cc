#include "cluster/node/node_agent.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QtTest>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "cluster/base/generation.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/node/shared_routings.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/limits.h"
#include "cluster/rpc/replicas.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/identity.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/node/fake_node_manager.h"
#include "tests/node/wrong_clock.h"
#include "tests/scrape.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Less than any timeout of an agent, and more than a busy machine takes.
constexpr seconds kPrompt(5);

/// A port that takes connections and never answers, like that of a process that stands still.
class Silent {
 public:
  Silent() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, raw, size) == 0 && listen(socket_, 16) == 0 &&
        getsockname(socket_, raw, &size) == 0)
      port_ = ntohs(address.sin_port);
  }
  ~Silent() { close(socket_); }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int socket_;
  int port_ = 0;
};

NodeAgentOptions Options(const std::vector<std::string>& nodemanagers) {
  return {.role = v1::INSTANCE,
          .node_id = "i1",
          .nodemanagers = nodemanagers,
          .address = "127.0.0.1:7"};
}

/// The incarnation that a process which starts now begins with.
std::uint64_t FirstIncarnation() {
  ClusterView view;
  const NodeAgent agent(Options({"127.0.0.1:1"}), view);
  return view.incarnation();
}

/// The epochs that a callback brought.
class Epochs {
 public:
  void Add(std::uint64_t epoch) {
    const base::MutexLock lock(mutex_);
    epochs_.push_back(epoch);
    changed_.NotifyAll();
  }
  /// Returns all epochs once `epoch` is the last, or nothing when that takes too long.
  std::vector<std::uint64_t> WaitLast(std::uint64_t epoch) {
    base::MutexLock lock(mutex_);
    const bool came =
        changed_.WaitFor(lock, seconds(10), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !epochs_.empty() && epochs_.back() == epoch;
        });
    return came ? epochs_ : std::vector<std::uint64_t>();
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::uint64_t> epochs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

class NodeAgentTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    manager_ = std::make_unique<FakeNodeManager>();
    served_ = std::make_unique<Served>(*manager_);
    QVERIFY(served_->started);
  }
  void cleanup() {
    served_.reset();
    manager_.reset();
  }

  void Start_RegistersAndBringsRouting() {
    manager_->Publish(3);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    QCOMPARE(view.cluster_secret(), std::string("secret"));
    QCOMPARE(view.cluster_id(), std::string("test"));
    QCOMPARE(view.routing()->epoch(), std::uint64_t{3});
    const std::vector<v1::Node> nodes = manager_->WaitRegistrations(1);
    QCOMPARE(nodes.size(), std::size_t{1});
    QCOMPARE(nodes[0].node_id(), std::string("i1"));
    QCOMPARE(nodes[0].state(), v1::Node::STARTING);
    QCOMPARE(nodes[0].incarnation(), view.incarnation());
    QCOMPARE(view.self().address(), std::string("127.0.0.1:7"));
  }

  void Routing_TakesChanges_AndAsksAnewWhenTheyDoNotFit() {
    manager_->Publish(5);
    manager_->PublishDelta(5, 6, "n");
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    Epochs tables;
    agent.OnRouting([&](const auto& routing) { tables.Add(routing->epoch()); });
    agent.Start();
    QCOMPARE(tables.WaitLast(6), (std::vector<std::uint64_t>{5, 6}));
    QVERIFY(view.routing()->IsAlive("n", 0));
    // It lacks what came between 6 and 8.
    manager_->PublishDelta(8, 9, "late");
    const std::vector<v1::WatchRoutingRequest> requests = manager_->WaitRoutingRequests(2);
    QVERIFY(requests.size() >= 2);
    QVERIFY(requests[0].takes_deltas());
    QCOMPARE(requests[0].start_epoch(), std::uint64_t{0});
    QCOMPARE(requests[1].start_epoch(), std::uint64_t{6});
    QCOMPARE(view.routing()->epoch(), std::uint64_t{6});
    manager_->ClearTables();
    manager_->Publish(11);
    QCOMPARE(tables.WaitLast(11), (std::vector<std::uint64_t>{5, 6, 11}));
    QVERIFY(!view.routing()->IsAlive("n", 0));
    agent.Stop();
  }

  void Start_TriesTheNextReplica() {
    manager_->Publish(1);
    ClusterView view;
    NodeAgent agent(Options({"127.0.0.1:1", served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
  }

  void WaitReady_SaysWhyNot() {
    ClusterView view;
    NodeAgent agent(Options({"127.0.0.1:1"}), view);
    agent.Start();
    const absl::Status status = agent.WaitReady(milliseconds(200));
    QVERIFY(absl::IsDeadlineExceeded(status));
    QVERIFY(base::Message(status).find("no answer yet") == std::string::npos);
  }

  void SetState_IsReportedWithLoad() {
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.SetLoadSource([] {
      v1::NodeLoad load;
      load.set_queued_jobs(4);
      return load;
    });
    agent.Start();
    agent.SetState({.state = v1::Node::READY,
                    .detail = "fine",
                    .assignment_epoch = 9,
                    .served_apps = {"app"}});
    const auto reports = manager_->WaitReport(
        [](const v1::ReportNodeRequest& report) { return report.state() == v1::Node::READY; });
    QVERIFY(!reports.empty());
    QCOMPARE(reports.back().detail(), std::string("fine"));
    QCOMPARE(reports.back().assignment_epoch(), std::uint64_t{9});
    QCOMPARE(reports.back().served_app_ids_size(), 1);
    QCOMPARE(reports.back().served_app_ids(0), std::string("app"));
    QCOMPARE(reports.back().load().queued_jobs(), std::int64_t{4});
    QVERIFY(!reports.back().drained());
    QVERIFY(!reports.back().load_failed());
  }

  void SetState_DrainedAndLoadFailed_AreReportedAtOnce() {
    manager_->WantReports(60000);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(!manager_->WaitReport([](const auto&) { return true; }).empty());
    agent.SetState({.assignment_epoch = 9, .drained = true});
    QVERIFY(!manager_->WaitReport([](const auto& report) { return report.drained(); }).empty());
    agent.SetState({.assignment_epoch = 9});
    QVERIFY(!manager_->WaitReport([](const auto& report) { return !report.drained(); }).empty());
    agent.SetState({.detail = "no weights", .assignment_epoch = 10, .load_failed = true});
    const auto reports =
        manager_->WaitReport([](const auto& report) { return report.load_failed(); });
    QVERIFY(!reports.empty());
    QCOMPARE(reports.back().detail(), std::string("no weights"));
  }

  // The node registered at one report in a minute.
  void ReportInterval_FollowsTheAnswers() {
    manager_->WantReports(60000);
    manager_->ChangeReportInterval(20);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.SetLoadSource([reports = 0]() mutable {
      v1::NodeLoad load;
      load.set_queued_jobs(++reports);
      return load;
    });
    agent.Start();
    const auto reports =
        manager_->WaitReport([](const auto& report) { return report.load().queued_jobs() >= 5; });
    QVERIFY(!reports.empty());
  }

  void Report_SaysWhichTableTheNodeGoesBy() {
    manager_->Publish(7);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(!manager_->WaitReport([](const auto& report) { return report.routing_epoch() == 7; })
                 .empty());
  }

  // A node whose reports wait for its tables is dead before the tables of a storm are made.
  void Report_GoesOnWhileATableIsMade() {
    const std::int64_t many = 10;
    const auto tables = std::make_shared<SharedRoutings>();
    std::promise<void> held, enough;
    std::jthread slow([&] {
      (void)tables->Get("other", 1, [&]() -> std::shared_ptr<const Routing> {
        held.set_value();
        enough.get_future().wait();
        return nullptr;
      });
    });
    held.get_future().wait();
    manager_->WantReports(20);
    manager_->Publish(3);
    ClusterView view;
    NodeAgentOptions options = Options({served_->server.address()});
    options.tables = tables;
    NodeAgent agent(std::move(options), view);
    agent.SetLoadSource([reports = 0]() mutable {
      v1::NodeLoad load;
      load.set_queued_jobs(++reports);
      return load;
    });
    agent.Start();
    const auto reports = manager_->WaitReport(
        [&](const auto& report) { return report.load().queued_jobs() >= many; });
    enough.set_value();
    QVERIFY(!reports.empty());
    QCOMPARE(reports.back().routing_epoch(), std::uint64_t{0});
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    QCOMPARE(view.routing()->epoch(), std::uint64_t{3});
  }

  void Report_UsesAreSaidUntilAnAnswerConfirmsThem() {
    manager_->LoseReports(1);
    std::atomic<int> asked = 0;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.SetUseSource([&asked] {
      std::vector<v1::TenantUse> uses;
      if (asked++ == 0) uses.emplace_back().set_tenant("films");
      return uses;
    });
    agent.Start();
    QVERIFY(
        !manager_->WaitReport([](const auto& report) { return report.uses().empty(); }).empty());
    agent.Stop();
    const auto reports = manager_->reports();
    QVERIFY(reports.size() >= 3);
    for (const std::size_t i : {0, 1}) {
      QCOMPARE(reports[i].uses_size(), 1);
      QCOMPARE(reports[i].uses(0).tenant(), std::string("films"));
    }
    QVERIFY(reports[2].uses().empty());
  }

  void Report_NewerIdentityTable_ReachesTheDoor() {
    class FakeIdentity final : public v1::IdentityService::Service {
      grpc::Status GetIdentityTable(grpc::ServerContext*, const v1::GetIdentityTableRequest*,
                                    v1::IdentityTable* table) override {
        table->set_epoch(5);
        return grpc::Status::OK;
      }
    } identity;
    rpc::Server server({.listen = "127.0.0.1:0"});
    server.AddService(*manager_);
    server.AddService(identity);
    served_.reset();  // A service belongs to one server.
    QVERIFY(server.Start().ok());
    manager_->TellIdentity(5);
    rpc::Door door("test", base::SystemClock());
    ClusterView view;
    NodeAgentOptions options = Options({server.address()});
    options.door = &door;
    {
      NodeAgent agent(options, view);
      agent.Start();
      QVERIFY(!manager_->WaitReport([](const auto& report) { return report.identity_epoch() == 5; })
                   .empty());
    }
    QCOMPARE(door.epoch(), std::uint64_t{5});
    server.Shutdown(base::Duration::zero());
  }

  void Report_BringsCapacity() {
    base::Mutex mutex;
    base::CondVar changed;
    std::string came;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnCapacity([&](const v1::Capacity& capacity) {
      const base::MutexLock lock(mutex);
      came = capacity.workflow_set();
      changed.NotifyAll();
    });
    agent.Start();
    QVERIFY(!manager_->WaitReport([](const auto&) { return true; }).empty());
    base::MutexLock lock(mutex);
    QCOMPARE(came, std::string());  // Nothing is measured yet.
    manager_->TellCapacity("set-2");
    QVERIFY(changed.WaitFor(lock, seconds(10), [&] { return came == "set-2"; }));
  }

  void Report_BringsLimits_WhenTheyChange() {
    base::Mutex mutex;
    base::CondVar changed;
    std::vector<int> came;
    manager_->ChangeReportInterval(20);
    v1::LimitsConfig limits;
    manager_->TellLimits(limits);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnLimits([&](const v1::LimitsConfig& told) {
      const base::MutexLock lock(mutex);
      came.push_back(told.proxies().max_jobs_in_flight());
      changed.NotifyAll();
    });
    agent.Start();
    const auto wait_for = [&](const std::vector<int>& wanted) {
      base::MutexLock lock(mutex);
      return changed.WaitFor(lock, seconds(10), [&] { return came == wanted; });
    };
    for (const int jobs : {7, 5}) {
      limits.mutable_proxies()->set_max_jobs_in_flight(jobs);
      manager_->TellLimits(limits);
      QVERIFY(wait_for(jobs == 7 ? std::vector<int>{7} : std::vector<int>{7, 5}));
    }
    // Limits that are taken back are a change too. The first ones, which said nothing, were none.
    manager_->TellLimits({});
    QVERIFY(wait_for({7, 5, 0}));
  }

  void Report_BringsTheDoorItsLimits() {
    manager_->ChangeReportInterval(20);
    rpc::Door door("test", base::SystemClock());
    ClusterView view;
    NodeAgentOptions options = Options({served_->server.address()});
    options.door = &door;
    NodeAgent agent(options, view);
    agent.Start();
    v1::LimitsConfig limits;
    limits.mutable_callers()->set_calls_burst(10);
    manager_->TellLimits(limits);
    int asked = 0;
    QVERIFY(testing::Eventually(seconds(10), [&] {
      const rpc::CallerLimits::Caller caller{.account = "caller" + std::to_string(asked++)};
      for (int i = 0; i < 10; ++i) {
        if (!door.limits().calls.Admit(caller).ok()) return false;
      }
      return !door.limits().calls.Admit(caller).ok();
    }));
  }

  void Assignment_OfAnotherSet_TheRoutingFollowsAndNeverGoesBack() {
    Epochs tables;
    base::Mutex mutex;
    std::vector<std::string> routing_when_assigned;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnRouting(
        [&](const std::shared_ptr<const Routing>& routing) { tables.Add(routing->epoch()); });
    agent.OnAssignment([&](const v1::Assignment&) {
      const base::MutexLock lock(mutex);
      routing_when_assigned.push_back(std::to_string(view.routing()->epoch()));
    });
    manager_->Publish(8);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    manager_->Assign(9, "set-2");
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{0}, 10000);
    {
      // The old set's remaining work needs its table until the callback has returned.
      const base::MutexLock lock(mutex);
      QCOMPARE(routing_when_assigned, std::vector<std::string>{"8"});
    }
    manager_->Publish(10);          // Of the old set: not for this node any more.
    manager_->Publish(6, "set-2");  // Its history is its own.
    manager_->Publish(11);
    manager_->Publish(12, "set-2");
    QCOMPARE(tables.WaitLast(12), (std::vector<std::uint64_t>{8, 6, 12}));
    QCOMPARE(view.routing()->table().workflow_set(), std::string("set-2"));
    // An empty name means the node's own set.
    manager_->Assign(13);
    QCOMPARE(tables.WaitLast(11), (std::vector<std::uint64_t>{8, 6, 12, 8, 10, 11}));
    QCOMPARE(manager_->registrations(), std::size_t{1});
  }

  void Callbacks_ComeInOrder() {
    Epochs tables, assignments;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnRouting(
        [&](const std::shared_ptr<const Routing>& routing) { tables.Add(routing->epoch()); });
    agent.OnAssignment(
        [&](const v1::Assignment& assignment) { assignments.Add(assignment.epoch()); });
    manager_->Publish(1);
    manager_->Assign(1);
    agent.Start();
    manager_->Publish(2);
    manager_->Assign(2);
    QCOMPARE(tables.WaitLast(2), (std::vector<std::uint64_t>{1, 2}));
    QCOMPARE(assignments.WaitLast(2), (std::vector<std::uint64_t>{1, 2}));
  }

  void Report_UnknownToAnotherCluster_RegistersAgainAndTakesItsHistory() {
    manager_->Publish(8);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    const std::uint64_t incarnation = view.incarnation();
    manager_->ClearTables();
    manager_->Publish(2);
    manager_->BeOfCluster("other");
    manager_->Forget();
    const std::vector<v1::Node> nodes = manager_->WaitRegistrations(2);
    QCOMPARE(nodes.size(), std::size_t{2});
    QCOMPARE(nodes[1].incarnation(), incarnation);
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{2}, 10000);
    const auto reports =
        manager_->WaitReport([](const auto& report) { return report.routing_epoch() == 2; });
    QVERIFY(!reports.empty());
    // Nobody may take the epoch of the old cluster's table for one of the new cluster.
    for (const v1::ReportNodeRequest& report : reports)
      QVERIFY(report.cluster_id() != "other" || report.routing_epoch() <= 2);
    QCOMPARE(reports.back().cluster_id(), std::string("other"));
  }

  // Also after the state was put back: then the counter begins anew in another generation.
  void Report_UnknownToTheSameCluster_KeepsTheIncarnationAndNeverGoesBack() {
    Epochs tables;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnRouting(
        [&](const std::shared_ptr<const Routing>& routing) { tables.Add(routing->epoch()); });
    manager_->Publish(8);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    const std::uint64_t incarnation = view.incarnation(), next = base::FirstEpochOf(1);
    manager_->Forget();
    QCOMPARE(manager_->WaitRegistrations(2).back().incarnation(), incarnation);
    for (const std::uint64_t epoch : {std::uint64_t{2}, next, std::uint64_t{9}, next + 1})
      manager_->Publish(epoch);
    QCOMPARE(tables.WaitLast(next + 1), (std::vector<std::uint64_t>{8, next, next + 1}));
  }

  void Failover_GoesToTheHintedLeaderAndKeepsTheIncarnation() {
    FakeNodeManager next;
    const Served next_served(next);
    Epochs tables, assignments;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}),
                    view);  // The next one is not in the list.
    agent.OnRouting(
        [&](const std::shared_ptr<const Routing>& routing) { tables.Add(routing->epoch()); });
    agent.OnAssignment(
        [&](const v1::Assignment& assignment) { assignments.Add(assignment.epoch()); });
    manager_->Publish(5);
    manager_->Assign(5);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    QVERIFY(!assignments.WaitLast(5).empty());
    const std::uint64_t incarnation = view.incarnation();
    next.Know(incarnation);
    next.Publish(4);  // It may lag for a moment.
    next.Publish(6);
    next.Assign(6);
    const auto start = base::SystemClock().Now();
    manager_->Follow(next_served.server.address());
    QVERIFY(!next.WaitReport([](const auto&) { return true; }).empty());
    QVERIFY(base::SystemClock().Now() - start < kPrompt);
    QCOMPARE(tables.WaitLast(6), (std::vector<std::uint64_t>{5, 6}));
    QCOMPARE(assignments.WaitLast(6), (std::vector<std::uint64_t>{5, 6}));
    QCOMPARE(view.incarnation(), incarnation);
    QCOMPARE(next.registrations(), std::size_t{0});
  }

  void Failover_NobodyLeadsForAWhile_IsFoundSoon() {
    FakeNodeManager other;
    const Served other_served(other);
    manager_->Publish(5);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address(), other_served.server.address()}), view);
    other.Follow(served_->server.address());
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    other.Know(view.incarnation());
    other.Publish(6);
    // Each names the other as leader, which is a loop.
    manager_->Follow(other_served.server.address());
    const int before = manager_->refusals();
    QTRY_VERIFY_WITH_TIMEOUT(manager_->refusals() > before + 5, 10000);
    QCOMPARE(view.routing()->epoch(), std::uint64_t{5});
    const auto start = base::SystemClock().Now();
    other.Lead();
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{6}, 10000);
    QVERIFY(base::SystemClock().Now() - start < kPrompt);
    QCOMPARE(manager_->registrations() + other.registrations(), std::size_t{1});
  }

  void Failover_LeaderStandsStill_StreamsFollowTheReports() {
    FakeNodeManager next;
    const Served next_served(next);
    manager_->Publish(5);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    next.Know(view.incarnation());
    next.Publish(6);
    // Its reports are refused, but the routing stream stays open and silent.
    manager_->StandStill();
    manager_->RefuseReports(next_served.server.address());
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{6}, 10000);
  }

  void Register_LostAnswer_IsAskedAgainWithTheSameRequestId() {
    manager_->Publish(1);
    manager_->LoseAnswers(2);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    const std::vector<std::string> ids = manager_->WaitRequestIds(3);
    QCOMPARE(ids.size(), std::size_t{3});
    QVERIFY(!ids[0].empty());
    QCOMPARE(ids[1], ids[0]);
    QCOMPARE(ids[2], ids[0]);
    // Another registration is another request.
    manager_->Forget();
    QVERIFY(manager_->WaitRequestIds(4)[3] != ids[0]);
  }

  void Register_BusyNodeManager_IsAskedWhenItSays() {
    constexpr int kRetryAfterMs = 400;
    manager_->Publish(1);
    manager_->BeBusy(1, kRetryAfterMs);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    const auto start = base::SystemClock().Now();
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    // Half of the time at least, so that not all of a crowd come back together.
    QVERIFY(base::SystemClock().Now() - start >= milliseconds(kRetryAfterMs / 2));
    QCOMPARE(manager_->WaitRequestIds(2).size(), std::size_t{2});
  }

  // A thousand nodes that look for a leader with all their streams would keep the group from
  // electing one.
  void Failover_NobodyLeads_OnlyReportsSearch() {
    manager_->Publish(5);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    const std::size_t streams = manager_->routing_requests();
    const int before = manager_->refusals();
    manager_->Follow("");
    QTRY_VERIFY_WITH_TIMEOUT(manager_->refusals() > before + 8, 10000);
    const std::size_t asked = manager_->routing_requests() - streams;
    const auto refused = static_cast<std::size_t>(manager_->refusals() - before);
    QVERIFY2(asked * 3 < refused,
             (std::to_string(asked) + " of " + std::to_string(refused)).c_str());
    manager_->Publish(6);
    manager_->Lead();
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{6}, 10000);
  }

  void Register_LearnsTheOtherReplicas() {
    FakeNodeManager other;
    const Served other_served(other);
    manager_->Publish(5);
    manager_->BeOfCluster("test", {other_served.server.address()});
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    other.Know(view.incarnation());
    other.Publish(6);
    served_.reset();  // Gone, without a word about who leads.
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{6}, 10000);
  }

  void Failover_TwoReplicasAreSilent_TheThirdIsFoundBeforeTheNodeIsDead() {
    const Silent one, two;
    FakeNodeManager third;
    const Served third_served(third);
    manager_->Publish(5);
    manager_->BeOfCluster("test", {one.address(), two.address(), third_served.server.address()});
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    third.Know(view.incarnation());
    const auto start = base::SystemClock().Now();
    served_.reset();
    QVERIFY(!third.WaitReport([](const auto&) { return true; }).empty());
    QVERIFY(base::SystemClock().Now() - start < base::Scaled(seconds(3)));
  }

  void Register_ClockWentBack_TakesMoreThanTheNodeManagerKnows() {
    manager_->Publish(1);
    const std::uint64_t ahead = FirstIncarnation() + (1ULL << 42);
    manager_->RequireAbove(ahead);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    QCOMPARE(view.incarnation(), ahead + 1);
  }

  // Each life of the node has another wall clock: a year ahead, right, and before 1970.
  void Register_WallClocksOfOtherTimes_GrowsAcrossRestarts() {
    manager_->Publish(1);
    std::uint64_t last = 0;
    for (const int years : {1, 0, -100}) {
      WrongClock clock(std::chrono::hours(24 * 365 * years));
      manager_->RequireAbove(last);
      ClusterView view;
      NodeAgent agent(Options({served_->server.address()}), view, clock);
      agent.Start();
      QVERIFY(agent.WaitReady(seconds(10)).ok());
      QVERIFY(view.incarnation() > last);
      // There is room for the restarts to come.
      QVERIFY(view.incarnation() < std::uint64_t{1} << 62);
      last = view.incarnation();
    }
  }

  void Report_DeclaredDead_RegistersAGreaterIncarnation() {
    manager_->Publish(1);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    manager_->DeclareDead();
    const std::vector<v1::Node> nodes = manager_->WaitRegistrations(2);
    QCOMPARE(nodes.size(), std::size_t{2});
    QVERIFY(nodes[1].incarnation() > nodes[0].incarnation());
    QCOMPARE(view.incarnation(), nodes[1].incarnation());
  }

  void ClockSkew_IsThatOfTheMiddleOfTheRoundTrip_AndIsReported() {
    manager_->Publish(1);
    base::ManualClock clock;
    const base::WallTime here = clock.WallNow();
    // The server's clock is 90 s behind, and its answers take as long as `takes` says.
    std::atomic<int> takes_ms{0};
    int reports = 0;
    manager_->TellTime([&] {
      clock.Advance(milliseconds(takes_ms / 2));
      const base::Duration passed = clock.Now().time_since_epoch();
      clock.Advance(milliseconds(takes_ms / 2));
      return base::ToUnixMs(here + passed - seconds(90));
    });
    telemetry::Metrics metrics("instance", "i1");
    ClusterView view;
    NodeAgentOptions options = Options({served_->server.address()});
    options.metrics = &metrics;
    NodeAgent agent(options, view, clock);
    QVERIFY(!agent.clock_skew().has_value());
    // What the next report says of the clock; its answer takes so long.
    const auto report = [&](int next_takes_ms) -> std::optional<std::int64_t> {
      takes_ms = next_takes_ms;
      const std::string number = std::to_string(++reports);
      agent.SetState({.detail = number});
      const auto told =
          manager_->WaitReport([&](const auto& last) { return last.detail() == number; });
      if (told.empty()) qFatal("no report");
      const v1::NodeLoad& load = told.back().load();
      return load.has_clock_skew_ms() ? std::optional(load.clock_skew_ms()) : std::nullopt;
    };
    takes_ms = 10'000;
    agent.Start();
    QVERIFY(agent.WaitReady(std::chrono::hours(24)).ok());  // By a clock that reports move on.
    QVERIFY(!report(10'000).has_value());  // An answer that took 10 s tells nothing.
    QVERIFY(!report(0).has_value());
    QCOMPARE(report(400), std::optional<std::int64_t>(90'000));
    QCOMPARE(report(600),
             std::optional<std::int64_t>(90'000));  // The server's time was in the middle.
    clock.StepWall(-seconds(180));
    QCOMPARE(report(0), std::optional<std::int64_t>(90'000));  // The last one took too long.
    QCOMPARE(report(0), std::optional<std::int64_t>(-90'000));
    QCOMPARE(agent.clock_skew(), std::optional<base::Duration>(-seconds(90)));
    const QByteArray scraped = testing::Scrape(metrics.Serve("127.0.0.1:0").value());
    QVERIFY2(scraped.contains("onepiece_clock_skew_seconds -90"), scraped.constData());
    metrics.Stop();
  }

  void Routing_OfALaggingReplica_IsIgnored() {
    Epochs tables;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnRouting(
        [&](const std::shared_ptr<const Routing>& routing) { tables.Add(routing->epoch()); });
    agent.Start();
    manager_->Publish(5);
    manager_->Publish(4);
    manager_->Publish(6);
    QCOMPARE(tables.WaitLast(6), (std::vector<std::uint64_t>{5, 6}));
  }

  void NodeManagerAway_KeepsRoutingAndComesBack() {
    manager_->Publish(5);
    const std::string address = served_->server.address();
    ClusterView view;
    NodeAgent agent(Options({address}), view);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    served_.reset();
    QCOMPARE(view.routing()->epoch(), std::uint64_t{5});
    served_ = std::make_unique<Served>(*manager_, address);
    QVERIFY(served_->started);
    manager_->Publish(6);
    QTRY_COMPARE_WITH_TIMEOUT(view.routing()->epoch(), std::uint64_t{6}, 20000);
  }

  void Stop_IsPromptAndSaysGoodbye() {
    manager_->Publish(1);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnAssignment([](const v1::Assignment&) {});
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    const auto start = base::SystemClock().Now();
    agent.Stop();
    QVERIFY(base::SystemClock().Now() - start < kPrompt);
    QCOMPARE(manager_->deregistered(), std::vector<std::uint64_t>{view.incarnation()});
    QVERIFY(absl::IsCancelled(agent.WaitReady(seconds(10))));
  }

  void Stop_WithoutNodeManager_IsPrompt() {
    ClusterView view;
    NodeAgent agent(Options({"127.0.0.1:1"}), view);
    agent.OnAssignment([](const v1::Assignment&) {});
    agent.Start();
    const auto start = base::SystemClock().Now();
    agent.Stop();
    QVERIFY(base::SystemClock().Now() - start < kPrompt);
  }

  void Incarnation_GrowsFromStartToStart() {
    const std::uint64_t first = FirstIncarnation();
    QVERIFY(FirstIncarnation() > first);
  }

 private:
  std::unique_ptr<FakeNodeManager> manager_;
  std::unique_ptr<Served> served_;
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::NodeAgentTest)
#include "node_agent_test.moc"
