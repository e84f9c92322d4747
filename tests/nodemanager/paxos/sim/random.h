// The only source of chance in a history, and the unit of true time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace onepiece::paxos::sim {

/// True (virtual) time in nanoseconds since the history began. No replica can see it.
using Nanos = std::int64_t;
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

/// xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators"). It is
/// small, and the same with every library, unlike the distributions of std.
class Random {
 public:
  explicit Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15;
      std::uint64_t mixed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
      word = mixed ^ (mixed >> 31);
    }
  }

  std::uint64_t Next() {
    const std::uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  /// In [0, bound).
  /// REQUIRES: bound > 0.
  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }
  /// In [low, high].
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(high - low + 1)));
  }
  /// In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return probability > 0 && Unit() < probability; }
  /// Between low and high. Every order of magnitude is equally likely.
  double LogBetween(double low, double high) { return low * std::pow(high / low, Unit()); }
  /// Exponentially distributed, at most 8 times the mean.
  Nanos Exponential(Nanos mean) {
    const double drawn = -std::log(1.0 - Unit());
    return static_cast<Nanos>(static_cast<double>(mean) * (drawn < 8 ? drawn : 8));
  }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(Below(from.size()))];
  }

 private:
  static std::uint64_t Rotate(std::uint64_t word, int by) {
    return (word << by) | (word >> (64 - by));
  }
  std::uint64_t state_[4];
};

/// Folds `value` into `hash`.
inline std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccd;
  hash ^= hash >> 32;
  hash *= 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 29);
}

}  // namespace onepiece::paxos::sim
