// How often one caller may call.
#include "cluster/rpc/caller_limits.h"

#include <QtTest>
#include <vector>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using namespace std::chrono_literals;

CallerLimits::Caller Named(const std::string& name, bool is_stranger = false) {
  return {.account = name, .name = name, .is_stranger = is_stranger};
}

struct Callers {
  /// Each call is answered at once.
  int CallUntilRefused(const std::string& caller) {
    int admitted = 0;
    while ((last = limits.Admit(Named(caller))).ok() && admitted < 10'000) {
      ++admitted;
      (void)limits.Begin(Named(caller));
    }
    return admitted;
  }
  base::ManualClock clock;
  CallerLimits limits{clock, 50};
  absl::Status last;
};

v1::CallerLimits Calls(double per_s, double burst, int under_way) {
  v1::CallerLimits limits;
  limits.set_calls_per_s(per_s);
  limits.set_calls_burst(burst);
  limits.set_calls_under_way(under_way);
  return limits;
}

}  // namespace

class CallerLimitsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Callers_MayCallAtTheirRate_AndSaveSomeUp() {
    Callers world;
    QCOMPARE(world.CallUntilRefused("principal/ci"), 2000);
    QVERIFY(absl::IsResourceExhausted(world.last));
    QCOMPARE(Reason(world.last), std::string("TOO_MANY_CALLS"));
    QCOMPARE(base::Message(world.last),
             std::string("principal/ci makes more than 1000 calls/s: try again in 1 ms"));
    QCOMPARE(world.CallUntilRefused("principal/eve"), 2000);
    world.clock.Advance(100ms);
    QCOMPARE(world.CallUntilRefused("principal/ci"), 100);
    world.clock.Advance(1h);
    QCOMPARE(world.CallUntilRefused("principal/ci"), 2000);
    QCOMPARE(world.limits.refused(), 4);
  }

  void ConfiguredLimits_HoldFromTheNextCallOn_AndAreTakenBack() {
    Callers world;
    QCOMPARE(world.CallUntilRefused("a"), 2000);
    world.limits.Follow(Calls(10, 20, 0));
    QCOMPARE(world.CallUntilRefused("b"), 20);
    QCOMPARE(base::Message(world.last),
             std::string("b makes more than 10 calls/s: try again in 100 ms"));
    world.limits.Follow({});
    QCOMPARE(world.CallUntilRefused("c"), 2000);
  }

  void CallsUnderWay_Count_UntilTheyEnd() {
    Callers world;
    world.limits.Follow(Calls(0, 0, 10));
    std::vector<CallerLimits::UnderWay> calls;
    for (int i = 0; i < 10; ++i) {
      QVERIFY(world.limits.Admit(Named("a")).ok());
      calls.push_back(world.limits.Begin(Named("a")));
    }
    world.last = world.limits.Admit(Named("a"));
    QCOMPARE(Reason(world.last), std::string("TOO_MANY_CALLS_UNDER_WAY"));
    QCOMPARE(base::Message(world.last),
             std::string("a has 10 calls under way: wait until some have ended"));
    QVERIFY(world.limits.Admit(Named("b")).ok());
    calls.pop_back();
    QVERIFY(world.limits.Admit(Named("a")).ok());
  }

  // Nobody says when such a call ends: it may have been cancelled.
  void CallsWhoseRequestDoesNotCome_CountForAMinuteOrTwo() {
    Callers world;
    world.limits.Follow(Calls(0, 0, 10));
    for (int i = 0; i < 10; ++i) QVERIFY(world.limits.Admit(Named("a")).ok());
    QCOMPARE(Reason(world.limits.Admit(Named("a"))), std::string("TOO_MANY_CALLS_UNDER_WAY"));
    world.clock.Advance(61s);
    QVERIFY(!world.limits.Admit(Named("a")).ok());
    world.clock.Advance(61s);
    QVERIFY(world.limits.Admit(Named("a")).ok());
  }

  void AStrangersConnection_HasTenSuchCalls_AsLongAsItCalls() {
    Callers world;
    const auto stranger = Named("1", true);
    for (int i = 0; i < 100; ++i) {
      QVERIFY(world.limits.Admit(stranger).ok());
      (void)world.limits.Begin(stranger);
    }
    for (int i = 0; i < 10; ++i) QVERIFY(world.limits.Admit(stranger).ok());
    for (int minute = 0; minute < 60; ++minute) {
      QVERIFY(!world.limits.Admit(stranger).ok());
      world.clock.Advance(1min);
    }
    QVERIFY(world.limits.Admit(Named("2", true)).ok());
    world.clock.Advance(10min);  // Another connection has its name by now.
    QVERIFY(world.limits.Admit(stranger).ok());
  }

  // Else they could keep the principals out.
  void Strangers_TakeNoPrincipalsPlaces() {
    Callers world;
    for (int i = 0; i < 1000; ++i) (void)world.limits.Admit(Named(std::to_string(i), true));
    QCOMPARE(world.CallUntilRefused("a"), 2000);
    QCOMPARE(world.CallUntilRefused("b"), 2000);
  }

  void TheTableOfCallers_IsBounded() {
    Callers world;
    std::vector<CallerLimits::UnderWay> calls;
    for (int i = 0; i < 50; ++i)
      calls.push_back(world.limits.Begin(Named("busy" + std::to_string(i))));
    // All further ones share an account, and their calls end in it.
    QCOMPARE(world.CallUntilRefused("x"), 2000);
    QCOMPARE(world.CallUntilRefused("y"), 0);
    calls.push_back(world.limits.Begin(Named("y")));
    calls.clear();
    world.clock.Advance(2s);
    QCOMPARE(world.CallUntilRefused("x"), 2000);
    QCOMPARE(world.CallUntilRefused("y"), 2000);
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::CallerLimitsTest)
#include "caller_limits_test.moc"
