// The receiving half of messages that travel as values (docs/architecture.md, "Where do large
// messages go?"). Internal to cluster/node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/artifact.h"
#include "cluster/message/reference.h"
#include "cluster/node/block_pool.h"
#include "cluster/ring/consumer.h"
#include "cluster/values/reservations.h"
#include "cluster/values/slabs.h"
#include "onepiece/v1/ring.pb.h"

namespace onepiece::telemetry {
class Metrics;
}  // namespace onepiece::telemetry

namespace onepiece::node {

/// Memory that senders reserve, and the messages that they have written there.
///
/// A reservation lives until its reference comes out of the ring. When its sender dies first, it
/// ends after its lease, once all is taken out that was in the ring at the end of the lease: a
/// reference that came into the ring in time is received, however slowly the ring is emptied.
///
/// Ownership: owns the memory and a thread. Messages that were handed out keep theirs, and may
/// outlive this object. `fabric` and `clock` must outlive both.
///
/// Threading: thread-safe. One thread at a time calls Receive. The thread ends reservations whose
/// senders have died, and gives memory back that was long unused: both wait for the fabric.
///
/// Blocking: Reserve may allocate memory, which takes a second for 2 GiB. The destructor waits for
/// the fences that are under way.
class ValueRoom {
 public:
  static constexpr base::Duration kLease = std::chrono::seconds(30);  ///< Scaled.

  /// As ring::Consumer::MarkEnd, of the ring that brings the references.
  using MarkEnd = std::function<std::function<bool()>()>;
  /// `hook` is called for fresh memory, as BlockPool does.
  ValueRoom(fabric::Fabric& fabric, std::uint64_t limit_bytes, BlockHook hook, MarkEnd mark_end,
            base::Clock& clock);

  /// The largest message that there can ever be room for.
  [[nodiscard]] std::uint64_t max_bytes() const;
  /// Answers a request that has an open reservation already: its answer was lost. nullopt: it has
  /// none.
  ///
  /// Errors: those of Reserve.
  std::optional<absl::StatusOr<v1::ReserveValueResponse>> FindReserved(
      const v1::ReserveValueRequest& request);
  /// Keeps `admitted` with the reservation.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_NODE, MALFORMED_OFFER, BAD_SIZE, MESSAGE_TOO_LARGE),
  /// RESOURCE_EXHAUSTED (TOO_MANY_RESERVATIONS, VALUE_MEMORY_FULL, SHARED_MEMORY_FULL), and those
  /// of Region::Accept.
  absl::StatusOr<v1::ReserveValueResponse> Reserve(const v1::ReserveValueRequest& request,
                                                   std::shared_ptr<const void> admitted);
  /// Who reserved; nullopt once the message was received or the room given back.
  [[nodiscard]] std::optional<std::string> SenderOf(std::uint64_t reservation) const {
    return reservations_.SenderOf(reservation);
  }
  /// Errors: UNAVAILABLE (BEING_CHECKED: the message has been taken out of the ring, and nobody
  /// knows yet whether it is whole).
  absl::StatusOr<v1::RenewValueResponse> Renew(const v1::RenewValueRequest& request);

  /// Takes a reference out of the ring and returns the message that it names, checked and where it
  /// lies. A sender that asks about a message that failed the check is told to send it again.
  /// REQUIRES: delivery.size_bytes() == message::kReferenceBytes.
  ///
  /// Errors: INVALID_ARGUMENT (MALFORMED_MESSAGE: no reference, or to nothing that is here; the
  /// bytes are not those of its checksum), and those of Delivery::CopyTo.
  absl::StatusOr<message::Buffer> Receive(ring::Delivery delivery);

  void Export(telemetry::Metrics& metrics) const;

 private:
  absl::StatusOr<v1::ReserveValueResponse> LetIn(const v1::ReserveValueRequest& request,
                                                 const values::Place& place);
  void Sweep();
  absl::StatusOr<message::Buffer> Check(const values::Reservations::Reservation& written,
                                        const message::Reference& reference);

  const std::shared_ptr<values::Slabs> slabs_;
  const MarkEnd mark_end_;
  values::Reservations reservations_;
  // Held while a reference is neither in the ring nor resolved, so that Sweep sees it in one of
  // them. Nobody waits for the fabric while it is held, because Receive needs it.
  base::Mutex between_;
  // The reservation whose bytes are being checked; 0: none. Until then it was neither received nor
  // lost.
  std::uint64_t checked_ ABSL_GUARDED_BY(between_) = 0;
  std::jthread sweeper_;  // Last: it stops before the members that it uses are destroyed.
};

}  // namespace onepiece::node
