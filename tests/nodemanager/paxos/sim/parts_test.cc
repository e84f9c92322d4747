// Tests the parts of the simulated world: what its disk, clock, state machine and invariants accept
// and refuse.
#include <QtTest>

#include "tests/nodemanager/paxos/sim/clock.h"
#include "tests/nodemanager/paxos/sim/disk.h"
#include "tests/nodemanager/paxos/sim/invariants.h"
#include "tests/nodemanager/paxos/sim/machine.h"
#include "tests/nodemanager/paxos/sim/plan.h"
#include "tests/nodemanager/paxos/sim/toy_state.h"
#include "tests/test_main.h"

namespace onepiece::paxos::sim {
namespace {

// The replicas of Three().
constexpr ReplicaId kA{1}, kB{2}, kC{3};
// The replica whose disk is tested.
constexpr ReplicaId kSelf{7};

LogEntry CommandOf(std::uint64_t value) {
  Request request{.client = 0, .number = 1, .kind = Operation::Kind::kWrite, .written = value};
  return {.kind = LogEntry::Kind::kCommand, .version = 1, .payload = ToyState::Encode(request)};
}

Writes Accepting(Slot slot, Ballot ballot, const LogEntry& entry) {
  Writes writes;
  writes.accepted.push_back({slot, ballot, entry});
  return writes;
}

/// A group of three voters that has chosen slot 1.
Invariants Three() {
  DurableState state;
  LogEntry first{.kind = LogEntry::Kind::kMembers};
  first.members.seats = {{"a", "a", kA}, {"b", "b", kB}, {"c", "c", kC}};
  state.log.push_back({kFirstSlot, Ballot{}, first});
  Invariants invariants;
  invariants.Bootstrapped(state);
  return invariants;
}

/// Puts `entry` for slot 2 on the disk of `replica`.
void Vote(Invariants& invariants, ReplicaId replica, Ballot ballot, const LogEntry& entry) {
  invariants.BecomesDurable(replica, DurableState{}, Accepting(Slot{2}, ballot, entry));
}

void CompareViolation(const Invariants& invariants, const char* expected) {
  QCOMPARE(invariants.violation().invariant, std::string(expected));
}

}  // namespace

class PartsTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void Clock_ShowsItsOwnTime() {
    Random random(1);
    for (int i = 0; i < 2000; ++i) {
      DriftClock clock;
      clock.Boot(random.Between(0, kSecond), random.Between(0, 1000 * kSecond));
      clock.SetRate(kSecond, random.Between(-700'000, 3'000'000));
      const Time local = clock.Local(random.Between(kSecond, 30 * kSecond));
      const Nanos when = clock.When(local);
      QVERIFY(clock.Local(when) >= local);
      QVERIFY(when == kSecond || clock.Local(when - 1) < local);
    }
    DriftClock fast;
    fast.SetRate(0, 10'000);
    QCOMPARE((fast.Local(kSecond) - fast.Local(0)).count(), kSecond + kSecond / 100);
  }

  void Disk_KeepsWholeBatchesOnly() {
    Disk disk;
    disk.Format({.replica = kSelf});
    Writes writes = Accepting(Slot{1}, {1, kSelf}, CommandOf(5));
    writes.promise = true;
    writes.promised = {1, kSelf};
    disk.Begin(writes);
    QVERIFY(disk.busy());
    QVERIFY(disk.state().log.empty());
    disk.Drop();
    QVERIFY(disk.state().log.empty());
    QCOMPARE(disk.state().promised.round, 0U);
    disk.Begin(writes);
    QCOMPARE(disk.End(), std::string());
    QCOMPARE(disk.state().log.size(), std::size_t{1});
    QCOMPARE(disk.state().promised.round, 1U);
  }

  void Disk_ReplacesDropsAndInstalls() {
    DurableState state{.replica = kSelf};
    for (Slot slot = kFirstSlot; slot <= Slot{4}; ++slot) {
      QCOMPARE(Write(state, Accepting(slot, {1, kSelf}, CommandOf(slot.value))), std::string());
    }
    QCOMPARE(Write(state, Accepting(Slot{3}, {2, ReplicaId{8}}, CommandOf(9))), std::string());
    QCOMPARE(state.log[2].ballot.round, 2U);
    QCOMPARE(state.log.size(), std::size_t{4});
    Writes install;
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->index = Slot{3};
    install.install = snapshot;
    install.drop_through = Slot{2};
    QCOMPARE(Write(state, install), std::string());
    QCOMPARE(state.log.front().slot, Slot{3});
    QCOMPARE(state.chosen, Slot{3});
  }

  void Disk_FindsWhatIsWrong() {
    DurableState state{.replica = kSelf, .promised = {5, kSelf}};
    Writes falls;
    falls.promise = true;
    falls.promised = {4, ReplicaId{9}};
    QVERIFY(Write(state, falls).find("falls") != std::string::npos);
    QVERIFY(Write(state, Accepting(Slot{2}, {5, kSelf}, CommandOf(1))).find("gap") !=
            std::string::npos);
  }

  void ToyState_ExecutesOnce() {
    ToyState toy;
    Request set{.client = 3, .number = 1, .kind = Operation::Kind::kWrite, .key = 2, .written = 8};
    QCOMPARE(toy.Apply(set, Retries::kRemembered).epoch, 1U);
    QCOMPARE(toy.Apply(set, Retries::kRemembered).epoch, 1U);
    QCOMPARE(toy.epoch(), 1U);
    Request swap{.client = 4,
                 .number = 1,
                 .kind = Operation::Kind::kCompareAndSet,
                 .key = 2,
                 .expected = 7,
                 .written = 9};
    QCOMPARE(toy.Apply(swap, Retries::kRemembered).before, 8U);
    QCOMPARE(toy.Read(2).before, 8U);
    QCOMPARE(toy.last_number(3), 1U);
    QCOMPARE(toy.last_number(99), 0U);
  }

  void ToyState_ComesBackFromItsBytes() {
    Random random(3);
    ToyState toy;
    for (std::uint32_t i = 1; i <= 200; ++i) {
      toy.Apply(
          {.client = static_cast<std::uint32_t>(random.Below(9)),
           .number = i,
           .kind = random.Chance(0.5) ? Operation::Kind::kWrite : Operation::Kind::kCompareAndSet,
           .key = static_cast<std::uint32_t>(random.Below(ToyState::kKeys)),
           .expected = random.Below(4),
           .written = i},
          Retries::kRemembered);
    }
    const ToyState again = ToyState::Load(*toy.Save());
    QCOMPARE(again.hash(), toy.hash());
    QCOMPARE(again.epoch(), toy.epoch());
    QCOMPARE(*again.Save(), *toy.Save());
    QVERIFY(ToyState().hash() != toy.hash());
  }

  void Invariants_AMajorityChooses() {
    Invariants invariants = Three();
    Vote(invariants, kA, {1, kA}, CommandOf(5));
    Vote(invariants, kB, {1, kA}, CommandOf(5));
    invariants.Applies(kA, Slot{2}, CommandOf(5));
    QVERIFY(!invariants.violation().found());
    QCOMPARE(invariants.chosen(), Slot{2});
    invariants.Applies(kB, Slot{2}, CommandOf(6));
    CompareViolation(invariants, Invariants::kOneValue);
  }

  void Invariants_AMinorityOrTwoBallotsDoNot() {
    Invariants minority = Three();
    Vote(minority, kA, {1, kA}, CommandOf(5));
    minority.Applies(kA, Slot{2}, CommandOf(5));
    CompareViolation(minority, Invariants::kMajority);
    Invariants ballots = Three();
    Vote(ballots, kA, {1, kA}, CommandOf(5));
    Vote(ballots, kB, {2, kB}, CommandOf(5));
    ballots.Applies(kA, Slot{2}, CommandOf(5));
    CompareViolation(ballots, Invariants::kMajority);
    Invariants stranger = Three();
    Vote(stranger, kA, {1, kA}, CommandOf(5));
    Vote(stranger, ReplicaId{9}, {1, kA}, CommandOf(5));
    stranger.Applies(kA, Slot{2}, CommandOf(5));
    CompareViolation(stranger, Invariants::kMajority);
  }

  void Invariants_ForgetWhatALostGroupDid() {
    Invariants invariants = Three();
    const LogEntry lost{.kind = LogEntry::Kind::kNoop, .version = 7};
    Vote(invariants, kA, {1, kA}, lost);
    Vote(invariants, kB, {1, kA}, lost);
    invariants.Applies(kA, Slot{2}, lost);
    DurableState begun;
    begun.snapshot = {.index = kFirstSlot, .members = {{{"a", "a", kC}}}, .state = {}};
    begun.chosen = Slot{2};
    begun.log.push_back({Slot{2}, Ballot{}, LogEntry{.kind = LogEntry::Kind::kNoop, .version = 8}});
    invariants.BeginGeneration(begun, 5);
    QCOMPARE(invariants.chosen(), Slot{2});
    QCOMPARE(invariants.StateAfter(kFirstSlot), std::uint64_t{5});
    QVERIFY(invariants.members().Votes(kC) && !invariants.members().Votes(kA));
    invariants.Applies(kC, Slot{2}, begun.log[0].entry);
    QVERIFY(!invariants.violation().found());
    // An old replica that were heard would show the lost entry.
    invariants.Applies(kA, Slot{2}, lost);
    CompareViolation(invariants, Invariants::kOneValue);
  }

  void RealState_GoesThroughSnapshotsAndGenerations() {
    Random random(3);
    Machine machine = Machine::Load(true, nullptr);
    Machine follower = Machine::Load(true, nullptr);
    for (std::uint32_t i = 1; i <= 400; ++i) {
      const Request request{.client = i % 5,
                            .number = i,
                            .kind = Operation::Kind::kWrite,
                            .key = i % ToyState::kKeys,
                            .written = i};
      const auto payload = machine.Encode(request, 2, random);
      QVERIFY(machine.Apply(*payload, WorldMutant::kNone).has_value());
      QVERIFY(follower.Apply(*payload, WorldMutant::kNone).has_value());
      if (i % 50 == 0) follower = Machine::Load(true, follower.Save().get());
      QCOMPARE(follower.HashAt(Slot{8}), machine.HashAt(Slot{8}));
    }
    QVERIFY(machine.HashAt(Slot{8}) != machine.HashAt(Slot{9}));
    const std::uint64_t epoch = machine.toy().epoch();
    QVERIFY(!machine.Apply(*machine.EncodeGeneration(), WorldMutant::kNone).has_value());
    QVERIFY(machine.toy().epoch() > epoch);
    QCOMPARE(machine.wrong() + follower.wrong(), std::string());
  }

  void Invariants_SeeWhatBreaksPaxos() {
    Invariants two_values = Three();
    Vote(two_values, kA, {1, kA}, CommandOf(5));
    Vote(two_values, kB, {1, kA}, CommandOf(6));
    CompareViolation(two_values, Invariants::kOneValuePerBallot);

    Invariants lower = Three();
    lower.BecomesDurable(kA, {.replica = kA, .promised = {3, kC}},
                         Accepting(Slot{2}, {2, kB}, CommandOf(5)));
    CompareViolation(lower, Invariants::kPromise);

    Invariants gap = Three();
    gap.Applies(kA, Slot{3}, CommandOf(5));
    CompareViolation(gap, Invariants::kContiguous);

    Invariants states = Three();
    states.HasState(kA, Slot{1}, 10);
    states.HasState(kB, Slot{1}, 11);
    CompareViolation(states, Invariants::kSameState);

    Invariants leaders = Three();
    leaders.Leads(kA, 1, {4, kA});
    leaders.Leads(kA, 1, {4, kA});
    QVERIFY(!leaders.violation().found());
    leaders.Leads(kA, 2, {4, kA});
    CompareViolation(leaders, Invariants::kOneLeader);

    Invariants stale = Three();
    stale.Answers(0, 8);
    stale.Answers(8, 8);
    QVERIFY(!stale.violation().found());
    stale.Answers(8, 7);
    CompareViolation(stale, Invariants::kEpoch);
  }

  void Invariants_RepliesNeedTheDisk() {
    const DurableState disk{.replica = kA, .promised = {2, kB}};
    Message promise{kA, kB, Promise{.ballot = {2, kB}, .granted = true}};
    Message accepted{kA, kB, Accepted{.ballot = {2, kB}, .granted = true}};
    Invariants invariants = Three();
    invariants.Says(promise, disk);
    invariants.Says(accepted, disk);
    QVERIFY(!invariants.violation().found());
    std::get<Accepted>(accepted.body).match = kFirstSlot;
    invariants.Says(accepted, disk);
    CompareViolation(invariants, Invariants::kDurable);
    Invariants forgetful = Three();
    std::get<Promise>(promise.body).ballot = {3, kB};
    forgetful.Says(promise, disk);
    CompareViolation(forgetful, Invariants::kDurable);
  }

  void Invariants_KnowWhoMayVote() {
    Invariants invariants = Three();
    LogEntry change{.kind = LogEntry::Kind::kMembers};
    change.members.seats = {{"a", "a", kA}, {"b", "b", kB}};
    invariants.Says({kA, kB, Accept{.ballot = {1, kA}, .first = Slot{2}, .entries = {change}}}, {});
    QCOMPARE(invariants.PossibleMembers(Slot{1}).size(), std::size_t{2});
    Vote(invariants, kA, {1, kA}, change);
    Vote(invariants, kC, {1, kA}, change);
    invariants.Applies(kA, Slot{2}, change);
    QVERIFY(!invariants.violation().found());
    // A replica that does not know slot 2 may still go by the members of slot 1.
    QCOMPARE(invariants.PossibleMembers(Slot{1}).size(), std::size_t{2});
    QCOMPARE(invariants.PossibleMembers(Slot{2}).size(), std::size_t{1});
    QCOMPARE(invariants.members().voters(), std::size_t{2});

    Invariants leap = Three();
    LogEntry two{.kind = LogEntry::Kind::kMembers};
    two.members.seats = {{"a", "a", kA}};
    Vote(leap, kA, {1, kA}, two);
    Vote(leap, kB, {1, kA}, two);
    leap.Applies(kA, Slot{2}, two);
    CompareViolation(leap, Invariants::kMembers);
  }

  void Plan_IsTheSeeds() {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const Plan plan = Plan::Draw(seed);
      QVERIFY(plan.seats == 1 || plan.seats == 3 || plan.seats == 5);
      QCOMPARE(Plan::Draw(seed).think, plan.think);
      QVERIFY(plan.seats + plan.spares <= Members::kMaxSeats);
      QVERIFY(plan.drift_limit <= 5'000);
    }
  }
};

}  // namespace onepiece::paxos::sim

ONEPIECE_TEST(onepiece::paxos::sim::PartsTest)
#include "parts_test.moc"
