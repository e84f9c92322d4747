// What a ring can be told, and what it counts. Defaults suit the shm fabric on a busy machine.
#pragma once

#include <cstdint>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {

/// When recovery suspects a live owner. A timeout costs liveness only, never safety: whoever is
/// suspected is fenced before anything of it is undone. Every value is multiplied by `scale`.
struct Timeouts {
  /// T_lock: same owner and nonce for this long. Five busy processes on two cores lose the
  /// processor for up to 20 ms at a time; a live holder that is suspected costs a move.
  base::Duration lock = std::chrono::milliseconds(250);
  base::Duration fill_base =
      std::chrono::milliseconds(1000);  ///< T_fill = fill_base + length / fill_floor.
  std::uint64_t fill_floor_bytes_per_second = 50'000'000;
  base::Duration sweep =
      std::chrono::seconds(1);  ///< How often every owner's process is looked at.
  double scale = base::TimeScale();

  [[nodiscard]] base::Duration Lock() const;
  [[nodiscard]] base::Duration Fill(std::uint64_t length_bytes) const;
  [[nodiscard]] base::Duration Sweep() const;
};

struct ConsumerOptions {
  std::string label = "ring";  ///< Part of the region's name.
  /// kPerProducer: every producer gets `capacity_bytes` and `slots` of its own, so the ring takes
  /// up to max_producers times that; twice as much while segments of producers that have left still
  /// hold messages.
  Shape shape = Shape::kShared;
  /// Bytes of payload a segment holds; a multiple of 64, at least 4096. Messages up to half of it
  /// are taken.
  std::uint64_t capacity_bytes = std::uint64_t{64} << 20;
  std::uint32_t slots = 1024;         ///< Messages a segment holds, 4 … 65536.
  std::uint32_t max_producers = 256;  ///< Producers enrolled at a time, 1 … 4096.
  std::uint32_t dedup_window = 4096;  ///< Message ids remembered for each producer.
  std::uint32_t dedup_producers =
      1024;  ///< Producers remembered, enrolled or not; at least max_producers.
  /// How long Wait() spins before it sleeps.
  base::Duration spin = std::chrono::microseconds(20);
  Timeouts timeouts;
};

struct ProducerOptions {
  base::Duration backoff_min =
      std::chrono::microseconds(2);  ///< After the first failed lock; doubles, jittered.
  base::Duration backoff_max = std::chrono::microseconds(500);
  /// Whether messages carry the checksum of their pieces, which the consumer compares while it
  /// copies. Without it Piece::crc32c is not looked at. The ring's own protection (checks of its
  /// lines, fences) does not need it: it finds what goes wrong below the ring.
  bool payload_checksum = true;
  /// Limit of one chain of operations; a chain that takes longer breaks the channel.
  base::Duration chain_timeout = std::chrono::seconds(10);
};

/// What a consumer saw. Every number only grows; nothing is dropped without one of them growing.
struct ConsumerCounters {
  std::uint64_t delivered = 0;  ///< Handed out by Poll.
  std::uint64_t delivered_bytes = 0;
  std::uint64_t duplicates = 0;       ///< Dropped: (producer, message id) seen before.
  std::uint64_t bad_payload = 0;      ///< Dropped: CopyTo found a wrong checksum.
  std::uint64_t bad_owner = 0;        ///< Dropped: owner not enrolled.
  std::uint64_t bad_generation = 0;   ///< Dropped: slot of another generation.
  std::uint64_t bad_structure = 0;    ///< Slot with offset, length or state out of bounds: the ring
                                      ///< is moved, or the producer's own segment retired.
  std::uint64_t released_unread = 0;  ///< Deliveries that the caller released without a copy.
  std::uint64_t pads = 0;
  std::uint64_t holes_skipped = 0;  ///< Reserved by a fenced owner, never committed.
  std::uint64_t abandoned = 0;  ///< Reserved in a ring that was moved; their senders see UNKNOWN.
  std::uint64_t locks_broken = 0;
  std::uint64_t tails_repaired = 0;
  std::uint64_t owners_fenced = 0;  ///< Dead, or suspected and revoked.
  std::uint64_t moves =
      0;  ///< Fresh segments: a live owner was suspected, or the ring was unusable.
  std::uint64_t lanes_retired = 0;  ///< Segments of single producers that left, died or lied.
  std::uint64_t hostile = 0;       ///< Of those, the ones that held what no honest producer writes.
  std::uint64_t moves_failed = 0;  ///< No memory for a fresh segment; tried again at the next tick.
  std::uint64_t looks = 0;         ///< Of recovery: what an idle ring costs.
  std::uint64_t stalls = 0;        ///< Times that a live owner was suspected.
  std::uint64_t sleeps = 0;        ///< Times that Wait() slept.
};

/// What a producer did. Every number only grows.
struct ProducerCounters {
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t busy_full = 0;        ///< No room.
  std::uint64_t busy_lock = 0;        ///< Lock not got by the deadline.
  std::uint64_t busy_unreadable = 0;  ///< Head or tail failed their check again and again.
  std::uint64_t unknown = 0;
  std::uint64_t lock_retries = 0;
  std::uint64_t notifies = 0;  ///< Consumer was asleep.
};

}  // namespace onepiece::ring
