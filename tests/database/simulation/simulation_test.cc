// Histories of the data plane: many seeds, and for each fault that was once in it a mutant that
// they find (tests/mutants).
#include <QtTest>
#include <cstdlib>
#include <random>

#include "spdlog/spdlog.h"
#include "tests/database/simulation/history.h"
#include "tests/test_main.h"

namespace onepiece::simulation {
namespace {

// A change is judged by the same histories each time. Fresh ones belong to long runs: what they
// find is seldom the change's fault.
constexpr std::uint64_t kFirstSeed = 211471391;
constexpr std::uint64_t kSeeds = 1000;
constexpr std::uint64_t kLongSeeds = 10'000;
constexpr int kMostBroken = 10;  // Histories that are shown.

std::uint64_t Number(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

std::string Listed(const std::map<std::string, int>& counts) {
  std::string list;
  for (const auto& [what, count] : counts)
    list += (list.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  return list;
}

}  // namespace

class SimulationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  /// ONEPIECE_SEEDS says how many histories are told, and ONEPIECE_SEED says which is the first.
  /// ONEPIECE_SEED alone tells that one, with its trace.
  void Histories_KeepThePromises() {
    const bool one =
        std::getenv("ONEPIECE_SEED") != nullptr && std::getenv("ONEPIECE_SEEDS") == nullptr;
    if (!one) spdlog::set_level(spdlog::level::off);
    const bool is_long = std::getenv("ONEPIECE_LONG") != nullptr;
    const std::uint64_t first =
        Number("ONEPIECE_SEED", is_long ? std::random_device()() : kFirstSeed);
    const std::uint64_t many = Number("ONEPIECE_SEEDS", is_long ? kLongSeeds : kSeeds);
    const std::uint64_t count = one ? 1 : many;
    Outcome sum;
    int broken = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      const Outcome outcome = RunHistory(seed);
      for (const std::string& violation : outcome.violations)
        qWarning("ONEPIECE_SEED=%llu: %s", static_cast<unsigned long long>(seed),
                 violation.c_str());
      if (!outcome.violations.empty() && ++broken == kMostBroken) break;
      sum.Add(outcome);
    }
    qInfo(
        "seeds %llu and %llu more: %d jobs (%s), %d computations made again, %d "
        "jobs started in several runs",
        static_cast<unsigned long long>(first), static_cast<unsigned long long>(count - 1),
        sum.jobs, Listed(sum.ends).c_str(), sum.recomputed, sum.restarted);
    qInfo("faults: %s", Listed(sum.faults).c_str());
    QCOMPARE(broken, 0);
    // Histories in which nothing happens show nothing.
    QVERIFY(one || count < 10 || (sum.faults["kills"] > 0 && sum.recomputed > 0));
    QVERIFY(one || count < 10 || sum.ends["SUCCEEDED"] > sum.jobs / 2);
  }
};

}  // namespace onepiece::simulation

ONEPIECE_TEST(onepiece::simulation::SimulationTest)
#include "simulation_test.moc"
