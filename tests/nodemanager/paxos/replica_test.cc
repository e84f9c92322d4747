// Tests that a group of replicas agrees: elections, recovery, the log, windows and snapshots.
#include <QtTest>
#include <set>

#include "cluster/base/status.h"
#include "tests/nodemanager/paxos/group.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::paxos {
namespace {

using namespace std::chrono_literals;

// True when every replica that is up has handed out what the leader has.
bool Agrees(Group& group) {
  const ReplicaId leader = group.Leader();
  if (leader == ReplicaId{}) return false;
  for (auto& [id, node] : group.nodes()) {
    if (node.replica && node.applied != group.replica(leader).chosen()) return false;
  }
  return true;
}

absl::StatusOr<Slot> Propose(Group& group, ReplicaId id, const std::string& text) {
  return group.Step(
      id, [&](Replica& r, Time t, Outputs& out) { return r.Propose(t, Command(text), 1, out); });
}

AcceptedEntry Vote(Slot slot, Ballot ballot, const std::string& text) {
  AcceptedEntry vote{slot, ballot, {}};
  vote.entry.kind = LogEntry::Kind::kCommand;
  vote.entry.payload = Command(text);
  return vote;
}

void Tick(Group& group, ReplicaId id) {
  group.Step(id, [](Replica& r, Time t, Outputs& out) {
    r.Tick(t, out);
    return 0;
  });
}

}  // namespace

class ReplicaTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Alone_LeadsAtOnceAndCommits() {
    Group group(1);
    QCOMPARE(group.AwaitLeader(100ms), kN1);
    QVERIFY(group.Commit("a") != Slot{});
    QVERIFY(group.replica(kN1).LeaseCovers(group.LocalTime(kN1)));
  }

  void Three_ElectOneAndCommitEverywhere() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(2s);
    QVERIFY(leader != ReplicaId{});
    for (int i = 0; i < 100; ++i) QVERIFY(group.Commit("c" + std::to_string(i)) != Slot{});
    group.Run(2s);  // After this time the leader trusts the clocks.
    QCOMPARE(group.Leader(), leader);
    QVERIFY(Agrees(group));
    for (auto& [id, node] : group.nodes()) {
      QCOMPARE(node.replica->leader(), leader);
      QCOMPARE(node.replica->LeaseCovers(group.LocalTime(id)), id == leader);
    }
  }

  void SameCalls_SameOutputs() {
    const auto run = [] {
      Group group(5);
      for (int i = 0; i < 20; ++i) group.Commit("c" + std::to_string(i));
      group.Stop(group.Leader());
      group.Commit("again");
      return std::pair(group.messages, group.now);
    };
    QVERIFY(run() == run());
  }

  void LeaderDies_AnotherLeadsWithAllThatWasCommitted() {
    Group group(3);
    for (int round = 0; round < 6; ++round) {
      const Slot slot = group.Commit("r" + std::to_string(round));
      QVERIFY(slot != Slot{});
      const ReplicaId old = group.Leader();
      group.Stop(old);
      const Time killed = group.now;
      const ReplicaId next = group.AwaitLeader(5s);
      QVERIFY(next != ReplicaId{} && next != old);
      QVERIFY2(group.now - killed < 1500ms, "failover takes too long");
      QCOMPARE(*group.node(next).state.at(slot).payload, "r" + std::to_string(round));
      group.Start(old);
      QVERIFY(group.Run(2s, [&] { return Agrees(group); }));
    }
  }

  void AllRestart_NothingIsLost() {
    Group group(3);
    const Slot slot = group.Commit("kept");
    for (ReplicaId id : {kN1, kN2, kN3}) group.Stop(id);
    for (ReplicaId id : {kN1, kN2, kN3}) group.Start(id);
    QVERIFY(group.AwaitLeader() != ReplicaId{});
    group.Run(200ms);
    for (auto& [id, node] : group.nodes())
      QCOMPARE(*node.state.at(slot).payload, std::string("kept"));
  }

  void CutOffFollower_DoesNotDeposeTheLeader() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    const Ballot ballot = group.replica(leader).promised();
    const ReplicaId cut = After(leader);
    group.passes = [&](const Message& m) { return m.from != cut && m.to != cut; };
    group.Run(10s);
    QVERIFY(group.replica(cut).role() == Role::kCandidate);
    group.passes = nullptr;
    group.Run(2s);
    QCOMPARE(group.Leader(), leader);
    QVERIFY(group.replica(cut).promised() == ballot);
    QCOMPARE(group.replica(cut).leader(), leader);
  }

  void CutOffLeader_StopsLeading() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    group.passes = [&](const Message& m) { return m.from != old && m.to != old; };
    QVERIFY(Propose(group, old, "unknown").ok());
    group.Run(900ms);
    QVERIFY(group.replica(old).role() != Role::kLeader);
    QCOMPARE(group.node(old).losses, 1);
    QCOMPARE(Reason(Propose(group, old, "late").status()), std::string("NOT_LEADER"));
    QVERIFY(group.Commit("other") != Slot{});
    group.passes = nullptr;
    QVERIFY(group.Run(3s, [&] { return Agrees(group); }));
  }

  void Proposal_ThatOneFollowerHasIsRecovered() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    group.Run(100ms);
    const ReplicaId has = After(old);
    group.passes = [&](const Message& m) { return m.from == old && m.to == has; };
    const auto slot = Propose(group, old, "half");
    group.Run(10ms);
    group.Stop(old);
    group.passes = nullptr;
    const ReplicaId next = group.AwaitLeader();
    QVERIFY(next != ReplicaId{});
    QCOMPARE(*group.node(next).state.at(*slot).payload, std::string("half"));
  }

  // One replica runs among scripted peers. For each slot it takes the reported entry of the higher
  // ballot, and it believes only consecutive slots.
  void Recovery_TakesTheHighestBallot() {
    Group group(5);
    for (ReplicaId id : {kN2, kN3, kN4, kN5}) group.Stop(id);
    QVERIFY(group.Run(2s, [&] { return group.replica(kN1).role() == Role::kCandidate; }));
    const auto ask = std::get<PreVote>(group.node(kN1).last.late.at(0).body);
    for (ReplicaId id : {kN2, kN3})
      group.Receive(kN1, {id, kN1, PreVoteReply{ask.ballot, true, {7, kN2}, Slot{1}}});
    const auto prepare = std::get<Prepare>(group.node(kN1).last.late.at(0).body);
    QCOMPARE(prepare.ballot.round, 8u);  // It is above every round that the replica has seen.
    const auto promise = [&](ReplicaId from, std::vector<AcceptedEntry> votes) {
      group.Receive(
          kN1,
          {from, kN1, Promise{prepare.ballot, true, prepare.ballot, Slot{1}, std::move(votes)}});
    };
    promise(kN4, {Vote(Slot{3}, {1, kN2}, "gap")});
    promise(kN2, {Vote(Slot{2}, {5, kN4}, "high"), Vote(Slot{3}, {2, kN5}, "low")});
    QVERIFY(group.replica(kN1).role() == Role::kCandidate);
    promise(kN3, {Vote(Slot{2}, {3, kN5}, "low"), Vote(Slot{3}, {4, kN4}, "high"),
                  Vote(Slot{4}, {1, kN2}, "only")});
    QVERIFY(group.replica(kN1).role() == Role::kLeader);
    std::vector<AcceptedEntry>& log = group.node(kN1).disk.log;
    QCOMPARE(log.size(), std::size_t{5});
    QCOMPARE(*log[1].entry.payload, std::string("high"));
    QCOMPARE(*log[2].entry.payload, std::string("high"));
    QCOMPARE(*log[3].entry.payload, std::string("only"));
    QVERIFY(log[4].entry.kind == LogEntry::Kind::kNoop);
    for (std::size_t i = 1; i < log.size(); ++i) QVERIFY(log[i].ballot == prepare.ballot);
    QVERIFY(!group.replica(kN1).IsReady());
    QCOMPARE(Reason(Propose(group, kN1, "early").status()), std::string("NOT_LEADER"));
    const Message answer{kN2, kN1,
                         Accepted{prepare.ballot, true, prepare.ballot, Slot{5}, {}, {}, 1}};
    group.Receive(kN1, answer);
    group.Receive(kN1, answer);  // A repeated answer counts once.
    QCOMPARE(group.replica(kN1).chosen(), Slot{1});
    // An answer at another ballot does not count.
    group.Receive(kN1, {kN3, kN1, Accepted{{1, kN1}, true, {1, kN1}, Slot{5}, {}, {}, 1}});
    QCOMPARE(group.replica(kN1).chosen(), Slot{1});
    group.Receive(kN1,
                  {kN3, kN1, Accepted{prepare.ballot, true, prepare.ballot, Slot{4}, {}, {}, 1}});
    QCOMPARE(group.replica(kN1).chosen(), Slot{4});
    group.Receive(kN1,
                  {kN3, kN1, Accepted{prepare.ballot, true, prepare.ballot, Slot{5}, {}, {}, 1}});
    QVERIFY(group.replica(kN1).IsReady());
  }

  void LostMessages_AreSentAgain() {
    Group group(3);
    std::size_t count = 0;
    group.passes = [&](const Message&) { return ++count % 3 != 0; };
    for (int i = 0; i < 200; ++i) {
      if (group.AwaitLeader() != ReplicaId{}) Propose(group, group.Leader(), "c").IgnoreError();
      group.Run(5ms);
    }
    group.passes = nullptr;
    QVERIFY(group.Run(5s, [&] { return Agrees(group); }));
    QVERIFY(group.replica(kN1).chosen() > Slot{150});
  }

  void Batch_IsOneMessageForEachFollower() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    group.Run(100ms);
    Outputs out;
    for (int i = 0; i < 50; ++i) {
      QVERIFY(group.replica(leader).Propose(group.LocalTime(leader), Command("c"), 1, out).ok());
    }
    QCOMPARE(out.early.size(), std::size_t{2});
    QCOMPARE(out.late.size(), std::size_t{1});
    QCOMPARE(out.writes.accepted.size(), std::size_t{50});
    QCOMPARE(std::get<Accept>(out.early[0].body).entries.size(), std::size_t{50});
    group.Process(leader, out);
    QVERIFY(group.Run(1s, [&] { return Agrees(group); }));
  }

  void Window_PushesBack() {
    Group group(3, [](ReplicaOptions& o) { o.window_slots = 10; });
    const ReplicaId leader = group.AwaitLeader();
    group.Run(100ms);
    for (int i = 0; i < 10; ++i) QVERIFY(Propose(group, leader, "c").ok());
    const absl::Status busy = Propose(group, leader, "c").status();
    QCOMPARE(Reason(busy), std::string("LOG_BUSY"));
    QVERIFY(absl::IsResourceExhausted(busy));
    QVERIFY(group.Commit("x") == Slot{});
    group.Run(100ms);
    QVERIFY(group.Commit("y") != Slot{});
  }

  void Window_CountsBytes() {
    Group group(3, [](ReplicaOptions& o) { o.window_bytes = 10000; });
    const ReplicaId leader = group.AwaitLeader();
    QVERIFY(Propose(group, leader, std::string(9990, 'x')).ok());
    QCOMPARE(Reason(Propose(group, leader, "c").status()), std::string("LOG_BUSY"));
    group.Run(100ms);
    QVERIFY(Propose(group, leader, "c").ok());
  }

  void Laggard_CatchesUpFromTheLog() {
    Group group(3);
    const ReplicaId away = After(group.AwaitLeader());
    group.Stop(away);
    for (int i = 0; i < 300; ++i) QVERIFY(group.Commit(std::string(20000, 'x')) != Slot{});
    group.Start(away);
    QVERIFY(group.Run(3s, [&] { return Agrees(group); }));
    QCOMPARE(group.node(away).restores, 0);
  }

  void Laggard_CatchesUpFromASnapshot() {
    Group group(3, [](ReplicaOptions& o) { o.keep_slots = 5; });
    const ReplicaId away = After(group.AwaitLeader());
    group.Stop(away);
    for (int i = 0; i < 100; ++i) QVERIFY(group.Commit("c") != Slot{});
    group.Run(200ms);
    for (auto& [id, node] : group.nodes()) {
      if (!node.replica) continue;
      Outputs out;
      node.replica->TakeSnapshot(Slot{90}, Command("ninety"), out);
      QCOMPARE(node.replica->first_slot(), Slot{86});
      group.Process(id, out);
    }
    group.Start(away);
    QVERIFY(group.Run(3s, [&] { return Agrees(group); }));
    QCOMPARE(group.node(away).restores, 1);
    QCOMPARE(*group.node(away).disk.snapshot.state, std::string("ninety"));
    group.Stop(away);
    group.Start(away);  // It starts from the snapshot that the leader sent.
    QVERIFY(group.Run(3s, [&] { return Agrees(group); }));
  }

  // `chosen` is written lazily, so a follower may come back knowing less than it had answered.
  void RestartedFollower_ThatNamesALowerMatchGoesOn() {
    Group group(3);
    const ReplicaId first = group.AwaitLeader();
    for (int i = 0; i < 20; ++i) QVERIFY(group.Commit("c") != Slot{});
    group.Run(100ms);
    QVERIFY(group.Step(first, [](Replica& r, Time t, Outputs& out) { return r.StepDown(t, out); })
                .ok());
    QVERIFY(
        group.Run(2s, [&] { return group.Leader() != ReplicaId{} && group.Leader() != first; }));
    group.Commit("d");
    const ReplicaId follower = Besides(first, group.Leader());
    group.Run(200ms);
    group.Stop(follower);
    group.node(follower).disk.chosen = Slot{5};  // The disk has nothing of what it was told later.
    group.Start(follower);
    QVERIFY(group.Commit("e") != Slot{});
    QVERIFY(group.Run(2s, [&] { return Agrees(group); }));
  }

  void ReplicaThatKnowsMost_IsTheOneThatWins() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    group.Run(100ms);
    const ReplicaId behind = After(old);
    group.passes = [&](const Message& m) { return m.to != behind; };
    QVERIFY(group.Commit("c") != Slot{});
    group.Run(100ms);
    group.Stop(old);
    group.passes = nullptr;
    QCOMPARE(group.AwaitLeader(), Besides(old, behind));
  }

  void RefuseToLead_NeverLeadsAgain() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader();
    group.Run(100ms);
    group.Step(old, [](Replica& r, Time t, Outputs& out) {
      r.RefuseToLead(t, out);
      return 0;
    });
    QVERIFY(group.replica(old).role() == Role::kFollower);
    const ReplicaId next = group.AwaitLeader();
    QVERIFY(next != ReplicaId{} && next != old);
    group.Stop(Besides(old, next));
    group.Run(100ms);
    group.Stop(next);
    group.Start(Besides(old, next));
    group.Run(5s);
    QVERIFY(group.Leader() != old);
  }

  void CommonVersion_IsWhatEveryVoterApplies() {
    Group group(3, [](ReplicaOptions& o) { o.version = o.name == "n2" ? 3 : 4; });
    const ReplicaId leader = group.AwaitLeader();
    group.Run(200ms);
    QCOMPARE(group.replica(leader).common_version(), 3u);
  }

  void FirstStep_HandsOutWhatWasChosen() {
    Group group(3);
    group.Commit("a");
    group.Run(200ms);
    const Slot chosen = group.node(kN1).disk.chosen;
    group.Stop(kN1);
    group.Start(kN1);
    QVERIFY(group.replica(kN1).next_deadline() <= group.LocalTime(kN1));
    Tick(group, kN1);
    QCOMPARE(group.node(kN1).applied, chosen);
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::ReplicaTest)
#include "replica_test.moc"
