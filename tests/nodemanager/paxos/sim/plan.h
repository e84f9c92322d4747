// What one seed draws before its history begins: how large, how fast, which faults and how many.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::paxos::sim {

/// All that goes wrong, or is done to the group, by chance.
enum class Fault : std::uint8_t {
  // Of a message.
  kLoss,
  kDuplicate,
  kReorder,
  // Of links, for a while.
  kPartition,
  kOneWayPartition,
  kSlowLink,
  kClog,
  kLateAnswers,  // To the leader, perhaps until it leads under another ballot.
  // Of a process or machine.
  kCrash,
  kPause,
  kPauseInRead,
  kUpgrade,
  // Of a disk.
  kUnsyncedLost,
  kUnsyncedKept,
  kCorrupt,
  kWipe,
  kStall,
  kDiskFull,
  // Of a clock: within Options::max_drift, and not.
  kDrift,
  kBadClock,
  // Several of these, timed so that a lease would be broken if it could be.
  kLeaseAttack,
  // By an operator.
  kStepDown,
  kAddSeat,
  kRemoveSeat,
  kReplaceSeat,
  kCount,
};
inline constexpr std::size_t kFaultCount = static_cast<std::size_t>(Fault::kCount);
const char* NameOf(Fault fault);

/// What is wrong on purpose around the core; mutants inside it are in nodemanager/paxos/mutant.h.
enum class WorldMutant : std::uint8_t {
  kNone,
  kSkipFsync,         // Answers before its write is durable.
  kForgetPromise,     // Comes back without the promise that it wrote.
  kKeepIdAfterWipe,   // An empty disk keeps the id of the lost one.
  kReadWithoutLease,  // A leader reads, whatever its lease.
  kStaleLease,        // Woken from a pause, reads by the lease that it had before.
  kReadAfterLoss,     // Answers a read when its slot is chosen, though it lost the leadership.
  kApplyOutOfOrder,   // Applies two chosen commands the other way round.
  kForgetRetries,     // Executes a retried command again.
  kDriftUnchecked,    // Shows the leader a clock without fault.
  kCount,
};
const char* NameOf(WorldMutant mutant);

struct Plan {
  std::uint64_t seed = 0;
  std::size_t seats = 3;    ///< Seats of the group when it is made: 1, 3 or 5.
  std::size_t spares = 1;   ///< Hosts without a seat, for the operator's commands.
  std::size_t clients = 5;  ///< Virtual client nodes.
  Nanos safety_phase = 0;   ///< How long faults go on.

  Nanos latency = 0, jitter = 0;  ///< Of a link without fault, one way; jitter is the mean.
  double loss = 0, duplicate = 0, reorder = 0;
  Nanos reorder_delay = 0;

  Nanos fsync = 0, fsync_jitter = 0;
  Nanos lease = 0;     ///< Options::lease.
  double corrupt = 0;  ///< Of the crashes in the middle of a write.

  Nanos think = 0;     ///< A client's mean pause between operations.
  Nanos patience = 0;  ///< After that, a client asks another host.
  Nanos give_up = 0;   ///< After that, the outcome stays unknown.
  double hedge = 0;    ///< Of requests that go to two hosts at once.
  double reads = 0;    ///< Share of operations.
  double pause_in_read = 0;

  Nanos fault_gap = 0;           ///< Mean time between the faults below.
  std::vector<Fault> faults;     ///< Timed ones; each is drawn with equal chance.
  Nanos fault_length = 0;        ///< Mean.
  double aim_at_leader = 0;      ///< Share of those that hit a host.
  std::int64_t drift_limit = 0;  ///< Parts per million; two clocks differ by twice as much at most.
  std::int64_t bad_clock = 0;    ///< Rate of host 1's clock, when not 0.

  std::uint64_t snapshot_every = 0;  ///< Slots.
  std::size_t keep_slots = 0, window_slots = 0;
  bool rolling_upgrade = false;  ///< Hosts begin with a program of version 1.

  /// The same seed, the same plan.
  static Plan Draw(std::uint64_t seed);
};

/// What happened in a history; sums over histories.
struct Tally {
  std::uint64_t delivered = 0;       ///< Messages between replicas that reached a running one.
  std::uint64_t leader_changes = 0;  ///< Ballots under which somebody became ready to lead.
  std::uint64_t commands = 0, reads = 0, unknown = 0;  ///< Client operations.
  std::uint64_t lease_reads = 0, log_reads = 0;
  std::uint64_t retries_remembered = 0;
  std::uint64_t snapshots_taken = 0, snapshots_installed = 0;
  std::uint64_t membership_changes = 0;
  std::uint64_t slots = 0;
  std::array<std::uint64_t, kFaultCount> fired{};

  void Count(Fault fault) { ++fired[static_cast<std::size_t>(fault)]; }
  void Add(const Tally& other);
};

}  // namespace onepiece::paxos::sim
