#include "cluster/base/clock.h"

#include <QtTest>
#include <future>

#include "tests/test_main.h"

namespace onepiece::base {

using namespace std::chrono_literals;

class ClockTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Pause_LastsUntilTheClockHasMovedSoFar() {
    ManualClock clock;
    auto paused = std::async(std::launch::async, [&] {
      const MonotonicTime start = clock.Now();
      return clock.Pause({}, 10s) ? clock.Now() - start : Duration::zero();
    });
    while (paused.wait_for(1ms) != std::future_status::ready) clock.Advance(1s);
    QVERIFY(paused.get() >= 10s);
  }

  void Pause_EndsEarlyWhenAStopIsRequested() {
    ManualClock clock;
    std::stop_source stop;
    auto pause = std::async(std::launch::async, [&] { return clock.Pause(stop.get_token(), 10s); });
    QVERIFY(pause.wait_for(20ms) == std::future_status::timeout);
    stop.request_stop();
    QVERIFY(!pause.get());
  }

  void Pause_AfterAStop_DoesNotBegin() {
    ManualClock clock;
    std::stop_source stop;
    stop.request_stop();
    QVERIFY(!clock.Pause(stop.get_token(), 10s));
  }

  void Pause_OfNothing_IsOver() {
    ManualClock clock;
    QVERIFY(clock.Pause({}, Duration::zero()));
    QVERIFY(clock.Pause({}, -1s));
  }

  void StepWall_SetsTheWallClockAlone() {
    ManualClock clock;
    const MonotonicTime now = clock.Now();
    const WallTime wall = clock.WallNow();
    clock.StepWall(-48h);
    QVERIFY(clock.WallNow() == wall - 48h);
    QVERIFY(clock.Now() == now);
    clock.Advance(1h);
    QVERIFY(clock.WallNow() == wall - 47h);
    QVERIFY(clock.Now() == now + 1h);
  }

  void Pause_OfTheSystemsClock_TakesItsTime() {
    const MonotonicTime start = SystemClock().Now();
    QVERIFY(SystemClock().Pause({}, 20ms));
    QVERIFY(SystemClock().Now() - start >= 20ms);
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::ClockTest)
#include "clock_test.moc"
