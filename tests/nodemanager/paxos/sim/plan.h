// What a seed draws before its history begins: how large and how fast the group is, and which
// faults strike how often.
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
  // A message.
  kLoss,
  kDuplicate,
  kReorder,
  // Links, for a while.
  kPartition,
  kOneWayPartition,
  kSlowLink,
  kClog,
  kLateAnswers,  // Answers to the leader wait, perhaps until it leads under another ballot.
  // A process or a machine.
  kCrash,
  kPause,
  kPauseInRead,
  kUpgrade,
  // A disk.
  kUnsyncedLost,
  kUnsyncedKept,
  kCorrupt,
  kWipe,
  kStall,
  kDiskFull,
  // A clock. kDrift stays within ReplicaOptions::max_drift, and kBadClock does not.
  kDrift,
  kBadClock,
  // Several faults, timed so that they break a lease if anything can.
  kLeaseAttack,
  // An operator.
  kStepDown,
  kAddSeat,
  kRemoveSeat,
  kReplaceSeat,
  // Disasters. A twin loss takes two disks within a moment and leaves a majority. The others take
  // more, and an operator begins a new group: with a backup, or with one survivor's disk.
  kTwinLoss,
  kBackup,
  kRestore,
  kRecover,
  kCount,
};
inline constexpr std::size_t kFaultCount = static_cast<std::size_t>(Fault::kCount);
const char* NameOf(Fault fault);

/// What is broken on purpose around the core. nodemanager/paxos/mutant.h has the mutants inside it.
enum class WorldMutant : std::uint8_t {
  kNone,
  kSkipFsync,         // A host answers before its write is durable.
  kForgetPromise,     // A host comes back without the promise that it wrote.
  kKeepIdAfterWipe,   // An empty disk keeps the id of the lost one.
  kReadWithoutLease,  // A leader answers reads without a lease.
  kStaleLease,        // After a pause, a leader reads by the lease that it had before.
  kReadAfterLoss,     // A host answers a read whose slot is chosen, but it lost the leadership.
  kApplyOutOfOrder,   // A host applies two chosen commands in the wrong order.
  kForgetRetries,     // A host executes a retried command again.
  kDriftUnchecked,    // A host shows the leader true time in place of its drifting clock.
  kNoGroupFence,      // A host hears replicas of another group.
  kSameGeneration,    // A new group goes on with the epochs of the lost one.
  kCount,
};
const char* NameOf(WorldMutant mutant);

/// What an operator must mend, and when it happens.
struct Disaster {
  Nanos at = 0;
  Fault kind = Fault::kRestore;  ///< kBackup, kRestore or kRecover.
};

struct Plan {
  std::uint64_t seed = 0;
  std::size_t seats = 3;    ///< Seats of the group at its beginning: 1, 3 or 5.
  std::size_t spares = 1;   ///< Hosts without a seat, for the operator's commands.
  std::size_t clients = 5;  ///< Virtual client nodes.
  Nanos safety_phase = 0;   ///< How long faults go on.

  Nanos latency = 0, jitter = 0;  ///< One way over a link without fault. Jitter is a mean.
  double loss = 0, duplicate = 0, reorder = 0;
  Nanos reorder_delay = 0;

  Nanos fsync = 0, fsync_jitter = 0;
  Nanos lease = 0;     ///< ReplicaOptions::lease.
  double corrupt = 0;  ///< The share of crashes during a write that ruin the disk.

  Nanos think = 0;     ///< A client's mean pause between operations.
  Nanos patience = 0;  ///< After this time a client asks another host.
  Nanos give_up = 0;   ///< After this time a client gives up, and the outcome stays unknown.
  double hedge = 0;    ///< The share of requests that go to two hosts at once.
  double reads = 0;    ///< The share of operations that read.
  double pause_in_read = 0;

  Nanos fault_gap = 0;        ///< The mean time between the faults below.
  std::vector<Fault> faults;  ///< Timed faults. Each is drawn with equal chance.
  Nanos fault_length = 0;     ///< The mean length of a fault.
  double aim_at_leader = 0;   ///< The share of faults on hosts that aim at the leader.
  /// In parts per million. Two clocks differ by twice as much at most.
  std::int64_t drift_limit = 0;
  std::int64_t bad_clock = 0;  ///< The rate of host 1's clock, when it is not 0.

  std::uint64_t snapshot_every = 0;  ///< Slots.
  std::size_t keep_slots = 0, window_slots = 0;
  bool rolling_upgrade = false;  ///< Hosts begin with a program of version 1.

  std::vector<Disaster> disasters;  ///< In order of time.
  /// Hosts run the NodeManager's own state machine beside the toy.
  bool real_state = false;

  /// Draws the plan of `seed`. The same seed gives the same plan.
  static Plan Draw(std::uint64_t seed);
};

/// Counts what happened in a history, or in several together.
struct Tally {
  std::uint64_t delivered = 0;       ///< Messages between replicas that reached a running one.
  std::uint64_t leader_changes = 0;  ///< Ballots under which a replica became ready to lead.
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
