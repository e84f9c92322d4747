// Remembers which messages of which producers have been seen. Internal to the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/ring/ids.h"

namespace onepiece::ring {

/// The last message ids of each producer. Reconnects, restarts of a producer and moves of the ring
/// do not clear it. It remembers a bounded number of ids and of producers, and forgets the producer
/// that it has not heard of for the longest time.
///
/// Threading: not thread-safe. The consumer's mutex guards it.
class DedupWindow {
 public:
  DedupWindow(std::size_t ids_per_producer, std::size_t max_producers)
      : ids_per_producer_(ids_per_producer), max_producers_(max_producers) {}

  enum class Verdict : std::uint8_t {
    kNew,      ///< Never seen. Recorded as handed out.
    kPending,  ///< Handed out and not yet settled: its copy may still prove corrupt.
    kSeen,     ///< Consumed before.
  };

  /// Whether Enroll would refuse. Records nothing.
  [[nodiscard]] bool IsStale(ProducerId producer_id, Incarnation incarnation) const;
  /// Records an enrollment. False when `incarnation` is not greater than the producer's last one.
  bool Enroll(ProducerId producer_id, Incarnation incarnation);
  /// Judges a message, and records it when new.
  Verdict Offer(ProducerId producer_id, std::uint64_t message_id);
  /// Notes that the message was consumed (`good`) or that its bytes were wrong; then it forgets the
  /// message, so that a resend counts as new.
  void Settle(ProducerId producer_id, std::uint64_t message_id, bool good);

 private:
  struct SeenId {
    std::uint64_t stamp = 0;
    bool pending = true;
  };
  struct Producer {
    Incarnation incarnation;
    std::uint64_t last_use = 0;
    absl::flat_hash_map<std::uint64_t, SeenId> ids;
    // A circle of ids and stamps. Once it is full, the next id overwrites the one at `oldest`.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order;
    std::size_t oldest = 0;
  };
  Producer& Find(ProducerId producer_id);

  const std::size_t ids_per_producer_;
  const std::size_t max_producers_;
  std::uint64_t clock_ = 0;  // The last stamp: counts uses of producers and new ids.
  absl::flat_hash_map<ProducerId, std::unique_ptr<Producer>> producers_;
};

}  // namespace onepiece::ring
