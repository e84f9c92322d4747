// What the door refuses, as lines of the log: who called what, and why it was refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/token_bucket.h"

namespace onepiece::rpc {

/// Bounded, because whoever is refused decides how often: 2 lines/s, and 20 at once. A line says
/// how many refusals before it have none.
///
/// Threading: thread-safe.
class RefusalLog {
 public:
  static constexpr double kLinesPerS = 2, kBurst = 20;
  /// What a caller may put into a line, in bytes.
  static constexpr std::size_t kMaxText = 120;

  /// Returns the line, or nothing when there were too many of late. `caller`: Caller::name(), or
  /// "unknown" for who showed something bad. `path` is as the caller sent it.
  std::optional<std::string> Line(std::string_view caller, std::string_view path,
                                  std::string_view reason, base::MonotonicTime now);

 private:
  base::Mutex mutex_;
  TokenBucket lines_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::rpc
