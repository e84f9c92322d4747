// Sending half of the fenced double ring (docs/ring-protocol.md). Two round trips a message; no CPU
// of the consumer's host takes part; the lock is never held while a payload travels; a producer
// never breaks a lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
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

/// Ownership  Owns its channel. Borrows `clock` and the channel's fabric, which must outlive it.
/// Threading  One thread at a time.
/// Blocking   Send waits for the lock with jittered backoff, at most until its deadline, never for
/// room.
class Producer {
 public:
  /// `dialer` is the one whose offer was admitted. Errors: those of Dialer::Connect;
  /// INVALID_ARGUMENT when the grant does not fit the region.
  static absl::StatusOr<std::unique_ptr<Producer>> Connect(
      fabric::Dialer& dialer, const ProducerGrant& grant, ProducerOptions options = {},
      base::Clock& clock = base::SystemClock());

  /// Sends the pieces as one message. `message_id` is unique for this producer_id; a resend carries
  /// the same. `deadline` limits the wait for the lock. Errors: INVALID_ARGUMENT (EMPTY_MESSAGE,
  /// MESSAGE_TOO_LARGE), nothing was sent.
  absl::StatusOr<SendResult> Send(std::uint64_t message_id, std::span<const Piece> pieces,
                                  base::MonotonicTime deadline);

  [[nodiscard]] std::uint64_t max_message_bytes() const { return layout_.max_message_bytes(); }
  [[nodiscard]] std::uint64_t generation() const { return grant_.generation; }
  /// Any thread.
  [[nodiscard]] fabric::ChannelCounters channel_counters() const { return channel_->counters(); }
  /// The sending thread.
  [[nodiscard]] const ProducerCounters& counters() const { return counters_; }

 private:
  /// Where a message goes, decided while the lock is held.
  struct Plan {
    Tail tail;                    ///< Before.
    std::uint64_t pad_bytes = 0;  ///< 0: no PAD slot.
    Slot message;
    bool sleeping = false;
  };
  enum class Step : std::uint8_t { kReady, kRetry, kDone };

  Producer(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
           ProducerOptions options, base::Clock& clock);
  Step Acquire(Plan& plan, SendResult& result);
  Step Inspect(const LineWords& lines, Plan& plan, SendResult& result);
  bool ReadLines(LineWords& lines, Tail& tail, Head& head);
  void Unlock();
  SendResult Publish(const Plan& plan);
  SendResult Confirm(const std::array<std::uint64_t, kHeadWords>& words, bool notified);
  void BackOff(int attempt, base::MonotonicTime deadline);
  SendResult Busy(std::uint64_t& counter, const char* reason, bool reconnect);
  SendResult Unknown(absl::Status detail);
  base::MonotonicTime ChainDeadline() const;

  const std::unique_ptr<fabric::Channel> channel_;
  const ProducerGrant grant_;
  const Layout layout_;
  const ProducerOptions options_;
  base::Clock& clock_;
  std::mt19937_64 random_;
  std::uint64_t lock_word_ = 0;  // Ours while a send is under way.
  std::uint64_t nonce_;
  std::vector<std::span<const std::byte>> spans_;  // Scratch: the message's bytes.
  ProducerCounters counters_;
};

}  // namespace onepiece::ring
