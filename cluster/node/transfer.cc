#include "cluster/node/transfer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/base/crc32c.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"

namespace onepiece::node {
namespace {

// The consumer allocates at least this fast. It is the floor that the ring has for a send.
constexpr std::uint64_t kAllocatedPerSecond = 50'000'000;
// The limit of one write. Scaled.
constexpr base::Duration kPieceTimeout = std::chrono::seconds(5);
// Between two tries to renew a lease. Scaled.
constexpr base::Duration kRenewPause = std::chrono::seconds(1);

base::Duration AllocationTime(std::uint64_t bytes) {
  return std::chrono::milliseconds(bytes * 1000 / kAllocatedPerSecond);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transfer>> Transfer::Reserve(Route route,
                                                            const message::Header& header,
                                                            const message::Encoded& encoded,
                                                            std::uint64_t& number) {
  std::unique_ptr<Transfer> transfer(new Transfer(std::move(route), encoded));
  const Route& to = transfer->route_;
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Dialer> dialer, to.fabric.Dial());
  v1::ReserveValueRequest request;
  request.set_node_id(to.node_id);
  request.set_consumer_incarnation(to.consumer_incarnation);
  request.set_length(encoded.total_bytes);
  request.set_offer(dialer->offer().Serialize());
  request.set_uid(header.uid.ToString());
  request.set_app_id(header.app);
  request.set_stage(header.stage);
  request.set_from(header.from);
  while (number == 0) number = base::RandomU64();
  request.set_request(number);
  // The lease counts from here: the consumer's begins later.
  const base::MonotonicTime asked = to.clock.Now();
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ReserveValueResponse reserved,
                            rpc::Call(*to.stub, &v1::RingService::Stub::ReserveValue, request,
                                      to.call_timeout + AllocationTime(encoded.total_bytes)));
  // A transfer that fails gives this room up. The next one must not find it.
  number = 0;
  transfer->reservation_ = reserved.reservation();
  transfer->offset_ = reserved.offset();
  transfer->lease_ = std::chrono::milliseconds(std::max<std::int64_t>(reserved.lease_ms(), 0));
  transfer->BeginLease(asked);
  ONEPIECE_RETURN_IF_ERROR(transfer->Open(reserved, *dialer));
  return transfer;
}

absl::Status Transfer::Open(const v1::ReserveValueResponse& reserved, fabric::Dialer& dialer) {
  ONEPIECE_ASSIGN_OR_RETURN(region_, fabric::RemoteRegion::Parse(reserved.region()));
  ONEPIECE_ASSIGN_OR_RETURN(channel_, dialer.Connect(region_));
  return absl::OkStatus();
}

Transfer::~Transfer() {
  if (keep_) route_.resting.Add(region_, std::move(channel_));
  if (reservation_ == 0 || keep_) return;
  channel_.reset();  // The consumer may use the room again once it hears of this.
  v1::RenewValueRequest request;
  request.set_reservation(reservation_);
  request.set_consumer_incarnation(route_.consumer_incarnation);
  route_.goodbyes.Say(route_.stub, request);
}

// Half of the lease is a margin for clocks that do not run alike.
void Transfer::BeginLease(base::MonotonicTime from) {
  held_until_ = from + lease_ / 2;
  renew_at_ = from + lease_ / 4;
}

absl::StatusOr<v1::RenewValueResponse::Fate> Transfer::Renew() {
  v1::RenewValueRequest request;
  request.set_reservation(reservation_);
  request.set_consumer_incarnation(route_.consumer_incarnation);
  const base::MonotonicTime asked = route_.clock.Now();
  renew_at_ = asked + base::Scaled(kRenewPause);
  ONEPIECE_ASSIGN_OR_RETURN(
      const v1::RenewValueResponse response,
      rpc::Call(*route_.stub, &v1::RingService::Stub::RenewValue, request, route_.call_timeout));
  if (response.fate() == v1::RenewValueResponse::OPEN) BeginLease(asked);
  return response.fate();
}

absl::StatusOr<bool> Transfer::WriteNext() {
  if (IsDue()) {
    const auto fate = Renew();
    const bool over = fate.ok() && *fate != v1::RenewValueResponse::OPEN;
    if (over || !IsHeld()) {
      return base::MakeError(
          absl::StatusCode::kUnavailable, "RESERVATION_OVER",
          over ? "the consumer has given the room away" : base::Message(fate.status()));
    }
  }
  std::vector<std::span<const std::byte>> spans;
  std::uint64_t bytes = 0;
  while (bytes < kPieceBytes && piece_ < encoded_.pieces.size()) {
    const std::span<const std::byte> rest = encoded_.pieces[piece_].bytes.subspan(piece_written_);
    const std::uint64_t part = std::min<std::uint64_t>(rest.size(), kPieceBytes - bytes);
    if (part > 0) spans.push_back(rest.first(part));
    bytes += part;
    piece_written_ += part;
    if (part < rest.size()) break;
    ++piece_;
    piece_written_ = 0;
  }
  const std::array chain = {fabric::Op::Write("value.write", offset_ + written_, spans)};
  ONEPIECE_RETURN_IF_ERROR(
      channel_->Execute(chain, route_.fabric.clock().Now() + base::Scaled(kPieceTimeout)));
  written_ += bytes;
  return written();
}

std::array<std::byte, message::kReferenceBytes> Transfer::reference() const {
  std::uint32_t crc32c = 0;
  for (const message::Piece& piece : encoded_.pieces)
    crc32c = base::CombineCrc32c(crc32c, piece.crc32c, piece.bytes.size());
  return message::EncodeReference(
      {.reservation = reservation_, .length_bytes = encoded_.total_bytes, .crc32c = crc32c});
}

}  // namespace onepiece::node
