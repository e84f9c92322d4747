// Which messages count as sent by the workflow set that the instance has left.
#include "stages/instance/former_set.h"

#include <QtTest>

#include "cluster/message/sender_name.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

std::shared_ptr<const node::Routing> TableOf(const std::vector<std::string>& alive) {
  v1::RoutingTable table;
  for (const std::string& id : alive) table.add_alive()->set_node_id(id);
  return std::make_shared<const node::Routing>(table);
}

}  // namespace

class FormerSetTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Sender_IsKnownByAnyNodeId_data() {
    QTest::addColumn<int>("bytes");
    for (const int bytes : {10, 63, 64, 128}) QTest::addRow("%d bytes", bytes) << bytes;
  }
  void Sender_IsKnownByAnyNodeId() {
    QFETCH(int, bytes);
    std::string id = "host.";
    id.resize(static_cast<std::size_t>(bytes), 'n');
    const FormerSet former(TableOf({"another", id}), base::SystemClock());
    message::Header header;
    header.sender = message::SenderName(id);
    QVERIFY(former.Sent(header, *TableOf({"another"})));
    QVERIFY(!former.Sent(header, *TableOf({"another", id})));
    header.sender = message::SenderName(id + "-2");
    QVERIFY(!former.Sent(header, *TableOf({"another"})));
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::FormerSetTest)
#include "former_set_test.moc"
