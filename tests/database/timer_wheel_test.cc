#include "cluster/database/timer_wheel.h"

#include <QtTest>
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

struct Named : Timer {
  int name = 0;
  bool late_when_set = false;
};

// A wheel, and an ordered map of the timers that it should hold.
struct Fixture {
  explicit Fixture(std::size_t count, base::MonotonicTime start) : timers(count), wheel(start) {
    for (std::size_t i = 0; i < count; ++i) timers[i].name = static_cast<int>(i);
  }
  ~Fixture() {
    for (Named& timer : timers) wheel.Cancel(timer);
  }

  void Set(Named& timer, base::MonotonicTime due, base::MonotonicTime now) {
    Forget(timer);
    timer.late_when_set = due <= now;
    wheel.Set(timer, due);
    model.emplace(due, timer.name);
  }
  void Cancel(Named& timer) {
    Forget(timer);
    wheel.Cancel(timer);
  }
  // Returns what is wrong with the timers that came; empty when nothing is.
  std::string Advance(base::MonotonicTime now, std::size_t limit) {
    std::vector<Timer*> came = wheel.Advance(now, limit);
    if (came.size() > limit) return "more than the limit";
    base::MonotonicTime latest = came.empty() ? now : came.front()->due;
    for (Timer* timer : came) {
      auto& named = static_cast<Named&>(*timer);
      if (named.set()) return "still set";
      if (named.due > now) return "early";
      if (!Forget(named)) return "not there, or twice";
      if (named.late_when_set) continue;
      if (latest > named.due && latest - named.due > 1ms) return "out of order";
      latest = std::max(latest, named.due);
    }
    if (came.size() < limit && !model.empty() && model.begin()->first <= now) return "late";
    return wheel.size() == model.size() ? "" : "sizes differ";
  }

  std::deque<Named> timers;
  TimerWheel wheel;
  std::multimap<base::MonotonicTime, int> model;

 private:
  bool Forget(const Named& timer) {
    const auto [first, last] = model.equal_range(timer.due);
    const auto it =
        std::find_if(first, last, [&](const auto& item) { return item.second == timer.name; });
    if (it == last) return false;
    model.erase(it);
    return true;
  }
};

const base::MonotonicTime kStart{std::chrono::hours(24 * 365 * 55)};

}  // namespace

class TimerWheelTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Advance_IsExactBelowItsTick() {
    Fixture f(3, kStart);
    f.wheel.Set(f.timers[0], kStart + 1'500us);
    f.wheel.Set(f.timers[1], kStart + 1'500'001ns);
    f.wheel.Set(f.timers[2], kStart + 1'900us);
    QVERIFY(f.wheel.Advance(kStart + 1'499'999ns, kNoLimit).empty());
    QCOMPARE(f.wheel.Advance(kStart + 1'500us, kNoLimit), std::vector<Timer*>{&f.timers[0]});
    QCOMPARE(f.wheel.Advance(kStart + 1'500'001ns, kNoLimit), std::vector<Timer*>{&f.timers[1]});
    QCOMPARE(f.wheel.Advance(kStart + 5ms, kNoLimit), std::vector<Timer*>{&f.timers[2]});
    QCOMPARE(f.wheel.size(), std::size_t{0});
  }

  void Set_MovesAndCancelForgets() {
    Fixture f(2, kStart);
    f.wheel.Set(f.timers[0], kStart + 10ms);
    f.wheel.Set(f.timers[0], kStart + 1h);
    f.wheel.Set(f.timers[1], kStart + 10ms);
    f.wheel.Cancel(f.timers[1]);
    f.wheel.Cancel(f.timers[1]);
    QCOMPARE(f.wheel.size(), std::size_t{1});
    QVERIFY(f.wheel.Advance(kStart + 1h - 1ns, kNoLimit).empty());
    QCOMPARE(f.wheel.Advance(kStart + 1h, kNoLimit).size(), std::size_t{1});
    QVERIFY(!f.timers[0].set());
  }

  void Advance_TakesAnyDueTime() {
    Fixture f(4, kStart);
    const std::vector<base::MonotonicTime> dues{
        base::MonotonicTime::max(), base::MonotonicTime::min(),
        kStart + std::chrono::hours(24 * 365 * 150), base::MonotonicTime(-1ns)};
    for (std::size_t i = 0; i < dues.size(); ++i) f.Set(f.timers[i], dues[i], kStart);
    QCOMPARE(f.Advance(kStart, kNoLimit), std::string());
    QCOMPARE(f.model.size(), std::size_t{2});
    QCOMPARE(f.Advance(dues[2] - 1ns, kNoLimit), std::string());
    QCOMPARE(f.Advance(dues[2], kNoLimit), std::string());
    QCOMPARE(f.model.size(), std::size_t{1});
    QCOMPARE(f.Advance(base::MonotonicTime::max(), kNoLimit), std::string());
    QVERIFY(f.model.empty());
  }

  void Anything_AgreesWithAnOrderedMap() {
    const unsigned seed = std::random_device{}();
    qInfo("seed %u", seed);
    std::mt19937_64 random(seed);
    const auto pick = [&](std::int64_t below) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
    };
    // Delays of every size, from a fraction of a tick to decades.
    const auto span = [&] { return base::Duration(pick(std::int64_t{1} << (1 + pick(60)))); };
    base::MonotonicTime now = kStart;
    Fixture f(500, now);
    for (int step = 0; step < 200'000; ++step) {
      Named& timer = f.timers[static_cast<std::size_t>(pick(500))];
      switch (pick(10)) {
        case 0:
          f.Cancel(timer);
          break;
        case 1:
        case 2:
        case 3:
          now += base::Duration(pick(std::int64_t{1} << (1 + pick(35))));
          break;
        case 4:
          // Far enough from the end of MonotonicTime's range.
          if (pick(100) == 0 && now < kStart + 1'000'000h) now += span();
          break;
        case 5:
          f.Set(timer, now - base::Duration(pick(1'000'000'000)), now);
          break;
        default:
          f.Set(timer, now + span(), now);
      }
      const std::string wrong = f.Advance(now, pick(4) == 0 ? 3 : kNoLimit);
      QVERIFY2(wrong.empty(), wrong.c_str());
    }
  }

  // A day of results that live for an hour, and then for another as tombstones, in steps of a
  // sweep.
  void Advance_ADayOfChurnLeavesNothing() {
    constexpr int kTimers = 500'000;  // Each is set twice.
    constexpr base::Duration kTtl = 1h, kSweep = 200ms;
    base::ManualClock clock;
    std::deque<Named> timers(kTimers);
    TimerWheel wheel(clock.Now());
    base::Duration worst{};
    std::size_t made = 0, expired = 0, forgotten = 0;
    std::vector<bool> was_expired(kTimers);
    for (base::Duration passed{}; passed <= 27h; passed += kSweep) {
      clock.Advance(kSweep);
      const base::MonotonicTime now = clock.Now();
      for (Timer* timer : wheel.Advance(now, kNoLimit)) {
        QVERIFY(timer->due <= now);
        worst = std::max(worst, now - timer->due);
        auto& named = static_cast<Named&>(*timer);
        const auto name = static_cast<std::size_t>(named.name);
        if (was_expired[name]) {
          ++forgotten;
          continue;
        }
        was_expired[name] = true;
        ++expired;
        wheel.Set(named, named.due + kTtl);
      }
      const std::size_t want = std::min<std::size_t>(
          kTimers, static_cast<std::size_t>(kTimers * (passed / kSweep) / (24h / kSweep)));
      for (; made < want; ++made) {
        timers[made].name = static_cast<int>(made);
        wheel.Set(timers[made], now + kTtl + base::Duration(made * 7919 % 1'000'000));
      }
    }
    QCOMPARE(made, std::size_t{kTimers});
    QCOMPARE(expired, std::size_t{kTimers});
    QCOMPARE(forgotten, std::size_t{kTimers});
    QCOMPARE(wheel.size(), std::size_t{0});
    QVERIFY(worst <= kSweep);  // Timers are late by one step of the sweep at most.
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::TimerWheelTest)
#include "timer_wheel_test.moc"
