// Replication: which databases get copies, when a result counts, and what databases send each other
// after they were apart.
#include <QtTest>
#include <random>
#include <set>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/database/digest.h"
#include "cluster/database/placement.h"
#include "cluster/rpc/channel.h"
#include "tests/database/database_cluster.h"
#include "tests/fetch_whole.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using v1::Job;
using namespace std::chrono_literals;
using Stub = v1::DatabaseService::Stub;

base::Uid UidOf(const v1::JobRecord& record) { return *base::Uid::Parse(record.job().uid()); }

ResultBundle BundleOf(const v1::JobRecord& record, const std::string& bytes) {
  message::Message message;
  message.header.kind = message::Kind::kReplica;
  message.header.uid = UidOf(record);
  message.header.app = "app";
  message.header.ingress_time = job::FromTimestamp(record.job().create_time());
  message.header.deadline = base::SystemClock().Now() + job::FromProto(record.time_left());
  message.artifacts.push_back(message::BytesArtifact("video", "video/mp4", bytes));
  auto bundle = MakeResultBundle(message);
  Require(bundle.status());
  return *std::move(bundle);
}

void Put(JobStore& store, const v1::JobRecord& record, const std::string& bytes) {
  Require(store.StoreResult(BundleOf(record, bytes), message::Kind::kReplica).status());
}

bool HasBytes(DatabaseCluster& cluster, const std::string& database, const base::Uid& uid) {
  return cluster.at(database).node->store().FindResult(uid) != nullptr;
}

bool Succeeded(DatabaseCluster& cluster, const std::string& database, const v1::JobRecord& record) {
  const auto job = cluster.at(database).node->store().Get(record.job().uid());
  return job.ok() && job->job().state() == Job::SUCCEEDED;
}

int Outcomes(DatabaseCluster::Database& database, const std::string& outcome) {
  return static_cast<int>(database.metrics
                              ->Counter("onepiece_results_total",
                                        "Results that arrived, by what became of them",
                                        {{"outcome", outcome}})
                              .Value());
}

absl::StatusOr<std::string> Fetch(DatabaseCluster& cluster, const base::Uid& uid) {
  return testing::FetchWhole(cluster.records(), uid);
}

/// A database that answers as the test says, and takes records once it is opened.
class FakePeer final : public v1::DatabaseService::Service {
 public:
  FakePeer() {
    server_.AddService(*this);
    Require(server_.Start().status());
  }
  ~FakePeer() override {
    Open();
    server_.Shutdown(base::Duration::zero());
  }
  [[nodiscard]] const std::string& address() const { return server_.address(); }

