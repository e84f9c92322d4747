// Tests messages that no honest replica sends. A replica ignores them, and nothing overflows, grows
// or stops.
#include <QtTest>
#include <limits>

#include "cluster/base/split_mix64.h"
#include "tests/nodemanager/paxos/group.h"
#include "tests/test_main.h"

namespace onepiece::paxos {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr Slot kMaxSlot{kMax};

// Makes random messages out of likely and absurd numbers.
class Forger {
 public:
  explicit Forger(std::uint64_t seed) : random_(seed) {}
  Message Next() {
    Message message;
    message.from = ReplicaId{random_.Below(8) == 0 ? Number() : random_.Below(5)};
    message.to = ReplicaId{random_.Below(4)};
    switch (random_.Below(9)) {
      case 0:
        message.body = PreVote{Any(message.from), Place(), Any(kN2)};
        break;
      case 1:
        message.body = PreVoteReply{Any(message.to), Coin(), Any(kN2), Place()};
        break;
      case 2:
        message.body = Prepare{Any(message.from), Place(), Any(kN2)};
        break;
      case 3:
        message.body = Promise{Any(message.to), Coin(), Any(kN1), Place(), Votes()};
        break;
      case 4:
        message.body = Accept{Any(message.from), Place(), Entries(), Place(), When()};
        break;
      case 5:
        message.body = Accepted{Any(message.to), Coin(), Any(kN3), Place(), When(), When(), 1};
        break;
      case 6: {
        auto snapshot = std::make_shared<Snapshot>();
        snapshot->index = Place();
        snapshot->members = Seats();
        message.body = InstallSnapshot{Any(message.from), Coin() ? snapshot : nullptr, When()};
        break;
      }
      case 7:
        message.body = Join{Coin() ? "n2" : std::string(random_.Below(600), 'x'), "h", Place(), 1};
        break;
      default:
        message.body = TakeOver{Any(message.from)};
    }
    return message;
  }

 private:
  bool Coin() { return random_.Below(2) == 0; }
  std::uint64_t Number() {
    switch (random_.Below(6)) {
      case 0:
        return kMax - random_.Below(3);
      case 1:
        return (std::uint64_t{1} << 62) - 2 + random_.Below(4);
      case 2:
        return random_.Next();
      default:
        return random_.Below(20);
    }
  }
  Slot Place() { return Slot{Number()}; }
  Ballot Any(ReplicaId likely) { return {Number(), Coin() ? likely : ReplicaId{Number()}}; }
  Time When() { return Time(Duration(static_cast<std::int64_t>(random_.Next()))); }
  Members Seats() {
    Members members;
    for (std::uint64_t i = random_.Below(12); i > 0; --i) {
      members.seats.push_back(
          {"n" + std::to_string(random_.Below(5)), "h", ReplicaId{random_.Below(5)}});
    }
    return members;
  }
  std::vector<LogEntry> Entries() {
    std::vector<LogEntry> entries(random_.Below(4));
    for (LogEntry& entry : entries) {
      entry.kind = static_cast<LogEntry::Kind>(random_.Below(3));
      if (entry.kind == LogEntry::Kind::kMembers) entry.members = Seats();
      if (entry.kind == LogEntry::Kind::kCommand && Coin()) entry.payload = Command("forged");
    }
    return entries;
  }
  std::vector<AcceptedEntry> Votes() {
    std::vector<AcceptedEntry> votes;
    for (LogEntry& entry : Entries()) votes.push_back({Place(), Any(kN2), std::move(entry)});
    return votes;
  }
  base::SplitMix64 random_;
};

}  // namespace

class HostileTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Forged ballots and snapshots may keep a group from agreeing, but they must not harm a process.
  void ForgedMessages_DoNoHarm() {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      Forger forger(seed);
      Members seats{{{"n1", "h1", kN1}, {"n2", "h2", kN2}, {"n3", "h3", kN3}}};
      DurableState disk = Replica::Bootstrap(kN1, seats, "n1");
      if (seed % 2 == 0) disk.log[0].entry.members = disk.snapshot.members = seats;
      ReplicaOptions options;
      options.name = "n1";
      Replica replica(options, disk, At(0));
      Time now = At(0);
      for (int i = 0; i < 2000; ++i) {
        Outputs out;
        now += 1ms;
        replica.Receive(now, forger.Next(), out);
        if (now >= replica.next_deadline()) replica.Tick(now, out);
        if (i % 7 == 0) replica.Propose(now, Command("c"), 1, out).IgnoreError();
        QVERIFY(!replica.LeaseCovers(now) || replica.IsReady());
        QVERIFY(replica.progress().size() < 32);
        QVERIFY(out.writes.accepted.size() < 64 && out.early.size() < 64 && out.late.size() < 64);
        // A message to the replica itself comes back to it, as Outputs asks of the caller.
        for (const Message& message : std::vector<Message>(std::move(out.late))) {
          Outputs more;
          if (message.to == kN1) replica.Receive(now, message, more);
        }
      }
    }
  }

  void AbsurdRound_DoesNotStopElections() {
    Group group(3);
    group.AwaitLeader();
    for (ReplicaId id : {kN1, kN2, kN3}) {
      const ReplicaId from = After(id);
      group.Receive(id, {from, id, Prepare{{kMax, from}, kMaxSlot, {}}});
      group.Receive(id, {from, id, Accept{{kMax, from}, kFirstSlot, {}, kMaxSlot, {}}});
      group.Receive(id, {from, id, PreVote{{kMax, from}, kMaxSlot, {}}});
      group.Receive(
          id,
          {from, id, Accepted{group.replica(id).promised(), false, {kMax, from}, {}, {}, {}, 1}});
      QVERIFY(group.replica(id).promised().round < 100);
    }
    QVERIFY(group.Commit("a") != Slot{});
    group.Stop(group.Leader());
    QVERIFY(group.Commit("b") != Slot{});
  }

  void Stranger_GetsNoVoteAndCountsForNothing() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader();
    group.Run(100ms);
    const Ballot ballot = group.replica(leader).promised();
    group.passes = [](const Message&) { return false; };
    const auto slot = group.Step(leader, [](Replica& r, Time t, Outputs& out) {
      return r.Propose(t, Command("c"), 1, out);
    });
    for (ReplicaId stranger : {ReplicaId{50}, ReplicaId{51}, ReplicaId{52}}) {
      group.Receive(leader,
                    {stranger, leader,
                     Accepted{ballot, true, ballot, *slot, group.LocalTime(leader), {}, 1}});
    }
    QCOMPARE(group.replica(leader).chosen(), *slot - 1);
    const ReplicaId follower = After(leader), stranger{50};
    group.Run(450ms);  // The follower's binding ends meanwhile.
    group.Receive(follower, {stranger, follower,
                             Prepare{{9, stranger}, group.replica(follower).chosen(), {}}});
    QVERIFY(group.replica(follower).promised() == ballot);
  }

  // An answer for slots that were never proposed is forged.
  void MatchBeyondTheLog_CountsForNothing() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), other = After(leader);
    group.Run(100ms);
    const Ballot ballot = group.replica(leader).promised();
    const Slot last = group.replica(leader).last_slot();
    group.Receive(
        leader,
        {other, leader, Accepted{ballot, true, ballot, kMaxSlot, group.LocalTime(leader), {}, 1}});
    QCOMPARE(group.replica(leader).chosen(), last);
    QVERIFY(group.Commit("a") != Slot{});
  }

  // Such a learner has the slots of another group. It would answer for entries that it never
  // stores.
  void LearnerThatHasMoreThanTheLeader_GetsNoSeat() {
    Group group(3);
    const ReplicaId leader = group.AwaitLeader(), learner{50};
    QVERIFY(group
                .Step(leader,
                      [](Replica& r, Time t, Outputs& out) {
                        return r.AddSeat(t, {"n4", "h", {}}, out);
                      })
                .ok());
    group.Run(100ms);
    group.passes = [&](const Message& m) { return m.to != learner; };
    const auto answer = [&](std::uint64_t beyond) {
      const Ballot ballot = group.replica(leader).promised();
      const Time now = group.LocalTime(leader);
      const Slot match = group.replica(leader).last_slot() + beyond;
      group.Receive(leader, {learner, leader, Join{"n4", "h", match, 1}});
      group.Receive(leader, {learner, leader, Accepted{ballot, true, ballot, match, now, now, 1}});
      group.Run(50ms);
      return group.replica(leader).members().Votes(learner);
    };
    for (int i = 0; i < 40; ++i) QVERIFY(!answer(5000));
    bool votes = false;
    for (int i = 0; i < 40 && !votes; ++i) votes = answer(0);
    QVERIFY(votes);
  }
};

}  // namespace onepiece::paxos

ONEPIECE_TEST(onepiece::paxos::HostileTest)
#include "hostile_test.moc"
