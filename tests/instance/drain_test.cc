#include "stages/instance/drain.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::instance {

class DrainTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Orders_PassOnAtOnceAndHandOverLater() {
    base::ManualClock clock;
    Drain drain(clock, std::chrono::seconds(30));
    drain.Look(3, true);
    QVERIFY(!drain.active());
    QVERIFY(!drain.orders().pass_on);
    drain.Begin(7);
    QVERIFY(!drain.orders().pass_on);  // It is not known yet whether others serve the stage.
    drain.Look(3, true);
    QVERIFY(drain.orders().pass_on);
    QVERIFY(!drain.orders().hand_over);
    clock.Advance(std::chrono::milliseconds(29'999));
    drain.Begin(8);  // The same drain under a later epoch: its time goes on.
    QVERIFY(!drain.orders().hand_over);
    clock.Advance(std::chrono::milliseconds(1));
    QVERIFY(drain.orders().hand_over);
    drain.End();
    QVERIFY(!drain.orders().pass_on);
    QVERIFY(!drain.orders().hand_over);
  }

  void Orders_NobodyElseServes_EverythingIsComputedHere() {
    base::ManualClock clock;
    Drain drain(clock, std::chrono::seconds(30));
    drain.Begin(7);
    drain.Look(3, true);
    clock.Advance(std::chrono::minutes(5));
    drain.Look(3, false);
    QVERIFY(!drain.orders().pass_on);
    QVERIFY(!drain.orders().hand_over);
  }

  void Drained_NeedsTwoLooksAndIsTakenBack() {
    base::ManualClock clock;
    Drain drain(clock, std::chrono::seconds(30));
    QVERIFY(!drain.Look(0, true));
    QVERIFY(!drain.Look(0, true));
    QVERIFY(!drain.drained().has_value());
    drain.Begin(7);
    QVERIFY(!drain.Look(0, true));
    QVERIFY(!drain.drained().has_value());
    QVERIFY(drain.Look(0, true));
    QCOMPARE(drain.drained().value_or(0), std::uint64_t{7});
    QVERIFY(!drain.Look(0, true));  // Nothing new.
    QVERIFY(drain.Look(1, true));   // Something came late.
    QVERIFY(!drain.drained().has_value());
    drain.Look(0, true);
    drain.Look(0, true);
    drain.Begin(9);
    QCOMPARE(drain.drained().value_or(0), std::uint64_t{9});
    drain.End();
    QVERIFY(!drain.drained().has_value());
    drain.Begin(10);  // A new drain starts from zero.
    QVERIFY(!drain.drained().has_value());
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::DrainTest)
#include "drain_test.moc"
