// Receiving half of the fenced double ring (docs/ring-protocol.md), and its recovery.
//
// Use: one thread loops `if (auto d = consumer.Wait(deadline)) d->CopyTo(buffer)`; a RecoveryRunner
// (recovery.h) ticks; the control plane calls Enroll and Dismiss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/grant.h"
#include "cluster/ring/health.h"
#include "cluster/ring/ids.h"
#include "cluster/ring/options.h"

namespace onepiece::ring {

class ConsumerCore;
class Segment;

/// A message whose bytes still lie in the ring. Copy it out at once: the ring's space is held until
/// then.
///
/// Ownership: Keeps the memory it reads alive, also beyond the Consumer and beyond a move of the
/// ring. Movable.
/// Threading: Any one thread; deliveries may be released in any order.
class Delivery {
 public:
  Delivery(Delivery&& other) noexcept;
  Delivery& operator=(Delivery&& other) noexcept;
  ~Delivery();  ///< Releases; without a copy the message counts as consumed and as
                ///< `released_unread`.

  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::uint64_t message_id() const { return message_id_; }
  [[nodiscard]] ProducerId producer_id() const { return producer_id_; }

  /// Copies the payload out and checks it (unless its producer sends without checksums), in one
  /// pass, then releases the ring's bytes, whatever
  /// the result. REQUIRES: out.size() == size_bytes(), not called before.
  /// Errors: DATA_LOSS (BAD_PAYLOAD_CHECKSUM): `out` is not a message; a resend with the same id
  /// will be taken.
  absl::Status CopyTo(std::span<std::byte> out);

 private:
  friend class ConsumerCore;
  Delivery() = default;
  void Settle(bool bad_payload, bool read);

  std::shared_ptr<ConsumerCore> core_;  // Null once released.
  std::shared_ptr<Segment> segment_;
  std::uint64_t seq_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t message_id_ = 0;
  ProducerId producer_id_;
  std::uint32_t payload_crc32c_ = 0;
  bool payload_checked_ = true;
};

/// Ownership: Owns the ring's region. Borrows `fabric` and `clock`, which must outlive it and its
/// deliveries.
/// Threading: Poll and Wait: one thread at a time. Tick: one other thread. Everything else: any
/// thread.
/// Invariants: Nothing is delivered that no producer sent as one message; each (producer_id,
/// message id) at most once within the dedup window; in order for each producer.
class Consumer {
 public:
  /// Errors: INVALID_ARGUMENT (options out of bounds), those of Fabric::Register.
  static absl::StatusOr<std::unique_ptr<Consumer>> Create(fabric::Fabric& fabric,
                                                          ConsumerOptions options = {},
                                                          base::Clock& clock = base::SystemClock());
  /// Retires the ring: producers' later sends answer BUSY or UNKNOWN with `reconnect`.
  ~Consumer();
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// Lets a producer in. kShared: a former enrollment of the same producer_id must be out of use:
  /// its Producer destroyed (the same process asks again) or its process dead. kPerProducer: a
  /// former enrollment ends here, whoever held it. Errors: ALREADY_EXISTS (STALE_INCARNATION),
  /// RESOURCE_EXHAUSTED (TOO_MANY_OWNERS, SHARED_MEMORY_FULL), INVALID_ARGUMENT, UNAVAILABLE
  /// (RING_MOVED: ask again).
  absl::StatusOr<ProducerGrant> Enroll(const ProducerIdentity& identity);
  /// A producer said good-bye: its Producer is destroyed. What it committed is still delivered.
  /// Errors: NOT_FOUND.
  absl::Status Dismiss(ProducerId producer_id, Incarnation incarnation);

  /// The next message, if one is complete. Never waits: for no producer, and not for Tick either.
  /// A resend that arrives while its first copy is polled but not yet copied out stays in the ring
  /// until then.
  std::optional<Delivery> Poll();
  /// Poll until `deadline` or Interrupt; spins shortly, then sleeps until a producer rings.
  std::optional<Delivery> Wait(base::MonotonicTime deadline);
  /// Makes Wait return now, and every later Wait at once. For shutting down.
  void Interrupt();

  /// One step of recovery at time `now` of the clock: breaks locks and skips holes of fenced
  /// owners, moves the ring when a live owner is suspected. Call it every few milliseconds. Returns
  /// true when it changed the ring.
  bool Tick(base::MonotonicTime now);
  /// Waits until the next Tick is due: `watchful` from now, or `calm` while the consumer sleeps and
  /// nobody was seen in the middle of a send; a sleeper that is woken and finds somebody there ends
  /// the calm. The ticking thread.
  void Rest(const std::stop_token& stop, base::Duration watchful, base::Duration calm);

  [[nodiscard]] ConsumerCounters counters() const;
  /// The newest. kShared: changes when the ring moves, and producers of older ones must be enrolled
  /// again. kPerProducer: every segment has its own.
  [[nodiscard]] Generation generation() const;
  /// Payload bytes between head and tail, and messages, of all segments; for metrics.
  struct Fill {
    std::uint64_t bytes = 0;
    std::uint64_t messages = 0;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t slots = 0;
  };
  [[nodiscard]] Fill fill() const;
  [[nodiscard]] RingHealth health() const;
  [[nodiscard]] std::uint64_t max_message_bytes() const;

 private:
  explicit Consumer(std::shared_ptr<ConsumerCore> core);
  const std::shared_ptr<ConsumerCore> core_;
};

}  // namespace onepiece::ring
