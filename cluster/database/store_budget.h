// A limit that the shards of a job store share.
#pragma once

#include <atomic>
#include <cstdint>

namespace onepiece::database {

/// Counts units up to a limit. Whoever takes units gives them back later. Thread-safe.
class Budget {
 public:
  explicit Budget(std::int64_t limit) : limit_(limit) {}
  /// Takes `units`, or returns false when they would exceed the limit.
  bool Take(std::int64_t units) {
    // Relaxed everywhere: the budget only counts, it publishes no data.
    std::int64_t used = used_.load(std::memory_order_relaxed);
    const std::int64_t most = limit();
    do {
      if (units > most || used > most - units) return false;
    } while (!used_.compare_exchange_weak(used, used + units, std::memory_order_relaxed));
    return true;
  }
  void GiveBack(std::int64_t units) { used_.fetch_sub(units, std::memory_order_relaxed); }
  /// Takes `units` beyond the limit if need be, for something that has grown already.
  void Force(std::int64_t units) { used_.fetch_add(units, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t used() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  /// What is taken beyond a lower limit stays taken.
  void SetLimit(std::int64_t limit) { limit_.store(limit, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> limit_;
  std::atomic<std::int64_t> used_{0};
};

}  // namespace onepiece::database
