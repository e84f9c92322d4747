#include "cluster/node/cluster_view.h"

#include <QtTest>
#include <atomic>
#include <thread>
#include <utility>

#include "tests/test_main.h"

namespace onepiece::node {
namespace {

std::shared_ptr<const Routing> TableOf(std::uint64_t epoch) {
  v1::RoutingTable table;
  table.set_epoch(epoch);
  return std::make_shared<const Routing>(std::move(table));
}

}  // namespace

class ClusterViewTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Services read the view before there is an agent.
  void New_IsEmptyAndReadable() {
    const ClusterView view;
    QVERIFY(view.routing() != nullptr);
    QCOMPARE(view.routing()->epoch(), std::uint64_t{0});
    QCOMPARE(view.incarnation(), std::uint64_t{0});
    QCOMPARE(view.self().node_id(), std::string());
    QCOMPARE(view.cluster_id(), std::string());
    QCOMPARE(view.cluster_secret(), std::string());
  }

  void Set_IsWhatIsRead() {
    ClusterView view;
    v1::Endpoint self;
    self.set_node_id("i1");
    self.set_address("127.0.0.1:7");
    self.set_incarnation(77);
    view.SetSelf(self);
    view.SetCluster("cluster", "secret");
    view.SetRouting(TableOf(3));
    QCOMPARE(view.self().node_id(), std::string("i1"));
    QCOMPARE(view.self().address(), std::string("127.0.0.1:7"));
    QCOMPARE(view.incarnation(), std::uint64_t{77});
    QCOMPARE(view.cluster_id(), std::string("cluster"));
    QCOMPARE(view.cluster_secret(), std::string("secret"));
    QCOMPARE(view.routing()->epoch(), std::uint64_t{3});
  }

  // A delivery that is under way keeps the table that it began with.
  void Routing_OfAReader_OutlivesTheNextTable() {
    ClusterView view;
    view.SetRouting(TableOf(1));
    const std::shared_ptr<const Routing> kept = view.routing();
    view.SetRouting(TableOf(2));
    QCOMPARE(kept->epoch(), std::uint64_t{1});
    QCOMPARE(view.routing()->epoch(), std::uint64_t{2});
  }

  void Readers_SeeWholeTablesWhileTheyChange() {
    constexpr std::uint64_t kLast = 2000;
    ClusterView view;
    std::atomic<bool> backwards = false;
    {
      std::vector<std::jthread> readers;
      for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
          std::uint64_t seen = 0;
          while (seen < kLast) {
            const std::uint64_t now = view.routing()->epoch();
            if (now < seen || view.incarnation() > kLast) backwards = true;
            seen = now;
          }
        });
      }
      for (std::uint64_t epoch = 1; epoch <= kLast; ++epoch) {
        v1::Endpoint self;
        self.set_incarnation(epoch);
        view.SetSelf(std::move(self));
        view.SetRouting(TableOf(epoch));
      }
    }
    QVERIFY(!backwards);
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::ClusterViewTest)
#include "cluster_view_test.moc"
