// RestingChannels: connections to consumers' memory for values that may be needed again soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::node {

/// Keeps the last channel to a region for some seconds after its last write. Over shm the region
/// stays mapped with it: mapping 28 MB for every message takes as long as writing them. A consumer
/// uses its memory for values again, so the next message to it is likely to come to the same
/// region.
///
/// Ownership: owns the channels, and a thread that begins with the first one.
/// Threading: thread-safe. Nothing is sent through a channel while it rests.
/// Invariants: there are at most kMaxChannels, of regions of kMaxBytes together. The one that has
/// rested longest makes room.
class RestingChannels {
 public:
  static constexpr std::size_t kMaxChannels = 16;
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;
  /// As long as a consumer keeps memory that is empty. Scaled.
  static constexpr base::Duration kRest = std::chrono::seconds(10);

  explicit RestingChannels(base::Clock& clock) : clock_(clock) {}
  RestingChannels(const RestingChannels&) = delete;
  RestingChannels& operator=(const RestingChannels&) = delete;

  /// Takes a channel that has been used, in place of an earlier one to the same region.
  void Add(const fabric::RemoteRegion& region, std::unique_ptr<fabric::Channel> channel);
  /// Drops those that have rested for long enough. Its own thread calls it every second.
  void Tidy();

 private:
  struct Resting {
    std::unique_ptr<fabric::Channel> channel;
    std::uint64_t bytes = 0;
    base::MonotonicTime since{};
  };
  using Channels = std::map<std::string, Resting>;  // Keyed by the region's address.

  // Removes a channel and returns it, so that it is closed without the lock.
  Resting Remove(Channels::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Clock& clock_;
  base::Mutex mutex_;
  Channels channels_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread tidier_;  // Started with the lock, and joined by the destructor.
};

}  // namespace onepiece::node
