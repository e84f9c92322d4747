// Connections to other nodes, kept between calls; and calls to many of them at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "grpcpp/channel.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::proxy {

/// Keeps one channel for each address.
///
/// Ownership: Owns its channels. Callers share them.
///
/// Threading: Thread-safe.
///
/// Blocking: Never.
///
/// Invariants: It keeps at most kMaxChannels, because nodes come back under other addresses for as
/// long as a cluster lives.
class ChannelCache {
 public:
  static constexpr std::size_t kMaxChannels = 512;
  std::shared_ptr<grpc::Channel> Get(const std::string& address);

 private:
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

/// Runs `call` for every endpoint, on at most 16 threads, and waits for all of them. `call` has its
/// own deadline.
void ForEachEndpoint(std::span<const v1::Endpoint> endpoints,
                     const std::function<void(const v1::Endpoint&)>& call);

}  // namespace onepiece::proxy
