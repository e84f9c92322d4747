// The two parts of a routing epoch: the generation of the control plane, and a counter within it.
#pragma once

#include <cstdint>
#include <string>

namespace onepiece::base {

/// The low bits of an epoch count the changes of one generation. The high 24 bits are the
/// generation, so that every epoch of a later generation is greater than all earlier ones.
inline constexpr int kEpochCounterBits = 40;
inline constexpr std::uint32_t kMaxGeneration = (1U << (64 - kEpochCounterBits)) - 1;

/// A generation begins when the NodeManagers' state is put back from a backup or from a survivor's
/// disk. What an earlier generation did after that state is unknown to it.
constexpr std::uint32_t GenerationOf(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch >> kEpochCounterBits);
}

/// The epoch with which a generation begins.
/// REQUIRES: generation <= kMaxGeneration.
constexpr std::uint64_t FirstEpochOf(std::uint32_t generation) {
  return (std::uint64_t{generation} << kEpochCounterBits) + 1;
}

/// The epoch for people: "3.1234", or "1234" in generation 0.
inline std::string FormatEpoch(std::uint64_t epoch) {
  const std::uint32_t generation = GenerationOf(epoch);
  const std::string counter = std::to_string(epoch & ((std::uint64_t{1} << kEpochCounterBits) - 1));
  return generation == 0 ? counter : std::to_string(generation) + "." + counter;
}

}  // namespace onepiece::base
