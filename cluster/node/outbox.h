// Hands a node's work on: one ring producer for each consumer that it sends to, and the rules of
// delivery (docs/architecture.md, "Life of a job", 5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/delivered.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::telemetry {
class Metrics;
class Spans;
}  // namespace onepiece::telemetry

namespace onepiece::node {

struct OutboxOptions {
  std::string node_id;
  base::Duration open_timeout = std::chrono::seconds(2);  ///< For one OpenRing call. Scaled.
  base::Duration backoff_min =
      std::chrono::milliseconds(1);  ///< The pause when all are busy. Doubles, with jitter.
  base::Duration backoff_max = std::chrono::milliseconds(50);
  telemetry::Metrics* metrics = nullptr;  ///< Borrowed; must outlive the Outbox. None: no metrics.
  telemetry::Spans* spans = nullptr;      ///< Borrowed; gets a span "send" for each delivery.
};

/// Sums over all consumers. Every number only grows.
struct OutboxCounters {
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t busy = 0;  ///< Attempts that a ring refused: it had no room, or its lock was taken.
  std::uint64_t unknown = 0;     ///< Attempts whose outcome only a resend could tell.
  std::uint64_t opened = 0;      ///< Rings opened, also again.
  std::uint64_t operations = 0;  ///< One-sided operations.
  std::uint64_t round_trips = 0;
  std::uint64_t lock_retries = 0;  ///< Attempts that found another producer in the ring.
  std::uint64_t doorbells = 0;     ///< Consumers woken.
};

/// Where a message may go. The outbox calls `candidates` in every round of attempts, with the
/// newest routing, so a delivery that waits for room also finds the instances that appear
/// meanwhile.
struct Destination {
  enum class Order : std::uint8_t {
    /// Successive deliveries start at successive candidates. The first start depends on the
    /// sender's node id, so that senders do not keep step. Candidates whose oldest message has
    /// waited for 300 ms come last.
    kRoundRobin,
    kAsGiven,  ///< Every delivery starts at the first candidate.
  };
  Order order = Order::kAsGiven;
  /// How long to wait without progress: for a candidate that takes the message, and for the ring
  /// when a large message is written. By default until the deadline. Encoding and writing a large
  /// message do not count, because its consumer has agreed to take it: the deadline ends them, and
  /// a piece of 4 MiB that takes 5 s (scaled). Deliver retries a send whose outcome is unknown
  /// until the deadline in any case, DeliverInTurns only in its turn.
  base::Duration patience = base::Duration::max();
  std::function<std::vector<v1::Endpoint>(const Routing&)> candidates;

  /// The READY instances of a stage, round-robin. Where the stage joins branches, only the instance
  /// where the branches of job `uid` meet (Routing::MeetingPoint). The node `without` counts as not
  /// READY.
  static Destination Stage(std::string app, std::string stage, const base::Uid& uid,
                           std::string without = "");
  /// The databases, the best place for `uid` first.
  static Destination DatabasesFor(const base::Uid& uid);
  /// These nodes, in this order.
  static Destination Nodes(std::vector<v1::Endpoint> endpoints);
};

/// A delivery between two turns: which ring may have the message, and under which id, or how much
/// of a large message is written. It keeps the message and the way to its consumer, so whoever
/// holds it bounds how many there are. Only the Outbox that made it looks into it, and it does not
/// outlive that Outbox.
class OpenDelivery {
 public:
  virtual ~OpenDelivery() = default;
  OpenDelivery(const OpenDelivery&) = delete;
  OpenDelivery& operator=(const OpenDelivery&) = delete;

 protected:
  OpenDelivery() = default;
};

/// Sends messages to the rings of other nodes. A message that is larger than an eighth of a ring
/// travels as a value: it is written into memory that the consumer has reserved, and a reference
/// goes through the ring.
///
/// Ownership: Owns its producers. Borrows `fabric`, `view` and `clock`, which must outlive it.
///
/// Threading: Thread-safe. Sends to different consumers run in parallel, sends to one take turns.
/// While a large message is written, others to its consumer go past.
///
/// Blocking: Deliver returns by its deadline and DeliverInTurns by the end of its turn, plus the
/// one call or chain of operations that it is in. Both return soon after Close().
class Outbox {
 public:
  /// The routing of `view` says which incarnations are dead.
  static std::unique_ptr<Outbox> Create(fabric::Fabric& fabric, const ClusterView& view,
                                        OutboxOptions options,
                                        base::Clock& clock = base::SystemClock());
  virtual ~Outbox() = default;
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Puts the message into the ring of one candidate. Fills in `sent_time`, `sender` and, after a
  /// consumer's death, `attempt`.
  ///
  /// It goes to the next candidate only when nothing was sent: a ring was BUSY or could not be
  /// opened, or the consumer has no room for a large message. It goes round until `deadline`, also
  /// while there is no candidate. It repeats a send whose outcome is unknown to the same ring. Only
  /// when the routing shows that this consumer's incarnation is dead (Routing::IsOver) does the
  /// message go elsewhere, with attempt + 1.
  ///
  /// Errors:
  ///   - INVALID_ARGUMENT: the message cannot be encoded, or no candidate could ever take it
  ///     (MESSAGE_TOO_LARGE, JOIN_TOO_LARGE; the text names the limit and its setting).
  ///   - UNAVAILABLE by the deadline, and nothing was sent: NO_INSTANCE (there is no candidate),
  ///     UNREACHABLE (no ring could be opened).
  ///   - RESOURCE_EXHAUSTED by the deadline, and nothing was sent: RING_FULL (every ring that could
  ///     be opened was busy).
  ///   - DEADLINE_EXCEEDED (OUTCOME_UNKNOWN): the message may have arrived; the metadata "node_id"
  ///     says where.
  ///   - CANCELLED after Close(), with reason OUTCOME_UNKNOWN when the message may have arrived.
  virtual absl::StatusOr<Delivered> Deliver(const message::Message& message,
                                            const Destination& destination,
                                            base::MonotonicTime deadline) = 0;
  /// Deliver for a caller with other messages to send meanwhile: the patience of `destination` also
  /// limits a turn in which the outcome of a send stays unknown, and a turn writes a large message
  /// for 100 ms. Such a turn ends with UNAVAILABLE (OUTCOME_OPEN) and sets `open`. The caller
  /// repeats the call with the same message and `open`, and it goes on with the same ring and
  /// message id; nobody else may be given the message before that. Every other outcome clears
  /// `open`, and has the errors of Deliver.
  virtual absl::StatusOr<Delivered> DeliverInTurns(const message::Message& message,
                                                   const Destination& destination,
                                                   base::MonotonicTime deadline,
                                                   std::shared_ptr<OpenDelivery>& open) = 0;
  /// Ends the deliveries that wait, now and later. Idempotent.
  virtual void Close() = 0;
  [[nodiscard]] virtual OutboxCounters counters() const = 0;

 protected:
  Outbox() = default;
};

}  // namespace onepiece::node
