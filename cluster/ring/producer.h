// Sending half of the fenced double ring (docs/ring-protocol.md). Two round trips a message in a
// shared segment, one in a segment of its own; no CPU of the consumer's host takes part; the lock
// is never held while a payload travels; a producer never breaks a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/piece.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/grant.h"
#include "cluster/ring/layout.h"
#include "cluster/ring/options.h"

namespace onepiece::ring {

class Sender;

using Piece = base::Piece;

enum class SendOutcome : std::uint8_t {
  kOk,  ///< Acknowledged: delivered exactly once while the consumer lives.
  /// Definitely not sent; may go to another instance, or here again after a pause: a loop without
  /// one takes the processor from whoever holds the ring up.
  kBusy,
  kUnknown,  ///< Perhaps sent: resend to the same consumer with the same message id until definite.
};

struct SendResult {
  SendOutcome outcome = SendOutcome::kBusy;
  /// This producer is of no more use (ring moved, consumer gone, channel broken): destroy it, ask
  /// the consumer for a new grant with a greater incarnation, make a new one.
  bool reconnect = false;
  /// Why, when not kOk; for logs. Reasons: RING_FULL, RING_LOCKED, RING_UNREADABLE, RING_MOVED, or
  /// the channel's.
  absl::Status detail;
};

/// Ownership: Owns its channel. Borrows `clock` and the channel's fabric, which must outlive it.
/// Threading: One thread at a time.
/// Blocking: Send waits for the lock with jittered backoff, at most until its deadline, never for
/// room.
class Producer {
 public:
  /// `dialer` made the offer that `grant` answers. Errors: those of Dialer::Connect;
  /// INVALID_ARGUMENT when the grant does not fit the region.
  static absl::StatusOr<std::unique_ptr<Producer>> Connect(
      fabric::Dialer& dialer, const ProducerGrant& grant, ProducerOptions options = {},
      base::Clock& clock = base::SystemClock());

  /// Sends the pieces as one message. `message_id` is unique for this producer_id; a resend carries
  /// the same. `deadline` limits the wait for the lock.
  /// Errors: INVALID_ARGUMENT (EMPTY_MESSAGE, MESSAGE_TOO_LARGE), nothing was sent.
  absl::StatusOr<SendResult> Send(std::uint64_t message_id, std::span<const Piece> pieces,
                                  base::MonotonicTime deadline);

  ~Producer();
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  [[nodiscard]] std::uint64_t max_message_bytes() const { return layout_.max_message_bytes(); }
  [[nodiscard]] Generation generation() const { return grant_.generation; }
  /// Any thread.
  [[nodiscard]] fabric::ChannelCounters channel_counters() const;
  /// The sending thread.
  [[nodiscard]] const ProducerCounters& counters() const;

 private:
  Producer(std::unique_ptr<Sender> sender, const ProducerGrant& grant, bool payload_checksum);

  const std::unique_ptr<Sender> sender_;
  const ProducerGrant grant_;
  const bool payload_checksum_;
  const Layout layout_;
  std::vector<std::span<const std::byte>> spans_;  // Scratch: the message's bytes.
};

}  // namespace onepiece::ring
