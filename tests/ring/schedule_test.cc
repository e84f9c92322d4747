// Random schedules in the deterministic harness (schedule.h): 10^5, or 10^6 with ONEPIECE_LONG=1.
// The mutants, which are wrong on purpose, must be caught. A failing schedule prints a shrunk trace
// and its seed, which ONEPIECE_SEED repeats.
#include "tests/ring/schedule.h"

#include <QtTest>

#include "spdlog/spdlog.h"
#include "tests/ring/ring_world.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#if defined(ONEPIECE_ADDRESS_SANITIZER)
constexpr std::uint64_t kSlower = 10;
#else
constexpr std::uint64_t kSlower = 1;
#endif

std::uint64_t ScheduleCount() {
  if (SmallRun()) return 1000;
  return (LongRun() ? 1'000'000 : 100'000) / kSlower;
}

// The text that is shown for a failing schedule.
std::string Report(std::uint64_t seed, const Choices& choices, Mutant mutant) {
  const Shrunk shrunk = Shrink(choices.taken(), mutant);
  return "ONEPIECE_SEED=" + std::to_string(seed) + ": " + shrunk.verdict.violation +
         shrunk.verdict.trace;
}

}  // namespace

class ScheduleTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void initTestCase() {
    if (kThreadSanitizer) QSKIP("one thread of fibers: nothing that ThreadSanitizer could see");
    spdlog::set_level(spdlog::level::off);
  }

  void RandomSchedules() {
    const std::uint64_t first = SeedFromEnvironment();
    const std::uint64_t count = ScheduleCount();
    qInfo("ONEPIECE_SEED=%llu, %llu schedules", (unsigned long long)first,
          (unsigned long long)count);
    Tally sum;
    for (std::uint64_t i = 0; i < count; ++i) {
      Choices choices(first + i);
      const Verdict verdict = RunSchedule(choices, Mutant::kNone, /*trace=*/false);
      sum.Add(verdict.tally);
      if (verdict.violation.empty()) continue;
      QFAIL(Report(first + i, choices, Mutant::kNone).c_str());
    }
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    qInfo(
        "%llu schedules: with a fence %llu, wrapped and full %llu, revoking %llu, a segment "
        "for each producer %llu",
        number(sum.schedules), number(sum.fenced), number(sum.wrapped_full), number(sum.revoking),
        number(sum.per_producer));
    qInfo(
        "%llu steps, %llu sent, deaths %llu, torn %llu, split %llu, stalls %llu, late %llu, cut "
        "%llu",
        number(sum.steps), number(sum.sent), number(sum.deaths), number(sum.tears),
        number(sum.splits), number(sum.stalls), number(sum.lates), number(sum.cuts));
    qInfo(
        "unknown %llu, resends %llu, reconnects %llu, moves %llu, holes %llu, locks broken %llu, "
        "duplicates dropped %llu",
        number(sum.unknown), number(sum.resends), number(sum.reconnects), number(sum.moves),
        number(sum.holes), number(sum.locks), number(sum.duplicates));
    QVERIFY(sum.fenced * 5 >= count);
    QVERIFY(sum.wrapped_full * 20 >= count);
    for (const std::uint64_t seen :
         {sum.deaths, sum.tears, sum.splits, sum.stalls, sum.lates, sum.cuts, sum.resends,
          sum.moves, sum.revoking, sum.per_producer}) {
      QVERIFY(seen > 0);
    }
  }

  void ASeedRepeatsItsSchedule() {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Choices one(seed);
      Choices two(seed);
      const Verdict first = RunSchedule(one, Mutant::kNone, /*trace=*/true);
      const Verdict second = RunSchedule(two, Mutant::kNone, /*trace=*/true);
      QVERIFY(!first.trace.empty());
      QCOMPARE(first.trace, second.trace);
    }
  }

  void EveryMutantIsCaught_data() {
    QTest::addColumn<int>("mutant");
    QTest::newRow("break the lock without fencing") << int(Mutant::kBreakLockWithoutFence);
    QTest::newRow("skip a hole without fencing") << int(Mutant::kSkipHoleWithoutFence);
    QTest::newRow("tail before RESERVED") << int(Mutant::kTailBeforeReserved);
    QTest::newRow("COMMITTED before payload") << int(Mutant::kCommittedBeforePayload);
    QTest::newRow("skip without the tail guard") << int(Mutant::kSkipWithoutTailGuard);
  }
  void EveryMutantIsCaught() {
    QFETCH(int, mutant);
    const auto wrong = static_cast<Mutant>(mutant);
    constexpr std::uint64_t kSeeds = 20'000;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Choices right(seed);
      QCOMPARE(RunSchedule(right, Mutant::kNone, /*trace=*/false).violation, std::string());
      Choices choices(seed);
      if (RunSchedule(choices, wrong, /*trace=*/false).violation.empty()) continue;
      qInfo("caught by schedule %llu: %s", (unsigned long long)seed,
            Report(seed, choices, wrong).c_str());
      return;
    }
    QFAIL("not caught");
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::ScheduleTest)
#include "schedule_test.moc"
