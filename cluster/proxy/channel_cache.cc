#include "cluster/proxy/channel_cache.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/rpc/channel.h"

namespace onepiece::proxy {

std::shared_ptr<grpc::Channel> ChannelCache::Get(const std::string& address) {
  const base::MutexLock lock(mutex_);
  const auto found = channels_.find(address);
  if (found != channels_.end()) return found->second;
  // Calls in progress share their channels, so this cuts nobody off.
  if (channels_.size() >= kMaxChannels) channels_.clear();
  return channels_[address] = rpc::MakeChannel(address);
}

void ForEachEndpoint(std::span<const v1::Endpoint> endpoints,
                     const std::function<void(const v1::Endpoint&)>& call) {
  constexpr std::size_t kMaxThreads = 16;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < endpoints.size(); i = next++) call(endpoints[i]);
  };
  // `threads` comes last: its destructor joins the threads, and they use what is above.
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < std::min(kMaxThreads, endpoints.size()); ++i)
    threads.emplace_back(work);
  work();
}

}  // namespace onepiece::proxy
