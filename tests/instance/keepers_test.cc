#include "stages/instance/keepers.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

node::Routing TableOf(std::uint64_t epoch) {
  v1::RoutingTable table;
  table.set_epoch(epoch);
  table.set_workflow_set("set-1");
  v1::Endpoint& keeper = *table.add_alive();
  keeper.set_node_id("p1");
  keeper.set_incarnation(2);
  return node::Routing(table);
}

message::Header KeptBy(const std::string& keeper, std::uint64_t incarnation,
                       std::uint64_t epoch = 3) {
  message::Header header;
  header.keeper = keeper;
  header.keeper_incarnation = incarnation;
  header.routing_epoch = epoch;
  return header;
}

}  // namespace

class KeepersTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void IsKept_OnlyByALivingNodeThatIsAnother() {
    const node::Routing table = TableOf(3);
    QVERIFY(IsKept(KeptBy("p1", 2), table, "i1"));
    QVERIFY(!IsKept(KeptBy("", 0), table, "i1"));
    QVERIFY(!IsKept(KeptBy("p1", 2), table, "p1"));
    QVERIFY(!IsKept(KeptBy("p1", 1), table, "i1"));  // It has died and come back.
    QVERIFY(!IsKept(KeptBy("p2", 1), table, "i1"));
    // The sender's table was newer than this one, which need not know the keeper yet.
    QVERIFY(IsKept(KeptBy("p2", 1, 4), table, "i1"));
  }

  void IsKept_AJoinNeedsAllItsParts() {
    const node::Routing table = TableOf(3);
    runtime::WorkItem item;
    item.message.header = KeptBy("p1", 2);
    QVERIFY(IsKept(item, table, "i1"));
    item.parts.resize(2);
    item.parts[0].header = KeptBy("p1", 2);
    QVERIFY(!IsKept(item, table, "i1"));
    item.parts[1].header = KeptBy("p1", 2);
    QVERIFY(IsKept(item, table, "i1"));
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::KeepersTest)
#include "keepers_test.moc"
