#include <QTemporaryDir>
#include <QtTest>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/node/routing_delta.h"
#include "tests/nodemanager/service/served_node_manager.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::Node NodeOf(const std::string& id, const std::string& workflow_set) {
  v1::Node node = MakeNode(id, v1::PROXY);
  node.set_workflow_set(workflow_set);
  return node;
}

v1::WatchRoutingRequest WatchRoutingOf(const std::string& workflow_set, bool takes_deltas = true,
                                       std::uint64_t start_epoch = 0) {
  v1::WatchRoutingRequest request;
  request.set_workflow_set(workflow_set);
  request.set_takes_deltas(takes_deltas);
  request.set_start_epoch(start_epoch);
  return request;
}

}  // namespace

class WatchesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    server_ = std::make_unique<ServedNodeManager>(dir_->path().toStdString());
  }
  void cleanup() { server_.reset(); }

  void Routing_ComesWholeAndThenAsChanges() {
    QVERIFY(server_->Register(NodeOf("a", "default")).ok());
    RoutingReader changes(*server_, &Stub::WatchRouting, WatchRoutingOf(""));
    RoutingReader whole(*server_, &Stub::WatchRouting, WatchRoutingOf("", /*takes_deltas=*/false));
    v1::RoutingTable table = changes.Next();
    QCOMPARE(table.base_epoch(), std::uint64_t{0});
    QVERIFY(server_->Register(NodeOf("b", "default")).ok());
    const v1::RoutingTable delta = changes.Next();
    QCOMPARE(delta.base_epoch(), table.epoch());
    QCOMPARE(delta.alive_size(), 1);
    QVERIFY(node::ApplyRoutingDelta(delta, table).ok());
    const v1::RoutingTable same =
        whole.Next([&](const v1::RoutingTable& each) { return each.epoch() == table.epoch(); });
    QCOMPARE(same.base_epoch(), std::uint64_t{0});
    QCOMPARE(base::CanonicalBytes(same), base::CanonicalBytes(table));
  }

  void Routing_ToWhomKnowsIt_IsNotSentAgain() {
    QVERIFY(server_->Register(NodeOf("a", "default")).ok());
    const v1::RoutingTable table =
        RoutingReader(*server_, &Stub::WatchRouting, WatchRoutingOf("")).Next();
    const v1::RoutingTable again =
        RoutingReader(*server_, &Stub::WatchRouting, WatchRoutingOf("", true, table.epoch()))
            .Next();
    QCOMPARE(again.base_epoch(), table.epoch());
    QCOMPARE(again.epoch(), table.epoch());
    QCOMPARE(again.alive_size(), 0);
  }

  // What it has is older than the changes that are kept.
  void Routing_ToWhomIsTooFarBehind_IsASnapshotAndCounted() {
    for (const char* id : {"a", "b", "c"}) QVERIFY(server_->Register(NodeOf(id, "default")).ok());
    QCOMPARE(server_->service().watch_counters().snapshots, std::uint64_t{0});
    RoutingReader reader(*server_, &Stub::WatchRouting, WatchRoutingOf("", true, 1));
    QCOMPARE(reader.Next().base_epoch(), std::uint64_t{0});
    QVERIFY(testing::Eventually(
        kLimit, [&] { return server_->service().watch_counters().snapshots == 1; }));
  }

  void SlowWatcher_IsCountedUntilItHasReadAll() {
    RoutingReader reader(*server_, &Stub::WatchRouting, WatchRoutingOf("", false));
    const auto slow = [&] { return server_->service().watch_counters().slow; };
    // It does not read, so the stream is full at last.
    int nodes = 0;
    QVERIFY(testing::Eventually(kLimit, [&] {
      const std::string id = absl::StrCat(std::string(50, 'n'), ++nodes);
      return server_->Register(NodeOf(id, "default")).ok() && slow() == 1;
    }));
    (void)reader.Next([&](const v1::RoutingTable& table) { return table.alive_size() == nodes; });
    QVERIFY(testing::Eventually(kLimit, [&] { return slow() == 0; }));
  }

  void Routing_OfOneSet_IsNotSentForAnother() {
    QVERIFY(server_->Register(NodeOf("a", "near")).ok());
    QVERIFY(server_->Register(NodeOf("b", "far")).ok());
    RoutingReader near(*server_, &Stub::WatchRouting, WatchRoutingOf("near"));
    RoutingReader far(*server_, &Stub::WatchRouting, WatchRoutingOf("far"));
    const v1::RoutingTable first = near.Next();
    QCOMPARE(far.Next().alive_size(), 1);
    QVERIFY(server_->Register(NodeOf("c", "far")).ok());
    QCOMPARE(far.Next().alive(0).node_id(), std::string("c"));
    QVERIFY(server_->Register(NodeOf("d", "near")).ok());
    // The next that "near" hears is its own change.
    const v1::RoutingTable next = near.Next();
    QCOMPARE(next.base_epoch(), first.epoch());
    QCOMPARE(next.alive(0).node_id(), std::string("d"));
  }

  void Report_OfWhoIsUnknownOrStale_CostsNoCommit() {
    QVERIFY(server_->Register(MakeNode("a", v1::PROXY, 8)).ok());
    const Controller::Counters before = server_->controller().counters();
    QCOMPARE(Reason(server_->Report(ReadyReport("nobody")).status()), std::string("NODE_UNKNOWN"));
    QCOMPARE(Reason(server_->Report(ReadyReport("a", 0, 7)).status()),
             std::string("STALE_INCARNATION"));
    const Controller::Counters after = server_->controller().counters();
    QCOMPARE(after.applied + after.refused + after.failed,
             before.applied + before.refused + before.failed);
  }

  // With a thread for each of them, 256 streams would take every thread that the server has.
  void Streams_CostNoThreads() {
    QVERIFY(server_->Register(NodeOf("a", "default")).ok());
    std::vector<std::unique_ptr<RoutingReader>> readers;
    for (int i = 0; i < 600; ++i) {
      readers.push_back(
          std::make_unique<RoutingReader>(*server_, &Stub::WatchRouting, WatchRoutingOf("")));
    }
    for (const auto& reader : readers) QCOMPARE(reader->Next().alive_size(), 1);
    QCOMPARE(server_->service().streams(), std::size_t{600});
    QVERIFY(server_->Register(NodeOf("b", "default")).ok());
    for (const auto& reader : readers)
      QCOMPARE(reader->Next().alive(0).node_id(), std::string("b"));
    readers.clear();
    QTRY_COMPARE_WITH_TIMEOUT(server_->service().streams(), std::size_t{0}, 20000);
  }

  // Each of many nodes has to take each table in, so a storm of changes is told in few messages.
  void Routing_OfAStorm_IsToldInFewMessages() {
    constexpr int kReaders = 300, kChanges = 20;
    QVERIFY(server_->Register(NodeOf("a", "default")).ok());
    std::vector<std::unique_ptr<RoutingReader>> readers;
    for (int i = 0; i < kReaders; ++i) {
      readers.push_back(
          std::make_unique<RoutingReader>(*server_, &Stub::WatchRouting, WatchRoutingOf("")));
    }
    for (const auto& reader : readers) (void)reader->Next();
    for (int i = 0; i < kChanges; ++i) {
      v1::Command command = RegisterCommand(NodeOf(absl::StrCat("n-", i), "default"));
      QVERIFY(server_->controller().Propose(std::move(command)).ok());
    }
    std::uint64_t epoch = 0;
    server_->controller().Read(
        [&](const StateMachine& state) { epoch = state.EpochOf("default"); });
    int messages = 0, told = 0;
    readers.front()->Next([&](const v1::RoutingTable& table) {
      ++messages;
      told += table.alive_size();
      return table.epoch() == epoch;
    });
    QCOMPARE(told, kChanges);
    QVERIFY2(messages <= kChanges / 2, std::to_string(messages).c_str());
    for (const auto& reader : readers) {
      if (reader != readers.front())
        (void)reader->Next([&](const v1::RoutingTable& table) { return table.epoch() == epoch; });
    }
  }

  void Streams_AreSharedOut() {
    std::vector<std::unique_ptr<ClusterReader>> readers;
    for (int i = 0; i < 4; ++i) {
      readers.push_back(std::make_unique<ClusterReader>(*server_, &Stub::WatchCluster,
                                                        v1::WatchClusterRequest()));
      QVERIFY(readers.back()->Next().has_snapshot());
    }
    ClusterReader one_more(*server_, &Stub::WatchCluster, {});
    QCOMPARE(Reason(one_more.Finish()), std::string("TOO_MANY_STREAMS"));
    // The streams of nodes have places of their own.
    QCOMPARE(RoutingReader(*server_, &Stub::WatchRouting, WatchRoutingOf("")).Next().alive_size(),
             0);
    readers.clear();
    QTRY_COMPARE_WITH_TIMEOUT(server_->service().streams(), std::size_t{0}, 20000);
  }

 private:
  std::unique_ptr<QTemporaryDir> dir_;
  std::unique_ptr<ServedNodeManager> server_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::WatchesTest)
#include "watches_test.moc"
