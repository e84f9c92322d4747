#include "cluster/node/value_room.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/message/message.h"
#include "cluster/message/reference.h"
#include "cluster/telemetry/metrics.h"

namespace onepiece::node {
namespace {

constexpr std::size_t kMaxOpenReservations = 64;
constexpr std::size_t kMaxSenderBytes = 128;
/// Memory that the next message may use again, so that a stream of them costs no page faults.
constexpr base::Duration kKeepTime = std::chrono::seconds(10);
/// Between two looks for reservations whose senders have died. Scaled.
constexpr base::Duration kSweepInterval = std::chrono::seconds(1);

absl::Status Refused(std::string_view reason, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, what);
}

absl::Status Malformed(const std::string& what) {
  return Refused("MALFORMED_MESSAGE", "malformed message: " + what);
}

}  // namespace

// Each slab has a segment, so each writer is let into memory that holds its message and no other.
ValueRoom::ValueRoom(fabric::Fabric& fabric, std::uint64_t limit_bytes, BlockHook hook,
                     MarkEnd mark_end, base::Clock& clock)
    : slabs_(values::Slabs::Create(fabric,
                                   {.segment_bytes = 0,
                                    .limit_bytes = limit_bytes,
                                    .keep_bytes = 0,
                                    .keep_time = kKeepTime,
                                    .hook = std::move(hook)},
                                   clock)),
      mark_end_(std::move(mark_end)),
      reservations_(
          slabs_, {.budget_bytes = limit_bytes, .max_open = kMaxOpenReservations, .lease = kLease},
          clock),
      sweeper_([this, &clock](const std::stop_token& stop) {
        while (clock.Pause(stop, base::Scaled(kSweepInterval))) Sweep();
      }) {}

std::uint64_t ValueRoom::max_bytes() const {
  return std::min(slabs_->max_bytes(), message::kMaxMessageBytes);
}

std::optional<absl::StatusOr<v1::ReserveValueResponse>> ValueRoom::FindReserved(
    const v1::ReserveValueRequest& request) {
  const auto known = reservations_.Find(request.node_id(), request.request(), request.length());
  if (!known.has_value()) return std::nullopt;
  absl::StatusOr<v1::ReserveValueResponse> response = LetIn(request, known->place);
  if (response.ok()) response->set_reservation(known->id);
  return response;
}

// Lets the sender into the memory at `place`. An earlier offer of the sender is of no use any more:
// the answer to it was lost.
absl::StatusOr<v1::ReserveValueResponse> ValueRoom::LetIn(const v1::ReserveValueRequest& request,
                                                          const values::Place& place) {
  ONEPIECE_ASSIGN_OR_RETURN(const fabric::Offer offer, fabric::Offer::Parse(request.offer()));
  ONEPIECE_ASSIGN_OR_RETURN(
      const fabric::RemoteRegion region,
      slabs_->Enroll(place.segment, request.node_id(), offer, fabric::Rights::kReadWrite));
  v1::ReserveValueResponse response;
  response.set_region(region.Serialize());
  response.set_offset(place.offset);
  response.set_lease_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(base::Scaled(kLease)).count());
  return response;
}

absl::StatusOr<v1::ReserveValueResponse> ValueRoom::Reserve(const v1::ReserveValueRequest& request,
                                                            std::shared_ptr<const void> admitted) {
  if (request.node_id().empty() || request.node_id().size() > kMaxSenderBytes)
    return Refused("BAD_NODE", "a node id has 1 to 128 bytes");
  ONEPIECE_RETURN_IF_ERROR(fabric::Offer::Parse(request.offer()).status());
  if (request.length() > max_bytes()) {
    return Refused("MESSAGE_TOO_LARGE", "a message of " + std::to_string(request.length()) +
                                            " bytes; the limit is " + std::to_string(max_bytes()) +
                                            " (ring.value_bytes)");
  }
  ONEPIECE_RETURN_IF_ERROR(reservations_.CheckRoom(request.length()));
  ONEPIECE_ASSIGN_OR_RETURN(values::Slabs::Slab slab, slabs_->Take(request.length()));
  ONEPIECE_ASSIGN_OR_RETURN(v1::ReserveValueResponse response, LetIn(request, slab.place));
  const absl::StatusOr<std::uint64_t> id = reservations_.Add({.sender = request.node_id(),
                                                              .slab = std::move(slab),
                                                              .note = std::move(admitted),
                                                              .request = request.request()});
  if (absl::IsAlreadyExists(id.status())) {
    // The same request came twice at once, and the other call was faster.
    if (auto reserved = FindReserved(request); reserved.has_value()) return *std::move(reserved);
  }
  ONEPIECE_RETURN_IF_ERROR(id.status());
  response.set_reservation(*id);
  return response;
}

