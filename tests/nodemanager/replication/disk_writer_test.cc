#include "nodemanager/replication/disk_writer.h"

#include <QTemporaryDir>
#include <QtTest>
#include <atomic>

#include "tests/eventually.h"
#include "tests/nodemanager/replication/durable.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

paxos::Writes WritesAt(std::uint64_t slot) {
  paxos::Writes writes;
  writes.accepted.push_back(CommandAt(paxos::Slot{slot}, 1, "x"));
  return writes;
}

}  // namespace

class DiskWriterTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Batch_IsDurableWhenItsResultIsThere_data() {
    QTest::addColumn<bool>("on_own_thread");
    QTest::newRow("on its own thread") << true;
    QTest::newRow("on the caller's") << false;
  }
  void Batch_IsDurableWhenItsResultIsThere() {
    QFETCH(const bool, on_own_thread);
    const QTemporaryDir dir;
    auto store = Store::Open(dir.path().toStdString());
    QVERIFY(store.ok() && (*store)->Create(kIdentity, NewState()).ok());
    std::atomic<int> done{0};
    {
      DiskWriter writer([&] { ++done; });
      QVERIFY(!writer.busy() && !writer.TakeResult());
      writer.Begin(**store, WritesAt(1), on_own_thread);
      QVERIFY(writer.busy());
      QVERIFY(writer.Wait().ok());
      QVERIFY(!writer.busy() && !writer.TakeResult());
      // A gap: the store refuses it.
      writer.Begin(**store, WritesAt(3), on_own_thread);
      std::optional<absl::Status> result;
      QVERIFY(testing::Eventually([&] { return (result = writer.TakeResult()).has_value(); }));
      QCOMPARE(Reason(*result), std::string("BAD_WRITES"));
      QVERIFY(!writer.busy());
    }
    QCOMPARE(done.load(), on_own_thread ? 2 : 0);
    store->reset();
    store = Store::Open(dir.path().toStdString());
    QVERIFY(store.ok());
    QCOMPARE((*store)->TakeState().log.size(), std::size_t{1});
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::DiskWriterTest)
#include "disk_writer_test.moc"
