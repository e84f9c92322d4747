#include "cluster/node/shared_routings.h"

#include <QtTest>

#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

v1::RoutingTable TableOf(std::uint64_t epoch, const std::string& node_id) {
  v1::RoutingTable table;
  table.set_epoch(epoch);
  v1::Endpoint& node = *table.add_alive();
  node.set_node_id(node_id);
  node.set_incarnation(1);
  return table;
}

v1::RoutingTable DeltaOf(std::uint64_t base_epoch, const std::string& node_id) {
  v1::RoutingTable delta = TableOf(base_epoch + 1, node_id);
  delta.set_base_epoch(base_epoch);
  return delta;
}

}  // namespace

class SharedRoutingsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void SameTableAndSameChange_AreMadeOnce() {
    SharedRoutings shared;
    const auto first = shared.Whole(TableOf(1, "a"));
    QCOMPARE(shared.Whole(TableOf(1, "a")), first);
    const auto second = shared.Changed(first, DeltaOf(1, "b"));
    QVERIFY(second.ok());
    QCOMPARE(shared.Changed(first, DeltaOf(1, "b")).value(), *second);
    QCOMPARE(shared.made(), std::size_t{2});
    QCOMPARE((*second)->epoch(), std::uint64_t{2});
    QVERIFY((*second)->IsAlive("a", 1) && (*second)->IsAlive("b", 1));
  }

  void OtherTableOrOtherChange_IsNotTakenForIt() {
    SharedRoutings shared;
    const auto first = shared.Whole(TableOf(1, "a"));
    QVERIFY(shared.Whole(TableOf(1, "z")) != first);
    QVERIFY(shared.Changed(first, DeltaOf(1, "b")).value()->IsAlive("b", 1));
    QVERIFY(shared.Changed(first, DeltaOf(1, "c")).value()->IsAlive("c", 1));
    // The same epochs in another cluster.
    const auto other = std::make_shared<const Routing>(TableOf(1, "z"));
    const auto changed = shared.Changed(other, DeltaOf(1, "b"));
    QVERIFY((*changed)->IsAlive("z", 1) && !(*changed)->IsAlive("a", 1));
  }

  void ChangeOfAnotherTable_IsRefused() {
    SharedRoutings shared;
    const auto first = shared.Whole(TableOf(1, "a"));
    QCOMPARE(Reason(shared.Changed(first, DeltaOf(2, "b")).status()), std::string("OTHER_BASE"));
    QCOMPARE(shared.made(), std::size_t{1});
  }

  void OldTables_AreLetGo() {
    SharedRoutings shared;
    const std::weak_ptr<const Routing> first = shared.Whole(TableOf(1, "a"));
    for (std::size_t i = 0; i < SharedRoutings::kKept; ++i) (void)shared.Whole(TableOf(2 + i, "a"));
    QVERIFY(first.expired());
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::SharedRoutingsTest)
#include "shared_routings_test.moc"
