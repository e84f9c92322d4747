// The values that consensus deals with: ballots, slots, entries, seats. They are plain structs and
// know no protobuf.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"

namespace onepiece::paxos {

/// Identifies one life of one disk: a random number, never 0, that is drawn when a data folder is
/// made. A replica that lost its disk comes back under another id, so it cannot vote against
/// promises that it forgot. The default, 0, means no replica.
using ReplicaId = base::StrongId<struct ReplicaIdTag>;
/// A place in the log. The default, 0, is before all slots, and means no slot.
using Slot = base::Ordinal<struct SlotTag>;
inline constexpr Slot kFirstSlot{1};
/// A replica's own monotonic time (CLOCK_BOOTTIME), which goes on while the machine is suspended.
/// Nobody compares the times of two replicas; only durations are compared.
using Time = base::MonotonicTime;
using base::Duration;

/// The number under which a leader proposes. Ballots are totally ordered, and only the replica that
/// a ballot names proposes under it. The default 0/0 is lower than all others.
struct Ballot {
  std::uint64_t round = 0;
  ReplicaId replica;
  friend constexpr auto operator<=>(const Ballot&, const Ballot&) = default;
};

/// A place in the group. A seat is vacant (replica 0) until a replica of this name has joined and
/// caught up. Only occupied seats vote.
struct Seat {
  std::string name;     ///< Node id: "nodemanager-1". Unique in the group.
  std::string address;  ///< host:port where peers and clients reach it.
  ReplicaId replica;
  friend bool operator==(const Seat&, const Seat&) = default;
};

/// The seats of a group, at most kMaxSeats. An entry that holds Members says who votes on the slots
/// after its own.
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

/// What a slot of the log holds. `payload` is shared and never changed. It is null unless `kind` is
/// kCommand.
struct LogEntry {
  enum class Kind : std::uint8_t {
    kNoop = 0,     ///< Fills a gap, ends a recovery, or carries a read that no lease covers.
    kCommand = 1,  ///< Opaque bytes for the state machine.
    kMembers = 2,  ///< `members` vote from the next slot on.
  };
  Kind kind = Kind::kNoop;
  std::uint32_t version = 0;  ///< Version of the command's encoding: Replica::common_version().
  std::shared_ptr<const std::string> payload;
  Members members;

  [[nodiscard]] std::size_t bytes() const { return 64 + (payload ? payload->size() : 0); }
  friend bool operator==(const LogEntry& a, const LogEntry& b);
};

/// An entry as an acceptor holds it: with its slot and the ballot at which it was accepted.
struct AcceptedEntry {
  Slot slot;
  Ballot ballot;
  LogEntry entry;
};

/// The state after all slots up to `index`. Only the state machine understands `state`.
struct Snapshot {
  Slot index;
  Members members;  ///< In force for slot index + 1.
  std::shared_ptr<const std::string> state;
};

/// All that a replica must find again after a crash. The disk keeps each Outputs::writes whole or
/// not at all.
struct DurableState {
  ReplicaId replica;
  Ballot promised;
  Snapshot snapshot;
  /// Slots up to this one were known to be chosen when it was written. More may be chosen by now.
  /// It is >= snapshot.index.
  Slot chosen;
  /// The entries ascend by slot without gaps. The first slot is <= snapshot.index + 1. Slots up to
  /// snapshot.index may be kept to feed peers that lag.
  std::vector<AcceptedEntry> log;
};

/// What a batch of steps adds to DurableState. Members that are empty change nothing.
struct Writes {
  bool promise = false;  ///< True when `promised` is set.
  Ballot promised;
  std::vector<AcceptedEntry> accepted;      ///< They replace what their slots held.
  std::shared_ptr<const Snapshot> install;  ///< Replaces the snapshot.
  Slot drop_through;                        ///< Nobody needs log slots <= this any more.
  Slot chosen;                              ///< Raises DurableState::chosen.
  /// True when `chosen` covers a change of members. Voters that found only the older members after
  /// a restart would ask for the votes of replicas that have gone.
  bool members_changed = false;

  /// True when replies must wait until these writes are durable. `chosen` alone may be written with
  /// a later batch.
  [[nodiscard]] bool urgent() const {
    return promise || !accepted.empty() || install != nullptr || members_changed;
  }
};

}  // namespace onepiece::paxos
