// Tests the state of a connection, as decided from what was heard and when. On a board the tests
// also cover a machine that sleeps and a clock that is set.
#include "cluster/session/link.h"

#include <QtTest>
#include <chrono>

#include "cluster/base/status.h"
#include "cluster/session/board.h"
#include "tests/test_main.h"

namespace onepiece::session {
namespace {

const absl::Status kGone = absl::UnavailableError("connection refused");

constexpr std::int64_t kHourMs = 3'600'000;

/// A machine whose time the test controls.
struct Machine {
  BoardTime time{1'800'000'000'000, 50'000};
  Board board{[this] { return time; }};

  void Pass(std::int64_t ms) {
    time.wall_ms += ms;
    time.up_ms += ms;
  }
  void SetClock(std::int64_t by_ms) { time.wall_ms += by_ms; }
};

}  // namespace

class LinkTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void NothingHeard_IsConnecting_HoweverOftenItFails() {
    LinkState state(1000);
    QCOMPARE(state.At(60'000).link, Link::kConnecting);
    QCOMPARE(state.At(60'000).since_ms, std::int64_t{1000});
    state.Lost(2000, kGone, 2250);
    state.Trying(2250);
    state.Lost(3000, kGone, 3500);
    const LinkStatus status = state.At(3100);
    QCOMPARE(status.link, Link::kConnecting);
    QCOMPARE(status.attempt, 2);
    QCOMPARE(status.next_try_ms, std::int64_t{3500});
    QCOMPARE(status.detail, std::string("UNAVAILABLE: connection refused"));
  }

  void Silence_IsLaggingAtTwoSecondsAndStaleAtFive() {
    LinkState state(0);
    state.Heard(1000, 0, 1);
    QCOMPARE(state.At(2999).link, Link::kLive);
    QCOMPARE(state.At(3000).link, Link::kLagging);
    QCOMPARE(state.At(3000).since_ms, std::int64_t{3000});
    QCOMPARE(state.At(5999).link, Link::kLagging);
    QCOMPARE(state.At(6000).link, Link::kStale);
    QCOMPARE(state.At(9000).since_ms, std::int64_t{6000});
    QVERIFY(state.At(9000).detail.find("8 s") != std::string::npos);
    state.Heard(9500, 0, 1);
    QCOMPARE(state.At(9600).link, Link::kLive);
    QCOMPARE(state.At(9600).since_ms, std::int64_t{9500});
    QVERIFY(state.At(9600).detail.empty());
  }

  void Steady_SinceStaysWhereItBegan() {
    LinkState state(0);
    for (std::int64_t now = 1000; now < 5000; now += 500) state.Heard(now, 0, 1);
    QCOMPARE(state.At(4600).since_ms, std::int64_t{1000});
    QCOMPARE(state.At(4600).last_heard_ms, std::int64_t{4500});
  }

  void Lost_CountsTriesUntilItIsHeardAgain() {
    LinkState state(0);
    state.Heard(1000, 0, 1);
    state.Lost(2000, kGone, 2250);
    QCOMPARE(state.At(2100).link, Link::kReconnecting);
    QCOMPARE(state.At(2100).attempt, 1);
    QCOMPARE(state.At(2100).next_try_ms, std::int64_t{2250});
    state.Trying(2250);
    QCOMPARE(state.At(2260).next_try_ms, std::int64_t{0});
    QCOMPARE(state.At(2260).attempt, 1);
    state.Lost(2300, kGone, 2800);
    QCOMPARE(state.At(99'000).link, Link::kReconnecting);
    QCOMPARE(state.At(99'000).attempt, 2);
    QCOMPARE(state.At(99'000).since_ms, std::int64_t{2000});
    QCOMPARE(state.At(99'000).last_heard_ms, std::int64_t{1000});
    state.Heard(100'000, 0, 1);
    QCOMPARE(state.At(100'000).link, Link::kLive);
    QCOMPARE(state.At(100'000).attempt, 0);
  }

  void Refused_IsAuthFailed_AlsoWhileItIsTriedAgain() {
    for (const absl::Status& why :
         {absl::UnauthenticatedError("no token"), absl::PermissionDeniedError("not yours")}) {
      LinkState state(0);
      state.Lost(1000, why, 1250);
      QCOMPARE(state.At(1100).link, Link::kAuthFailed);
      state.Trying(1250);
      QCOMPARE(state.At(9000).link, Link::kAuthFailed);
      QVERIFY(state.At(9000).detail.find(base::Message(why)) != std::string::npos);
      state.Heard(10'000, 0, 1);
      QCOMPARE(state.At(10'000).link, Link::kLive);
    }
  }

  void OtherVersion_IsSaidWithBothNumbers_UnlessItDoesNotSay() {
    LinkState state(0);
    state.Heard(1000, 0, 0);
    QCOMPARE(state.At(1000).link, Link::kLive);
    state.Heard(1500, 0, 7);
    QCOMPARE(state.At(1500).link, Link::kVersionMismatch);
    QVERIFY(state.At(1500).detail.find("version 7") != std::string::npos);
    QVERIFY(state.At(1500).detail.find("version 1") != std::string::npos);
  }

  void ClockSkew_IsThatOfTheQuickestEvents() {
    LinkState state(0);
    state.Heard(10'000, 40'000, 1);
    QCOMPARE(state.At(10'000).clock_skew_s, 30.0);
    state.Heard(15'000, 43'000, 1);  // The event was under way for 2 s.
    QCOMPARE(state.At(15'000).clock_skew_s, 30.0);
    // The clock is set right. That shows once the old differences are forgotten.
    for (std::int64_t now = 20'000; now < 24'000; now += 500) state.Heard(now, now - 250, 1);
    QCOMPARE(state.At(24'000).clock_skew_s, -0.25);
  }

  void ClockSetBack_SilenceIsSeenAllTheSame() {
    LinkState state(1'000'000);
    state.Heard(1'000'000, 1'002'000, 0);
    state.ClockSet(-600'000);
    QCOMPARE(state.At(401'000).link, Link::kLive);
    QCOMPARE(state.At(402'500).link, Link::kLagging);
    QCOMPARE(state.At(405'500).link, Link::kStale);
    QCOMPARE(state.At(405'500).last_heard_ms, std::int64_t{400'000});
    QCOMPARE(state.At(405'500).clock_skew_s, 602.0);
    state.Lost(406'000, absl::UnavailableError("gone"), 407'000);
    state.ClockSet(3'600'000);
    QCOMPARE(state.At(4'006'000).next_try_ms, std::int64_t{4'007'000});
    state.Heard(4'008'000, 4'608'500, 0);
    QCOMPARE(state.At(4'008'000).clock_skew_s, 600.5);
  }

  // The machine slept, so what was heard before is an hour old and must not be shown as new.
  void Suspended_IsStaleAtOnce_AndLiveWhenHeard() {
    Machine machine;
    machine.board.Put(&Snapshot::cluster, std::make_shared<const v1::Cluster>());
    machine.board.Heard(machine.time.wall_ms, 1);
    const std::int64_t heard_ms = machine.time.wall_ms;
    machine.Pass(1000);
    QCOMPARE(machine.board.link().link, Link::kLive);
    machine.Pass(kHourMs);
    const LinkStatus status = machine.board.link();
    QCOMPARE(status.link, Link::kStale);
    QCOMPARE(status.last_heard_ms, heard_ms);
    QVERIFY2(status.detail.find("3601 s") != std::string::npos, status.detail.c_str());
    QCOMPARE(machine.board.Latest()->cluster.as_of_ms, heard_ms);
    // A feed that waits for its next turn asks immediately when the link is heard again.
    std::uint64_t seen = 0;
    machine.board.Sleep(std::chrono::seconds(0), {}, seen);
    const std::uint64_t before = seen;
    machine.board.Heard(machine.time.wall_ms, 1);
    QCOMPARE(machine.board.link().link, Link::kLive);
    QCOMPARE(machine.board.link().last_heard_ms, machine.time.wall_ms);
    machine.board.Sleep(std::chrono::seconds(0), {}, seen);
    QVERIFY(seen > before);
    QCOMPARE(machine.board.turns().losses, std::uint64_t{0});  // The connection was never lost.
  }

  void Suspended_TheConnectionDied_JobsAreDoubted() {
    Machine machine;
    machine.board.Heard(machine.time.wall_ms, 1);
    machine.Pass(kHourMs);
    machine.board.Lost(kGone, std::chrono::milliseconds(250));
    const LinkStatus status = machine.board.link();
    QCOMPARE(status.link, Link::kReconnecting);
    QCOMPARE(status.next_try_ms, machine.time.wall_ms + 250);
    QCOMPARE(machine.board.turns().losses, std::uint64_t{1});
  }

  // Somebody sets the clock. Nothing was missed, and the length of the silence stays the same.
  void ClockSet_IsNoSilence_data() {
    QTest::addColumn<qint64>("by_ms");
    QTest::newRow("on") << qint64{kHourMs};
    QTest::newRow("back") << qint64{-kHourMs};
  }
  void ClockSet_IsNoSilence() {
    QFETCH(const qint64, by_ms);
    Machine machine;
    machine.board.Heard(machine.time.wall_ms, 1);
    machine.Pass(500);
    machine.SetClock(by_ms);
    QCOMPARE(machine.board.link().link, Link::kLive);
    QCOMPARE(machine.board.link().last_heard_ms, machine.time.wall_ms - 500);
    machine.Pass(2000);
    QCOMPARE(machine.board.link().link, Link::kLagging);
    machine.Pass(3000);
    QCOMPARE(machine.board.link().link, Link::kStale);
  }

  // The machine slept, and its clock is set right when it wakes.
  void Suspended_AndClockSet_AreToldApart() {
    Machine machine;
    machine.board.Heard(machine.time.wall_ms, 1);
    machine.Pass(kHourMs);
    machine.SetClock(-20'000);
    const LinkStatus status = machine.board.link();
    QCOMPARE(status.link, Link::kStale);
    QCOMPARE(status.last_heard_ms, machine.time.wall_ms - kHourMs);
  }

  void ReadOnly_StaysSaid() {
    LinkState state(0);
    QVERIFY(!state.At(0).read_only);
    state.RefusedReadOnly();
    state.Heard(1000, 0, 1);
    QVERIFY(state.At(1000).read_only);
  }

  void EveryState_HasItsName() {
    QCOMPARE(LinkName(Link::kConnecting), std::string("Connecting"));
    QCOMPARE(LinkName(Link::kLive), std::string("Live"));
    QCOMPARE(LinkName(Link::kLagging), std::string("Lagging"));
    QCOMPARE(LinkName(Link::kStale), std::string("Stale"));
    QCOMPARE(LinkName(Link::kReconnecting), std::string("Reconnecting"));
    QCOMPARE(LinkName(Link::kAuthFailed), std::string("Auth failed"));
    QCOMPARE(LinkName(Link::kVersionMismatch), std::string("Version mismatch"));
    QCOMPARE(LinkName(Link::kOffline), std::string("Offline file"));
  }
};

}  // namespace onepiece::session

ONEPIECE_TEST(onepiece::session::LinkTest)
#include "link_test.moc"
