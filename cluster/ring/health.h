// How a ring is, for people and metrics: a snapshot that disturbs nobody.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/ids.h"
#include "cluster/ring/options.h"

namespace onepiece::ring {

/// What a consumer knows of one producer, enrolled or gone. Counters only grow, over reconnects
/// too.
struct ProducerHealth {
  ProducerId producer_id;
  Incarnation incarnation;  ///< Of its last enrollment.
  std::string name;         ///< As it introduced itself.
  fabric::PeerIdentity peer;
  bool connected = false;
  std::uint64_t enrollments = 0;
  std::uint64_t delivered = 0;
  std::uint64_t delivered_bytes = 0;
  std::uint64_t duplicates = 0;
  /// Messages under its name with a wrong checksum; in a segment of its own also everything else
  /// that no honest producer writes.
  std::uint64_t corrupted = 0;
  std::uint64_t stalls = 0;   ///< Times that it held the ring up for longer than a time-out.
  std::uint64_t hostile = 0;  ///< Segments of its own that were retired because of what was there.
  base::MonotonicTime last_seen{};  ///< Enrollment or message; to the second.
};

struct RingHealth {
  Shape shape = Shape::kShared;
  Generation generation;
  std::uint64_t capacity_bytes = 0;  ///< Of all segments, as the next three.
  std::uint64_t used_bytes = 0;
  std::uint64_t slots = 0;
  std::uint64_t used_slots = 0;
  /// How long the oldest message has been seen waiting. Found by looking now and then: it may be
  /// older.
  base::Duration oldest_age{};
  bool sleeping = false;  ///< The consumer waits for a message.
  ConsumerCounters counters;
  std::vector<ProducerHealth> producers;  ///< The enrolled ones first, then by name and id.
};

}  // namespace onepiece::ring
