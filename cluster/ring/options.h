// A ring's options and counters. The defaults suit the shm fabric on a busy machine.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {

/// When recovery suspects a live owner. A timeout that is too short costs liveness, never safety:
/// recovery fences a suspect before it undoes anything of it. `scale` multiplies every value.
struct Timeouts {
  /// T_lock: how long the lock may show the same owner and nonce. Five busy processes on two cores
  /// lose the processor for up to 20 ms at a time, and suspecting a live holder costs a move.
  base::Duration lock = std::chrono::milliseconds(250);
  /// T_fill = fill_base + length / fill_floor_bytes_per_second: how long a reservation may stay
  /// without its commit.
  base::Duration fill_base = std::chrono::milliseconds(1000);
  std::uint64_t fill_floor_bytes_per_second = 50'000'000;
  /// How often recovery looks whether each owner's process lives.
  base::Duration sweep = std::chrono::seconds(1);
  double scale = base::TimeScale();

  [[nodiscard]] base::Duration Lock() const;
  [[nodiscard]] base::Duration Fill(std::uint64_t length_bytes) const;
  [[nodiscard]] base::Duration Sweep() const;
};

struct ConsumerOptions {
  std::string label = "ring";  ///< Part of the region's name.
  /// With kPerProducer each producer gets `capacity_bytes` and `slots` of its own, so the ring
  /// takes up to max_producers times that memory. It takes up to twice as much while segments of
  /// producers that have left still hold messages.
  Shape shape = Shape::kShared;
  /// The bytes of payload that a segment holds: a multiple of 64, at least 4096. A message takes at
  /// most half of it.
  std::uint64_t capacity_bytes = std::uint64_t{64} << 20;
  std::uint32_t slots = 1024;         ///< Messages a segment holds, 4 … 65536.
  std::uint32_t max_producers = 256;  ///< Producers enrolled at a time, 1 … 4096.
  std::uint32_t dedup_window = 4096;  ///< Message ids remembered for each producer.
  /// Producers whose message ids are remembered, enrolled or not; at least max_producers.
  std::uint32_t dedup_producers = 1024;
  /// How long Wait spins before it sleeps.
  base::Duration spin = std::chrono::microseconds(20);
  Timeouts timeouts;
};

struct ProducerOptions {
  /// The wait after the first failed try for the lock. Each further try doubles it, with jitter, up
  /// to backoff_max.
  base::Duration backoff_min = std::chrono::microseconds(2);
  base::Duration backoff_max = std::chrono::microseconds(500);
  /// Whether messages carry the checksum of their pieces, which the consumer compares while it
  /// copies. Without it Piece::crc32c is ignored. The checksum finds faults below the ring; the
  /// ring's own protection (the checks of its lines, the fences) does not need it.
  bool payload_checksum = true;
  /// The limit of one chain of operations. A chain that takes longer breaks the channel.
  base::Duration chain_timeout = std::chrono::seconds(10);
};

/// What a consumer has seen. The numbers only grow, and every dropped message counts in one of
/// them.
struct ConsumerCounters {
  std::uint64_t delivered = 0;  ///< Handed out by Poll.
  std::uint64_t delivered_bytes = 0;
  std::uint64_t duplicates = 0;      ///< Dropped: (producer, message id) seen before.
  std::uint64_t bad_payload = 0;     ///< Dropped: CopyTo found a wrong checksum.
  std::uint64_t bad_owner = 0;       ///< Dropped: owner not enrolled.
  std::uint64_t bad_generation = 0;  ///< Dropped: slot of another generation.
  /// Slots with an offset, length or state out of bounds. The ring moves, or the producer's own
  /// segment is retired.
  std::uint64_t bad_structure = 0;
  std::uint64_t released_unread = 0;  ///< Deliveries that the caller released without a copy.
  std::uint64_t pads = 0;
  std::uint64_t holes_skipped = 0;  ///< Reserved by a fenced owner, never committed.
  std::uint64_t abandoned = 0;  ///< Reserved in a ring that was moved; their senders see UNKNOWN.
  std::uint64_t locks_broken = 0;
  std::uint64_t tails_repaired = 0;
  std::uint64_t owners_fenced = 0;  ///< Dead, or suspected and revoked.
  /// Moves to a fresh segment: a live owner was suspected, or the ring was unusable.
  std::uint64_t moves = 0;
  std::uint64_t lanes_retired = 0;  ///< Segments of single producers that left, died or lied.
  std::uint64_t hostile = 0;        ///< Retired lanes that held what no correct producer writes.
  std::uint64_t moves_failed = 0;   ///< No memory for a fresh segment; a later tick retries.
  std::uint64_t looks = 0;          ///< Looks of recovery at the ring: what an idle ring costs.
  std::uint64_t stalls = 0;         ///< Times that a live owner was suspected.
  std::uint64_t sleeps = 0;         ///< Times that Wait() slept.
};

/// What a producer has done. The numbers only grow.
struct ProducerCounters {
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t busy_full = 0;        ///< No room.
  std::uint64_t busy_lock = 0;        ///< The lock was not free until the deadline.
  std::uint64_t busy_unreadable = 0;  ///< Head or tail failed their check again and again.
  std::uint64_t unknown = 0;
  std::uint64_t lock_retries = 0;
  std::uint64_t notifies = 0;  ///< Rings of the doorbell: the consumer was asleep.
};

}  // namespace onepiece::ring
