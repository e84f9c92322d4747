#include "cluster/node/node_agent.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QtTest>
#include <atomic>
#include <functional>
#include <optional>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/replicas.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/node/wrong_clock.h"
#include "tests/scrape.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Less than any timeout of an agent, and more than a busy machine takes.
constexpr seconds kPrompt(5);

/// A NodeManager that does what the test says and remembers what it was told. Thread-safe.
class FakeNodeManager final : public v1::NodeManagerService::Service {
 public:
  grpc::Status RegisterNode(grpc::ServerContext*, const v1::RegisterNodeRequest* request,
                            v1::RegisterNodeResponse* response) override {
    const base::MutexLock lock(mutex_);
    request_ids_.push_back(request->request_id());
    changed_.NotifyAll();
    if (follows_) return NotLeader();
    if (request->node().incarnation() <= at_most_) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION", "old",
                                         {{"incarnation", std::to_string(at_most_)}}));
    }
    *response->mutable_node() = request->node();
    response->set_cluster_id(cluster_id_);
    response->set_cluster_secret("secret");
    response->set_report_interval_ms(report_interval_ms_);
    for (const std::string& address : replicas_) response->add_nodemanagers(address);
    known_incarnation_ = request->node().incarnation();
    registered_.push_back(request->node());
    if (lost_answers_ == 0) return grpc::Status::OK;
    --lost_answers_;
    return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
  }

  grpc::Status ReportNode(grpc::ServerContext*, const v1::ReportNodeRequest* request,
                          v1::ReportNodeResponse* response) override {
    const base::MutexLock lock(mutex_);
    if (follows_ || refuses_reports_) return NotLeader();
    if (known_incarnation_ == 0) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN", "who?"));
    }
    if (known_incarnation_ != request->incarnation()) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kAborted, "STALE_INCARNATION", "dead"));
    }
    reports_.push_back(*request);
    if (server_time_) response->set_server_unix_ms(server_time_());
    if (!capacity_of_.empty()) response->mutable_capacity()->set_workflow_set(capacity_of_);
    changed_.NotifyAll();
    return grpc::Status::OK;
  }

  grpc::Status DeregisterNode(grpc::ServerContext*, const v1::DeregisterNodeRequest* request,
                              google::protobuf::Empty*) override {
    const base::MutexLock lock(mutex_);
    deregistered_.push_back(request->incarnation());
    return grpc::Status::OK;
  }

  grpc::Status WatchRouting(grpc::ServerContext* context, const v1::WatchRoutingRequest* request,
                            grpc::ServerWriter<v1::RoutingTable>* writer) override {
    return Stream(context, writer, &FakeNodeManager::tables_, [&](const v1::RoutingTable& table) {
      return table.workflow_set() == request->workflow_set();
    });
  }

  grpc::Status WatchAssignment(grpc::ServerContext* context, const v1::WatchAssignmentRequest*,
                               grpc::ServerWriter<v1::Assignment>* writer) override {
    return Stream(context, writer, &FakeNodeManager::assignments_,
                  [](const v1::Assignment&) { return true; });
  }

  void Publish(std::uint64_t epoch, const std::string& workflow_set = "") {
    const base::MutexLock lock(mutex_);
    v1::RoutingTable& table = tables_.emplace_back();
    table.set_epoch(epoch);
    table.set_workflow_set(workflow_set);
    changed_.NotifyAll();
  }
  void Assign(std::uint64_t epoch, const std::string& workflow_set = "") {
    const base::MutexLock lock(mutex_);
    v1::Assignment& assignment = assignments_.emplace_back();
    assignment.set_epoch(epoch);
    assignment.set_workflow_set(workflow_set);
    changed_.NotifyAll();
  }
  /// Applies to registrations from now on.
  void WantReports(int interval_ms) {
    const base::MutexLock lock(mutex_);
    report_interval_ms_ = interval_ms;
  }
  /// Answers to reports carry a Capacity of this set.
  void TellCapacity(const std::string& workflow_set) {
    const base::MutexLock lock(mutex_);
    capacity_of_ = workflow_set;
  }
  /// Answers to reports say this time. `server_time` runs while the node waits for the answer.
  void TellTime(std::function<std::int64_t()> server_time) {
    const base::MutexLock lock(mutex_);
    server_time_ = std::move(server_time);
  }
  /// Acts as a NodeManager that lost its state, or declared the node dead.
  void Forget() { SetKnown(0); }
  void DeclareDead() { SetKnown(~std::uint64_t{0}); }
  /// Refuses everything from now on, streams included; `leader` may be empty.
  void Follow(const std::string& leader) {
    const base::MutexLock lock(mutex_);
    follows_ = true;
    leader_ = leader;
    changed_.NotifyAll();
  }
  void Lead() {
    const base::MutexLock lock(mutex_);
    follows_ = false;
  }
  /// Acts as a leader that took over and knows the node already.
  void Know(std::uint64_t incarnation) { SetKnown(incarnation); }
  /// Streams stay open but bring nothing more, like those of a process that stands still.
  void StandStill() {
    const base::MutexLock lock(mutex_);
    stands_still_ = true;
  }
  /// Refuses reports, and leaves the streams alone.
  void RefuseReports(const std::string& leader) {
    const base::MutexLock lock(mutex_);
    refuses_reports_ = true;
    leader_ = leader;
  }
  void BeOfCluster(const std::string& cluster_id, const std::vector<std::string>& replicas = {}) {
    const base::MutexLock lock(mutex_);
    cluster_id_ = cluster_id;
    replicas_ = replicas;
  }
  /// Acts as a NodeManager that knows this incarnation of the node.
  void RequireAbove(std::uint64_t incarnation) {
    const base::MutexLock lock(mutex_);
    at_most_ = incarnation;
  }
  void LoseAnswers(int count) {
    const base::MutexLock lock(mutex_);
    lost_answers_ = count;
  }
  void ClearTables() {
    const base::MutexLock lock(mutex_);
    tables_.clear();
  }

  std::vector<v1::Node> WaitRegistrations(std::size_t count) {
    return WaitFor(&FakeNodeManager::registered_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return registered_.size() >= count;
    });
  }
  std::vector<std::string> WaitRequestIds(std::size_t count) {
    return WaitFor(&FakeNodeManager::request_ids_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return request_ids_.size() >= count;
    });
  }
  template <typename Predicate>
  std::vector<v1::ReportNodeRequest> WaitReport(Predicate predicate) {
    return WaitFor(&FakeNodeManager::reports_, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !reports_.empty() && predicate(reports_.back());
    });
  }
  int refusals() {
    const base::MutexLock lock(mutex_);
    return refusals_;
  }
  std::size_t registrations() {
    const base::MutexLock lock(mutex_);
    return registered_.size();
  }
  std::vector<std::uint64_t> deregistered() {
    const base::MutexLock lock(mutex_);
    return deregistered_;
  }

 private:
  grpc::Status NotLeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++refusals_;
    std::map<std::string, std::string> metadata;
    if (!leader_.empty()) metadata[rpc::kLeader] = leader_;
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kUnavailable, rpc::kNotLeader, "follows", metadata));
  }
  void SetKnown(std::uint64_t incarnation) {
    const base::MutexLock lock(mutex_);
    known_incarnation_ = incarnation;
  }
  template <typename Items, typename Predicate>
  Items WaitFor(Items FakeNodeManager::*items, Predicate predicate) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, seconds(10), predicate) ? this->*items : Items();
  }
  template <typename Item, typename Wanted>
  grpc::Status Stream(grpc::ServerContext* context, grpc::ServerWriter<Item>* writer,
                      std::vector<Item> FakeNodeManager::*items, Wanted wanted) {
    base::MutexLock lock(mutex_);
    for (std::size_t next = 0; !context->IsCancelled();) {
      if (follows_) return NotLeader();
      if (!stands_still_ && next < (this->*items).size()) {
        const Item& item = (this->*items)[next++];
        if (wanted(item)) writer->Write(item);
        continue;
      }
      changed_.WaitFor(lock, milliseconds(10));
    }
    return grpc::Status::OK;
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  std::uint64_t known_incarnation_ ABSL_GUARDED_BY(mutex_) = 0, at_most_
                                                                ABSL_GUARDED_BY(mutex_) = 0;
  bool follows_ ABSL_GUARDED_BY(mutex_) = false, stands_still_ ABSL_GUARDED_BY(mutex_) = false;
  bool refuses_reports_ ABSL_GUARDED_BY(mutex_) = false;
  int lost_answers_ ABSL_GUARDED_BY(mutex_) = 0, refusals_ ABSL_GUARDED_BY(mutex_) = 0;
  int report_interval_ms_ ABSL_GUARDED_BY(mutex_) = 20;
  std::string leader_ ABSL_GUARDED_BY(mutex_), cluster_id_ ABSL_GUARDED_BY(mutex_) = "test",
                                                           capacity_of_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> replicas_ ABSL_GUARDED_BY(mutex_), request_ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Node> registered_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ReportNodeRequest> reports_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> deregistered_ ABSL_GUARDED_BY(mutex_);
  std::function<std::int64_t()> server_time_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RoutingTable> tables_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Assignment> assignments_ ABSL_GUARDED_BY(mutex_);
};

struct Served {
  explicit Served(FakeNodeManager& manager, const std::string& listen = "127.0.0.1:0")
      : server({.listen = listen}) {
    server.AddService(manager);
    started = server.Start().ok();
  }
  rpc::Server server;
  bool started = false;
};

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

  void Report_SaysWhichTableTheNodeGoesBy() {
    manager_->Publish(7);
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.Start();
    QVERIFY(!manager_->WaitReport([](const auto& report) { return report.routing_epoch() == 7; })
                 .empty());
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
  }

  void Report_UnknownToTheSameCluster_NeverGoesBack() {
    Epochs tables;
    ClusterView view;
    NodeAgent agent(Options({served_->server.address()}), view);
    agent.OnRouting(
        [&](const std::shared_ptr<const Routing>& routing) { tables.Add(routing->epoch()); });
    manager_->Publish(8);
    agent.Start();
    QVERIFY(agent.WaitReady(seconds(10)).ok());
    manager_->Forget();
    QCOMPARE(manager_->WaitRegistrations(2).size(), std::size_t{2});
    manager_->Publish(2);
    manager_->Publish(9);
    QCOMPARE(tables.WaitLast(9), (std::vector<std::uint64_t>{8, 9}));
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
