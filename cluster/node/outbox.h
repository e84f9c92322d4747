// How a node hands work on: one ring producer for each consumer it talks to, and the rules of
// delivery (DESIGN §4.5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

struct OutboxOptions {
  std::string node_id;
  /// The newest routing (NodeAgent::routing): says which incarnations are dead.
  std::function<std::shared_ptr<const Routing>()> routing;
  base::Duration open_timeout = std::chrono::seconds(2);  ///< Of one OpenRing call; scaled.
  base::Duration backoff_min =
      std::chrono::milliseconds(1);  ///< When all are busy; doubles, jittered.
  base::Duration backoff_max = std::chrono::milliseconds(50);
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
};

/// What became of a delivery.
struct Delivered {
  v1::Endpoint endpoint;  ///< Who has the message.
  std::uint32_t attempt =
      0;  ///< The message's attempt as sent; the record's holder carries it too.
};

/// Ownership  Owns its producers. Borrows `fabric` and `clock`, which must outlive it.
/// Threading  Thread-safe; sends to different consumers go in parallel, sends to one take turns.
/// Blocking   Deliver returns by its deadline (plus at most the one chain of operations it is in).
class Outbox {
 public:
  static std::unique_ptr<Outbox> Create(fabric::Fabric& fabric, OutboxOptions options,
                                        base::Clock& clock = base::SystemClock());
  virtual ~Outbox() = default;
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Puts the message into the ring of one of `candidates`, and returns the one that has it.
  /// Successive calls start at successive candidates; `sent_time`, `sender` and, after a consumer's
  /// death, `attempt` are filled in here. Goes to the next candidate only when a ring was BUSY or
  /// could not be opened (nothing was sent); tries all of them again until `deadline`. A send whose
  /// outcome is unknown is repeated to the same ring, and goes elsewhere, with attempt + 1, only
  /// once the routing says that this consumer's incarnation is dead. Errors: INVALID_ARGUMENT (the
  /// message cannot be encoded, or is too large: MESSAGE_TOO_LARGE); UNAVAILABLE, nothing was sent
  /// (NO_INSTANCE: no candidates; UNREACHABLE: no ring could be opened by the deadline);
  /// RESOURCE_EXHAUSTED (RING_FULL: every ring that could be opened was busy until the deadline,
  /// nothing was sent); DEADLINE_EXCEEDED (OUTCOME_UNKNOWN: the message may have arrived; metadata
  /// "node_id" names where).
  virtual absl::StatusOr<Delivered> Deliver(const message::Message& message,
                                            std::span<const v1::Endpoint> candidates,
                                            base::MonotonicTime deadline) = 0;
  [[nodiscard]] virtual OutboxCounters counters() const = 0;

 protected:
  Outbox() = default;
};

}  // namespace onepiece::node
