// The words of consensus: ballots, slots, entries, seats. Plain values, no protobuf.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"

namespace onepiece::paxos {

/// One life of one disk: drawn at random when a data folder is made, never 0. A replica that lost
/// its disk comes back under another id, so it cannot vote against promises that it forgot.
using ReplicaId = std::uint64_t;
/// Place in the log; the first is 1.
using Slot = std::uint64_t;
/// A replica's own monotonic time, of which suspended time is part (CLOCK_BOOTTIME). Times of two
/// replicas are never compared, only durations.
using Time = base::MonotonicTime;
using base::Duration;

/// Totally ordered and used by one proposer only; 0/0 is before all.
struct Ballot {
  std::uint64_t round = 0;
  ReplicaId replica = 0;
  friend constexpr auto operator<=>(const Ballot&, const Ballot&) = default;
};

/// A place in the group. Vacant (replica 0) until a replica of this name has joined and caught up;
/// only occupied seats vote.
struct Seat {
  std::string name;     ///< Node id: "nodemanager-1". Unique in the group.
  std::string address;  ///< host:port where peers and clients reach it.
  ReplicaId replica = 0;
  friend bool operator==(const Seat&, const Seat&) = default;
};

/// Who votes on the slots after the one that made it. At most kMaxSeats seats.
struct Members {
  static constexpr std::size_t kMaxSeats = 7;
  std::vector<Seat> seats;
  friend bool operator==(const Members&, const Members&) = default;

  [[nodiscard]] const Seat* Find(ReplicaId replica) const;
  [[nodiscard]] const Seat* FindName(const std::string& name) const;
  [[nodiscard]] bool Votes(ReplicaId replica) const { return Find(replica) != nullptr; }
  [[nodiscard]] std::size_t voters() const;
  [[nodiscard]] std::size_t quorum() const { return voters() / 2 + 1; }
};

/// What a slot can hold. `payload` is shared, never changed, and null unless kCommand.
struct Entry {
  enum class Kind : std::uint8_t {
    kNoop = 0,     ///< Fills a gap, ends a recovery, or carries a read that no lease covers.
    kCommand = 1,  ///< Opaque bytes for the state machine.
    kMembers = 2,  ///< `members` hold from the next slot on.
  };
  Kind kind = Kind::kNoop;
  std::uint32_t version = 0;  ///< Of the command's encoding; see Replica::common_version().
  std::shared_ptr<const std::string> payload;
  Members members;

  [[nodiscard]] std::size_t bytes() const { return 64 + (payload ? payload->size() : 0); }
  friend bool operator==(const Entry& a, const Entry& b);
};

/// An entry as an acceptor holds it.
struct AcceptedEntry {
  Slot slot = 0;
  Ballot ballot;
  Entry entry;
};

/// The state after all slots up to `index`. `state` is the state machine's business.
struct Snapshot {
  Slot index = 0;
  Members members;  ///< In force for slot index + 1.
  std::shared_ptr<const std::string> state;
};

/// All that a replica must find again after a crash. What was handed to the disk in one
/// Outputs::writes is found whole or not at all.
struct DurableState {
  ReplicaId replica = 0;
  Ballot promised;
  Snapshot snapshot;
  Slot chosen = 0;  ///< A lower bound: known to be chosen when it was written. >= snapshot.index.
  /// Ascending by slot, without gaps from the first on; the first is <= snapshot.index + 1 when
  /// there is any. Slots up to snapshot.index may be kept to help peers that lag.
  std::vector<AcceptedEntry> log;
};

/// What one step adds to DurableState; empty members change nothing.
struct Writes {
  bool promise = false;  ///< `promised` is set.
  Ballot promised;
  std::vector<AcceptedEntry> accepted;      ///< Replace what those slots held.
  std::shared_ptr<const Snapshot> install;  ///< Replaces the snapshot.
  Slot drop_through = 0;                    ///< Log slots <= this are no longer needed.
  Slot chosen = 0;                          ///< Raises DurableState::chosen.
  /// `chosen` covers a change of members. Voters that found only the older members after a restart
  /// would ask for the votes of replicas that have gone.
  bool members_changed = false;

  /// False when there is nothing that a reply waits for (`chosen` alone may be written later).
  [[nodiscard]] bool urgent() const {
    return promise || !accepted.empty() || install != nullptr || members_changed;
  }
};

}  // namespace onepiece::paxos
