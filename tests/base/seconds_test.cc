#include "cluster/base/seconds.h"

#include <QtTest>
#include <limits>

#include "tests/test_main.h"

namespace onepiece::base {

class SecondsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void FromSeconds_IsTheTimeToTheNanosecond_data() {
    QTest::addColumn<double>("seconds");
    QTest::addColumn<qlonglong>("nanoseconds");
    QTest::newRow("none") << 0.0 << qlonglong{0};
    QTest::newRow("one and a half") << 1.5 << qlonglong{1'500'000'000};
    QTest::newRow("back") << -0.25 << qlonglong{-250'000'000};
    QTest::newRow("not a whole number of them") << 0.1 << qlonglong{100'000'000};
    QTest::newRow("rounded") << 1.6e-9 << qlonglong{2};
    QTest::newRow("no number") << std::numeric_limits<double>::quiet_NaN() << qlonglong{0};
    const qlonglong century = qlonglong{100} * 365 * 24 * 3600 * 1'000'000'000;
    QTest::newRow("more than fits") << 1e300 << century;
    QTest::newRow("for ever") << std::numeric_limits<double>::infinity() << century;
    QTest::newRow("since ever") << -std::numeric_limits<double>::infinity() << -century;
  }
  void FromSeconds_IsTheTimeToTheNanosecond() {
    QFETCH(double, seconds);
    QFETCH(qlonglong, nanoseconds);
    QCOMPARE(static_cast<qlonglong>(FromSeconds(seconds).count()), nanoseconds);
  }

  void FromSeconds_WhatIsForEver_CanBeAddedToAnyTime() {
    const Duration ever = FromSeconds(std::numeric_limits<double>::infinity());
    const ManualClock clock;
    QVERIFY(clock.Now() + ever > clock.Now());
    QVERIFY(clock.WallNow() + ever > clock.WallNow());
  }

  void ToSeconds_IsWhatFromSecondsWasGiven() {
    for (const double seconds : {0.0, 1e-9, 0.37, -2.0, 86'400.0})
      QCOMPARE(ToSeconds(FromSeconds(seconds)), seconds);
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::SecondsTest)
#include "seconds_test.moc"
