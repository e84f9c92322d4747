// Sends everybody who watches the NodeManager what is new.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/stream_shares.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/stream_callers.h"
#include "nodemanager/service/watchers.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

struct WatchesOptions {
  /// The longest silence of a watcher of the cluster.
  base::Duration heartbeat = std::chrono::seconds(5);
  /// Places for streams. A node has one for the routing, and an instance one for its assignment.
  std::size_t node_streams = 4 * StateMachine::kMaxNodes, cluster_streams = 256;
  /// Returns the highest feature level that every replica understands. Null: unknown.
  std::function<std::uint32_t()> available_level;
};

struct WatchCounters {
  std::size_t slow = 0;         ///< Watchers that had not taken the news of the last round.
  std::uint64_t snapshots = 0;  ///< RoutingWatchers::snapshots().
};

/// One thread looks at the state after every change, and sends what is new to all streams. It makes
/// each routing table, and each difference of two, once. A slow client gets the newest state, and
/// never a backlog. A table that changes often is told less often the more nodes there are: after
/// a change has gone to n of them the next one waits for n × kPausePerTable. Each of them has to
/// take it in, so a storm of changes would keep the whole cluster busy with tables. A change that
/// comes alone goes out at once.
///
/// A stream also ends when its caller may no longer call: it was revoked, or its certificate or
/// token has expired (StreamCallers).
///
/// Ownership: borrows the controller, which must outlive it. It must outlive its streams: destroy
/// it after the server has shut down.
/// Threading: thread-safe.
/// Blocking: only the constructor and the destructor.
class Watches {
 public:
  using Reactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  /// 0.2 s for 1,000 nodes.
  static constexpr base::Duration kPausePerTable = std::chrono::microseconds(200);

  /// `clock` paces the streams. They end with UNAVAILABLE when a stop of `stopping` is requested,
  /// and when this replica no longer leads, so that clients look for the leader.
  Watches(Controller& controller, std::stop_token stopping, const WatchesOptions& options,
          base::Clock& clock, const rpc::Door* door = nullptr);
  ~Watches();
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  /// For gRPC's handlers. A stream that finds no place ends with RESOURCE_EXHAUSTED
  /// (TOO_MANY_STREAMS).
  Reactor* WatchRouting(const grpc::CallbackServerContext& context,
                        const v1::WatchRoutingRequest& request);
  Reactor* WatchAssignment(const grpc::CallbackServerContext& context,
                           const v1::WatchAssignmentRequest& request);
  /// `interval` is that of the telemetry. 0: never.
  Reactor* WatchCluster(const grpc::CallbackServerContext& context, std::uint64_t start_revision,
                        base::Duration interval);
  /// How many streams there are.
  [[nodiscard]] std::size_t streams() const {
    return node_places_.taken() + cluster_places_.taken();
  }
  [[nodiscard]] WatchCounters counters() const { return {slow_.load(), snapshots_.load()}; }

 private:
  using Arrival = std::function<void(const std::shared_ptr<WatchStream>&)>;
  Reactor* Begin(rpc::StreamShares& places, const grpc::CallbackServerContext& context,
                 Arrival add);
  void Wake();
  void Run(const std::stop_token& stop);
  void TakeArrivals();
  [[nodiscard]] absl::Status Round();
  void EndAll(const absl::Status& status);

  Controller& controller_;
  const std::stop_token stopping_;
  base::Clock& clock_;
  rpc::StreamShares node_places_, cluster_places_;
  std::atomic<std::size_t> slow_{0};
  std::atomic<std::uint64_t> snapshots_{0};

  base::Mutex mutex_;
  base::CondVar woken_;
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> arrivals_ ABSL_GUARDED_BY(mutex_);

  // The thread's alone.
  bool tells_routing_ = true;  // In the last round.
  base::MonotonicTime next_routing_{};
  bool held_back_ = false;  // The last round came before next_routing_.
  RoutingWatchers routing_;
  AssignmentWatchers assignments_;
  ClusterWatchers cluster_;
  StreamCallers callers_;

  std::optional<std::stop_callback<std::function<void()>>> on_stopping_;
  std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace onepiece::nodemanager
