// Random numbers that are the same with every library: one seed, one history.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace onepiece::simulator {

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// Another stream for each `a` and `b`: what one job draws depends on nothing that came before.
  Random(std::uint64_t seed, std::uint64_t a, std::uint64_t b)
      : state_(seed + a * 0xD1342543DE82EF95 + b * 0xAF251AF3B0F025B5) {
    Next();
  }

  std::uint64_t Next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// In (0, 1).
  double Uniform() { return (static_cast<double>(Next() >> 11) + 0.5) * 0x1p-53; }
  double Exponential(double mean) { return -mean * std::log(Uniform()); }
  /// Mean 1 and that standard deviation; 0: always 1. Gamma (Marsaglia and Tsang, "A Simple Method
  /// for Generating Gamma Variables", 2000).
  double Factor(double variation) {
    if (variation <= 0) return 1;
    const double shape = 1 / (variation * variation);
    if (shape == 1) return Exponential(1);
    // Below 1: a variable of shape + 1, taken down.
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
  // Box and Muller.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

  std::uint64_t state_;
};

}  // namespace onepiece::simulator
