#include "nodemanager/service/routing_history.h"

#include <QtTest>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/node/routing_delta.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::RoutingTable TableOf(std::uint64_t epoch, int nodes) {
  v1::RoutingTable table;
  table.set_epoch(epoch);
  table.set_workflow_set("default");
  for (int i = 0; i < nodes; ++i) {
    v1::Endpoint& endpoint = *table.add_alive();
    endpoint.set_node_id(absl::StrCat("node-", 1000 + i));
    endpoint.set_incarnation(1);
  }
  return table;
}

v1::RoutingTable Parsed(RoutingHistory::Message message) {
  v1::RoutingTable table;
  if (!grpc::SerializationTraits<v1::RoutingTable>::Deserialize(&message.bytes, &table).ok())
    qFatal("not a table");
  if (table.epoch() != message.epoch) qFatal("the message leads to another epoch");
  return table;
}

}  // namespace

class RoutingHistoryTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Next_LeadsFromAnyKnownTableToTheNewestInOneStep() {
    RoutingHistory history;
    QVERIFY(!history.epoch());
    const std::vector<std::uint64_t> epochs = {3, 5, 6, 9};
    for (const std::uint64_t epoch : epochs)
      history.Update(TableOf(epoch, 50 + static_cast<int>(epoch)));
    const std::string newest = base::CanonicalBytes(TableOf(9, 59));
    for (const std::uint64_t epoch : epochs) {
      v1::RoutingTable late = TableOf(epoch, 50 + static_cast<int>(epoch));
      const v1::RoutingTable next = Parsed(history.Next(epoch));
      QCOMPARE(next.base_epoch(), epoch);
      QVERIFY(node::ApplyRoutingDelta(next, late).ok());
      QCOMPARE(base::CanonicalBytes(late), newest);
    }
    QCOMPARE(base::CanonicalBytes(Parsed(history.Next(0))), newest);
    QCOMPARE(base::CanonicalBytes(Parsed(history.Whole())), newest);
  }

  void Next_ToWhomHasTheNewest_SaysJustThat() {
    RoutingHistory history;
    history.Update(TableOf(3, 50));
    const v1::RoutingTable same = Parsed(history.Next(3));
    QCOMPARE(same.base_epoch(), std::uint64_t{3});
    QCOMPARE(same.alive_size(), 0);
  }

  void Next_FromAnUnknownTable_IsWhole() {
    RoutingHistory history;
    history.Update(TableOf(3, 50));
    history.Update(TableOf(4, 51));
    for (std::uint64_t known : {2, 7}) {
      const v1::RoutingTable whole = Parsed(history.Next(known));
      QCOMPARE(whole.base_epoch(), std::uint64_t{0});
      QCOMPARE(whole.alive_size(), 51);
    }
  }

  // Whoever has no node in its table hears all of them anyway.
  void Next_ChangesAsLongAsTheTable_IsWhole() {
    RoutingHistory history;
    history.Update(TableOf(1, 0));
    history.Update(TableOf(2, 100));
    QCOMPARE(Parsed(history.Next(1)).base_epoch(), std::uint64_t{0});
  }

  void Update_LetsOldTablesGo() {
    RoutingHistory history;
    constexpr std::uint64_t kept = RoutingHistory::kKept;
    for (std::uint64_t epoch = 1; epoch <= kept + 1; ++epoch)
      history.Update(TableOf(epoch, 50 + static_cast<int>(epoch)));
    QCOMPARE(Parsed(history.Next(1)).base_epoch(), std::uint64_t{0});
    QCOMPARE(Parsed(history.Next(2)).base_epoch(), std::uint64_t{2});
  }

  void Update_WithEarlierEpochs_ForgetsTheChanges() {
    RoutingHistory history;
    history.Update(TableOf(3, 50));
    history.Update(TableOf(4, 51));
    history.Update(TableOf(2, 10));
    QCOMPARE(Parsed(history.Next(3)).alive_size(), 10);
    QCOMPARE(Parsed(history.Next(4)).base_epoch(), std::uint64_t{0});
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::RoutingHistoryTest)
#include "routing_history_test.moc"
