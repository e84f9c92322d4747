// Where a node's work arrives: a ring in this process's fabric memory, the service that lets
// producers in, and the upkeep of the ring (recovery from producers that died half way).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/node/block_pool.h"
#include "cluster/node/cluster_view.h"
#include "cluster/ring/options.h"

namespace grpc {
class Service;
}

namespace onepiece::rpc {
class Door;
}

namespace onepiece::telemetry {
class Metrics;
}  // namespace onepiece::telemetry

namespace onepiece::v1 {
class ReserveValueRequest;
class RingConfig;
}  // namespace onepiece::v1

namespace onepiece::node {

struct InboxOptions {
  std::string label = "inbox";  ///< Names the ring. Part of its memory's name (fabric::LabelOf).
  // As in v1::RingConfig; 0: its defaults.
  ring::Shape shape = ring::Shape::kShared;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t max_producers = 0;
  std::uint64_t value_bytes = 0;
  /// Whether messages that are too large for the ring may come as values. If not, they are refused.
  bool takes_values = true;
  ring::Timeouts timeouts;
  /// Gives the memory that messages are copied into. Without it, or when it has no room, a
  /// BlockPool does. Thread-safe.
  std::function<absl::StatusOr<BlockPool::Block>(std::size_t)> blocks;
  BlockHook block_hook;                   ///< Called for the pool's blocks, and memory of values.
  telemetry::Metrics* metrics = nullptr;  ///< Borrowed; must outlive the Inbox. None: no metrics.
};

/// Takes over what a configuration says about the ring. Open refuses numbers that are out of
/// bounds.
void ApplyRingConfig(const v1::RingConfig& config, InboxOptions& options);

/// A message that arrived. Only the artifacts of `message` keep its memory alive.
struct Received {
  message::Message message;
  base::MonotonicTime arrival{};  ///< When the Inbox saw it in the ring, on its clock.
  base::WallTime arrival_wall{};
  base::MonotonicTime ready{};  ///< When it had been copied out and decoded.
  std::uint64_t bytes = 0;
  /// It was too large for the ring. Its artifacts lie where its sender wrote them, and count in
  /// InboxOptions::value_bytes until they go.
  bool by_value = false;
};

/// State of the ring, for load reports and decisions.
struct RingStats {
  std::uint64_t slots = 0;
  std::uint64_t slots_used = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t bytes_used = 0;
  std::uint64_t malformed = 0;  ///< Messages that arrived intact, made no sense and were dropped.
  ring::ConsumerCounters ring;
};

/// The receiving side of a node's ring.
///
/// A caller applies backpressure by not calling Receive: the ring fills, and producers are told
/// BUSY. A thread of the Inbox lets producers in and repairs the ring all the same.
///
/// Ownership: Owns the ring and its memory. Borrows `fabric`, `view` and `clock`, which must
/// outlive it. Messages handed out live in memory of their own: that of InboxOptions::blocks, the
/// heap, or for large messages registered memory, where their senders wrote them. It is recycled
/// when the last artifact of a message goes, which may be after the Inbox has gone, but must be
/// before `fabric` and `clock` go.
///
/// Threading: Thread-safe. Receive is meant for one thread; others wait their turn.
class Inbox {
 public:
  /// Refuses producers that name another incarnation than that of `view`.
  ///
  /// Errors: those of ring creation: RESOURCE_EXHAUSTED (no shared memory), INVALID_ARGUMENT
  /// (BAD_RING_OPTIONS).
  static absl::StatusOr<std::unique_ptr<Inbox>> Open(fabric::Fabric& fabric,
                                                     const ClusterView& view, InboxOptions options,
                                                     base::Clock& clock = base::SystemClock());
  virtual ~Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// The RingService of this ring. Serve it where peers reach this node. It must not be called
  /// after the Inbox has gone.
  [[nodiscard]] virtual grpc::Service* service() = 0;
  /// Returns the next message, copied out of the ring and checked. Counts, logs and drops malformed
  /// messages.
  ///
  /// Errors: DEADLINE_EXCEEDED; CANCELLED after Close().
  virtual absl::StatusOr<Received> Receive(base::MonotonicTime deadline) = 0;
  /// What an admitted message counts in, dropped when Receive has it, or when it will not come. May
  /// be null.
  using Admitted = absl::StatusOr<std::shared_ptr<const void>>;
  using Admission = std::function<Admitted(const v1::ReserveValueRequest&)>;
  /// `admission` says from now on whether a large message gets room. Its errors go to the sender:
  /// RESOURCE_EXHAUSTED for not now, INVALID_ARGUMENT for never. It is called on the server's
  /// threads. Call this before the service is served.
  virtual void SetAdmission(Admission admission) = 0;
  /// `door` says who calls the service, and outlives its last call. Nodes then speak for themselves
  /// alone: a producer belongs to the node that opened it, a reservation to the node that made it
  /// (PERMISSION_DENIED FOREIGN_NODE, FOREIGN_PRODUCER, FOREIGN_RESERVATION). Null, and at first:
  /// the node is insecure, and callers are believed. Call this before the service is served.
  virtual void SetDoor(const rpc::Door* door) = 0;
  /// Takes no more messages: senders are told to go elsewhere, and OpenRing refuses. Receive still
  /// gives out what was acknowledged to its sender. Idempotent.
  virtual void Shut() = 0;
  /// Receive returns CANCELLED from now on, and OpenRing refuses. Idempotent.
  virtual void Close() = 0;
  [[nodiscard]] virtual RingStats stats() const = 0;

 protected:
  Inbox() = default;
};

}  // namespace onepiece::node
