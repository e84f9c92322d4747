// Where a node's work arrives: a ring in this process's fabric memory, the service that lets
// producers in, and the care that a ring needs (recovery from producers that died half way).
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

namespace onepiece::telemetry {
class Metrics;
}  // namespace onepiece::telemetry

namespace onepiece::v1 {
class RingConfig;
}  // namespace onepiece::v1

namespace onepiece::node {

struct InboxOptions {
  std::string label = "inbox";  ///< Part of the shared memory's name: letters, digits, '-', '_'.
  // As in v1::RingConfig; 0: its defaults.
  ring::Shape shape = ring::Shape::kShared;
  std::uint64_t capacity_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t max_producers = 0;
  ring::Timeouts timeouts;
  /// Where messages are copied into, if it has room; else, and by default, a BlockPool.
  /// Thread-safe.
  std::function<absl::StatusOr<BlockPool::Block>(std::size_t)> blocks;
  BlockHook block_hook;                   ///< Told of the pool's blocks.
  telemetry::Metrics* metrics = nullptr;  ///< Borrowed; must outlive the Inbox. None: no metrics.
};

/// Sets what a configuration says of the ring. Numbers out of bounds are Open's to refuse.
void ApplyRingConfig(const v1::RingConfig& config, InboxOptions& options);

/// A message that arrived. `message`'s artifacts keep its memory alive, nothing else does.
struct Received {
  message::Message message;
  base::MonotonicTime arrival{};  ///< When it was seen in the ring, on the Inbox's clock.
  base::WallTime arrival_wall{};
  base::MonotonicTime ready{};  ///< When it was copied out and decoded.
  std::uint64_t bytes = 0;
};

/// State of the ring, for load reports and decisions.
struct RingStats {
  std::uint64_t slots = 0;
  std::uint64_t slots_used = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t bytes_used = 0;
  std::uint64_t malformed = 0;  ///< Messages that arrived intact and made no sense; dropped.
  ring::ConsumerCounters ring;
};

/// Back-pressure is the caller's silence: while nobody calls Receive the ring fills, and producers
/// are told BUSY. Producers are let in and the ring is repaired all the same, by a thread of the
/// Inbox.
///
/// Ownership: Owns the ring and its memory. Borrows `fabric`, `view` and `clock`, which must outlive it.
/// Messages handed out live in memory of their own: of InboxOptions::blocks, else of the heap,
/// where large blocks are recycled when the last artifact of a message goes, which may be after the
/// Inbox has gone.
/// Threading: Thread-safe; Receive is meant for one thread (others wait their turn).
class Inbox {
 public:
  /// A producer that means another incarnation than that of `view` is refused. Errors: those of
  /// ring creation (RESOURCE_EXHAUSTED: no shared memory; INVALID_ARGUMENT: BAD_RING_OPTIONS).
  static absl::StatusOr<std::unique_ptr<Inbox>> Open(fabric::Fabric& fabric,
                                                     const ClusterView& view, InboxOptions options,
                                                     base::Clock& clock = base::SystemClock());
  virtual ~Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// RingService of this ring; serve it where peers reach this node. Must not be called after the
  /// Inbox has gone.
  [[nodiscard]] virtual grpc::Service* service() = 0;
  /// The next message, copied out of the ring and checked. Malformed ones are counted, logged and
  /// dropped.
  /// Errors: DEADLINE_EXCEEDED; CANCELLED after Close().
  virtual absl::StatusOr<Received> Receive(base::MonotonicTime deadline) = 0;
  /// Makes Receive return CANCELLED, now and later, and OpenRing refuse. Idempotent.
  virtual void Close() = 0;
  [[nodiscard]] virtual RingStats stats() const = 0;

 protected:
  Inbox() = default;
};

}  // namespace onepiece::node
