// Tests read indexes: up to which slot a follower must know the log, so that a read there is
// linearisable.
#include <QtTest>
#include <optional>

#include "tests/nodemanager/paxos/group.h"
#include "tests/test_main.h"

namespace onepiece::paxos {
namespace {

using namespace std::chrono_literals;

bool Ask(Group& group, ReplicaId id, std::uint64_t request) {
  return group.Step(id,
                    [&](Replica& r, Time, Outputs& out) { return r.AskReadIndex(request, out); });
}

// Runs until the replica has an answer to `request`.
std::optional<ReadIndex> Await(Group& group, ReplicaId id, std::uint64_t request,
                               Duration limit = 5s) {
  std::optional<ReadIndex> found;
  group.Run(limit, [&] {
    for (const ReadIndex& answer : group.node(id).last.read_indexes) {
      if (answer.request == request) found = answer;
    }
    return found.has_value();
  });
  return found;
}

}  // namespace

class ReadIndexTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void LeaderWithLease_NamesWhatIsChosenAtOnce() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    group.Run(3s);  // After this time the leader trusts the clocks.
    const Slot committed = group.Commit("x");
    QVERIFY(group.replica(leader).LeaseCovers(group.LocalTime(leader)));
    const Slot last = group.replica(leader).last_slot();
    QVERIFY(Ask(group, After(leader), 7));
    const auto answer = Await(group, After(leader), 7);
    QVERIFY(answer && answer->granted);
    QCOMPARE(answer->index, committed);
    QCOMPARE(group.replica(leader).last_slot(), last);  // No no-op was needed.
  }

  // Without the lease another leader may have chosen more. A no-op that is proposed after the
  // question shows that none has.
  void LeaderWithoutLease_ConfirmsByANoOp() {
    Group group(3, [](ReplicaOptions& options) { options.lease = 0ms; });
    const ReplicaId leader = group.AwaitLeader();
    const Slot committed = group.Commit("x");
    QVERIFY(!group.replica(leader).LeaseCovers(group.LocalTime(leader)));
    QVERIFY(Ask(group, After(leader), 8));
    const auto answer = Await(group, After(leader), 8);
    QVERIFY(answer && answer->granted);
    QVERIFY(answer->index > committed);
    QVERIFY(group.node(leader).applied >= answer->index);
  }

  void CutOffLeader_NamesNothing() {
    Group group(3, [](ReplicaOptions& options) { options.lease = 0ms; });
    const ReplicaId old = group.AwaitLeader();
    const ReplicaId follower = After(old);
    group.Commit("x");
    // The question and its answer pass, and nothing else to or from the old leader. The other two
    // go on without it.
    group.passes = [&](const Message& m) {
      if (m.from == old) return m.to == follower && std::holds_alternative<ReadIndex>(m.body);
      if (m.to == old) return std::holds_alternative<ReadIndexRequest>(m.body);
      return true;
    };
    QVERIFY(Ask(group, follower, 9));
    bool granted = false, refused = false;
    group.Run(10s, [&] {
      for (const ReadIndex& answer : group.node(follower).last.read_indexes) {
        granted |= answer.granted;
        refused |= !answer.granted;
      }
      return granted || refused;
    });
    QVERIFY(!granted && refused);
    QVERIFY(group.Run(10s, [&] { return group.Leader() != old && group.Leader() != ReplicaId{}; }));
    QVERIFY(group.Commit("y") != Slot{});
  }

  void NoLeader_IsNotAsked() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    QVERIFY(!Ask(group, leader, 1));
    const ReplicaId follower = After(leader);
    group.Stop(follower);
    group.Start(follower);
    QVERIFY(!Ask(group, follower, 2));  // It has not heard who leads.
  }

  void WhoDoesNotLead_Refuses() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    const ReplicaId follower = After(leader), other = Besides(leader, follower);
    group.Receive(follower, {other, follower, ReadIndexRequest{3}});
    const auto answer = Await(group, other, 3);
    QVERIFY(answer && !answer->granted);
  }

  void TooManyReads_AreRefused() {
    Group group(3, [](ReplicaOptions& options) { options.lease = 0ms; });
    const ReplicaId leader = group.AwaitLeader();
    const ReplicaId follower = After(leader);
    group.passes = [&](const Message& m) { return m.from == leader && m.to == follower; };
    int refused = 0;
    for (std::uint64_t request = 0; request < 100; ++request) {
      group.Receive(leader, {follower, leader, ReadIndexRequest{request}});
      for (const Message& message : group.node(leader).last.early) {
        const auto* answer = std::get_if<ReadIndex>(&message.body);
        if (answer != nullptr && !answer->granted) ++refused;
      }
    }
    QCOMPARE(refused, 100 - 64);
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::ReadIndexTest)
#include "read_index_test.moc"
