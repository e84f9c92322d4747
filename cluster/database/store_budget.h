// What all shards of a job store may hold together.
#pragma once

#include <atomic>
#include <cstdint>

namespace onepiece::database {

/// So many units at most, never more: whoever takes them gives them back. Thread-safe.
class Budget {
 public:
  explicit Budget(std::int64_t limit) : limit_(limit) {}
  bool Take(std::int64_t units) {
    std::int64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (units > limit_ || used > limit_ - units) return false;
    } while (!used_.compare_exchange_weak(used, used + units, std::memory_order_relaxed));
    return true;
  }
  void GiveBack(std::int64_t units) { used_.fetch_sub(units, std::memory_order_relaxed); }
  /// For what has grown without asking.
  void Force(std::int64_t units) { used_.fetch_add(units, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t used() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t limit() const { return limit_; }

 private:
  const std::int64_t limit_;
  std::atomic<std::int64_t> used_{0};
};

}  // namespace onepiece::database
