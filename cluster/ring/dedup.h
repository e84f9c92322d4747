// Which messages of which producers have been seen. Internal to the ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cluster/ring/ids.h"

namespace onepiece::ring {

/// The last message ids of every producer, keyed by its stable id: survives reconnects, restarts of
/// the producer and moves of the ring. Bounded in ids and in producers. Not thread-safe (the
/// consumer's mutex guards it).
class DedupWindow {
 public:
  DedupWindow(std::size_t ids_per_producer, std::size_t max_producers)
      : ids_per_producer_(ids_per_producer), max_producers_(max_producers) {}

  enum class Verdict : std::uint8_t {
    kNew,      ///< Now recorded as handed out.
    kPending,  ///< Handed out, not yet settled: perhaps its copy will prove corrupt.
    kSeen,
  };

  /// Whether Enroll would refuse. Records nothing.
  [[nodiscard]] bool IsStale(ProducerId producer_id, Incarnation incarnation) const;
  /// Records an enrollment. False when `incarnation` is not greater than the producer's last one.
  bool Enroll(ProducerId producer_id, Incarnation incarnation);
  /// Judges a message, and records it when new.
  Verdict Offer(ProducerId producer_id, std::uint64_t message_id);
  /// The message was consumed (`good`), or its bytes were wrong: then a resend shall be taken.
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
    // Ids and stamps; once it is full, `oldest` is overwritten next.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order;
    std::size_t oldest = 0;
  };
  Producer& Find(ProducerId producer_id);

  const std::size_t ids_per_producer_;
  const std::size_t max_producers_;
  std::uint64_t clock_ = 0;  // Counts uses and stamps.
  absl::flat_hash_map<ProducerId, std::unique_ptr<Producer>> producers_;
};

}  // namespace onepiece::ring
