// Limits how many bytes of jobs' inputs a proxy handles at the same time.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::proxy {

/// Bounds the memory of the requests that a proxy handles, whatever their number and size. It
/// counts bytes from the arrival of a request until its message is with the entrances. gRPC's
/// memory quota bounds the requests that are still arriving, and node::KeptWork the copies that
/// stay.
///
/// Threading: Thread-safe.
///
/// Blocking: Never.
class InputBudget {
 public:
  explicit InputBudget(std::int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Holds bytes while it lives.
  class Share {
   public:
    Share(InputBudget& budget, std::int64_t bytes) : budget_(budget), bytes_(budget.Take(bytes)) {}
    ~Share() { budget_.Give(bytes_.value_or(0)); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    /// RESOURCE_EXHAUSTED (INPUTS_BUSY), with a time to retry, when there was no room.
    [[nodiscard]] absl::Status status() const { return bytes_.status(); }

   private:
    InputBudget& budget_;
    const absl::StatusOr<std::int64_t> bytes_;
  };

 private:
  absl::StatusOr<std::int64_t> Take(std::int64_t bytes);
  void Give(std::int64_t bytes);

  const std::int64_t limit_bytes_;
  base::Mutex mutex_;
  std::int64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::proxy