  void Open() {
    const base::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  [[nodiscard]] int calls() const {
    const base::MutexLock lock(mutex_);
    return calls_;
  }
  [[nodiscard]] int CountOf(const std::string& uid) const {
    const base::MutexLock lock(mutex_);
    return static_cast<int>(std::ranges::count(records_, uid));
  }
  grpc::Status ReplicateJobs(grpc::ServerContext* context, const v1::ReplicateJobsRequest* request,
                             v1::ReplicateJobsResponse*) override {
    base::MutexLock lock(mutex_);
    ++calls_;
    for (const auto& record : request->records()) records_.push_back(record.job().uid());
    cluster_id_ = request->cluster_id();
    while (!open_ && !context->IsCancelled()) changed_.WaitFor(lock, 10ms);
    return grpc::Status::OK;
  }
  grpc::Status CompareJobs(grpc::ServerContext*, const v1::CompareJobsRequest*,
                           v1::CompareJobsResponse* response) override {
    const base::MutexLock lock(mutex_);
    *response = answer_;
    return grpc::Status::OK;
  }
  grpc::Status SendJobs(grpc::ServerContext*, const v1::SendJobsRequest* request,
                        google::protobuf::Empty*) override {
    const base::MutexLock lock(mutex_);
    asked_ += request->records_size() + request->results_size();
    return grpc::Status::OK;
  }
  void Answer(const v1::CompareJobsResponse& answer) {
    const base::MutexLock lock(mutex_);
    answer_ = answer;
  }
  [[nodiscard]] int asked() const {
    const base::MutexLock lock(mutex_);
    return asked_;
  }
  [[nodiscard]] std::string cluster_id() const {
    const base::MutexLock lock(mutex_);
    return cluster_id_;
  }

 private:
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> records_ ABSL_GUARDED_BY(mutex_);
  std::string cluster_id_ ABSL_GUARDED_BY(mutex_);
  v1::CompareJobsResponse answer_ ABSL_GUARDED_BY(mutex_);
  rpc::Server server_{rpc::ServerOptions{}};
};

/// Behaves like the shared memory of killed processes: every ring accepts everything, and no
/// process reads it.
class DeadRings final : public node::Outbox {
 public:
  absl::StatusOr<node::Delivered> Deliver(const message::Message&, const node::Destination&,
                                          base::MonotonicTime) override {
    return node::Delivered{};
  }
  absl::StatusOr<node::Delivered> DeliverInTurns(const message::Message&, const node::Destination&,
                                                 base::MonotonicTime,
                                                 std::shared_ptr<node::OpenDelivery>&) override {
    return node::Delivered{};
  }
  void Close() override {}
  [[nodiscard]] node::OutboxCounters counters() const override { return {}; }
};

v1::UpdateJobRequest StepOf(const v1::JobRecord& record, int step) {
  v1::UpdateJobRequest update;
  update.set_uid(record.job().uid());
  update.mutable_progress()->mutable_holder()->set_node_id("inst");
  update.mutable_progress()->mutable_holder()->set_stage("encode");
  update.mutable_progress()->set_step(step);
  update.mutable_progress()->set_steps(100);
  return update;
}

DatabaseCluster::Setup Copies(int copies) {
  return {.options = [copies](DatabaseNodeOptions& options) { options.copies = copies; },
          .fill = {}};
}

v1::CompareJobsRequest CompareRequest() {
  v1::CompareJobsRequest request;
  request.set_cluster_id("test");
  request.set_node_id("db-2");
  request.add_databases("db-1");
  request.add_databases("db-2");
  for (int i = 0; i < kBuckets; ++i) request.add_digests(0);
  return request;
}

}  // namespace

class ReplicationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Keepers_AreTheFirstOfTheOrderThatEveryNodeComputes() {
    for (const bool with_hosts : {false, true}) {
      v1::RoutingTable table;
      for (int i = 1; i <= 4; ++i) {
        v1::Endpoint& database = *table.add_databases();
        database.set_node_id("db-" + std::to_string(i));
        if (with_hosts) database.set_host(i <= 2 ? "left" : "right");
      }
      const node::Routing routing(table);
      const Places places = node::DatabasePlaces(table);
      for (int i = 0; i < 200; ++i) {
        const base::Uid uid = base::Uid::GenerateRandom();
        const auto order = routing.DatabasesFor(uid);
        for (int copies = 1; copies <= 5; ++copies) {
          std::set<std::string> expected, keepers;
          for (int k = 0; k < std::min(copies, 4); ++k)
            expected.insert(order[static_cast<std::size_t>(k)].node_id());
          for (const std::string* id : KeepersOf(uid, places, copies)) keepers.insert(*id);
          QVERIFY(keepers == expected);
        }
        if (with_hosts) QVERIFY((order[0].node_id() <= "db-2") != (order[1].node_id() <= "db-2"));
      }
    }
  }

  void Copies_GoToAsManyDatabasesAsAskedFor() {
    for (const int copies : {1, 2, 3}) {
      DatabaseCluster cluster;
      for (const char* id : {"db-1", "db-2", "db-3"}) cluster.AddDatabase(id, {}, Copies(copies));
      const v1::JobRecord record = NewRecord();
      QVERIFY(cluster.records().Create(record).ok());
      QVERIFY(cluster.SendResult(record.job().uid(), "video").ok());
      const auto order = cluster.Order(record.job().uid());
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (static_cast<int>(i) < copies) {
          QVERIFY(Eventually([&] { return HasBytes(cluster, order[i], UidOf(record)); }));
        }
      }
      QVERIFY(Eventually([&] { return cluster.at(order[0]).node->replicator().IsIdle(order[2]); }));
      QCOMPARE(HasBytes(cluster, order[2], UidOf(record)), copies == 3);
    }
  }

  void Record_ThatChangesWhileItsPeerIsSlow_IsSentOnce() {
    DatabaseCluster cluster;
    FakePeer slow;
    FakePeer quick;
    quick.Open();
    auto& database = cluster.AddDatabase("db-1", {}, Copies(3));
    cluster.Announce("db-2", 1, slow.address());
    cluster.Announce("db-3", 1, quick.address());
    JobStore& store = database.node->store();
    const v1::JobRecord first = NewRecord();
    const v1::JobRecord second = NewRecord();
    QVERIFY(store.Create(first).ok());
    QVERIFY(Eventually([&] { return slow.calls() == 1; }));
    QVERIFY(store.Create(second).ok());
    for (int step = 1; step <= 10; ++step) QVERIFY(store.Update(StepOf(second, step)).ok());
    // The slow peer has not answered yet, and the other one has it all.
    QVERIFY(Eventually([&] { return quick.CountOf(second.job().uid()) > 0; }));
    QVERIFY(Eventually([&] { return database.node->replicator().IsIdle("db-3"); }));
    QCOMPARE(slow.CountOf(second.job().uid()), 0);
    slow.Open();
    QVERIFY(Eventually([&] { return database.node->replicator().IsIdle("db-2"); }));
    QCOMPARE(slow.CountOf(second.job().uid()), 1);
    QCOMPARE(slow.cluster_id(), std::string("test"));
    cluster.Forget("db-2");
    cluster.Forget("db-3");
  }

  void Peer_ThatIsAwayGetsWhatHappenedMeanwhile() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1");
    cluster.AddDatabase("db-2");
    QVERIFY(Eventually([&] { return !cluster.at("db-1").node->replicator().peers().empty(); }));
    cluster.Forget("db-2");
    const v1::JobRecord record = NewRecord();
    QVERIFY(cluster.records().Create(record).ok());
    QVERIFY(cluster.SendResult(record.job().uid(), "video").ok());
    QVERIFY(Eventually([&] {
      const auto job = cluster.records().Get(UidOf(record));
      return job.ok() && job->job().state() == Job::SUCCEEDED;
    }));
    const v1::DatabasePeer away = cluster.at("db-1").node->replicator().peers().front();
    QCOMPARE(away.node_id(), std::string("db-2"));
    QVERIFY(!away.alive());
    QCOMPARE(away.waiting_records(), 1);
    QCOMPARE(away.waiting_results(), 1);
    QVERIFY(!HasBytes(cluster, "db-2", UidOf(record)));
    cluster.Return("db-2");
    QVERIFY(Eventually([&] { return HasBytes(cluster, "db-2", UidOf(record)); }));
  }

  void Result_WaitsForNobodyWhoIsNotThere() {
    DatabaseCluster cluster;
    auto& database = cluster.AddDatabase("db-1");
    cluster.Announce("db-2", 99, "127.0.0.1:1");
    // The record is made up from the result. Nothing was sent to db-2 before, so it is assumed to
    // answer.
    const v1::JobRecord first = NewRecord();
    QVERIFY(database.node->replicator().CanCopy(UidOf(first)));
    QVERIFY(cluster.SendResult(first.job().uid(), "video").ok());
    QVERIFY(Eventually([&] { return Succeeded(cluster, "db-1", first); }));
    QVERIFY(Eventually([&] { return Outcomes(database, "held") == 1; }));
    // db-2 is known not to answer now, so the next result does not wait for it.
    const v1::JobRecord second = NewRecord();
    QVERIFY(!database.node->replicator().CanCopy(UidOf(second)));
    QVERIFY(cluster.SendResult(second.job().uid(), "video").ok());
    QVERIFY(Eventually([&] { return Succeeded(cluster, "db-1", second); }));
    QVERIFY(Eventually([&] { return Outcomes(database, "stored") == 1; }));
    cluster.Forget("db-2");
  }

  void Result_AcknowledgedByTheFirst_CountsAtOnce() {
    DatabaseCluster cluster;
    DatabaseCluster::Setup first;
    first.options = [](DatabaseNodeOptions& options) {
      options.acknowledge = v1::RESULT_COPIES_FIRST;
    };
    auto& database = cluster.AddDatabase("db-1", {}, first);
    cluster.Announce("db-2", 99, "127.0.0.1:1");
    const v1::JobRecord record = NewRecord();
    QVERIFY(database.node->store().Create(record).ok());
    QVERIFY(cluster.SendResult(record.job().uid(), "video").ok());
    QVERIFY(Eventually([&] { return Succeeded(cluster, "db-1", record); }));
    QVERIFY(Eventually([&] { return Outcomes(database, "stored") == 1; }));
    QCOMPARE(Outcomes(database, "held"), 0);
    cluster.Forget("db-2");
  }

  void Result_ThatAPeerNeverConfirms_CountsWhenItsTimeIsUp() {
    base::ManualClock clock;
    FakePeer dead;
    dead.Open();
    v1::RoutingTable table;
    table.set_epoch(1);
    for (const char* id : {"db-1", "db-2"}) {
      v1::Endpoint endpoint;
      endpoint.set_node_id(id);
      endpoint.set_incarnation(1);
      endpoint.set_address(dead.address());
      *table.add_databases() = *table.add_alive() = endpoint;
    }
    node::ClusterView view;
    view.SetCluster("test", "secret");
    view.SetRouting(std::make_shared<const node::Routing>(table));
    Replicator replicator(view, {.node_id = "db-1"}, clock);
    JobStore store({}, clock, {.changed = [&](const base::Uid& uid, Change change) {
                     replicator.Enqueue(uid, change);
                   }});
    DeadRings rings;
    const auto fabric =
        *fabric::Fabric::Open("shm://dead-" + base::Uid::GenerateRandom().ToString());
    values::ValuePeers values(*fabric, "db-1", clock);
    replicator.Start(store, {.outbox = rings, .values = values},
                     [&](const base::Uid& uid) { return store.Confirm(uid); });
    const auto state = [&](const v1::JobRecord& record) {
      return store.Get(record.job().uid())->job().state();
    };
    const auto sent = [&](std::uint64_t results) {
      return Eventually([&] { return replicator.stats().results_sent == results; });
    };
    v1::JobRecord record = NewRecord();
    job::SetTimeLimit(60s, clock.WallNow(), record);
    const base::Uid uid = UidOf(record);
    QVERIFY(store.Create(record).ok());
    const auto held =
        store.StoreResult(BundleOf(record, "video"), message::Kind::kResult, {.hold = true});
    QCOMPARE(held.value(), StoreOutcome::kHeld);
    QVERIFY(replicator.CanCopy(uid));
    replicator.Hold(uid);
    QVERIFY(sent(1));
    clock.Advance(base::Scaled(1999ms));
    QCOMPARE(state(record), Job::QUEUED);
    clock.Advance(base::Scaled(2ms));
    QVERIFY(Eventually([&] { return state(record) == Job::SUCCEEDED; }));
    QVERIFY(sent(2));  // The hint; the peer is in the routing.
    QCOMPARE(replicator.confirmed_alone(), std::uint64_t{1});
    // The peer counts as away, so results do not wait for it until it is tried again.
    QVERIFY(Eventually([&] { return !replicator.CanCopy(uid); }));
    clock.Advance(base::Scaled(10s));
    QVERIFY(replicator.CanCopy(uid));
    // Now its record confirms the copy, so nothing is left to do when the time is up.
    v1::JobRecord next = NewRecord();
    job::SetTimeLimit(60s, clock.WallNow(), next);
    QVERIFY(store.Create(next).ok());
    const ResultBundle bundle = BundleOf(next, "video");
    QVERIFY(store.StoreResult(bundle, message::Kind::kResult, {.hold = true}).ok());
    replicator.Hold(UidOf(next));
    QVERIFY(sent(3));
    JobStore theirs({}, clock, {});
    Put(theirs, next, "video");
    store.Merge(theirs.Records(std::vector{UidOf(next)}));
    QCOMPARE(state(next), Job::SUCCEEDED);
    clock.Advance(base::Scaled(3s));
    QVERIFY(Eventually([&] { return replicator.IsIdle("db-2"); }));
    QCOMPARE(replicator.stats().results_sent, 3u);
    QVERIFY(replicator.CanCopy(uid));
    replicator.Stop();
  }

  void Result_AcknowledgedByAll_IsWithThePeerWhenItCounts() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1");
    cluster.AddDatabase("db-2");
    const v1::JobRecord record = NewRecord();
    QVERIFY(cluster.records().Create(record).ok());
    const auto sent = cluster.SendResult(record.job().uid(), "video");
    QVERIFY(sent.ok());
    const std::string taker = sent->endpoint.node_id();
    const std::string other = taker == "db-1" ? "db-2" : "db-1";
    QVERIFY(Eventually([&] { return Succeeded(cluster, taker, record); }));
    // The copy lies in the other database's ring at least, so the taker is not needed any more.
    cluster.Kill(taker);
    cluster.Forget(taker);
    QVERIFY(Eventually([&] { return HasBytes(cluster, other, UidOf(record)); }));
    QCOMPARE(Fetch(cluster, UidOf(record)).value(), std::string("video"));
  }

  void Comparison_SendsOnlyWhatIsMissing() {
    DatabaseCluster cluster;
    JobStore& ours = cluster.AddDatabase("db-1").node->store();
    // Otherwise its job would be declared lost, and the record sent, during the test.
    cluster.ChangeTable([](v1::RoutingTable& table) { table.add_alive()->set_node_id("inst"); });
    std::vector<v1::JobRecord> records;
    for (int i = 0; i < 1004; ++i) {
      records.push_back(NewRecord());
      QVERIFY(ours.Create(records.back()).ok());
      if (i != 1001) Put(ours, records.back(), "video " + std::to_string(i));
    }
    // At the peer, job 1000 is missing, 1001 has an older record, 1002 has no bytes, and 1003 is
    // not fetched although it was fetched here.
    QVERIFY(ours.Update(StepOf(records[1001], 7)).ok());
    const auto fill = [&](JobStore& theirs) {
      for (std::size_t i = 0; i < records.size(); ++i) {
        if (i == 1000) continue;
        const auto now =
            i == 1001 ? std::vector{records[i]} : ours.Records(std::vector{UidOf(records[i])});
        theirs.Merge(now);
        if (i != 1001 && i != 1002) Put(theirs, records[i], "video " + std::to_string(i));
      }
    };
    const std::string fetched = records[1003].job().uid();
    cluster.AddDatabase("db-2", {}, {.options = {}, .fill = [&](JobStore& theirs) {
                                       fill(theirs);
                                       Require(ours.Acknowledge(fetched).status());
                                     }});
    AntiEntropy& asks = cluster.at("db-2").node->anti_entropy();
    QVERIFY(Eventually([&] { return asks.ComparedTime("db-1").has_value(); }));
    QVERIFY(cluster.at("db-1").node->anti_entropy().ComparedTime("db-2").has_value());
    QVERIFY(asks.SettledTime().has_value());
    JobStore& theirs = cluster.at("db-2").node->store();
    QCOMPARE(theirs.Get(records[1000].job().uid())->has_bytes(), true);
    QCOMPARE(theirs.Get(records[1001].job().uid())->job().step(), 7);
    QCOMPARE(theirs.Get(records[1002].job().uid())->has_bytes(), true);
    QCOMPARE(Reason(theirs.FindArtifact(fetched, "").status()), std::string("RESULT_FETCHED"));
    QCOMPARE(Reason(ours.FindArtifact(fetched, "").status()), std::string("RESULT_FETCHED"));
    const AntiEntropyStats found = asks.stats();
    QCOMPARE(found.records_asked, 1u);   // 1000
    QCOMPARE(found.results_asked, 2u);   // 1000, 1002
    QCOMPARE(found.records_pushed, 2u);  // 1001 and 1003: ours knows better, and says so.
    QCOMPARE(found.results_pushed, 0u);
    const PeerStats from_us = cluster.at("db-1").node->replicator().stats();
    const PeerStats from_them = cluster.at("db-2").node->replicator().stats();
    QCOMPARE(from_us.records_sent, 3u);
    QCOMPARE(from_us.results_sent, 2u);
    QCOMPARE(from_them.records_sent, 2u);
    QCOMPARE(from_them.results_sent, 0u);
  }

  void Databases_ThatBecomeKeepersLater_GetTheJobs() {
    DatabaseCluster cluster;
    JobStore& ours = cluster.AddDatabase("db-1").node->store();
    std::vector<v1::JobRecord> records;
    for (int i = 0; i < 50; ++i) {
      records.push_back(NewRecord());
      QVERIFY(ours.Create(records.back()).ok());
      Put(ours, records.back(), "video");
    }
    cluster.AddDatabase("db-2");
    cluster.AddDatabase("db-3");
    int moved = 0;
    for (const v1::JobRecord& record : records) {
      const auto order = cluster.Order(record.job().uid());
      for (const std::string& id : {order[0], order[1]})
        QVERIFY(Eventually([&] { return HasBytes(cluster, id, UidOf(record)); }));
      moved += order[2] == "db-1" ? 1 : 0;
    }
    QVERIFY(moved > 0);
  }

  void Peer_ThatWasAwayDuringTheAcknowledge_DropsItsBytes() {
    DatabaseCluster cluster;
    // The peer is away for less than a tick and returns as the same incarnation. The next
    // comparison finds the difference.
    const DatabaseCluster::Setup often = {
        .options = [](DatabaseNodeOptions& options) { options.compare_interval = 1s; }, .fill = {}};
    for (const char* id : {"db-1", "db-2"}) cluster.AddDatabase(id, {}, often);
    const v1::JobRecord record = NewRecord();
    QVERIFY(cluster.records().Create(record).ok());
    QVERIFY(cluster.SendResult(record.job().uid(), "video").ok());
    for (const char* id : {"db-1", "db-2"})
      QVERIFY(Eventually(
          [&] { return cluster.at(id).node->store().FindArtifact(record.job().uid(), "").ok(); }));
    cluster.Forget("db-2");
    QVERIFY(cluster.records().Acknowledge(UidOf(record)).ok());
    QVERIFY(HasBytes(cluster, "db-2", UidOf(record)));
    cluster.Return("db-2");
    QVERIFY(Eventually([&] { return !HasBytes(cluster, "db-2", UidOf(record)); }));
    QVERIFY(Eventually(
        [&] { return cluster.at("db-2").node->anti_entropy().SettledTime().has_value(); }));
    QVERIFY(!HasBytes(cluster, "db-1", UidOf(record)));
    QCOMPARE(Reason(Fetch(cluster, UidOf(record)).status()), std::string("RESULT_FETCHED"));
  }

  void MissingResult_IsLost_WhenEveryPeerWasAskedOrTimeIsUp() {
    // Like after a restart: the jobs SUCCEEDED in the journal, but the bytes are gone. A peer has
    // the bytes of `kept`.
    const v1::JobRecord gone = NewRecord(), kept = NewRecord();
    JobStore before({}, base::SystemClock(), {});
    for (const v1::JobRecord& record : {gone, kept}) {
      QVERIFY(before.Create(record).ok());
      Put(before, record, "video");
    }
    const std::vector<v1::JobRecord> journal =
        before.Records(std::vector{UidOf(gone), UidOf(kept)});
    const auto start = [](base::Duration lost_after, const std::function<void(JobStore&)>& fill) {
      return DatabaseCluster::Setup{
          .options = [=](DatabaseNodeOptions& options) { options.lost_after = lost_after; },
          .fill = fill};
    };
    const auto restore = [&journal](JobStore& store) {
      for (const v1::JobRecord& record : journal) QVERIFY(store.Restore(record));
    };
    const auto lost = [](JobStore& store, const v1::JobRecord& record) {
      return Reason(store.FindArtifact(record.job().uid(), "").status()) == "LOST_ON_RESTART";
    };
    DatabaseCluster cluster;
    cluster.Announce("db-2", 1, "127.0.0.1:1");  // Never answers.
    JobStore& alone = cluster.AddDatabase("db-1", {}, start(500ms, restore)).node->store();
    QVERIFY(Eventually([&] { return lost(alone, gone) && lost(alone, kept); }));
    cluster.Kill("db-1");
    cluster.Forget("db-1");
    cluster.Forget("db-2");

    const auto has_one = [&](JobStore& store) { Put(store, kept, "video"); };
    JobStore& theirs = cluster.AddDatabase("db-2", {}, start(500ms, has_one)).node->store();
    // No time alone suffices here: only the comparison with db-2 decides.
    JobStore& ours = cluster.AddDatabase("db-1", {}, start(1h, restore)).node->store();
    QVERIFY(Eventually([&] { return lost(ours, gone); }));
    QVERIFY(Eventually([&] { return ours.FindArtifact(kept.job().uid(), "").ok(); }));
    QCOMPARE(ours.stats().lost_on_restart, 1u);
    // db-2 learned of the job by the comparison, and declares it lost in the end, too.
    QVERIFY(Eventually([&] { return lost(theirs, gone); }));
    QCOMPARE(theirs.stats().lost_on_restart, 1u);
  }

  void HostileRequests_AreRefusedWithAReason() {
    DatabaseCluster cluster;
    auto& database = cluster.AddDatabase("db-1");
    cluster.Announce("db-2", 0, "127.0.0.1:1");
    Stub stub(rpc::MakeChannel(database.server->address()));
    const auto compare = [&](const v1::CompareJobsRequest& request) {
      return Reason(rpc::Call(stub, &Stub::CompareJobs, request, 5s).status());
    };
    const auto send = [&](const v1::SendJobsRequest& request) {
      return Reason(rpc::Call(stub, &Stub::SendJobs, request, 5s).status());
    };
    QCOMPARE(compare(CompareRequest()), std::string());
    v1::CompareJobsRequest request = CompareRequest();
    request.set_cluster_id("another");
    QCOMPARE(compare(request), std::string("OTHER_CLUSTER"));
    request = CompareRequest();
    request.add_databases("db-3");
    QCOMPARE(compare(request), std::string("OTHER_VIEW"));
    request = CompareRequest();
    request.set_node_id("db-9");
    QCOMPARE(compare(request), std::string("OTHER_VIEW"));
    request = CompareRequest();
    request.set_node_id("db-1");
    QCOMPARE(compare(request), std::string("OTHER_VIEW"));
    request = CompareRequest();
    request.add_digests(0);
    QCOMPARE(compare(request), std::string("BAD_DIGESTS"));

    v1::SendJobsRequest wanted;
    wanted.set_cluster_id("test");
    wanted.set_node_id("db-2");
    wanted.add_records(std::string(16, 'x'));  // The database does not have it and skips it.
    QCOMPARE(send(wanted), std::string());
    wanted.add_results("short");
    QCOMPARE(send(wanted), std::string("BAD_UID"));
    wanted.clear_results();
    for (int i = 0; i < AntiEntropy::kMaxUidsPerCall; ++i) wanted.add_records(std::string(16, 'x'));
    QCOMPARE(send(wanted), std::string("TOO_MANY_JOBS"));
    wanted.set_cluster_id("");
    QCOMPARE(send(wanted), std::string("OTHER_CLUSTER"));

    v1::ReplicateJobsRequest records;
    *records.add_records() = NewRecord();
    records.set_cluster_id("another");
    QCOMPARE(Reason(rpc::Call(stub, &Stub::ReplicateJobs, records, 5s).status()),
             std::string("OTHER_CLUSTER"));
    QCOMPARE(database.node->store().stats().records, 0);
    cluster.Forget("db-2");
  }

  void NonsenseAnswers_AreNotTrusted() {
    DatabaseCluster cluster;
    FakePeer liar;
    liar.Open();
    auto& database = cluster.AddDatabase("db-1");
    const base::Uid uid = base::Uid::GenerateRandom();
    const auto job = [&](v1::CompareJobsResponse& answer) {
      v1::JobSummary& summary = *answer.add_jobs();
      summary.set_uid(std::string(uid.bytes().begin(), uid.bytes().end()));
      summary.set_has_bytes(true);
    };
    std::vector<v1::CompareJobsResponse> answers(5);
    answers[0].add_buckets(kBuckets);
    answers[1].add_buckets(3);
    answers[1].add_buckets(3);
    job(answers[2]);  // The job's bucket is not covered by the answer.
    answers[3].add_buckets(BucketOf(uid));
    job(answers[3]);
    job(answers[3]);
    answers[4].add_buckets(BucketOf(uid));
    answers[4].add_jobs()->set_uid("short");
    v1::Endpoint peer;
    peer.set_node_id("db-2");
    peer.set_address(liar.address());
    // Of two databases only the later one asks by itself, and this peer never does.
    cluster.Announce("db-2", 1'000'000, liar.address());
    for (const v1::CompareJobsResponse& answer : answers) {
      liar.Answer(answer);
      const auto compared = database.node->anti_entropy().CompareWith(peer);
      QCOMPARE(Reason(compared.status()), std::string("BAD_ANSWER"));
    }
    QCOMPARE(database.node->anti_entropy().stats().nonsense, answers.size());
    QCOMPARE(liar.asked(), 0);
    liar.Answer({});
    QCOMPARE(database.node->anti_entropy().CompareWith(peer).value(), true);
    cluster.Forget("db-2");
  }

  void KillsAndRejoins_LoseNoResultThatWasAnnounced_data() {
    QTest::addColumn<int>("databases");
    QTest::newRow("2") << 2;
    QTest::newRow("3") << 3;
  }
  void KillsAndRejoins_LoseNoResultThatWasAnnounced() {
    QFETCH(int, databases);
    const unsigned seed = std::random_device{}();
    qInfo("seed %u", seed);
    std::mt19937 random(seed);
    DatabaseCluster cluster;
    std::vector<std::string> ids;
    for (int i = 1; i <= databases; ++i) {
      ids.push_back("db-" + std::to_string(i));
      cluster.AddDatabase(ids.back());
    }
    std::map<base::Uid, std::string> sent;  // SHA-256 of what was sent.
    // Results that nobody had announced at some kill. Such a result can die with its only database.
    std::set<base::Uid> at_risk;
    std::size_t succeeded = 0;
    constexpr int kRounds = 6;
    constexpr int kJobs = 20;
    for (int round = 0; round < kRounds; ++round) {
      const std::string victim = ids[random() % ids.size()];
      const int when = static_cast<int>(random() % kJobs);
      for (int i = 0; i < kJobs; ++i) {
        if (i == when) {
          for (const auto& [uid, sha256] : sent) {
            const auto record = cluster.records().Get(uid);
            if (!record.ok() || record->job().state() != Job::SUCCEEDED) at_risk.insert(uid);
          }
          cluster.Kill(victim);
          cluster.Forget(victim);
        }
        const v1::JobRecord record = NewRecord();
        std::string bytes(1 + random() % 100'000, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        QVERIFY(cluster.records().Create(record).ok());
        QVERIFY(cluster.SendResult(record.job().uid(), bytes).ok());
        sent[UidOf(record)] = base::Sha256Hex(bytes);
      }
      cluster.AddDatabase(victim);
      succeeded = 0;
      // Each result has two copies again.
      QVERIFY(Eventually([&] {
        succeeded = 0;
        for (const auto& [uid, sha256] : sent) {
          const auto record = cluster.records().Get(uid);
          if (!record.ok() || record->job().state() != Job::SUCCEEDED) continue;
          ++succeeded;
          const auto order = cluster.Order(uid.ToString());
          if (!HasBytes(cluster, order[0], uid) || !HasBytes(cluster, order[1], uid)) return false;
        }
        return succeeded > 0;
      }));
    }
    for (const auto& [uid, sha256] : sent) {
      const auto record = cluster.records().Get(uid);
      if (!record.ok() || record->job().state() != Job::SUCCEEDED) continue;
      const auto bytes = Fetch(cluster, uid);
      QVERIFY2(bytes.ok(), bytes.status().ToString().c_str());
      QCOMPARE(base::Sha256Hex(*bytes), sha256);
    }
    qInfo("%zu of %zu results were announced, each is intact; %zu were at risk", succeeded,
          sent.size(), at_risk.size());
    QVERIFY(Eventually([&] {
      return std::ranges::all_of(sent, [&](const auto& entry) {
        if (at_risk.contains(entry.first)) return true;
        const auto record = cluster.records().Get(entry.first);
        return record.ok() && record->job().state() == Job::SUCCEEDED;
      });
    }));
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::ReplicationTest)
#include "replication_test.moc"
