// Histories of the consensus core: the first 10^3, with ONEPIECE_LONG=1 10^5 fresh ones, fewer
// under a sanitizer. ONEPIECE_SEED gives the first seed; docs/simulation.md says how to replay one.
#include <QtTest>
#include <sstream>
#include <thread>

#include "cluster/base/ids.h"
#include "tests/nodemanager/sim/report.h"

namespace onepiece::paxos::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

bool LongRun() { return qEnvironmentVariableIntValue("ONEPIECE_LONG") != 0; }

std::uint64_t Count() {
  if (kSanitized) return 100;
  return LongRun() ? 100'000 : 1'000;
}

std::uint64_t FirstSeed() {
  const QByteArray given = qgetenv("ONEPIECE_SEED");
  if (!given.isEmpty()) return given.toULongLong();
  return LongRun() ? base::RandomU64() % 1'000'000'000'000 : 1;
}

}  // namespace

class SimulationTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void initTestCase() { NameSeedOnAbort(); }

  void Seeds_KeepEveryInvariant() {
    const std::uint64_t first = FirstSeed();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(first));
    const NamedMutant& none = *FindMutant("none");
    const Report report = RunSeeds(first, Count(), std::thread::hardware_concurrency(), none);
    qInfo("%s", report.Text().c_str());
    if (report.failure) QFAIL(Explain(*report.failure, none).c_str());
    QCOMPARE(report.seeds, Count());
    QVERIFY(report.median_delivered >= 2'000);
    QVERIFY(report.median_leader_changes >= 3);
    // Some are rare: a hundred histories do not have them all.
    for (const std::string& fault : kSanitized ? std::vector<std::string>() : report.NeverFired()) {
      QFAIL(("this never happened: " + fault).c_str());
    }
    QVERIFY(report.sum.unknown > 0);
    QVERIFY(report.sum.lease_reads > 0);
    QVERIFY(report.sum.log_reads > 0);
    QVERIFY(report.sum.retries_remembered > 0);
    QVERIFY(report.sum.snapshots_installed > 0);
    QVERIFY(report.sum.membership_changes > 0);
  }

  void OneSeed_IsOneHistory() {
    std::ostringstream first;
    std::ostringstream second;
    const NamedMutant& none = *FindMutant("none");
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      RunSeed(seed, none, &first);
      RunSeed(seed, none, &second);
      // Whoever listens changes nothing.
      RunSeed(seed, none, nullptr);
    }
    QVERIFY(first.str().size() > 100'000);
    QCOMPARE(first.str(), second.str());
  }
};

}  // namespace onepiece::paxos::sim

QTEST_GUILESS_MAIN(onepiece::paxos::sim::SimulationTest)
#include "simulation_test.moc"
