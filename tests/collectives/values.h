// What the tests compare with: elements and their reductions, computed in the plainest way.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cluster/base/split_mix64.h"
#include "stages/sdk/group.h"

namespace onepiece::collectives {

using Memory = std::vector<std::byte>;

inline constexpr sdk::ElementType kTypes[] = {sdk::ElementType::kF32, sdk::ElementType::kF64,
                                              sdk::ElementType::kF16, sdk::ElementType::kBF16,
                                              sdk::ElementType::kI32, sdk::ElementType::kI64};

inline std::size_t TestBytes(sdk::ElementType type) {
  using enum sdk::ElementType;
  return type == kF16 || type == kBF16 ? 2 : type == kF32 || type == kI32 ? 4 : 8;
}

/// Writes a whole number whose magnitude is at most 256, which every type represents.
inline void Put(sdk::ElementType type, int value, std::byte* at) {
  const auto put = [at](auto stored) { std::memcpy(at, &stored, sizeof stored); };
  switch (type) {
    case sdk::ElementType::kF32:
      return put(static_cast<float>(value));
    case sdk::ElementType::kF64:
      return put(static_cast<double>(value));
    case sdk::ElementType::kI32:
      return put(static_cast<std::int32_t>(value));
    case sdk::ElementType::kI64:
      return put(static_cast<std::int64_t>(value));
    case sdk::ElementType::kBF16: {
      const auto number = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      return put(static_cast<std::uint16_t>(bits >> 16));
    }
    case sdk::ElementType::kF16: {
      if (value == 0) return put(std::uint16_t{0});
      int exponent = 0;
      const double fraction = std::frexp(std::abs(value), &exponent);  // In [0.5, 1).
      const auto mantissa = static_cast<int>((fraction * 2 - 1) * 1024);
      return put(static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) |
                                            mantissa));
    }
  }
}

/// A number that belongs to an element of a rank's input, in [-16, 16].
inline int NumberOf(std::uint64_t seed, int rank, std::size_t element) {
  return static_cast<int>(base::Mix64(seed + element * 64 + static_cast<unsigned>(rank)) % 33) - 16;
}

inline Memory Numbers(sdk::ElementType type, std::uint64_t seed, int rank, std::size_t count) {
  Memory memory(count * TestBytes(type));
  for (std::size_t i = 0; i < count; ++i) {
    Put(type, NumberOf(seed, rank, i), memory.data() + i * TestBytes(type));
  }
  return memory;
}

/// The numbers of all ranks, reduced.
inline Memory Reduced(sdk::ElementType type, sdk::Reduction reduction, std::uint64_t seed,
                      int ranks, std::size_t count) {
  Memory memory(count * TestBytes(type));
  for (std::size_t i = 0; i < count; ++i) {
    int result = NumberOf(seed, 0, i);
    for (int rank = 1; rank < ranks; ++rank) {
      const int number = NumberOf(seed, rank, i);
      result = reduction == sdk::Reduction::kSum ? result + number : std::max(result, number);
    }
    Put(type, result, memory.data() + i * TestBytes(type));
  }
  return memory;
}

/// Bytes of any kind that belong to a rank.
inline Memory BytesOf(std::uint64_t seed, int rank, std::size_t count) {
  Memory memory(count);
  base::SplitMix64 random(seed * 64 + static_cast<unsigned>(rank));
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random.Next());
  return memory;
}

inline std::size_t SumOf(std::span<const std::size_t> sizes) {
  std::size_t sum = 0;
  for (const std::size_t size : sizes) sum += size;
  return sum;
}

}  // namespace onepiece::collectives
