// The bytes of a result, as the plug-in makes them and as the client expects them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace onepiece::ledger {

/// The parameters of a job of the application kApp.
inline constexpr char kApp[] = "ledger";
inline constexpr char kSeed[] = "seed", kSize[] = "size_bytes", kSeconds[] = "seconds";
/// The largest result: 200 MiB.
inline constexpr std::int64_t kLargestBytes = std::int64_t{200} << 20;

/// Makes a result of any size piece by piece: words of SplitMix64 from a seed.
///
/// Threading: thread-confined.
class Bytes {
 public:
  explicit Bytes(std::uint64_t seed) : state_(seed) {}
  /// Replaces the content of `piece`. Its size is a multiple of 8, except for the last piece.
  void Next(std::string& piece) {
    for (std::size_t at = 0; at < piece.size(); at += sizeof state_) {
      const std::uint64_t word = NextWord();
      std::memcpy(piece.data() + at, &word, std::min(sizeof word, piece.size() - at));
    }
  }

 private:
  std::uint64_t NextWord() {
    std::uint64_t word = state_ += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }
  std::uint64_t state_;
};

}  // namespace onepiece::ledger
