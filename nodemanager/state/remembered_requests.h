// The answers to commands with a request id, so that a command which is sent again has one effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
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

  /// Returns nothing when the request is unknown or forgotten.
  [[nodiscard]] std::optional<v1::RememberedRequest> Find(const std::string& request_id) const;
  /// REQUIRES: Find(request.request_id()) is nothing.
  void Add(const v1::RememberedRequest& request);
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  /// All of them, oldest first, as they stand in a serialised v1::NodeManagerState. It is valid
  /// until the next Add().
  [[nodiscard]] std::string_view fields() const {
    return std::string_view(bytes_).substr(forgotten_bytes_);
  }

 private:
  // Where the serialised request is: so many bytes were added before it, its tag and length
  // included.
  struct Place {
    std::uint64_t at = 0;
    std::uint32_t size = 0;
    std::int64_t time_unix_ms = 0;
  };
  [[nodiscard]] v1::RememberedRequest Read(const Place& place) const;
  void Forget();

  std::deque<Place> places_;
  // By request id: how many requests had been added before it. So popping the front changes no
  // other place.
  std::unordered_map<std::string, std::uint64_t> numbers_;
  std::uint64_t first_ = 0;  // The number of the front.
  // The requests are kept serialised, because the whole state is serialised much more often than a
  // request is looked up: for its hash, and for snapshots.
  std::string bytes_;
  std::size_t forgotten_bytes_ = 0;  // At the beginning of bytes_.
  std::uint64_t dropped_bytes_ = 0;  // That were added before bytes_ begins.
  std::size_t size_ = 0;             // Of all requests, serialised, without tags and lengths.
  std::int64_t age_ms_ = 0;          // The age of the front.
};

}  // namespace onepiece::nodemanager
