// Tests how the replicas of a group find the one whose state differs: small groups in which some
// states are flipped, with every leader, and messages that are lost, repeated and late.
#include "nodemanager/replication/state_hashes.h"

#include <QtTest>
#include <algorithm>
#include <bit>
#include <deque>
#include <memory>
#include <vector>

#include "cluster/base/split_mix64.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using paxos::ReplicaId;
using paxos::Slot;
using paxos::StateHash;

constexpr std::uint32_t kThisVersion = 4;

paxos::Members Voters(std::size_t count) {
  paxos::Members members;
  for (std::size_t i = 1; i <= count; ++i)
    members.seats.push_back({.name = std::to_string(i), .replica = ReplicaId{i}});
  return members;
}

paxos::Message AcceptedFrom(std::uint64_t from, StateHash hashed,
                            std::uint32_t version = kThisVersion) {
  paxos::Accepted accepted;
  accepted.version = version;
  accepted.hashed = hashed;
  return {.from = ReplicaId{from}, .to = ReplicaId{1}, .body = accepted};
}

paxos::Message AcceptTo(std::uint64_t to) {
  return {.from = ReplicaId{1}, .to = ReplicaId{to}, .body = paxos::Accept{}};
}

// One replica of a simulated group.
struct Member {
  explicit Member(std::uint32_t of_version) : version(of_version), hashes(of_version) {}
  std::uint32_t version;
  StateHashes hashes;
  std::uint64_t applied = 0;
  std::uint64_t flipped_at = 0;  // 0: never.
};

class World {
 public:
  World(std::size_t size, std::uint64_t seed) : members_(Voters(size)), random_(seed) {
    for (std::size_t i = 0; i < size; ++i)
      replicas_.push_back(std::make_unique<Member>(kThisVersion));
  }
  Member& operator[](std::size_t i) { return *replicas_[i]; }
  void MakeOld(std::size_t i) { replicas_[i] = std::make_unique<Member>(kThisVersion - 1); }

  // Lets every replica apply up to about `slot`. Messages get lost.
  void Run(std::uint64_t slot, std::size_t leader) {
    while (std::any_of(replicas_.begin(), replicas_.end(),
                       [&](const auto& replica) { return replica->applied < slot; })) {
      const std::size_t i = random_.Below(replicas_.size());
      Apply(i, std::min(slot, replicas_[i]->applied + 1 + random_.Below(100)));
      Exchange(leader, 3);
    }
  }
  // Nothing is lost any more.
  void Settle(std::size_t leader) {
    for (int i = 0; i < 3; ++i) Exchange(leader, 0);
  }

 private:
  void Apply(std::size_t i, std::uint64_t to) {
    Member& replica = *replicas_[i];
    for (; replica.applied < to;) {
      const Slot slot{++replica.applied};
      if (!replica.hashes.IsDue(slot)) continue;
      std::uint32_t hash = static_cast<std::uint32_t>(slot.value * 2654435761u);
      if (replica.flipped_at != 0 && slot.value >= replica.flipped_at)
        hash += static_cast<std::uint32_t>(i) + 1;
      if (replica.version != kThisVersion)
        hash ^= 0x80000000u;  // Another order of the same fields.
      replica.hashes.AddOwn({slot, hash}, 1000);
    }
  }
  // Of `lost` + 1 messages, `lost` are lost or late.
  void Exchange(std::size_t leader, std::uint64_t lost) {
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      if (i == leader) continue;
      paxos::Accepted accepted;
      accepted.version = replicas_[i]->version;
      paxos::Message up{.from = ReplicaId{i + 1}, .to = ReplicaId{leader + 1}, .body = accepted};
      replicas_[i]->hashes.Stamp(up);
      Send(up, lost);
      paxos::Message down{
          .from = ReplicaId{leader + 1}, .to = ReplicaId{i + 1}, .body = paxos::Accept{}};
      replicas_[leader]->hashes.Stamp(down);
      Send(down, lost);
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      replicas_[i]->hashes.Count(members_, ReplicaId{i + 1});
  }
  void Send(const paxos::Message& message, std::uint64_t lost) {
    late_.push_back(message);
    if (random_.Below(lost + 1) == 0) Deliver(message);
    if (late_.size() <= 20) return;
    Deliver(late_[random_.Below(late_.size())]);
    late_.pop_front();
  }
  void Deliver(const paxos::Message& message) {
    replicas_[message.to.value - 1]->hashes.Hear(message);
  }

