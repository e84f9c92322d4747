// ConsumerCore: takes snapshots of the ring and of its producers.
#include "cluster/ring/health.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {
namespace {

// How many producers that have gone are remembered at most.
constexpr std::size_t kMaxDeparted = 64;

}  // namespace

std::shared_ptr<ConsumerCore::Record> ConsumerCore::RecordOf(const ProducerIdentity& identity) {
  auto& record = records_[identity.producer_id];
  if (record == nullptr) record = std::make_shared<Record>();
  record->health.producer_id = identity.producer_id;
  record->health.incarnation = identity.incarnation;
  record->health.name = identity.name;
  record->health.peer = identity.offer.peer;
  record->health.last_seen = clock_.Now();
  ++record->health.enrollments;
  auto kept = record;
  // The owner and the table share a record. A record that only the table holds belongs to a
  // producer that has gone.
  if (records_.size() > options_.max_producers + kMaxDeparted) {
    auto oldest = records_.end();
    for (auto it = records_.begin(); it != records_.end(); ++it) {
      const bool gone = it->second.use_count() == 1;
      if (gone && (oldest == records_.end() ||
                   it->second->health.last_seen < oldest->second->health.last_seen)) {
        oldest = it;
      }
    }
    if (oldest != records_.end()) records_.erase(oldest);
  }
  return kept;
}

// Notes which producers have sent something since the last look. So no message pays for reading the
// clock.
void ConsumerCore::NoteSeen(base::MonotonicTime now) const {
  for (const auto& [id, record] : records_) {
    if (record->delivered_seen == record->health.delivered) continue;
    record->delivered_seen = record->health.delivered;
    record->health.last_seen = now;
  }
}

void ConsumerCore::NoteOldest(base::MonotonicTime now) {
  for (const auto& active : active_) {
    Segment& segment = *active->segment;
    if (segment.cursor_seq() != segment.head().seq || segment.Next().has_value()) {
      (void)active->oldest.Age(segment.head().seq, now);
    } else {
      active->oldest.Clear();
    }
  }
}

std::optional<std::string> ConsumerCore::NameOf(ProducerId producer_id) const {
  const base::MutexLock lock(mutex_);
  const auto found = records_.find(producer_id);
  if (found == records_.end()) return std::nullopt;
  return found->second->health.name;
}

RingHealth ConsumerCore::health() const {
  const Consumer::Fill fill = this->fill();
  const base::MonotonicTime now = clock_.Now();
  RingHealth health{.shape = options_.shape,
                    .generation = generation(),
                    .capacity_bytes = fill.capacity_bytes,
                    .used_bytes = fill.bytes,
                    .slots = fill.slots,
                    .used_slots = fill.messages};
  {
    const base::MutexLock lock(mutex_);
    health.counters = counters_;
    health.sleeping = asleep_;
    for (const auto& active : active_) {
      if (active->oldest.since.has_value()) {
        health.oldest_age = std::max(health.oldest_age, now - *active->oldest.since);
      }
    }
    NoteSeen(now);
    // An owner shares its record with the table, so that nobody searches for it: a ring has
    // thousands of producers, and messages wait for this lock.
    std::unordered_set<const Record*> connected;
    for (const auto& [id, owner] : owners_) {
      if (!owner->fenced && !owner->left.has_value()) connected.insert(owner->record.get());
    }
    health.producers.reserve(records_.size());
    for (const auto& [id, record] : records_) {
      health.producers.push_back(record->health);
      health.producers.back().connected = connected.contains(record.get());
    }
  }
  std::ranges::sort(health.producers, [](const ProducerHealth& a, const ProducerHealth& b) {
    return std::tie(b.connected, a.name, a.producer_id) <
           std::tie(a.connected, b.name, b.producer_id);
  });
  return health;
}

}  // namespace onepiece::ring
