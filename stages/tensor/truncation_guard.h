// Keeps a process alive whose mapped file is truncated.
#pragma once

#include <cstddef>
#include <span>

namespace onepiece::tensor {

/// Reading a mapped page that lies beyond the end of its file raises SIGBUS, which ends the
/// process. While a guard of the mapping lives, such pages read as zeros instead, and damaged()
/// says so: whoever has computed with the mapping asks before it hands out a result.
///
/// The first guard installs a handler of SIGBUS. Signals of other addresses go to the handler that
/// was there before. There is room for 4096 guards in a process; a mapping beyond that has none.
///
/// Threading: thread-safe.
class TruncationGuard {
 public:
  /// `mapping` begins at a page.
  explicit TruncationGuard(std::span<const std::byte> mapping);
  ~TruncationGuard();
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;
  [[nodiscard]] bool damaged() const;

 private:
  std::size_t slot_;
};

}  // namespace onepiece::tensor
