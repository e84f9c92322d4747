// The distributions that a simulated cluster draws from.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "cluster/base/split_mix64.h"

namespace onepiece::simulator {

/// Threading: thread-confined.
class Random : public base::SplitMix64 {
 public:
  using SplitMix64::SplitMix64;
  /// Makes a stream of its own for each `a` and `b`. So what one job draws depends on nothing that
  /// was drawn before.
  Random(std::uint64_t seed, std::uint64_t a, std::uint64_t b)
      : SplitMix64(seed + a * 0xD1342543DE82EF95 + b * 0xAF251AF3B0F025B5) {
    Next();
  }

  /// Returns a number in (0, 1), never 0, so that its logarithm is finite.
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }
  double Exponential(double mean) { return -mean * std::log(Uniform()); }
  /// Returns a gamma-distributed number of mean 1 and standard deviation `variation` (Marsaglia and
  /// Tsang, "A Simple Method for Generating Gamma Variables", 2000). With a variation of 0 it is
  /// always 1.
  double Factor(double variation) {
    if (variation <= 0) return 1;
    const double shape = 1 / (variation * variation);
    if (shape == 1) return Exponential(1);
    // The method needs a shape of at least 1. For a smaller one it draws with shape + 1 and scales
    // the result down.
    const double boost = shape < 1 ? std::pow(Uniform(), 1 / shape) : 1;
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (v <= 0 || std::log(Uniform()) >= x * x / 2 + d - d * v + d * std::log(v)) continue;
      return boost * d * v / shape;
    }
  }

 private:
  // Returns a standard normal number (Box and Muller).
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }
};

}  // namespace onepiece::simulator
