// When each of many watchers first saw each version of what they watch.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"

namespace onepiece::bench {

/// Remembers the last kRemembered versions of each watcher.
///
/// Threading: thread-safe.
class Sightings {
 public:
  static constexpr std::size_t kRemembered = 64;

  explicit Sightings(std::size_t watchers) : seen_(watchers) {}

  /// A version that is not newer than the watcher's last one is no sighting.
  void Saw(std::size_t watcher, std::int64_t version, base::MonotonicTime at);

  struct Outcome {
    base::MonotonicTime last;  ///< When the last of those who saw it saw it.
    std::vector<std::size_t> missing;
  };
  /// Waits until every watcher has seen `version` or a later one, for `limit` at most.
  Outcome WaitForAll(std::int64_t version, base::Duration limit);

 private:
  struct Sighting {
    std::int64_t version = 0;
    base::MonotonicTime at;
  };
  std::optional<base::MonotonicTime> FirstOf(std::size_t watcher, std::int64_t version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::deque<Sighting>> seen_ ABSL_GUARDED_BY(mutex_);  // Versions only grow.
};

}  // namespace onepiece::bench
