// ONEPIECE_CHECK: dies, in release too, when an invariant of ours is broken.
//
// For our own bugs only. Input from a peer, a file or a user is never checked with it: that is
// absl::Status. (Torch headers bring glog's CHECK and LOG, hence the prefix.)
#pragma once

namespace onepiece::base {

/// Logs the failed condition with its place and aborts. Thread-safe.
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace onepiece::base

#define ONEPIECE_CHECK(condition)                      \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::onepiece::base::CheckFailed(#condition, __FILE__, __LINE__))
