// The sending half of messages that travel as values (docs/architecture.md, "Where do large
// messages go?"). Internal to cluster/node.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/message/reference.h"
#include "cluster/node/goodbyes.h"
#include "cluster/node/resting_channels.h"

namespace onepiece::node {

/// One encoded message on its way into memory that its consumer has reserved.
///
/// Ownership: owns the reservation until Keep(). Borrows everything else; `encoded` must not
/// change.
///
/// Threading: one thread at a time.
///
/// Blocking: each call makes one remote call, or one write of at most kPieceBytes.
class Transfer {
 public:
  /// Other messages of the destination get their turn between two pieces.
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

  struct Route {
    fabric::Fabric& fabric;
    Goodbyes& goodbyes;
    RestingChannels& resting;
    std::shared_ptr<Goodbyes::Stub> stub;  ///< Of the consumer.
    std::string node_id;                   ///< Of the sender.
    std::uint64_t consumer_incarnation = 0;
    base::Duration call_timeout{};  ///< Scaled.
    base::Clock& clock;
  };

  /// Reserves room for the message with this header. The consumer may have to allocate it, which
  /// takes a second for 2 GiB. `number` names the request, and is 0 at first. It is kept until a
  /// consumer has reserved room and said so. So when the answer is lost, the next call gets the
  /// room that is reserved, and not more.
  ///
  /// Errors: RESOURCE_EXHAUSTED (no room now), INVALID_ARGUMENT (MESSAGE_TOO_LARGE, JOIN_TOO_LARGE:
  /// never), and all others when the consumer cannot be reached.
  static absl::StatusOr<std::unique_ptr<Transfer>> Reserve(Route route,
                                                           const message::Header& header,
                                                           const message::Encoded& encoded,
                                                           std::uint64_t& number);
  ~Transfer();  ///< Gives the reservation up, unless it is kept. Then the channel rests.
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Writes the next piece, and returns whether all bytes are there.
  ///
  /// Errors: the channel's, and UNAVAILABLE (RESERVATION_OVER). This transfer is of no more use.
  absl::StatusOr<bool> WriteNext();
  [[nodiscard]] bool written() const { return written_ == encoded_.total_bytes; }
  /// What goes through the ring.
  [[nodiscard]] std::array<std::byte, message::kReferenceBytes> reference() const;

  /// True while the consumer has the reservation for sure. A reference that the ring took while
  /// this was true is received.
  [[nodiscard]] bool IsHeld() const { return route_.clock.Now() < held_until_; }
  /// Whether it is time to renew the lease.
  [[nodiscard]] bool IsDue() const { return route_.clock.Now() >= renew_at_; }
  /// Renews the lease, or learns what became of the reservation.
  ///
  /// Errors: the call's; nothing is known then.
  absl::StatusOr<v1::RenewValueResponse::Fate> Renew();

  /// Whether the reference may be in the ring. Then the consumer ends the reservation.
  void Keep(bool keep) { keep_ = keep; }

 private:
  Transfer(Route route, const message::Encoded& encoded)
      : route_(std::move(route)), encoded_(encoded) {}
  absl::Status Open(const v1::ReserveValueResponse& reserved, fabric::Dialer& dialer);
  void BeginLease(base::MonotonicTime from);

  const Route route_;
  const message::Encoded& encoded_;
  std::uint64_t reservation_ = 0;
  std::uint64_t offset_ = 0;     // Where the message begins in the region.
  fabric::RemoteRegion region_;  // The reserved memory is in it.
  std::unique_ptr<fabric::Channel> channel_;
  std::uint64_t written_ = 0;
  std::size_t piece_ = 0;            // The piece of the message that is written next,
  std::uint64_t piece_written_ = 0;  // and how much of it is there.
  base::Duration lease_{};
  base::MonotonicTime held_until_{}, renew_at_{};
  bool keep_ = false;
};

}  // namespace onepiece::node
