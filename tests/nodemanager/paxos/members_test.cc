// Tests seats: how a group grows, loses replicas and gets them back.
#include <QtTest>
#include <algorithm>

#include "cluster/base/status.h"
#include "tests/nodemanager/paxos/group.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::paxos {
namespace {

using namespace std::chrono_literals;

std::string Name(ReplicaId id) { return "n" + std::to_string(id.value); }

DurableState Blank(ReplicaId id) {
  DurableState disk;
  disk.replica = id;
  return disk;
}

absl::StatusOr<Slot> Add(Group& group, const std::string& name) {
  return group.Step(group.Leader(), [&](Replica& r, Time t, Outputs& out) {
    return r.AddSeat(t, Seat{name, "host-" + name, {}}, out);
  });
}
absl::StatusOr<Slot> Remove(Group& group, const std::string& name) {
  return group.Step(group.Leader(),
                    [&](Replica& r, Time t, Outputs& out) { return r.RemoveSeat(t, name, out); });
}
absl::StatusOr<Slot> Replace(Group& group, const std::string& name, const std::string& by) {
  return group.Step(group.Leader(), [&](Replica& r, Time t, Outputs& out) {
    return r.ReplaceSeat(t, name, Seat{by, "host-" + by, {}}, out);
  });
}

// True when each of `ids` knows that all of `ids` vote, and nobody else.
bool AllVote(Group& group, const std::vector<ReplicaId>& ids) {
  return std::all_of(ids.begin(), ids.end(), [&](ReplicaId id) {
    const Members& members = group.replica(id).members();
    return members.voters() == ids.size() &&
           std::all_of(ids.begin(), ids.end(), [&](ReplicaId v) { return members.Votes(v); });
  });
}

}  // namespace

class MembersTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Group_GrowsFromOneToFive() {
    Group group;
    const Members seats{{{"n1", "host1"}, {"n2", "host2"}, {"n3", "host3"}}};
    group.AddNode("n1", Replica::Bootstrap(kN1, seats, "n1"));
    QCOMPARE(group.AwaitLeader(1s), kN1);
    QVERIFY(group.Commit("a") != Slot{});
    group.AddNode("n2", Blank(kN2));
    group.AddNode("n3", Blank(kN3));
    QVERIFY(group.Run(5s, [&] { return AllVote(group, {kN1, kN2, kN3}); }));
    QVERIFY(Add(group, "n4").ok());
    group.Run(100ms);
    QVERIFY(Add(group, "n5").ok());
    group.AddNode("n4", Blank(kN4));
    group.AddNode("n5", Blank(kN5));
    QVERIFY(group.Run(5s, [&] { return AllVote(group, {kN1, kN2, kN3, kN4, kN5}); }));
    QCOMPARE(group.replica(kN4).members().Find(kN4)->address, std::string("host4"));
    // Of five voters two may die.
    group.Stop(group.Leader());
    group.Stop(group.AwaitLeader());
    QVERIFY(group.Commit("c") != Slot{});
  }

  void WipedReplica_GetsItsSeatBackUnderANewId() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), wiped = After(leader), fresh{77};
    for (int i = 0; i < 50; ++i) group.Commit("a");
    group.Stop(wiped);
    group.nodes().erase(wiped);
    group.AddNode(Name(wiped), Blank(fresh));
    QVERIFY(group.replica(fresh).role() == Role::kLearner);
    std::vector<ReplicaId> now = {leader, Besides(leader, wiped), fresh};
    QVERIFY(group.Run(5s, [&] { return AllVote(group, now); }));
    QVERIFY(group.replica(fresh).role() == Role::kFollower);
    QCOMPARE(group.replica(fresh).members().FindName(Name(wiped))->replica, fresh);
  }

  void Learner_DoesNotTakeTheSeatOfOneThatAnswers() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), twin = After(leader), fresh{77};
    group.AddNode(Name(twin), Blank(fresh));
    group.Run(5s);
    QVERIFY(AllVote(group, {kN1, kN2, kN3}) && group.Leader() == leader);
    QVERIFY(!group.replica(leader).members().Votes(fresh));
    group.AddNode("nobody", Blank(ReplicaId{78}));
    group.Run(2s);
    // The leader does not feed a replica for which there is no seat.
    QCOMPARE(group.replica(leader).progress().size(), std::size_t{4});
  }

  void ReplacedReplica_LearnsThatItHasNoVote() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), old = After(leader);
    group.Run(100ms);
    QVERIFY(Replace(group, Name(old), "n9").ok());
    group.AddNode("n9", Blank(ReplicaId{9}));
    const std::vector<ReplicaId> now = {leader, Besides(leader, old), ReplicaId{9}};
    QVERIFY(group.Run(5s, [&] { return AllVote(group, now); }));
    QVERIFY(group.replica(old).role() == Role::kLearner);
    group.Run(10s);
    QCOMPARE(group.Leader(), leader);
  }

  void ReplicaThatWasAwayWhenItLostItsSeat_LearnsIt() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), old = After(leader);
    group.Run(100ms);
    group.Stop(old);
    group.Run(1s);
    QVERIFY(Remove(group, Name(old)).ok());
    group.Run(20s);
    group.Start(old);
    group.Run(10s);
    QCOMPARE(group.Leader(), leader);
    QVERIFY(Add(group, Name(old)).ok());
    QVERIFY(group.Run(5s, [&] { return AllVote(group, {kN1, kN2, kN3}); }));
  }

  void MovedReplica_GetsItsNewAddress() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), moved = After(leader);
    group.Run(100ms);
    group.Stop(moved);
    group.node(moved).options.address = "elsewhere";
    group.passes = [&](const Message& m) {  // Messages to the old address are lost.
      if (m.to != moved) return true;
      for (const Progress& p : group.replica(leader).progress()) {
        if (p.replica == moved && p.address == "elsewhere") return true;
      }
      return false;
    };
    group.Start(moved);
    QVERIFY(group.Run(5s, [&] {
      const Seat* seat = group.replica(leader).members().Find(moved);
      return seat != nullptr && seat->address == "elsewhere";
    }));
  }

  // All replicas keep their seats and come back at new addresses. Nothing else tells the leader
  // that something changed.
  void AllMovedAtOnce_SeatsNameTheNewAddresses() {
    Group group(3);
    QVERIFY(group.AwaitLeader() != ReplicaId{});
    group.Run(100ms);
    for (const ReplicaId id : {kN1, kN2, kN3}) group.Stop(id);
    for (const ReplicaId id : {kN1, kN2, kN3}) {
      group.node(id).options.address = "moved-" + Name(id);
      group.Start(id);
    }
    QVERIFY(group.Run(10s, [&] {
      return std::all_of(group.nodes().begin(), group.nodes().end(), [&](const auto& node) {
        const Members& members = node.second.replica->members();
        return members.voters() == 3 &&
               std::all_of(members.seats.begin(), members.seats.end(),
                           [](const Seat& seat) { return seat.address == "moved-" + seat.name; });
      });
    }));
    QVERIFY(group.Commit("a") != Slot{});
  }

  void Refusals() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), other = After(leader);
    group.Run(100ms);
    QCOMPARE(Reason(Remove(group, Name(leader)).status()), std::string("LEADERS_SEAT"));
    QCOMPARE(Reason(Remove(group, "n7").status()), std::string("NO_SEAT"));
    QCOMPARE(Reason(Replace(group, "n7", "n8").status()), std::string("NO_SEAT"));
    QCOMPARE(Reason(Add(group, "n1").status()), std::string("SEAT_EXISTS"));
    QCOMPARE(Reason(Replace(group, Name(other), Name(leader)).status()),
             std::string("SEAT_EXISTS"));
    QVERIFY(Add(group, "n4").ok());
    QCOMPARE(Reason(Add(group, "n5").status()), std::string("MEMBERS_CHANGING"));
    for (const char* name : {"n5", "n6", "n7"}) {
      group.Run(100ms);
      QVERIFY(Add(group, name).ok());
    }
    group.Run(100ms);
    QCOMPARE(Reason(Add(group, "n8").status()), std::string("TOO_MANY_SEATS"));
    group.Stop(other);
    group.Run(1s);
    QCOMPARE(Reason(Remove(group, Name(Besides(leader, other))).status()),
             std::string("NO_QUORUM_LEFT"));
    QVERIFY(Remove(group, Name(other)).ok());  // The silent replica may go.
    const auto follower = group.Step(Besides(leader, other), [](Replica& r, Time t, Outputs& out) {
      return r.AddSeat(t, Seat{"n8", "h", {}}, out);
    });
    QCOMPARE(Reason(follower.status()), std::string("NOT_LEADER"));
    Group alone(1);
    alone.AwaitLeader();
    QCOMPARE(Reason(Remove(alone, "n1").status()), std::string("LAST_VOTER"));
  }

  void Change_WaitsForWhatIsBeforeItAndNothingPasses() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    group.Run(100ms);
    const auto propose = [&] {
      return group.Step(leader, [](Replica& r, Time t, Outputs& out) {
        return r.Propose(t, Command("c"), 1, out);
      });
    };
    const auto before = propose();
    const auto change = Add(group, "n4");
    QVERIFY(before.ok() && change.ok());
    QCOMPARE(*change, *before + 1);
    QCOMPARE(group.replica(leader).last_slot(), *before);  // The change is not proposed yet.
    QCOMPARE(Reason(propose().status()), std::string("LOG_BUSY"));
    group.Run(100ms);
    QVERIFY(group.node(leader).state.at(*change).kind == LogEntry::Kind::kMembers);
    QVERIFY(propose().ok());
  }

  // A leader dies when one follower has its change of members. The next leader recovers the change,
  // and begins phase 1 anew before it goes on.
  void RecoveredChange_IsFollowedByANewPhaseOne() {
    Group group(3);
    const ReplicaId old = group.AwaitLeader(), has = After(old);
    group.Run(100ms);
    group.passes = [&](const Message& m) { return m.from == old && m.to == has; };
    const auto slot = Add(group, "n4");
    group.Run(10ms);
    group.Stop(old);
    group.passes = nullptr;
    std::vector<std::uint64_t> rounds;
    QVERIFY(group.Run(5s, [&] {
      for (auto& [id, node] : group.nodes()) {
        if (node.replica && node.replica->role() == Role::kLeader &&
            (rounds.empty() || rounds.back() != node.replica->promised().round)) {
          rounds.push_back(node.replica->promised().round);
        }
      }
      return group.Leader() != ReplicaId{};
    }));
    QCOMPARE(rounds.size(), std::size_t{2});
    const ReplicaId next = group.Leader();
    QVERIFY(group.replica(next).members().FindName("n4") != nullptr);
    QVERIFY(group.node(next).state.at(*slot).kind == LogEntry::Kind::kMembers);
    QVERIFY(group.node(next).state.at(*slot + 1).kind == LogEntry::Kind::kNoop);
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::MembersTest)
#include "members_test.moc"
