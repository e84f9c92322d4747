// A client that follows the cluster with WatchCluster, from one leader to the next.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/mutex.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::chaos {

/// Keeps a copy of the load's registers. Each stream lasts some seconds. The next one continues
/// after the last revision, at any replica that serves it.
///
/// Threading: may be used from any thread.
class Watcher {
 public:
  explicit Watcher(const std::vector<std::string>& addresses);

  /// Returns values by app_id, like Load::ReadAll().
  [[nodiscard]] std::map<std::string, std::uint64_t> values() const;
  [[nodiscard]] std::vector<std::string> complaints() const;
  /// Returns how many streams brought something.
  [[nodiscard]] int streams() const { return streams_; }

 private:
  void Run(const std::stop_token& stop);
  /// Reads one stream to its end. Returns the replica to ask next.
  std::size_t Follow(std::size_t replica, const std::stop_token& stop);
  void Take(const v1::ClusterEvent& event);

  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<v1::NodeManagerService::Stub>> stubs_;
  std::atomic<int> streams_{0};
  std::uint64_t revision_ = 0;  // The thread's alone.

  mutable base::Mutex mutex_;
  std::map<std::string, std::uint64_t> values_;  // Guarded by mutex_.
  std::vector<std::string> complaints_;          // Guarded by mutex_.
  std::jthread thread_;
};

}  // namespace onepiece::chaos
