#include "cluster/node/resting_channels.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace onepiece::node {
namespace {

constexpr base::Duration kTidyInterval = std::chrono::seconds(1);  // Scaled.

}  // namespace

void RestingChannels::Add(const fabric::RemoteRegion& region,
                          std::unique_ptr<fabric::Channel> channel) {
  if (region.length_bytes > kMaxBytes) return;
  std::vector<Resting> closed;  // Goes after the lock.
  const base::MutexLock lock(mutex_);
  if (const auto former = channels_.find(region.address); former != channels_.end())
    closed.push_back(Remove(former));
  while (channels_.size() >= kMaxChannels || bytes_ + region.length_bytes > kMaxBytes) {
    closed.push_back(Remove(std::ranges::min_element(
        channels_, {}, [](const auto& entry) { return entry.second.since; })));
  }
  if (!tidier_.joinable()) {
    tidier_ = std::jthread([this](const std::stop_token& stop) {
      while (clock_.Pause(stop, base::Scaled(kTidyInterval))) Tidy();
    });
  }
  bytes_ += region.length_bytes;
  channels_.emplace(
      region.address,
      Resting{.channel = std::move(channel), .bytes = region.length_bytes, .since = clock_.Now()});
}

void RestingChannels::Tidy() {
  std::vector<Resting> closed;  // Goes after the lock.
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  for (auto at = channels_.begin(); at != channels_.end();) {
    const auto next = std::next(at);
    if (now - at->second.since >= base::Scaled(kRest)) closed.push_back(Remove(at));
    at = next;
  }
}

RestingChannels::Resting RestingChannels::Remove(Channels::iterator at) {
  Resting removed = std::move(at->second);
  bytes_ -= removed.bytes;
  channels_.erase(at);
  return removed;
}

}  // namespace onepiece::node
