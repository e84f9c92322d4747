// How a node hands work on: one ring producer for each consumer it talks to, and the rules of
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
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::telemetry {
class Metrics;
class Spans;
}  // namespace onepiece::telemetry

namespace onepiece::node {

struct OutboxOptions {
  std::string node_id;
  base::Duration open_timeout = std::chrono::seconds(2);  ///< Of one OpenRing call; scaled.
  base::Duration backoff_min =
      std::chrono::milliseconds(1);  ///< When all are busy; doubles, jittered.
  base::Duration backoff_max = std::chrono::milliseconds(50);
  telemetry::Metrics* metrics = nullptr;  ///< Borrowed; must outlive the Outbox. None: no metrics.
  telemetry::Spans* spans = nullptr;      ///< Borrowed; gets a span "send" for each delivery.
};

/// Sums over all consumers; every number only grows.
struct OutboxCounters {
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t busy = 0;        ///< Attempts that a ring refused for want of room or of its lock.
  std::uint64_t unknown = 0;     ///< Attempts whose outcome had to be found out by a resend.
  std::uint64_t opened = 0;      ///< Rings opened, again or for the first time.
  std::uint64_t operations = 0;  ///< One-sided operations, and the round trips that they took.
  std::uint64_t round_trips = 0;
  std::uint64_t lock_retries = 0;  ///< Tries that found another producer at work.
  std::uint64_t doorbells = 0;     ///< Consumers woken.
};

/// Where a message may go. `candidates` is asked again at every round of attempts, with the newest
/// routing, so that a delivery that waits for room also finds instances that come while it waits.
struct Destination {
  enum class Order : std::uint8_t {
    /// Successive deliveries start at successive candidates, the first at a place that depends on
    /// the sender's node id.
    kRoundRobin,
    kAsGiven,  ///< The first candidate that takes it, from the first on.
  };
  Order order = Order::kAsGiven;
  /// How long to look for a taker while nothing has been sent; by default until the deadline. A
  /// send whose outcome is unknown is followed up until the deadline all the same.
  base::Duration patience = base::Duration::max();
  std::function<std::vector<v1::Endpoint>(const Routing&)> candidates;

  /// The READY instances of a stage, round-robin; where the stage joins branches, only the one
  /// where those of job `uid` meet (Routing::MeetingPoint). Never the node `without`, as if it were
  /// not READY.
  static Destination Stage(std::string app, std::string stage, const base::Uid& uid,
                           std::string without = "");
  /// The databases, best place for `uid` first.
  static Destination DatabasesFor(const base::Uid& uid);
  /// These, in this order.
  static Destination Nodes(std::vector<v1::Endpoint> endpoints);
};

/// What became of a delivery.
struct Delivered {
  v1::Endpoint endpoint;      ///< Who has the message.
  std::uint32_t attempt = 0;  ///< As sent; the record's holder carries it too.
  base::Duration encode{};    ///< Spent on encoding, checksums included.
};

/// Ownership: Owns its producers. Borrows `fabric`, `view` and `clock`, which must outlive it.
/// Threading: Thread-safe; sends to different consumers go in parallel, sends to one take turns.
/// Blocking: Deliver returns by its deadline (plus at most the one call or chain of operations it
/// is in), and soon after Close().
class Outbox {
 public:
  /// The routing of `view` says which incarnations are dead.
  static std::unique_ptr<Outbox> Create(fabric::Fabric& fabric, const ClusterView& view,
                                        OutboxOptions options,
                                        base::Clock& clock = base::SystemClock());
  virtual ~Outbox() = default;
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Puts the message into the ring of one candidate. `sent_time`, `sender` and, after a consumer's
  /// death, `attempt` are filled in here. Goes to the next candidate only when a ring was BUSY or
  /// could not be opened (nothing was sent); goes round until `deadline`, also while there is no
  /// candidate at all. A send whose outcome is unknown is repeated to the same ring, and goes
  /// elsewhere, with attempt + 1, only once the routing says that this consumer's incarnation is
  /// dead.
  /// Errors: INVALID_ARGUMENT (the message cannot be encoded, or is too large for a ring:
  /// MESSAGE_TOO_LARGE). By the deadline, and nothing was sent: UNAVAILABLE (NO_INSTANCE: no
  /// candidate; UNREACHABLE: no ring could be opened), RESOURCE_EXHAUSTED (RING_FULL: every ring
  /// that could be opened was busy). DEADLINE_EXCEEDED (OUTCOME_UNKNOWN: the message may have
  /// arrived; metadata "node_id" says where). CANCELLED after Close(), with reason OUTCOME_UNKNOWN
  /// when that is so.
  virtual absl::StatusOr<Delivered> Deliver(const message::Message& message,
                                            const Destination& destination,
                                            base::MonotonicTime deadline) = 0;
  /// Ends deliveries that wait, now and later. Idempotent.
  virtual void Close() = 0;
  [[nodiscard]] virtual OutboxCounters counters() const = 0;

 protected:
  Outbox() = default;
};

}  // namespace onepiece::node
