// The answers to commands with a request id, so that a command which is sent again has one effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// A bounded memory of answers, oldest first. It is a part of the state, so what it forgets depends
/// only on what was added: every replica forgets the same.
///
/// It holds at most kMaxRequests answers and kMaxBytes of them, serialised. Within these bounds it
/// forgets only what is older than kKeptMs, and never the newest kMinRequests.
///
/// The age of an answer is the sum of the times between the commands after it. Each of these times
/// counts from 0 to kMaxGapMs, whatever the commands' clocks say: a clock that is set, or the clock
/// of another leader, must not make it forget a request that is still being retried.
///
/// Threading: thread-compatible.
class RememberedRequests {
 public:
  static constexpr std::size_t kMinRequests = 1024, kMaxRequests = 65536;
  static constexpr std::size_t kMaxBytes = 6 << 20;
  static constexpr std::int64_t kKeptMs = 10 * 60 * 1000, kMaxGapMs = 60 * 1000;

  /// Returns null when the request is unknown or forgotten. The pointer is valid until the next
  /// Add().
  [[nodiscard]] const v1::RememberedRequest* Find(const std::string& request_id) const;
  /// REQUIRES: Find(request.request_id()) is null.
  void Add(v1::RememberedRequest request);
  /// Oldest first.
  [[nodiscard]] const std::deque<v1::RememberedRequest>& all() const { return requests_; }

 private:
  void Forget();

  std::deque<v1::RememberedRequest> requests_;
  // By request id: how many requests had been added before it. So popping the front changes no
  // other place.
  std::unordered_map<std::string, std::uint64_t> places_;
  std::uint64_t first_ = 0;  // The place of the front.
  std::size_t bytes_ = 0;    // The serialised size of all.
  std::int64_t age_ms_ = 0;  // The age of the front.
};

}  // namespace onepiece::nodemanager
