// Random numbers that are the same with every standard library: one seed gives one history, so that
// a simulated history can be replayed.
#pragma once

#include <cstdint>

namespace onepiece::base {

/// SplitMix64's finisher, a bijection: every bit of the input moves every bit of the output.
constexpr std::uint64_t Mix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
///
/// Threading: thread-confined.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() { return Mix64(state_ += 0x9E3779B97F4A7C15); }
  /// Returns a number in [0, end), or 0 when `end` is 0. It is slightly uneven for a huge `end`.
  std::uint64_t Below(std::uint64_t end) { return end == 0 ? 0 : Next() % end; }

 private:
  std::uint64_t state_;
};

}  // namespace onepiece::base
