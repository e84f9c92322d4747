// Runs histories of the consensus core: the first 10^3, and 10^4 fresh ones (10^5 with
// ONEPIECE_LONG=1), fewer under a sanitizer. ONEPIECE_SEED sets the first fresh seed.
// docs/simulation.md says how to replay a seed.
#include <QtTest>
#include <sstream>
#include <thread>

#include "cluster/base/ids.h"
#include "tests/nodemanager/paxos/sim/report.h"
#include "tests/test_main.h"

namespace onepiece::paxos::sim {
namespace {

#if defined(ONEPIECE_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

bool LongRun() { return qEnvironmentVariableIntValue("ONEPIECE_LONG") != 0; }

std::uint64_t FreshCount() {
  if (kSanitized) return 100;
  return LongRun() ? 100'000 : 10'000;
}

std::uint64_t FreshSeed() {
  const QByteArray given = qgetenv("ONEPIECE_SEED");
  return given.isEmpty() ? base::RandomU64() % 1'000'000'000'000 : given.toULongLong();
}

Report Tell(std::uint64_t first, std::uint64_t count) {
  const NamedMutant& none = *FindMutant("none");
  const Report report = RunSeeds(first, count, std::thread::hardware_concurrency(), none);
  qInfo("%s", report.Text().c_str());
  if (report.failure) qCritical("%s", Explain(*report.failure, none).c_str());
  return report;
}

}  // namespace

class SimulationTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void initTestCase() { NameSeedOnAbort(); }

  void FirstSeeds_KeepEveryInvariant() {
    const std::uint64_t count = kSanitized ? 100 : 1'000;
    const Report report = Tell(1, count);
    QVERIFY(!report.failure);
    QVERIFY(report.stuck.empty());
    QVERIFY(report.hopeless.empty());
    QCOMPARE(report.seeds, count);
  }

  void FreshSeeds_AreSafe() {
    const std::uint64_t first = FreshSeed();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(first));
    const Report report = Tell(first, FreshCount());
    QVERIFY(!report.failure);
    // The nemesis leaves a majority to heal, so whoever is stuck has found a defect.
    QVERIFY(report.stuck.empty());
    QVERIFY(report.hopeless.empty());
    QCOMPARE(report.seeds, FreshCount());
    QVERIFY(report.median_delivered >= 2'000);
    QVERIFY(report.median_leader_changes >= 3);
    // Some faults are rare, so the hundred histories under a sanitizer do not have them all.
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
      // A trace must not change the history.
      RunSeed(seed, none, nullptr);
    }
    QVERIFY(first.str().size() > 100'000);
    QCOMPARE(first.str(), second.str());
  }
};

}  // namespace onepiece::paxos::sim

ONEPIECE_TEST(onepiece::paxos::sim::SimulationTest)
#include "simulation_test.moc"
