// Tests leases: who may read alone, for how long and by whose clock, and how a lease ends.
#include <QtTest>

#include "cluster/base/status.h"
#include "tests/nodemanager/paxos/group.h"
#include "tests/test_main.h"

namespace onepiece::paxos {
namespace {

using namespace std::chrono_literals;

absl::Status StepDown(Group& group, ReplicaId id) {
  return group.Step(id, [](Replica& r, Time t, Outputs& out) { return r.StepDown(t, out); });
}

std::size_t Covering(Group& group) {
  std::size_t count = 0;
  for (auto& [id, node] : group.nodes()) {
    if (node.replica && node.replica->LeaseCovers(group.LocalTime(id))) ++count;
  }
  return count;
}

}  // namespace

class LeaseTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void CutOffLeader_LosesItsLeaseBeforeAnotherLeads() {
    for (const double rate : {1.0, 0.995, 1.005}) {
      Group group(3);
      const ReplicaId old = group.AwaitLeader();
      group.SetRate(old, rate);
      group.Run(3s);  // After this time the leader trusts the clocks.
      QVERIFY(group.replica(old).LeaseCovers(group.LocalTime(old)));
      group.passes = [&](const Message& m) { return m.from != old && m.to != old; };
      const Time cut = group.now;
      QVERIFY(group.Run(5s, [&] { return !group.replica(old).LeaseCovers(group.LocalTime(old)); }));
      QVERIFY(group.now - cut <= 400ms);
      QCOMPARE(group.Leader(), old);  // It still leads, but may not answer reads alone.
      QVERIFY(!group.Run(5s, [&] { return Covering(group) > 1; }));
      QVERIFY(Covering(group) == 1 && group.Leader() != old);
    }
  }

  // When answers take long, the lease counts from the question and not from the answer.
  void Lease_CountsFromTheSending() {
    Group group(3);
    group.AwaitLeader();
    group.Run(3s);
    group.latency = 150ms;
    group.Run(1s);
    const ReplicaId leader = group.Leader();
    QVERIFY(leader != ReplicaId{});
    QVERIFY(group.replica(leader).LeaseCovers(group.LocalTime(leader)));
    group.passes = [](const Message&) { return false; };
    const Time cut = group.now;
    group.Run(5s, [&] { return !group.replica(leader).LeaseCovers(group.LocalTime(leader)); });
    // The newest question that was answered left 300 ms before the cut.
    QVERIFY(group.now - cut <= 100ms);
  }

  void RestartedVoters_ElectNobodyWhileTheLeaseMayLast() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    group.Run(200ms);
    group.passes = [&](const Message& m) { return m.from != old && m.to != old; };
    for (ReplicaId id : {kN1, kN2, kN3}) {
      if (id == old) continue;
      group.Stop(id);
      group.Start(id);
    }
    QVERIFY(!group.Run(5s, [&] { return Covering(group) > 1; }));
    QVERIFY(group.Leader() != old && group.Leader() != ReplicaId{});
  }

  void Follower_WhoseClockRunsAwayDoesNotCount() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    const ReplicaId first = After(leader), second = Besides(leader, first);
    group.SetRate(first, 1.05);
    group.Run(2s);
    QCOMPARE(group.Leader(), leader);
    for (const Progress& p : group.replica(leader).progress()) {
      QCOMPARE(p.drifts, p.replica == first);
    }
    QCOMPARE(Covering(group), std::size_t{1});
    group.Stop(second);
    group.Run(600ms);
    // It commits with the replica whose clock drifts, but it has no lease.
    QCOMPARE(group.Leader(), leader);
    QVERIFY(group.Commit("a") != Slot{});
    QCOMPARE(Covering(group), std::size_t{0});
    group.SetRate(first, 1);
    group.Run(25s);
    QCOMPARE(Covering(group), std::size_t{1});
  }

  void StepDown_HandsOverAtOnce() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    for (int i = 0; i < 10; ++i) group.Commit("a");
    group.Run(200ms);
    QVERIFY(StepDown(group, old).ok());
    QVERIFY(!group.replica(old).LeaseCovers(group.LocalTime(old)));
    QCOMPARE(group.node(old).losses, 1);
    const ReplicaId next = group.AwaitLeader(50ms);
    QVERIFY2(next != ReplicaId{} && next != old, "nobody waits for a lease that was ended");
    QVERIFY(group.Commit("b") != Slot{});
    QCOMPARE(base::GetReason(StepDown(group, old)).reason, std::string("NOT_LEADER"));
  }

  void StepDown_WithoutSuccessorIsRefused() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    group.Run(100ms);
    for (ReplicaId id : {kN1, kN2, kN3}) {
      if (id != old) group.Stop(id);
    }
    group.Run(500ms);
    QCOMPARE(base::GetReason(StepDown(group, old)).reason, std::string("NO_SUCCESSOR"));
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::LeaseTest)
#include "lease_test.moc"
