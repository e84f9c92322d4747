// The sending half of the fenced double ring (docs/ring-protocol.md). A message takes two round
// trips in a shared segment, and one in the producer's own. The consumer's processor takes no part.
// No producer holds the lock while a payload travels, and none ever breaks a lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  /// Definitely not sent. The caller may send it to another instance, or retry here after a pause.
  /// A retry without a pause takes the processor from the one that holds the ring up.
  kBusy,
  /// Perhaps sent. The caller resends it to the same consumer, with the same message id, until the
  /// outcome is definite.
  kUnknown,
};

struct SendResult {
  SendOutcome outcome = SendOutcome::kBusy;
  /// This producer is of no more use: the ring moved, the consumer is gone, or the channel is
  /// broken. Destroy it, ask the consumer for a grant with a greater incarnation, and make a new
  /// one.
  bool reconnect = false;
  /// Why the outcome is not kOk, for logs. Its reason is RING_FULL, RING_LOCKED, RING_UNREADABLE,
  /// RING_MOVED, RING_FENCED, CHANNEL_BROKEN or one of the channel's.
  absl::Status detail;
};

/// Where a segment is: the numbers of two messages.
struct Position {
  std::uint64_t oldest = 0;  ///< The oldest one whose bytes are held.
  std::uint64_t next = 0;    ///< The next one to be sent. Equal to `oldest` while nothing waits.
};

/// One producer's way into one segment.
///
/// Ownership: owns its channel. Borrows `clock` and the channel's fabric, which must outlive it.
///
/// Threading: one thread at a time.
///
/// Blocking: Send waits for the lock with a jittered backoff, at most until its deadline. It never
/// waits for room.
class Producer {
 public:
  /// `dialer` made the offer that `grant` answers.
  ///
  /// Errors: INVALID_ARGUMENT (MALFORMED_GRANT: its geometry does not fit its region), and those of
  /// Dialer::Connect.
  static absl::StatusOr<std::unique_ptr<Producer>> Connect(
      fabric::Dialer& dialer, const ProducerGrant& grant, ProducerOptions options = {},
      base::Clock& clock = base::SystemClock());

  /// Sends the pieces as one message. `message_id` is unique for this producer id; a resend carries
  /// the same one. `deadline` limits the wait for the lock.
  ///
  /// Errors: INVALID_ARGUMENT (EMPTY_MESSAGE, MESSAGE_TOO_LARGE): nothing was sent.
  absl::StatusOr<SendResult> Send(std::uint64_t message_id, std::span<const Piece> pieces,
                                  base::MonotonicTime deadline);

  /// Reads where the segment is, in one round trip. nullopt when it cannot be read now; the next
  /// Send says why. A consumer that is busy may show its progress late, but shows all of it before
  /// it sleeps.
  std::optional<Position> Look();

  ~Producer();
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  [[nodiscard]] std::uint64_t max_message_bytes() const { return layout_.max_message_bytes(); }
  [[nodiscard]] Generation generation() const { return grant_.generation; }
  /// Any thread may call it.
  [[nodiscard]] fabric::ChannelCounters channel_counters() const;
  /// Only the sending thread may call it.
  [[nodiscard]] const ProducerCounters& counters() const;

 private:
  Producer(std::unique_ptr<Sender> sender, const ProducerGrant& grant, bool payload_checksum);

  const std::unique_ptr<Sender> sender_;
  const ProducerGrant grant_;
  const bool payload_checksum_;
  const Layout layout_;
  std::vector<std::span<const std::byte>> spans_;  // Scratch space of Send: the message's bytes.
};

}  // namespace onepiece::ring
