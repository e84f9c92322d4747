// Receiving half of the fenced double ring (docs/ring-protocol.md), and its recovery.
//
// Use: one thread loops `if (auto d = consumer.Wait(deadline)) d->CopyTo(buffer)`; a RecoveryRunner
// (recovery.h) ticks; the control plane calls Enroll and Dismiss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

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

/// A message whose bytes still lie in the ring. Copy it out soon: until then it holds its room in
/// the ring.
///
/// Ownership: keeps the memory that it reads alive, even when the Consumer is destroyed or the ring
/// moves. Movable.
///
/// Threading: one thread at a time. Deliveries may be released in any order.
class Delivery {
 public:
  Delivery(Delivery&& other) noexcept;
  Delivery& operator=(Delivery&& other) noexcept;
  /// Releases the message. One that was not copied counts as consumed and as `released_unread`.
  ~Delivery();

  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::uint64_t message_id() const { return message_id_; }
  [[nodiscard]] ProducerId producer_id() const { return producer_id_; }

  /// Copies the payload into `out` and checks it in the same pass, unless its producer sends
  /// without checksums. Then releases the ring's bytes, whatever the result. REQUIRES: out.size()
  /// == size_bytes(), and CopyTo was not called before.
  ///
  /// Errors: DATA_LOSS (BAD_PAYLOAD_CHECKSUM): `out` does not hold the message. The consumer
  /// accepts a resend with the same id.
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

/// A ring's owner: lets producers in and takes their messages out.
///
/// Ownership: owns the ring's memory. Borrows `fabric` and `clock`, which must outlive it and its
/// deliveries.
///
/// Threading: one thread at a time calls Poll and Wait; one other thread calls Tick and Rest; any
/// thread calls everything else.
///
/// Invariants: every delivery is a message that a producer sent as a whole. Within the dedup window
/// each (producer id, message id) is delivered at most once. One producer's messages come in the
/// order in which it sent them.
class Consumer {
 public:
  /// Errors: INVALID_ARGUMENT (BAD_RING_OPTIONS), and those of Fabric::Register.
  static absl::StatusOr<std::unique_ptr<Consumer>> Create(fabric::Fabric& fabric,
                                                          ConsumerOptions options = {},
                                                          base::Clock& clock = base::SystemClock());
  /// Retires the ring. Later sends of its producers return kBusy or kUnknown, with `reconnect`.
  ~Consumer();
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// Lets a producer in. In a shared ring the caller must have stopped using an earlier enrollment
  /// of the same producer_id: the same process has destroyed its Producer, or the process is dead.
  /// In a ring with a segment per producer an earlier enrollment ends here, whoever holds it.
  ///
  /// Errors: ALREADY_EXISTS (STALE_INCARNATION), RESOURCE_EXHAUSTED (TOO_MANY_OWNERS,
  /// SHARED_MEMORY_FULL), UNAVAILABLE (RING_MOVED, ADMISSION_OVERTAKEN: ask again; RING_SHUT), and
  /// those of Region::Accept.
  absl::StatusOr<ProducerGrant> Enroll(const ProducerIdentity& identity);
  /// The name of a producer that is enrolled, or that has gone and is remembered; nullopt for all
  /// others.
  [[nodiscard]] std::optional<std::string> NameOf(ProducerId producer_id) const;
  /// Ends the enrollment of a producer that has said good-bye: its Producer is destroyed. The
  /// messages that it committed are still delivered. If it sends again in spite of the good-bye, it
  /// is told `reconnect`, or in a shared segment of a backend that cannot fence it, is heard.
  ///
  /// Errors: NOT_FOUND (UNKNOWN_PRODUCER).
  absl::Status Dismiss(ProducerId producer_id, Incarnation incarnation);

  /// The next message, if one is complete. Never waits, neither for a producer nor for Tick. A
  /// resend that arrives between the poll and the copy of the first one stays in the ring until the
  /// copy is made.
  std::optional<Delivery> Poll();
  /// Polls until a message comes, `deadline` passes or Interrupt is called. Spins for a short time,
  /// then sleeps until a producer rings the doorbell.
  std::optional<Delivery> Wait(base::MonotonicTime deadline);
  /// Takes no more messages: Enroll is refused, and sends return kBusy or kUnknown, with
  /// `reconnect`. What was acknowledged before is still delivered. Idempotent.
  void Shut();
  /// Makes the current Wait and every later one return at once. For shutting down.
  void Interrupt();

  /// One step of recovery at time `now` of the clock: breaks the locks and skips the holes of
  /// fenced owners, and moves the ring away from a live owner that it suspects. Call it every few
  /// milliseconds. Returns true when it changed the ring.
  bool Tick(base::MonotonicTime now);
  /// Waits until the next Tick is due: for `calm` while the consumer sleeps and no producer is in
  /// the middle of a send, else for `watchful`. A consumer that wakes up and sees a producer in the
  /// middle of a send ends the calm.
  void Rest(const std::stop_token& stop, base::Duration watchful, base::Duration calm);

  [[nodiscard]] ConsumerCounters counters() const;
  /// The newest generation. In a shared ring it changes when the ring moves, and the producers of
  /// older generations must enroll again. With a segment per producer each segment has its own.
  [[nodiscard]] Generation generation() const;
  /// The messages between head and tail of all segments and their payload bytes, for metrics.
  struct Fill {
    std::uint64_t bytes = 0;
    std::uint64_t messages = 0;
    std::uint64_t capacity_bytes = 0;
    std::uint64_t slots = 0;
  };
  [[nodiscard]] Fill fill() const;
  /// Returns a function that says whether all messages that were acknowledged before this call are
  /// taken out, and no delivery holds one of them. Later messages make no difference, unless the
  /// ring moves. The function may be copied, and is for one thread at a time.
  [[nodiscard]] std::function<bool()> MarkEnd() const;
  [[nodiscard]] RingHealth health() const;
  [[nodiscard]] std::uint64_t max_message_bytes() const;

 private:
  explicit Consumer(std::shared_ptr<ConsumerCore> core);
  const std::shared_ptr<ConsumerCore> core_;
};

}  // namespace onepiece::ring
