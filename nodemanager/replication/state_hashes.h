// Compares the states of the replicas of a group while they run, and finds the odd one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/message.h"

namespace onepiece::nodemanager {

/// The hashes that one replica knows: of its own state, of the others' states if it leads, and what
/// a majority agreed on.
///
/// Every replica hashes its state after the slots for which IsDue() holds. A follower's Accepted
/// carries its newest hash. The leader finds the hash that a majority of the voters has after one
/// slot, itself included, and its Accepts tell that. A replica that has another hash after this
/// slot is odd. The leader may be the odd one: then its followers are the majority.
///
/// Which slots: the multiples of a power of two between 64 and 4096. The power grows with the
/// state, so that hashing costs at most about 2 KiB of state for each slot (8 MiB every 4096
/// slots; the largest state, 48 MiB, costs 12 KiB a slot). Replicas whose states have different
/// sizes still meet at the multiples of 4096. A group that applies nothing compares nothing.
///
/// Which replicas: only those that run the same version. An older program keeps fields that it does
/// not know, but may serialise them in another order, so its hash says nothing.
///
/// What a hash proves: a fact about one slot never changes, so hashes need no ballot and may come
/// late, twice or from an earlier leader.
///
/// Threading: thread-safe, because the state is applied on another thread than messages are taken.
/// Blocking: never.
class StateHashes {
 public:
  /// This replica's state differs from that of the majority.
  struct Odd {
    paxos::Slot slot;
    std::uint32_t own = 0, agreed = 0;
    friend bool operator==(const Odd&, const Odd&) = default;
  };

  /// At most this many hashes are kept of each replica, and of what was agreed. A leader with its
  /// window full is 1024 slots ahead of its followers, which is 16 hashes.
  static constexpr std::size_t kKept = 64;
  static constexpr std::uint64_t kMinInterval = 64, kMaxInterval = 4096;

  /// `version` is the highest command version that this program applies.
  explicit StateHashes(std::uint32_t version) : version_(version) {}

  /// True when the state after `slot` must be hashed.
  [[nodiscard]] bool IsDue(paxos::Slot slot) const;
  /// Takes the hash of this replica's state, which has `bytes` bytes. Slots ascend.
  void AddOwn(paxos::StateHash own, std::size_t bytes);
  /// Forgets the hashes of this replica's state, because another state has replaced it.
  void ForgetOwn();

  /// Takes the hashes out of a message of another replica. Ignores other kinds of messages.
  void Hear(const paxos::Message& message);
  /// Finds what a majority of `members` agrees on. `self` is this replica.
  void Count(const paxos::Members& members, paxos::ReplicaId self);
  /// Puts hashes into a message to another replica. Leaves other kinds of messages as they are.
  void Stamp(paxos::Message& message) const;

  /// The newest hash of this replica's state.
  [[nodiscard]] paxos::StateHash own() const;
  /// The newest hash that a majority has.
  [[nodiscard]] paxos::StateHash agreed() const;
  /// The first difference that was found. It stays until ForgetOwn().
  [[nodiscard]] std::optional<Odd> odd() const;

 private:
  using BySlot = std::map<paxos::Slot, std::uint32_t>;
  static void Keep(BySlot& hashes, paxos::StateHash hash);
  static paxos::StateHash Newest(const BySlot& hashes);
  void Agree(paxos::StateHash agreed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Compare(paxos::Slot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::uint32_t version_;
  mutable base::Mutex mutex_;
  std::uint64_t interval_ ABSL_GUARDED_BY(mutex_) = kMinInterval;
  BySlot own_ ABSL_GUARDED_BY(mutex_), agreed_ ABSL_GUARDED_BY(mutex_);
  // The replicas of this replica's version that have answered it as their leader.
  std::map<paxos::ReplicaId, BySlot> others_ ABSL_GUARDED_BY(mutex_);
  bool uncounted_ ABSL_GUARDED_BY(mutex_) = false;  // There are hashes that Count() has not seen.
  std::optional<Odd> odd_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
