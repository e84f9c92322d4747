// A snapshot of a ring, for people and metrics. Taking one disturbs neither side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/ids.h"
#include "cluster/ring/options.h"

namespace onepiece::ring {

/// What a consumer knows of one producer, enrolled or gone. The counters only grow; a reconnect
/// does not reset them.
struct ProducerHealth {
  ProducerId producer_id;
  Incarnation incarnation;  ///< That of its last enrollment.
  std::string name;         ///< ProducerIdentity::name of its last enrollment.
  fabric::PeerIdentity peer;
  bool connected = false;
  std::uint64_t enrollments = 0;
  std::uint64_t delivered = 0;
  std::uint64_t delivered_bytes = 0;
  std::uint64_t duplicates = 0;
  /// Its messages with a wrong checksum. In a segment of its own, also everything else that no
  /// correct producer writes.
  std::uint64_t corrupted = 0;
  std::uint64_t stalls = 0;   ///< Times that it held the ring up for longer than a timeout.
  std::uint64_t hostile = 0;  ///< Its own segments that were retired for what it wrote into them.
  base::MonotonicTime last_seen{};  ///< Its last enrollment or message, accurate to a second.
};

struct RingHealth {
  Shape shape = Shape::kShared;
  Generation generation;
  std::uint64_t capacity_bytes = 0;  ///< The sum of all segments, as are the next three.
  std::uint64_t used_bytes = 0;
  std::uint64_t slots = 0;
  std::uint64_t used_slots = 0;
  /// How long recovery has seen the oldest message wait. It looks from time to time, so the message
  /// may be older.
  base::Duration oldest_age{};
  bool sleeping = false;  ///< The consumer waits for a message.
  ConsumerCounters counters;
  std::vector<ProducerHealth> producers;  ///< The enrolled ones first, then by name and id.
};

}  // namespace onepiece::ring
