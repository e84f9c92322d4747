// Tests how proxies share the capacity of their workflow set.
#include "cluster/capacity/shares.h"

#include <QtTest>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/test_main.h"

namespace onepiece::capacity {
namespace {

double Sum(const std::vector<double>& shares) {
  return std::accumulate(shares.begin(), shares.end(), 0.0);
}

}  // namespace

class SharesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void oneOfTenThatIsAskedForEverythingHasIt() {
    std::vector<double> wanted(10, 0);
    wanted[3] = 40;
    const std::vector<double> shares = Shares(wanted, 2);
    QCOMPARE(shares[3], 1.0);
    QCOMPARE(shares[0], kIdleShare / 10);
    QVERIFY(Sum(shares) <= 1 + kIdleShare);
  }

  void underOverloadProxiesShareAsTheyAreAskedFor() {
    const std::vector<double> wanted{6, 3, 1};
    const std::vector<double> shares = Shares(wanted, 1);
    for (int i = 0; i < 3; ++i) QVERIFY(std::abs(shares[i] - wanted[i] / 10) < 1e-12);
  }

  // Whoever is asked for something gets what it is asked for and a quarter more, and a newcomer an
  // equal part of what is free.
  void whatNobodyAsksForIsSharedEqually() {
    const std::vector<double> wanted{2, 0, 0, 0};
    const std::vector<double> shares = Shares(wanted, 0.4);
    QVERIFY(std::abs(shares[0] - (0.5 + 0.125)) < 1e-12);
    QVERIFY(std::abs(shares[1] - 0.125) < 1e-12);
    QVERIFY(std::abs(Sum(shares) - 1) < 1e-12);
  }

  void withoutDemandAllAreEqual() {
    QCOMPARE(Shares(std::vector<double>(4, 0), 0), std::vector<double>(4, 0.25));
    QCOMPARE(Shares(std::vector<double>(4, 0), 5), std::vector<double>(4, 0.25));
    QVERIFY(Shares({}, 1).empty());
  }

  void nonsenseCountsAsNothing() {
    constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> wanted{-5, kNotANumber, std::numeric_limits<double>::infinity(), 2};
    for (const double load : {kNotANumber, -1.0, 0.0, 0.5, 1e300}) {
      const std::vector<double> shares = Shares(wanted, load);
      for (const double share : shares) QVERIFY(share >= kIdleShare / 4 && share <= 1);
      QVERIFY(Sum(shares) <= 1 + kIdleShare);
    }
  }
};

}  // namespace onepiece::capacity

ONEPIECE_TEST(onepiece::capacity::SharesTest)
#include "shares_test.moc"