absl::StatusOr<v1::RenewValueResponse> ValueRoom::Renew(const v1::RenewValueRequest& request) {
  v1::RenewValueResponse response;
  response.set_fate(v1::RenewValueResponse::OVER);
  if (request.give_up()) {
    (void)reservations_.GiveUp(request.reservation());
    return response;
  }
  const base::MutexLock lock(between_);
  if (request.reservation() == checked_ && checked_ != 0) {
    return base::MakeError(absl::StatusCode::kUnavailable, "BEING_CHECKED",
                           "the message is being checked: ask again");
  }
  switch (reservations_.Renew(request.reservation())) {
    case values::Reservations::Fate::kOpen:
      response.set_fate(v1::RenewValueResponse::OPEN);
      break;
    case values::Reservations::Fate::kOver:
      break;
    case values::Reservations::Fate::kNone:
      // Only its sender asks, and has not given it up.
      response.set_fate(v1::RenewValueResponse::RECEIVED);
      break;
  }
  return response;
}

absl::StatusOr<message::Buffer> ValueRoom::Receive(ring::Delivery delivery) {
  message::Reference reference;
  std::optional<values::Reservations::Reservation> written;
  {
    const base::MutexLock lock(between_);
    std::array<std::byte, message::kReferenceBytes> bytes;
    ONEPIECE_RETURN_IF_ERROR(delivery.CopyTo(bytes));
    ONEPIECE_ASSIGN_OR_RETURN(reference, message::DecodeReference(bytes));
    written = reservations_.Take(reference.reservation);
    if (written.has_value()) checked_ = reference.reservation;
  }
  if (!written.has_value()) return Malformed("it refers to a reservation that is not here");
  absl::StatusOr<message::Buffer> message = Check(*written, reference);
  const base::MutexLock lock(between_);
  if (!message.ok()) reservations_.Spoil(reference.reservation);
  checked_ = 0;
  return message;
}

absl::StatusOr<message::Buffer> ValueRoom::Check(const values::Reservations::Reservation& written,
                                                 const message::Reference& reference) {
  const values::Slabs::Slab& slab = written.slab;
  if (slab.bytes.size() == reference.length_bytes && base::Crc32c(slab.bytes) == reference.crc32c)
    return message::Buffer(slab.owner, slab.bytes);
  // Whoever wrote may not have finished. A write that is still on its way must not land in what
  // comes next.
  if (!slabs_->Fence(slab.place.segment, written.sender)) slabs_->Discard(slab.place.segment);
  return Malformed("the reserved bytes are not those of the reference");
}

void ValueRoom::Sweep() {
  {
    const base::MutexLock lock(between_);
    reservations_.Expire(mark_end_);
  }
  reservations_.Reclaim();
  slabs_->Trim();
}

void ValueRoom::Export(telemetry::Metrics& metrics) const {
  const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
    metrics.Gauge(name, help).Set(static_cast<double>(value));
  };
  const values::SlabsStats slabs = slabs_->stats();
  const values::Reservations::Stats reservations = reservations_.stats();
  gauge("onepiece_value_limit_bytes", "Memory for messages too large for the ring, at most",
        max_bytes());
  gauge("onepiece_value_memory_bytes", "Memory allocated for messages too large for the ring",
        slabs.registered_bytes);
  gauge("onepiece_value_used_bytes", "Large messages in memory, received or reserved",
        slabs.used_bytes);
  gauge("onepiece_value_reserved_bytes", "Large messages that are being written",
        reservations.open_bytes);
  gauge("onepiece_value_reservations", "Large messages that are being written, by number",
        reservations.open);
  telemetry::RaiseTo(metrics.Counter("onepiece_value_reservations_abandoned_total",
                                     "Reservations whose senders did not come back in time"),
                     static_cast<double>(reservations.over));
}

}  // namespace onepiece::node
