#include "cluster/ring/producer.h"

#include <utility>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/ring/sender.h"

namespace onepiece::ring {

absl::StatusOr<std::unique_ptr<Producer>> Producer::Connect(fabric::Dialer& dialer,
                                                            const ProducerGrant& grant,
                                                            ProducerOptions options,
                                                            base::Clock& clock) {
  const Layout layout{.capacity_bytes = grant.capacity_bytes, .slots = grant.slots};
  if (!layout.Valid() || layout.RegionBytes() != grant.region.length_bytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRANT",
                           "the grant's geometry does not fit its region");
  }
  ONEPIECE_ASSIGN_OR_RETURN(auto channel, dialer.Connect(grant.region));
  return std::unique_ptr<Producer>(new Producer(
      Sender::Make(std::move(channel), grant, options, clock), grant, options.payload_checksum));
}

Producer::Producer(std::unique_ptr<Sender> sender, const ProducerGrant& grant,
                   bool payload_checksum)
    : sender_(std::move(sender)),
      grant_(grant),
      payload_checksum_(payload_checksum),
      layout_{.capacity_bytes = grant.capacity_bytes, .slots = grant.slots} {}

Producer::~Producer() = default;

fabric::ChannelCounters Producer::channel_counters() const { return sender_->channel_counters(); }
const ProducerCounters& Producer::counters() const { return sender_->counters(); }

std::optional<Position> Producer::Look() { return sender_->Look(); }

absl::StatusOr<SendResult> Producer::Send(std::uint64_t message_id, std::span<const Piece> pieces,
                                          base::MonotonicTime deadline) {
  std::uint64_t length = 0;
  std::uint32_t crc = 0;
  spans_.clear();
  for (const Piece& piece : pieces) {
    if (piece.bytes.empty()) continue;
    if (payload_checksum_) {
      crc = length == 0 ? piece.crc32c : base::CombineCrc32c(crc, piece.crc32c, piece.bytes.size());
    }
    length += piece.bytes.size();
    spans_.push_back(piece.bytes);
  }
  if (length == 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "EMPTY_MESSAGE",
                           "a message has at least one byte");
  }
  if (length > layout_.max_message_bytes()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MESSAGE_TOO_LARGE",
                           "a message of " + std::to_string(length) +
                               " bytes; this ring takes half of its capacity, " +
                               std::to_string(layout_.max_message_bytes()) +
                               " (setting ring.capacity_bytes of the receiving node)");
  }
  return sender_->Send({.length_bytes = length,
                        .message_id = message_id,
                        .generation = grant_.generation,
                        .owner = grant_.owner,
                        .payload_crc32c = crc,
                        .payload_checked = payload_checksum_},
                       spans_, deadline);
}

}  // namespace onepiece::ring
