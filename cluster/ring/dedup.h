// Which messages of which producers have been seen. Internal to the ring.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

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

  /// Whether Admit would refuse. Records nothing.
  [[nodiscard]] bool IsStale(std::uint64_t producer_id, std::uint64_t incarnation) const;
  /// Records an admission. False when `incarnation` is not greater than the producer's last one.
  bool Admit(std::uint64_t producer_id, std::uint64_t incarnation);
  /// Judges a message, and records it when new.
  Verdict Offer(std::uint64_t producer_id, std::uint64_t message_id);
  /// The message was consumed (`good`), or its bytes were wrong: then a resend shall be taken.
  void Settle(std::uint64_t producer_id, std::uint64_t message_id, bool good);

 private:
  struct Entry {
    std::uint64_t stamp = 0;
    bool pending = true;
  };
  struct Producer {
    std::uint64_t incarnation = 0;
    std::uint64_t last_use = 0;
    std::unordered_map<std::uint64_t, Entry> ids;
    std::deque<std::pair<std::uint64_t, std::uint64_t>> order;  // Id and stamp, oldest first.
  };
  Producer& Find(std::uint64_t producer_id);

  const std::size_t ids_per_producer_;
  const std::size_t max_producers_;
  std::uint64_t clock_ = 0;  // Counts uses and stamps.
  std::unordered_map<std::uint64_t, Producer> producers_;
};

}  // namespace onepiece::ring
