#include "tests/bench/control_plane/sightings.h"

#include <algorithm>

namespace onepiece::bench {

void Sightings::Saw(std::size_t watcher, std::int64_t version, base::MonotonicTime at) {
  const base::MutexLock lock(mutex_);
  std::deque<Sighting>& seen = seen_[watcher];
  if (!seen.empty() && version <= seen.back().version) return;
  seen.push_back({version, at});
  if (seen.size() > kRemembered) seen.pop_front();
  changed_.NotifyAll();
}

std::optional<base::MonotonicTime> Sightings::FirstOf(std::size_t watcher,
                                                      std::int64_t version) const {
  const std::deque<Sighting>& seen = seen_[watcher];
  const auto first = std::ranges::lower_bound(seen, version, {}, &Sighting::version);
  if (first == seen.end()) return std::nullopt;
  return first->at;
}

Sightings::Outcome Sightings::WaitForAll(std::int64_t version, base::Duration limit) {
  base::Clock& clock = base::SystemClock();
  base::MutexLock lock(mutex_);
  clock.WaitUntil(changed_, lock, {}, clock.Now() + limit,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                    return std::ranges::all_of(seen_, [&](const std::deque<Sighting>& seen) {
                      return !seen.empty() && seen.back().version >= version;
                    });
                  });
  Outcome outcome;
  for (std::size_t watcher = 0; watcher < seen_.size(); ++watcher) {
    if (const auto at = FirstOf(watcher, version); at)
      outcome.last = std::max(outcome.last, *at);
    else
      outcome.missing.push_back(watcher);
  }
  return outcome;
}

}  // namespace onepiece::bench
