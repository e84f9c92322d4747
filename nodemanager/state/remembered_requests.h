// What commands with a request id were answered, so that a repeated one has one effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Part of the state: what it forgets depends only on what was added.
///
/// Threading   Thread-compatible.
/// Bounds      The newest kMaxRequests, kMaxBytes of them serialised. Within these, nothing younger
///             than kKeptMs by the commands' time is forgotten, and never any of the newest
///             kMinRequests: a clock that jumps ahead must not forget what is still asked again.
class RememberedRequests {
 public:
  static constexpr std::size_t kMinRequests = 1024, kMaxRequests = 65536;
  static constexpr std::size_t kMaxBytes = 6 << 20;
  static constexpr std::int64_t kKeptMs = 10 * 60 * 1000;

  /// Null: unknown, or forgotten. Valid until the next Add().
  [[nodiscard]] const v1::RememberedRequest* Find(const std::string& request_id) const;
  /// REQUIRES: not known.
  void Add(v1::RememberedRequest request);
  /// Oldest first.
  [[nodiscard]] const std::deque<v1::RememberedRequest>& all() const { return requests_; }

 private:
  void Forget();

  std::deque<v1::RememberedRequest> requests_;
  std::unordered_map<std::string, std::uint64_t> places_;  // By id; the front has place first_.
  std::uint64_t first_ = 0;
  std::size_t bytes_ = 0;  // Of all, serialised.
};

}  // namespace onepiece::nodemanager
