// One of a server's streams, while it lasts.
#pragma once

#include <atomic>

namespace onepiece::rpc {

/// Counts itself in for as long as it lives, so that a handler can refuse one stream too many.
///
/// Threading: thread-confined; many may share one count.
class CountedStream {
 public:
  explicit CountedStream(std::atomic<int>& count) : count_(count), number_(++count) {}
  ~CountedStream() { --count_; }
  CountedStream(const CountedStream&) = delete;
  CountedStream& operator=(const CountedStream&) = delete;
  /// How many there were when this one began, itself included.
  [[nodiscard]] int number() const { return number_; }

 private:
  std::atomic<int>& count_;
  const int number_;
};

}  // namespace onepiece::rpc