  const paxos::Members members_;
  base::SplitMix64 random_;
  std::vector<std::unique_ptr<Member>> replicas_;
  std::deque<paxos::Message> late_;
};

}  // namespace

class StateHashesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Due_DependsOnTheSizeOfTheState() {
    StateHashes hashes(kThisVersion);
    QVERIFY(!hashes.IsDue({}));
    const auto interval = [&] {
      std::uint64_t slot = 1;
      while (!hashes.IsDue(Slot{slot})) ++slot;
      return slot;
    };
    QCOMPARE(interval(), std::uint64_t{64});
    const std::pair<std::size_t, std::uint64_t> sizes[] = {
        {0, 64},        {128 << 10, 64}, {(128 << 10) + 2048, 128},
        {1 << 20, 512}, {8 << 20, 4096}, {48 << 20, 4096},
        {1, 64}};
    for (const auto& [bytes, expected] : sizes) {
      hashes.AddOwn({Slot{4096}, 1}, bytes);
      QCOMPARE(interval(), expected);
      QVERIFY(hashes.IsDue(Slot{4096}));  // Where all replicas meet.
    }
  }

  void Majority_IsTold_AndTheOddOneSees() {
    StateHashes leader(kThisVersion), odd(kThisVersion);
    leader.AddOwn({Slot{64}, 7}, 0);
    leader.Hear(AcceptedFrom(2, {}));
    leader.Count(Voters(3), ReplicaId{1});
    QCOMPARE(leader.agreed(), StateHash());
    leader.Hear(AcceptedFrom(2, {Slot{64}, 7}));
    leader.Hear(AcceptedFrom(3, {Slot{64}, 8}));
    leader.Count(Voters(3), ReplicaId{1});
    QCOMPARE(leader.agreed(), (StateHash{Slot{64}, 7}));
    QVERIFY(!leader.odd());
    paxos::Message accept = AcceptTo(3);
    leader.Stamp(accept);
    QCOMPARE(std::get<paxos::Accept>(accept.body).agreed, (StateHash{Slot{64}, 7}));
    odd.AddOwn({Slot{64}, 8}, 0);
    QVERIFY(!odd.odd());
    odd.Hear(accept);
    QVERIFY(odd.odd() == (StateHashes::Odd{Slot{64}, 8, 7}));
  }

  void Laggard_ComparesWhenItGetsThere() {
    StateHashes hashes(kThisVersion);
    paxos::Accept accept;
    accept.agreed = {Slot{128}, 7};
    hashes.Hear({.from = ReplicaId{1}, .to = ReplicaId{2}, .body = accept});
    accept.agreed = {Slot{192}, 9};
    hashes.Hear({.from = ReplicaId{1}, .to = ReplicaId{2}, .body = accept});
    hashes.AddOwn({Slot{64}, 1}, 0);
    QVERIFY(!hashes.odd());
    hashes.AddOwn({Slot{128}, 8}, 0);
    QVERIFY(hashes.odd() == (StateHashes::Odd{Slot{128}, 8, 7}));
  }

  // A snapshot of the leader has replaced the state.
  void NewState_IsComparedAnew() {
    StateHashes hashes(kThisVersion);
    hashes.AddOwn({Slot{64}, 8}, 0);
    hashes.ForgetOwn();
    paxos::Accept accept;
    accept.agreed = {Slot{64}, 7};
    hashes.Hear({.from = ReplicaId{1}, .to = ReplicaId{2}, .body = accept});
    QVERIFY(!hashes.odd());
    QCOMPARE(hashes.own(), StateHash());
  }

  void Vacant_SeatsAndStrangersDoNotCount() {
    StateHashes leader(kThisVersion);
    leader.AddOwn({Slot{64}, 7}, 0);
    paxos::Members members = Voters(3);
    leader.Hear(AcceptedFrom(9, {Slot{64}, 7}));  // A learner.
    leader.Count(members, ReplicaId{1});
    QCOMPARE(leader.agreed(), StateHash());
    members.seats[1].replica = {};
    members.seats[2].replica = {};
    leader.AddOwn({Slot{128}, 7}, 0);
    leader.Count(members, ReplicaId{1});
    QCOMPARE(leader.agreed(), (StateHash{Slot{128}, 7}));
  }

  // What a replica said under its old version must not count after its update.
  void OtherVersion_IsNeitherCountedNorTold() {
    StateHashes leader(kThisVersion);
    leader.AddOwn({Slot{64}, 7}, 0);
    for (const std::uint64_t old : {2, 3})
      leader.Hear(AcceptedFrom(old, {Slot{64}, 8}, kThisVersion - 1));
    leader.Count(Voters(3), ReplicaId{1});
    QCOMPARE(leader.agreed(), StateHash());
    for (const std::uint64_t updated : {2, 3}) leader.Hear(AcceptedFrom(updated, {}));
    leader.AddOwn({Slot{128}, 9}, 0);
    leader.Hear(AcceptedFrom(2, {Slot{128}, 9}));
    leader.Count(Voters(3), ReplicaId{1});
    QCOMPARE(leader.agreed(), (StateHash{Slot{128}, 9}));
    QVERIFY(!leader.odd());
    leader.Hear(AcceptedFrom(3, {Slot{64}, 8}, kThisVersion - 1));
    for (const auto& [to, told] : {std::pair(2, 128), std::pair(3, 0)}) {
      paxos::Message accept = AcceptTo(static_cast<std::uint64_t>(to));
      leader.Stamp(accept);
      QCOMPARE(std::get<paxos::Accept>(accept.body).agreed.slot.value,
               static_cast<std::uint64_t>(told));
    }
  }

  void Kept_IsBounded() {
    StateHashes hashes(kThisVersion);
    for (std::uint64_t slot = 64; slot < 64 * 1000; slot += 64) {
      hashes.AddOwn({Slot{slot}, 1}, 0);
      hashes.Hear(AcceptedFrom(1000 + slot, {Slot{slot}, 1}));
    }
    paxos::Accept accept;
    accept.agreed = {Slot{64}, 7};  // Far too late: its own hash is forgotten.
    hashes.Hear({.from = ReplicaId{1}, .to = ReplicaId{2}, .body = accept});
    QVERIFY(!hashes.odd());
  }

  // Every group of 3 and 5, every minority of flipped states, every leader.
  void Flipped_AreFoundAndNobodyElse() {
    int worlds = 0;
    for (const std::size_t size : {3, 5}) {
      for (std::uint32_t flipped = 0; flipped < (1u << size); ++flipped) {
        if (static_cast<std::size_t>(std::popcount(flipped)) > (size - 1) / 2) continue;
        for (std::size_t leader = 0; leader < size; ++leader) {
          World world(size, ++worlds);
          for (std::size_t i = 0; i < size; ++i) {
            if ((flipped >> i & 1) != 0) world[i].flipped_at = 1 + 150 * (i + 1);
          }
          world.Run(1500, leader);
          world.Run(3000, (leader + 1) % size);  // The lead changes.
          world.Settle((leader + 1) % size);
          for (std::size_t i = 0; i < size; ++i)
            QCOMPARE(world[i].hashes.odd().has_value(), (flipped >> i & 1) != 0);
        }
      }
    }
    QVERIFY(worlds > 70);
  }

  // The group is updated one by one. An old program's hash says nothing, and accuses nobody.
  void MixedVersions_AccuseNobody() {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      for (std::size_t leader = 0; leader < 3; ++leader) {
        World world(3, seed);
        world.MakeOld((leader + seed) % 3);
        if (seed % 2 == 0) world.MakeOld((leader + seed + 1) % 3);
        world.Run(2000, leader);
        world.Settle(leader);
        for (std::size_t i = 0; i < 3; ++i) QVERIFY(!world[i].hashes.odd());
      }
    }
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::StateHashesTest)
#include "state_hashes_test.moc"
