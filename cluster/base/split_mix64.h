// The jitter of elections: the same seed gives the same numbers with every library.
#pragma once

#include <cstdint>

namespace onepiece::paxos {

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// In [0, end); 0 when end is. Slightly uneven for huge ends, which jitter does not mind.
  std::uint64_t Below(std::uint64_t end) { return end == 0 ? 0 : Next() % end; }

 private:
  std::uint64_t state_;
};

}  // namespace onepiece::paxos
