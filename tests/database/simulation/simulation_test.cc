// Histories of the data plane: many seeds, and for each fault that was once in it a mutant that
// they find (tests/mutants).
#include <QtTest>
#include <cstdlib>
#include <random>

#include "tests/database/simulation/history.h"
#include "tests/test_main.h"

namespace onepiece::simulation {

class SimulationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  /// ONEPIECE_SEED runs that one history, ONEPIECE_SEEDS says how many are run.
  void Histories_KeepThePromises() {
    const char* one = std::getenv("ONEPIECE_SEED");
    const char* many = std::getenv("ONEPIECE_SEEDS");
    const std::uint64_t first =
        one != nullptr ? std::strtoull(one, nullptr, 0) : std::random_device()();
    const std::uint64_t count =
        one != nullptr ? 1 : (many != nullptr ? std::strtoull(many, nullptr, 0) : 1000);
    Outcome sum;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      const Outcome outcome = RunHistory(seed);
      for (const std::string& violation : outcome.violations)
        qWarning("ONEPIECE_SEED=%llu: %s", static_cast<unsigned long long>(seed),
                 violation.c_str());
      QVERIFY2(outcome.violations.empty(), qPrintable(QString("seed %1").arg(seed)));
      sum.jobs += outcome.jobs;
      sum.succeeded += outcome.succeeded;
      sum.cancelled += outcome.cancelled;
      sum.failed += outcome.failed;
      sum.faults += outcome.faults;
    }
    qInfo("seeds %llu and %llu more: %d faults, %d jobs, %d succeeded, %d cancelled, %d failed",
          static_cast<unsigned long long>(first), static_cast<unsigned long long>(count - 1),
          sum.faults, sum.jobs, sum.succeeded, sum.cancelled, sum.failed);
    // Histories in which nothing happens show nothing.
    QVERIFY(one != nullptr || (sum.faults > 0 && sum.cancelled > 0 && sum.succeeded > sum.failed));
  }
};

}  // namespace onepiece::simulation

ONEPIECE_TEST(onepiece::simulation::SimulationTest)
#include "simulation_test.moc"
