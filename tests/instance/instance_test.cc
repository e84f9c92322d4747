// One real instance. The test plays its NodeManager, its database and another instance.
#include "stages/instance/instance.h"

#include <dlfcn.h>

#include <QtTest>
#include <algorithm>
#include <set>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/node/work_service.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kSoon = seconds(30);  // Only reached when a test fails.

/// NodeManager and database in one; thread-safe.
class Cluster final : public v1::NodeManagerService::Service, public v1::DatabaseService::Service {
 public:
  grpc::Status RegisterNode(grpc::ServerContext*, const v1::RegisterNodeRequest* request,
                            v1::RegisterNodeResponse* response) override {
    *response->mutable_node() = request->node();
    response->set_cluster_id("test");
    response->set_report_interval_ms(50);
    return grpc::Status::OK;
  }
  grpc::Status ReportNode(grpc::ServerContext*, const v1::ReportNodeRequest* request,
                          v1::ReportNodeResponse*) override {
    const base::MutexLock lock(mutex_);
    report_ = *request;
    reports_.push_back(*request);
    changed_.NotifyAll();
    return grpc::Status::OK;
  }
  grpc::Status DeregisterNode(grpc::ServerContext*, const v1::DeregisterNodeRequest*,
                              google::protobuf::Empty*) override {
    const base::MutexLock lock(mutex_);
    failures_before_leaving_ = failures_.size();
    return grpc::Status::OK;
  }
  grpc::Status WatchRouting(grpc::ServerContext* context, const v1::WatchRoutingRequest* request,
                            grpc::ServerWriter<v1::RoutingTable>* writer) override {
    const auto next = [this](std::size_t at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return at < tables_.size() ? &tables_[at] : nullptr;
    };
    return Stream(context, writer, next, [&](const v1::RoutingTable& table) {
      return table.workflow_set() == request->workflow_set();
    });
  }
  grpc::Status WatchAssignment(grpc::ServerContext* context, const v1::WatchAssignmentRequest*,
                               grpc::ServerWriter<v1::Assignment>* writer) override {
    const auto next = [this](std::size_t at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return at < assignments_.size() ? &assignments_[at] : nullptr;
    };
    return Stream(context, writer, next, [](const auto&) { return true; });
  }
  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                         v1::JobRecord* response) override {
    response->mutable_job()->set_state(v1::Job::RUNNING);
    base::MutexLock lock(mutex_);
    changed_.WaitFor(lock, kSoon,
                     [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !updates_wait_; });
    if (request->has_failed()) {
      failures_.push_back(request->failed().reason());
      failed_.insert(request->uid());
    }
    changed_.NotifyAll();
    return grpc::Status::OK;
  }

  void Publish(v1::RoutingTable table) {
    const base::MutexLock lock(mutex_);
    tables_.push_back(std::move(table));
    changed_.NotifyAll();
  }
  void Assign(v1::Assignment assignment) {
    const base::MutexLock lock(mutex_);
    assignments_.push_back(std::move(assignment));
    changed_.NotifyAll();
  }
  template <typename Predicate>
  bool WaitReport(Predicate predicate) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(
        lock, kSoon, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return predicate(report_); });
  }
  bool WaitFailure(const std::string& reason) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, kSoon, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::ranges::count(failures_, reason) == 1;
    });
  }
  bool WaitFailed(const base::Uid& uid) {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, kSoon, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return failed_.contains(uid.ToString());
    });
  }
  bool HasFailed(const base::Uid& uid) {
    const base::MutexLock lock(mutex_);
    return failed_.contains(uid.ToString());
  }
  /// While `hold` is true, UpdateJob does not return.
  void HoldUpdates(bool hold) {
    const base::MutexLock lock(mutex_);
    updates_wait_ = hold;
    changed_.NotifyAll();
  }
  std::vector<v1::ReportNodeRequest> reports() {
    const base::MutexLock lock(mutex_);
    return reports_;
  }
  std::size_t failures() {
    const base::MutexLock lock(mutex_);
    return failures_.size();
  }
  std::size_t failures_before_leaving() {
    const base::MutexLock lock(mutex_);
    return failures_before_leaving_;
  }

 private:
  /// `next` gives the item at a place, null where there is none yet; called under the lock.
  template <typename Item, typename Next, typename Wanted>
  grpc::Status Stream(grpc::ServerContext* context, grpc::ServerWriter<Item>* writer, Next next,
                      Wanted wanted) {
    base::MutexLock lock(mutex_);
    for (std::size_t at = 0; !context->IsCancelled();) {
      if (const Item* const item = next(at); item != nullptr) {
        ++at;
        if (wanted(*item)) writer->Write(*item);
        continue;
      }
      changed_.WaitFor(lock, milliseconds(10));
    }
    return grpc::Status::OK;
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  v1::ReportNodeRequest report_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ReportNodeRequest> reports_ ABSL_GUARDED_BY(mutex_);  // All of them.
  bool updates_wait_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::RoutingTable> tables_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Assignment> assignments_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> failed_ ABSL_GUARDED_BY(mutex_);  // The jobs.
  std::size_t failures_before_leaving_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::unique_ptr<fabric::Fabric> OpenFabric(const std::string& cluster_id) {
  auto fabric = fabric::Fabric::Open("shm://" + cluster_id);
  if (!fabric.ok()) qFatal("%s", base::Message(fabric.status()).c_str());
  return *std::move(fabric);
}

template <typename T>
std::unique_ptr<T> Must(absl::StatusOr<std::unique_ptr<T>> made) {
  if (!made.ok()) qFatal("%s", base::Message(made.status()).c_str());
  return *std::move(made);
}

struct InstanceFixture {
  explicit InstanceFixture(base::Duration hand_over_after = std::chrono::hours(1)) {
    cluster_server.AddService(static_cast<v1::NodeManagerService::Service&>(cluster));
    cluster_server.AddService(static_cast<v1::DatabaseService::Service&>(cluster));
    other_server.AddService(*other->service());
    if (!cluster_server.Start().ok() || !other_server.Start().ok()) qFatal("no server");
    other_view.SetSelf(Other());
    v1::InstanceConfig config;
    config.mutable_node()->set_node_id("i1");
    config.mutable_node()->set_workflow_set("set-1");
    config.mutable_node()->add_nodemanagers(cluster_server.address());
    config.set_plugin_dir(ONEPIECE_TEST_PLUGINS);
    config.mutable_ring()->set_capacity_bytes(1 << 20);
    config.mutable_ring()->set_slots(64);
    config.mutable_node()->set_data_dir(folder.path().toStdString());
    for (const char* word : {"sleep", "1000"}) config.add_idle_work(word);
    instance =
        Must(Instance::Open(config, *fabric, metrics, spans, base::SystemClock(), hand_over_after));
    for (grpc::Service* service : instance->services()) server.AddService(*service);
    if (!server.Start().ok()) qFatal("no server");
    instance->Join(server.address(), "");
  }
  ~InstanceFixture() {
    instance->Leave();
    server.Shutdown(base::Duration(0));
    other_server.Shutdown(base::Duration(0));
    cluster_server.Shutdown(base::Duration(0));
  }

  v1::Endpoint Self() { return Endpoint("i1", server.address(), incarnation); }
  v1::Endpoint Other() { return Endpoint("i2", other_server.address(), 1); }
  static v1::Endpoint Endpoint(const std::string& id, const std::string& address,
                               std::uint64_t incarnation) {
    v1::Endpoint endpoint;
    endpoint.set_node_id(id);
    endpoint.set_address(address);
    endpoint.set_incarnation(incarnation);
    return endpoint;
  }
  /// Application "app": stage "gate" by `gates`, then "next" by the other instance.
  v1::RoutingTable Table(std::uint64_t epoch, const std::vector<v1::Endpoint>& gates,
                         const std::string& set = "set-1") {
    v1::RoutingTable table;
    table.set_epoch(epoch);
    table.set_workflow_set(set);
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("app");
    for (const char* stage : {"gate", "next"}) {
      workflow.add_stages()->set_stage(stage);
      v1::Route& route = *table.add_routes();
      route.set_app_id("app");
      route.set_stage(stage);
      if (stage == std::string("next")) *route.add_instances() = Other();
    }
    for (const v1::Endpoint& gate : gates) *table.mutable_routes(0)->add_instances() = gate;
    *table.add_databases() = Endpoint("db", cluster_server.address(), 1);
    *table.add_alive() = Self();
    if (set == "set-1") *table.add_alive() = Other();
    if (set == "set-1") *table.add_alive() = Endpoint("sender", "127.0.0.1:1", 1);
    return table;
  }
  static v1::Assignment Gate(std::uint64_t epoch, bool draining, const std::string& set = "") {
    v1::Assignment assignment;
    assignment.set_epoch(epoch);
    assignment.set_draining(draining);
    assignment.set_workflow_set(set);
    assignment.mutable_stage()->set_stage("gate");
    assignment.mutable_stage()->set_plugin("instance_gate_plugin");
    assignment.add_app_ids("app");
    assignment.add_models("");
    return assignment;
  }
  bool Serve() {
    if (!cluster.WaitReport([&](const auto& report) {
          incarnation = report.incarnation();
          return incarnation != 0;
        }))
      return false;
    sender_view.SetRouting(std::make_shared<const node::Routing>(Table(1, {Self()})));
    cluster.Assign(Gate(1, false));
    cluster.Publish(Table(2, {Self()}));
    return cluster.WaitReport([](const auto& report) {
      return report.state() == v1::Node::READY && report.routing_epoch() == 2;
    });
  }
  /// Sends a job to the stage, or the output of stage `from` for it. Nobody keeps it.
  base::Uid Send(const std::string& from = "") { return Send(from, ""); }
  /// Sends a job that its sender keeps.
  base::Uid SendKept() { return Send("", "sender"); }
  base::Uid Send(const std::string& from, const std::string& keeper) {
    message::Message message;
    message.header.uid = base::Uid::GenerateRandom();
    message.header.app = "app";
    message.header.stage = "gate";
    message.header.from = from;
    message.header.keeper = keeper;
    message.header.keeper_incarnation = keeper.empty() ? 0 : 1;
    message.header.deadline = base::SystemClock().Now() + kSoon;
    const auto sent = sender->Deliver(message, node::Destination::Nodes({Self()}),
                                      base::SystemClock().Now() + kSoon);
    if (!sent.ok()) qFatal("%s", base::Message(sent.status()).c_str());
    return message.header.uid;
  }
  /// Fills the other instance's ring until it takes nothing more.
  void FillOther() {
    message::Message message;
    message.header.deadline = base::SystemClock().Now() + kSoon;
    absl::Status sent;
    while (sent.ok()) {
      message.header.uid = base::Uid::GenerateRandom();
      node::Destination target = node::Destination::Nodes({Other()});
      target.patience = milliseconds(50);
      sent = sender->Deliver(message, target, base::SystemClock().Now() + kSoon).status();
    }
  }
  /// Returns the header of the next message that comes to the other instance.
  message::Header Came() {
    const auto received = other->Receive(base::SystemClock().Now() + kSoon);
    return received.ok() ? received->message.header : message::Header();
  }

  const QTemporaryDir folder;
  const std::string cluster_id = base::Uid::GenerateRandom().ToString().substr(0, 12);
  Cluster cluster;
  rpc::Server cluster_server{{.listen = "127.0.0.1:0"}};
  std::unique_ptr<fabric::Fabric> fabric = OpenFabric(cluster_id);
  node::ClusterView other_view;
  std::unique_ptr<node::Inbox> other = Must(node::Inbox::Open(
      *fabric, other_view, {.label = "i2", .capacity_bytes = 1 << 20, .slots = 64}));
  rpc::Server other_server{{.listen = "127.0.0.1:0"}};
  node::ClusterView sender_view;
  std::unique_ptr<node::Outbox> sender =
      node::Outbox::Create(*fabric, sender_view, {.node_id = "sender"});
  telemetry::Metrics metrics{"instance", "i1"};
  telemetry::Spans spans{"i1"};
  std::uint64_t incarnation = 0;
  std::unique_ptr<Instance> instance;
  rpc::Server server{{.listen = "127.0.0.1:0"}};
};

}  // namespace

class InstanceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    library_ = dlopen(ONEPIECE_TEST_PLUGINS "/instance_gate_plugin.so", RTLD_NOW);
    QVERIFY2(library_ != nullptr, dlerror());
    open_ = reinterpret_cast<void (*)(bool)>(dlsym(library_, "gate_open"));
    loads_ = reinterpret_cast<int (*)()>(dlsym(library_, "gate_loads"));
    QVERIFY(open_ != nullptr && loads_ != nullptr);
  }
  void init() { open_(false); }
  void cleanup() { open_(true); }

  void Drain_PassesOnWhatIsQueuedAndFinishesWhatIsComputed() {
    InstanceFixture f;
    QVERIFY(f.Serve());
    const base::Uid computed = f.Send();
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().running_jobs() == 1; }));
    const base::Uid queued = f.Send();
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().held_jobs() == 2; }));
    f.cluster.Publish(f.Table(3, {f.Other()}));
    f.cluster.Assign(f.Gate(3, true));
    const message::Header passed = f.Came();
    QVERIFY(passed.uid == queued);
    QCOMPARE(passed.stage, std::string("gate"));
    QCOMPARE(passed.attempt, std::uint32_t{1});
    // A message from a sender with an old table is passed on too, and the instance does not report
    // that it is drained.
    const base::Uid late = f.Send();
    QVERIFY(f.Came().uid == late);
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.assignment_epoch() == 3 && !report.drained() && report.load().held_jobs() == 1;
    }));
    open_(true);
    const message::Header done = f.Came();
    QVERIFY(done.uid == computed);
    QCOMPARE(done.stage, std::string("next"));
    QVERIFY(f.cluster.WaitReport(
        [](const auto& report) { return report.drained() && report.assignment_epoch() == 3; }));
    QCOMPARE(f.cluster.failures(), std::size_t{0});
  }

  void Drain_TakesTooLong_HandsOverWhatIsComputed() {
    InstanceFixture f(milliseconds(0));
    QVERIFY(f.Serve());
    const base::Uid uid = f.Send();
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().running_jobs() == 1; }));
    f.cluster.Publish(f.Table(3, {f.Other()}));
    f.cluster.Assign(f.Gate(3, true));
    const auto received = f.other->Receive(base::SystemClock().Now() + kSoon);
    QVERIFY2(received.ok(), base::Message(received.status()).c_str());
    QVERIFY(received->message.header.uid == uid);
    QCOMPARE(received->message.header.stage, std::string("gate"));
    QCOMPARE(received->message.header.attempt, std::uint32_t{1});
    QVERIFY(message::FindArtifact(received->message.artifacts, "saved") != nullptr);
    QVERIFY(f.cluster.WaitReport([](const auto& report) { return report.drained(); }));
    QCOMPARE(f.cluster.failures(), std::size_t{0});
  }

  void Drain_NobodyElseServes_ComputesWhatItHas() {
    InstanceFixture f;
    QVERIFY(f.Serve());
    f.Send();
    f.Send();
    f.cluster.Publish(f.Table(3, {}));
    f.cluster.Assign(f.Gate(3, true));
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.assignment_epoch() == 3 && report.load().held_jobs() == 2;
    }));
    open_(true);
    QCOMPARE(f.Came().stage, std::string("next"));
    QCOMPARE(f.Came().stage, std::string("next"));
    QVERIFY(f.cluster.WaitReport([](const auto& report) { return report.drained(); }));
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.load().stages_size() == 1 && report.load().stages(0).jobs() == 2;
    }));
  }

  void Drain_TheOnlyOtherDies_ComputesWhatItHas() {
    InstanceFixture f;
    QVERIFY(f.Serve());
    constexpr int kJobs = 7;
    for (int i = 0; i < kJobs; ++i) f.Send();
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.load().running_jobs() == 1 && report.load().queued_jobs() == kJobs - 1;
    }));
    f.cluster.Publish(f.Table(3, {f.Endpoint("dead", "127.0.0.1:1", 1)}));
    f.cluster.Assign(f.Gate(3, true));
    QVERIFY(f.cluster.WaitReport(
        [](const auto& report) { return report.load().queued_jobs() < kJobs - 1; }));
    f.cluster.Publish(f.Table(4, {}));
    open_(true);
    for (int i = 0; i < kJobs; ++i) QCOMPARE(f.Came().stage, std::string("next"));
    QVERIFY(f.cluster.WaitReport([](const auto& report) { return report.drained(); }));
    QCOMPARE(f.cluster.failures(), std::size_t{0});
  }

  void Drain_TakenBack_ServesAgainWithoutALoad() {
    InstanceFixture f;
    open_(true);
    QVERIFY(f.Serve());
    const int loads = loads_();
    f.cluster.Publish(f.Table(3, {f.Other()}));
    f.cluster.Assign(f.Gate(3, true));
    QVERIFY(f.cluster.WaitReport([](const auto& report) { return report.drained(); }));
    f.cluster.Assign(f.Gate(4, false));
    f.cluster.Publish(f.Table(4, {f.Self(), f.Other()}));
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return !report.drained() && report.assignment_epoch() == 4 &&
             report.state() == v1::Node::READY && report.routing_epoch() == 4;
    }));
    f.Send();
    QCOMPARE(f.Came().stage, std::string("next"));
    QCOMPARE(loads_(), loads);
  }

  // The pool of the stage serves two applications, and another instance only one of them.
  void Drain_OthersServeOneAppOnly_ABranchOfItGoesThere() {
    InstanceFixture f;
    open_(true);
    QVERIFY(f.Serve());
    const auto table = [&](std::uint64_t epoch, const v1::Endpoint& gate) {
      v1::RoutingTable made = f.Table(epoch, {gate});
      made.mutable_workflows(0)->clear_stages();
      for (const char* stage : {"first", "left", "right", "gate", "next"})
        made.mutable_workflows(0)->add_stages()->set_stage(stage);
      made.mutable_workflows(0)->mutable_stages(1)->add_after("first");
      made.mutable_workflows(0)->mutable_stages(2)->add_after("first");
      made.mutable_workflows(0)->mutable_stages(3)->add_after("left");
      made.mutable_workflows(0)->mutable_stages(3)->add_after("right");
      made.add_workflows()->set_app_id("lone");
      made.mutable_workflows(1)->add_stages()->set_stage("gate");
      return made;
    };
    v1::Assignment both = f.Gate(3, false);
    both.add_app_ids("lone");
    both.add_models("");
    f.cluster.Assign(both);
    f.cluster.Publish(table(3, f.Self()));
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.assignment_epoch() == 3 && report.routing_epoch() == 3 &&
             report.served_app_ids_size() == 2;
    }));
    const base::Uid uid = f.Send("left");
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().held_jobs() == 1; }));
    both.set_epoch(4);
    both.set_draining(true);
    f.cluster.Assign(both);
    f.cluster.Publish(table(4, f.Other()));
    const message::Header passed = f.Came();
    QVERIFY(passed.uid == uid);
    QCOMPARE(passed.stage, std::string("gate"));
    QCOMPARE(passed.from, std::string("left"));
    QCOMPARE(f.cluster.failures(), std::size_t{0});
  }

  // The successor's ring is full, so each delivery takes a second. Reports go on meanwhile. Whoever
  // keeps work gives it away again, so only the jobs whose work nobody keeps fail.
  void Leave_WhileAResultFindsNoTaker_ReportsUntilTheEnd() {
    InstanceFixture f;
    open_(true);
    QVERIFY(f.Serve());
    f.FillOther();
    f.Send();
    f.SendKept();
    f.Send();
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.load().held_jobs() == 3 && report.load().running_jobs() == 0;
    }));
    f.instance->Leave();
    QCOMPARE(f.cluster.failures(), std::size_t{2});
    // A database that heard first that the instance is gone would call the jobs lost.
    QCOMPARE(f.cluster.failures_before_leaving(), std::size_t{2});
  }

  // Nobody else serves the stage, so neither what is queued nor what is computed finds a place.
  void Leave_NobodyElseServes_LeavesKeptWorkToItsKeepers() {
    InstanceFixture f;
    QVERIFY(f.Serve());
    f.SendKept();
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().running_jobs() == 1; }));
    f.SendKept();
    f.Send();
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().held_jobs() == 3; }));
    f.cluster.Publish(f.Table(3, {}));
    f.instance->Leave();
    QCOMPARE(f.cluster.failures(), std::size_t{1});
    QVERIFY(f.cluster.WaitFailure("INSTANCE_STOPPED"));
  }

  void LoadFailure_IsReportedWithItsReason() {
    InstanceFixture f;
    QVERIFY(f.Serve());
    v1::Assignment broken = f.Gate(3, false);
    broken.mutable_stage()->set_plugin("no_such_plugin");
    f.cluster.Assign(broken);
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.load_failed() && report.assignment_epoch() == 3 &&
             report.state() == v1::Node::STARTING &&
             report.detail().find("no_such_plugin") != std::string::npos;
    }));
    f.cluster.Assign(f.Gate(4, false));
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return !report.load_failed() && report.assignment_epoch() == 4 &&
             report.state() == v1::Node::READY;
    }));
  }

  void IdleWork_RunsAsLongAsNothingIsAssigned() {
    InstanceFixture f;
    open_(true);
    const auto lends = [](const auto& report) {
      return report.load().idle_work().starts_with("sleep, pid ");
    };
    f.cluster.Assign({});
    QVERIFY(f.cluster.WaitReport(lends));
    QVERIFY(f.Serve());
    const auto rests = [](std::uint64_t epoch) {
      return [epoch](const auto& report) {
        return report.assignment_epoch() == epoch && report.load().idle_work().empty();
      };
    };
    QVERIFY(f.cluster.WaitReport(rests(1)));
    v1::Assignment nothing;
    nothing.set_epoch(3);
    f.cluster.Assign(nothing);
    QVERIFY(f.cluster.WaitReport(lends));
    nothing.set_epoch(4);
    nothing.set_removed(true);
    f.cluster.Assign(nothing);
    QVERIFY(f.cluster.WaitReport(rests(4)));
  }

  // The old set's records are slow, so the instance holds nothing but cannot leave the set yet.
  void AnotherSet_IsNotSaidToBeServedBeforeItIs() {
    InstanceFixture f;
    QVERIFY(f.Serve());
    f.Send();
    QVERIFY(
        f.cluster.WaitReport([](const auto& report) { return report.load().running_jobs() == 1; }));
    f.cluster.HoldUpdates(true);
    f.cluster.Assign(f.Gate(5, false, "set-2"));
    f.cluster.Publish(f.Table(5, {f.Self()}, "set-2"));
    open_(true);
    const message::Header came = f.Came();
    QCOMPARE(came.stage, std::string("next"));
    std::set<std::int64_t> empty;  // When it held nothing.
    QVERIFY(f.cluster.WaitReport([&](const auto& report) {
      if (report.load().held_jobs() == 0) empty.insert(report.load().sample_unix_ms());
      return empty.size() >= 10;  // Half a second, in which the instance has looked several times.
    }));
    f.cluster.HoldUpdates(false);
    // It stays in its set while it keeps work for a stage there.
    v1::SettleWorkRequest done;
    v1::WorkSettled& settled = *done.add_works();
    settled.set_uid(came.uid.ToString());
    settled.set_run(came.run);
    settled.set_stage(came.stage);
    settled.set_from(came.from);
    settled.set_attempt(came.attempt);
    QVERIFY(node::TellByGrpc()(f.Self(), done).ok());
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.state() == v1::Node::READY && report.assignment_epoch() == 5 &&
             report.routing_epoch() == 5;
    }));
    for (const auto& report : f.cluster.reports()) {
      if (report.assignment_epoch() != 5) continue;
      QVERIFY(report.routing_epoch() == 5 || report.state() == v1::Node::STARTING);
      QVERIFY(!report.drained());
    }
  }

  void AnotherSet_TheOldSetsLateWorkFailsThere() {
    InstanceFixture f;
    open_(true);
    QVERIFY(f.Serve());
    f.cluster.Assign(f.Gate(5, false, "set-2"));
    f.cluster.Publish(f.Table(5, {f.Self()}, "set-2"));
    QVERIFY(f.cluster.WaitReport([](const auto& report) {
      return report.state() == v1::Node::READY && report.assignment_epoch() == 5 &&
             report.routing_epoch() == 5;
    }));
    f.Send();
    QVERIFY(f.cluster.WaitFailure(kWorkflowSetLeft));
    // Who keeps work gives it to somebody else there. A failure would come before that of the other
    // job, because reports go out in the order of the UIDs.
    const base::Uid kept = f.SendKept();
    base::Uid other = f.Send();
    while (other < kept) other = f.Send();
    QVERIFY(f.cluster.WaitFailed(other));
    QVERIFY(!f.cluster.HasFailed(kept));
  }

 private:
  void* library_ = nullptr;
  void (*open_)(bool) = nullptr;
  int (*loads_)() = nullptr;
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::InstanceTest)
#include "instance_test.moc"
