// When a result counts while its second copy takes its time, and whether large results have one.
#include <QScopeGuard>
#include <QtTest>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/database/placement.h"
#include "tests/database/database_cluster.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

base::Uid IdOf(const v1::JobRecord& record) { return *base::Uid::Parse(record.job().uid()); }

message::Message ResultOf(const v1::JobRecord& record, std::size_t bytes) {
  message::Message result;
  result.header.kind = message::Kind::kResult;
  result.header.uid = IdOf(record);
  result.header.app = "app";
  result.header.ingress_time = job::FromTimestamp(record.job().create_time());
  result.header.deadline = base::SystemClock().Now() + job::FromProto(record.time_left());
  result.artifacts.push_back(message::BytesArtifact("video", "video/mp4", std::string(bytes, 'v')));
  result.artifacts[0].sha256 = base::Sha256Digest(result.artifacts[0].data.bytes());
  return result;
}

/// Rings that accept everything, but take no end of time to send to one node.
class SlowRings final : public node::Outbox {
 public:
  SlowRings(const node::ClusterView& view, std::string slow)
      : view_(view), slow_(std::move(slow)) {}
  absl::StatusOr<node::Delivered> Deliver(const message::Message&,
                                          const node::Destination& destination,
                                          base::MonotonicTime) override {
    if (destination.candidates(*view_.routing()).at(0).node_id() == slow_) {
      base::MutexLock lock(mutex_);
      closed_changed_.Wait(lock,
                           [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; });
    }
    return node::Delivered{};
  }
  absl::StatusOr<node::Delivered> DeliverInTurns(const message::Message& message,
                                                 const node::Destination& destination,
                                                 base::MonotonicTime deadline,
                                                 std::shared_ptr<node::OpenDelivery>&) override {
    return Deliver(message, destination, deadline);
  }
  void Close() override {
    const base::MutexLock lock(mutex_);
    closed_ = true;
    closed_changed_.NotifyAll();
  }
  [[nodiscard]] node::OutboxCounters counters() const override { return {}; }

 private:
  const node::ClusterView& view_;
  const std::string slow_;
  base::Mutex mutex_;
  base::CondVar closed_changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Publishes a table of these databases. Nobody is at their addresses.
void Publish(node::ClusterView& view, const std::vector<std::string>& ids) {
  v1::RoutingTable table;
  table.set_epoch(1);
  for (const std::string& id : ids) {
    v1::Endpoint endpoint;
    endpoint.set_node_id(id);
    endpoint.set_incarnation(1);
    endpoint.set_address("127.0.0.1:1");
    *table.add_databases() = *table.add_alive() = endpoint;
  }
  view.SetCluster("test", "secret");
  view.SetRouting(std::make_shared<const node::Routing>(table));
}

}  // namespace

class ResultCopiesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Result_WhoseCopyIsStillBeingSent_WaitsForIt() {
    base::ManualClock clock;
    node::ClusterView view;
    const std::vector<std::string> ids = {"db-1", "db-2", "db-3"};
    Publish(view, ids);
    const Places places = node::DatabasePlaces(view.routing()->table());
    Replicator replicator(view, {.node_id = "db-1"}, clock);
    JobStore store({}, clock, {});
    SlowRings rings(view, "db-2");
    const auto fabric =
        *fabric::Fabric::Open("shm://slow-" + base::Uid::GenerateRandom().ToString());
    values::ValuePeers values(*fabric, "db-1", clock);
    const auto stop = qScopeGuard([&] {
      rings.Close();
      replicator.Stop();
    });
    replicator.Start(store, {.outbox = rings, .values = values},
                     [&](const base::Uid& uid) { return store.Confirm(uid); });
    // Holds a result that db-1 and `other` keep.
    const auto hold = [&](const std::string& other) {
      v1::JobRecord record = NewRecord();
      while (!Keeps(IdOf(record), "db-1", places, 2) || !Keeps(IdOf(record), other, places, 2))
        record = NewRecord();
      job::SetTimeLimit(60s, clock.WallNow(), record);
      Require(store.Create(record).status());
      const auto bundle = MakeResultBundle(ResultOf(record, 5));
      Require(bundle.status());
      Require(store.StoreResult(*bundle, message::Kind::kResult, {.hold = true}).status());
      replicator.Hold(IdOf(record));
      return record;
    };
    const auto counts = [&](const v1::JobRecord& record) {
      return store.Get(record.job().uid())->job().state() == v1::Job::SUCCEEDED;
    };
    const v1::JobRecord slow = hold("db-2");
    const v1::JobRecord quick = hold("db-3");
    QVERIFY(Eventually([&] { return replicator.stats().results_sent == 1; }));
    // In small steps: a clock that jumps is that of a process which was stopped.
    const auto counts_in_time = [&](const v1::JobRecord& record) {
      return Eventually([&] {
        clock.Advance(base::Scaled(200ms));
        return counts(record);
      });
    };
    QVERIFY(counts_in_time(quick));
    QVERIFY(!counts(slow));
    QVERIFY(Eventually([&] { return replicator.confirmed_alone() == 1; }));
    QVERIFY(counts_in_time(slow));
    QVERIFY(Eventually([&] { return replicator.confirmed_alone() == 2; }));
  }

  // A ring of 1 MiB takes messages of up to half of that. All of these are larger.
  void LargeResult_HasTwoCopiesWhenItCounts_data() {
    QTest::addColumn<int>("bytes");
    for (const int bytes : {700'000, 1'500'000, 40'000'000}) QTest::addRow("%d", bytes) << bytes;
  }
  void LargeResult_HasTwoCopiesWhenItCounts() {
    QFETCH(int, bytes);
    DatabaseCluster cluster;
    const DatabaseCluster::Setup small_rings = {
        .options = [](DatabaseNodeOptions& options) { options.inbox.capacity_bytes = 1 << 20; }};
    for (const char* id : {"db-1", "db-2"}) cluster.AddDatabase(id, {}, small_rings);
    const v1::JobRecord record = NewRecord();
    QVERIFY(cluster.records().Create(record).ok());
    const std::string taker = cluster.Order(record.job().uid())[0];
    values::ValuePeers writer(cluster.fabric(), "inst");
    const auto stored = writer.At(cluster.at(taker).server->address())
                            ->Put(ResultOf(record, static_cast<std::size_t>(bytes)),
                                  base::SystemClock().Now() + base::Scaled(20s));
    QVERIFY2(stored.ok() && *stored, stored.status().ToString().c_str());
    QVERIFY(Eventually([&] {
      return cluster.at(taker).node->store().Get(record.job().uid())->job().state() ==
             v1::Job::SUCCEEDED;
    }));
    for (const char* id : {"db-1", "db-2"}) {
      QVERIFY(cluster.at(id).node->store().FindResult(IdOf(record)) != nullptr);
      QCOMPARE(cluster.at(id).node->replicator().confirmed_alone(), std::uint64_t{0});
    }
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::ResultCopiesTest)
#include "result_copies_test.moc"
