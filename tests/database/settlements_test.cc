#include "cluster/database/settlements.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;
using v1::Job;

constexpr base::MonotonicTime kBegin{};

base::Uid NumberedUid(int i) {
  std::array<std::uint8_t, 16> bytes{};
  bytes[0] = static_cast<std::uint8_t>(i);
  return base::Uid(bytes);
}

bool NothingIsSent(const std::string&, const base::Uid&) { return false; }

v1::JobRecord Proposes(Job::State state, bool has_bytes = false) {
  v1::JobRecord record;
  record.mutable_job()->set_state(Job::RUNNING);
  record.mutable_proposed()->set_state(state);
  record.set_has_bytes(has_bytes);
  return record;
}

}  // namespace

class SettlementsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Agrees_ToTheSameEndWithItsBytes() {
    QVERIFY(Agrees(Proposes(Job::CANCELLED), Proposes(Job::CANCELLED), true));
    QVERIFY(!Agrees(Proposes(Job::CANCELLED), Proposes(Job::FAILED), true));
    QVERIFY(!Agrees(Proposes(Job::CANCELLED), v1::JobRecord(), true));
    QVERIFY(!Agrees(v1::JobRecord(), v1::JobRecord(), true));
    QVERIFY(!Agrees(Proposes(Job::SUCCEEDED, true), Proposes(Job::SUCCEEDED, false), true));
    QVERIFY(Agrees(Proposes(Job::SUCCEEDED, true), Proposes(Job::SUCCEEDED, false), false));
    QVERIFY(Agrees(Proposes(Job::SUCCEEDED, true), Proposes(Job::SUCCEEDED, true), true));
  }

  void Resolve_SettlesWithTheLastKeeper() {
    Settlements settlements(2s, 20s);
    settlements.Begin(NumberedUid(1), {"a", "b"}, kBegin);
    QVERIFY(!settlements.Resolve("c", NumberedUid(1)));
    QVERIFY(!settlements.Resolve("a", NumberedUid(1)));
    QVERIFY(!settlements.Resolve("a", NumberedUid(1)));
    QVERIFY(settlements.WaitsFor("b", NumberedUid(1)));
    QVERIFY(settlements.Resolve("b", NumberedUid(1)));
    QVERIFY(!settlements.WaitsFor("b", NumberedUid(1)));
    QVERIFY(settlements.TakeOverdue(kBegin + 1h, NothingIsSent).empty());
  }

  void Begin_AgainWaitsForAllAnew() {
    Settlements settlements(2s, 20s);
    settlements.Begin(NumberedUid(1), {"a", "b"}, kBegin);
    QVERIFY(!settlements.Resolve("a", NumberedUid(1)));
    settlements.Begin(NumberedUid(1), {"a", "b"}, kBegin + 1s);
    QVERIFY(!settlements.Resolve("b", NumberedUid(1)));
    QVERIFY(settlements.TakeOverdue(kBegin + 2s, NothingIsSent).empty());
    const auto overdue = settlements.TakeOverdue(kBegin + 3s, NothingIsSent);
    QCOMPARE(overdue.size(), std::size_t{1});
    QCOMPARE(overdue[0].silent, std::set<std::string>{"a"});
  }

  void TakeOverdue_WithNobodyToAskIsAtOnce() {
    Settlements settlements(2s, 20s);
    settlements.Begin(NumberedUid(1), {"a"}, kBegin);
    settlements.Begin(NumberedUid(2), {}, kBegin);
    QCOMPARE(settlements.next_due(), std::optional(kBegin));
    const auto overdue = settlements.TakeOverdue(kBegin, NothingIsSent);
    QCOMPARE(overdue.size(), std::size_t{1});
    QVERIFY(overdue[0].uid == NumberedUid(2));
    QCOMPARE(settlements.next_due(), std::optional(kBegin + 2s));
  }

  // A result on its way is waited for, and for `patience` after it has been sent, but not for ever.
  void TakeOverdue_WaitsForWhatIsBeingSent() {
    Settlements settlements(2s, 20s);
    bool sending = true;
    const auto is_sending = [&](const std::string&, const base::Uid&) { return sending; };
    settlements.Begin(NumberedUid(1), {"a"}, kBegin);
    // Looks every half second, and returns when the first end waits no longer.
    const auto overdue_at = [&](base::MonotonicTime from, base::Duration sent_after) {
      base::MonotonicTime now = from;
      while (settlements.TakeOverdue(now, is_sending).empty()) {
        now += 500ms;
        sending = now < from + sent_after;
      }
      return now;
    };
    QCOMPARE(overdue_at(kBegin, 3s), kBegin + 6s);
    sending = true;
    settlements.Begin(NumberedUid(2), {"a"}, kBegin + 6s);
    const base::MonotonicTime limited = overdue_at(kBegin + 6s, 1h);
    QVERIFY(limited > kBegin + 24s && limited <= kBegin + 26s);
  }

  // Whoever was stopped itself has no reason to call others silent.
  void TakeOverdue_AfterAStopWaitsAnew() {
    Settlements settlements(2s, 20s);
    QVERIFY(settlements.TakeOverdue(kBegin, NothingIsSent).empty());
    settlements.Begin(NumberedUid(1), {"a"}, kBegin);
    QVERIFY(settlements.TakeOverdue(kBegin + 8s, NothingIsSent).empty());
    QCOMPARE(settlements.next_due(), std::optional(kBegin + 10s));
    QVERIFY(settlements.TakeOverdue(kBegin + 9s, NothingIsSent).empty());
    QCOMPARE(settlements.TakeOverdue(kBegin + 10s, NothingIsSent).size(), std::size_t{1});
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::SettlementsTest)
#include "settlements_test.moc"
