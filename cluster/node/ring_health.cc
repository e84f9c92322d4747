#include "cluster/node/ring_health.h"

#include <algorithm>

#include "cluster/base/seconds.h"
#include "cluster/telemetry/metrics.h"

namespace onepiece::node {
namespace {

std::int64_t Milliseconds(base::Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

std::uint64_t Corrupted(const ring::ConsumerCounters& ring) {
  return ring.bad_payload + ring.bad_owner + ring.bad_generation + ring.bad_structure;
}

v1::RingCounters ToProto(const ring::ConsumerCounters& ring) {
  v1::RingCounters counters;
  counters.set_delivered(ring.delivered);
  counters.set_delivered_bytes(ring.delivered_bytes);
  counters.set_duplicates(ring.duplicates);
  counters.set_corrupted(Corrupted(ring));
  counters.set_skipped(ring.holes_skipped);
  counters.set_abandoned(ring.abandoned);
  counters.set_stalls(ring.stalls);
  counters.set_takeovers(ring.locks_broken);
  counters.set_tails_repaired(ring.tails_repaired);
  counters.set_fenced(ring.owners_fenced);
  counters.set_moves(ring.moves);
  counters.set_moves_failed(ring.moves_failed);
  counters.set_lanes_retired(ring.lanes_retired);
  counters.set_hostile(ring.hostile);
  counters.set_sleeps(ring.sleeps);
  return counters;
}

v1::RingProducer ToProto(const ring::ProducerHealth& health, base::MonotonicTime now) {
  v1::RingProducer producer;
  producer.set_producer_id(health.producer_id.value);
  producer.set_incarnation(health.incarnation.value);
  producer.set_node_id(health.name);
  producer.set_pid(health.peer.pid);
  producer.set_connected(health.connected);
  producer.set_admissions(health.enrollments);
  producer.set_delivered(health.delivered);
  producer.set_delivered_bytes(health.delivered_bytes);
  producer.set_duplicates(health.duplicates);
  producer.set_corrupted(health.corrupted);
  producer.set_stalls(health.stalls);
  producer.set_hostile(health.hostile);
  producer.set_last_seen_age_ms(Milliseconds(now - health.last_seen));
  return producer;
}

}  // namespace

v1::RingHealth ToProto(const ring::RingHealth& health, const std::string& label,
                       base::MonotonicTime now) {
  v1::RingHealth result;
  result.set_label(label);
  result.set_shape(health.shape == ring::Shape::kShared ? v1::RING_SHAPE_SHARED
                                                        : v1::RING_SHAPE_PER_PRODUCER);
  result.set_generation(health.generation.value);
  result.set_capacity_bytes(health.capacity_bytes);
  result.set_used_bytes(health.used_bytes);
  result.set_slots(health.slots);
  result.set_used_slots(health.used_slots);
  result.set_oldest_age_ms(Milliseconds(health.oldest_age));
  result.set_sleeping(health.sleeping);
  *result.mutable_counters() = ToProto(health.counters);
  for (const ring::ProducerHealth& producer : health.producers) {
    *result.add_producers() = ToProto(producer, now);
  }
  return result;
}

void ExportRing(const ring::RingHealth& health, std::uint64_t malformed,
                telemetry::Metrics& metrics) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    metrics.Gauge(name, help).Set(value);
  };
  gauge("onepiece_ring_slots", "Messages that the ring holds at most",
        static_cast<double>(health.slots));
  gauge("onepiece_ring_used_slots", "Messages in the ring", static_cast<double>(health.used_slots));
  gauge("onepiece_ring_capacity_bytes", "Payload that the ring holds at most",
        static_cast<double>(health.capacity_bytes));
  gauge("onepiece_ring_used_bytes", "Payload in the ring", static_cast<double>(health.used_bytes));
  gauge("onepiece_ring_oldest_seconds", "How long the oldest message has been seen waiting",
        base::ToSeconds(health.oldest_age));
  gauge("onepiece_ring_producers", "Producers connected",
        static_cast<double>(
            std::ranges::count(health.producers, true, &ring::ProducerHealth::connected)));
  const auto count = [&](const char* name, const char* help, std::uint64_t total) {
    telemetry::RaiseTo(metrics.Counter(name, help), static_cast<double>(total));
  };
  const ring::ConsumerCounters& ring = health.counters;
  count("onepiece_ring_received_messages_total", "Messages taken out of the ring", ring.delivered);
  count("onepiece_ring_received_bytes_total", "Payload taken out of the ring",
        ring.delivered_bytes);
  count("onepiece_ring_sleeps_total", "Times that the receiver went to sleep", ring.sleeps);
  count("onepiece_ring_recovery_looks_total", "Times that recovery looked at the ring", ring.looks);
  count("onepiece_ring_stalls_total", "Times that a live producer held the ring up for too long",
        ring.stalls);
  const auto drop = [&](const char* reason, std::uint64_t total) {
    telemetry::RaiseTo(metrics.Counter("onepiece_ring_dropped_messages_total",
                                       "Messages dropped, by reason", {{"reason", reason}}),
                       static_cast<double>(total));
  };
  drop("duplicate", ring.duplicates);
  drop("bad_payload", ring.bad_payload);
  drop("bad_owner", ring.bad_owner);
  drop("bad_generation", ring.bad_generation);
  drop("malformed", malformed);
  const auto repair = [&](const char* kind, std::uint64_t total) {
    telemetry::RaiseTo(metrics.Counter("onepiece_ring_recoveries_total",
                                       "Repairs of the ring, by kind", {{"kind", kind}}),
                       static_cast<double>(total));
  };
  repair("lock_broken", ring.locks_broken);
  repair("tail_repaired", ring.tails_repaired);
  repair("hole_skipped", ring.holes_skipped);
  repair("owner_fenced", ring.owners_fenced);
  repair("moved", ring.moves);
  repair("lane_retired", ring.lanes_retired);
  repair("hostile", ring.hostile);
}

}  // namespace onepiece::node
