#include "cluster/ring/consumer.h"

#include <cstring>
#include <utility>

#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {

Delivery::Delivery(Delivery&& other) noexcept { *this = std::move(other); }

Delivery& Delivery::operator=(Delivery&& other) noexcept {
  if (this == &other) return *this;
  Settle(/*bad_payload=*/false, /*read=*/false);
  core_ = std::move(other.core_);
  segment_ = std::move(other.segment_);
  seq_ = other.seq_;
  offset_ = other.offset_;
  size_bytes_ = other.size_bytes_;
  message_id_ = other.message_id_;
  producer_id_ = other.producer_id_;
  payload_crc32c_ = other.payload_crc32c_;
  payload_checked_ = other.payload_checked_;
  return *this;
}

Delivery::~Delivery() { Settle(/*bad_payload=*/false, /*read=*/false); }

absl::Status Delivery::CopyTo(std::span<std::byte> out) {
  ONEPIECE_CHECK(core_ != nullptr);
  ONEPIECE_CHECK(out.size() == size_bytes_);
  const std::span<const std::byte> payload = segment_->payload(offset_, size_bytes_);
  bool bad = false;
  if (payload_checked_) {
    // The checksum is computed over the copy, so a peer that changes the ring now cannot change
    // bytes that have been checked.
    bad = base::CopyWithCrc32c(payload, out) != payload_crc32c_;
  } else {
    std::memcpy(out.data(), payload.data(), payload.size());
  }
  Settle(bad, /*read=*/true);
  if (!bad) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kDataLoss, "BAD_PAYLOAD_CHECKSUM",
                         "message " + std::to_string(message_id_) + " of producer " +
                             std::to_string(producer_id_.value) + " does not have its checksum");
}

void Delivery::Settle(bool bad_payload, bool read) {
  if (core_ == nullptr) return;
  core_->Settle(*this, bad_payload, read);
  segment_.reset();
  core_.reset();
}

absl::StatusOr<std::unique_ptr<Consumer>> Consumer::Create(fabric::Fabric& fabric,
                                                           ConsumerOptions options,
                                                           base::Clock& clock) {
  const Layout layout{.capacity_bytes = options.capacity_bytes, .slots = options.slots};
  if (!layout.Valid() || options.max_producers == 0 || options.max_producers > 4096 ||
      options.dedup_window == 0 || options.dedup_producers < options.max_producers ||
      options.timeouts.fill_floor_bytes_per_second == 0 || options.timeouts.scale <= 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_RING_OPTIONS",
                           "ring options out of bounds: capacity_bytes " +
                               std::to_string(options.capacity_bytes) +
                               " (a multiple of 64, 4096 to 2^40), slots " +
                               std::to_string(options.slots) + " (4 to 65536), max_producers " +
                               std::to_string(options.max_producers) + " (1 to 4096)");
  }
  ONEPIECE_ASSIGN_OR_RETURN(auto doorbell, fabric.MakeDoorbell(options.label));
  auto core =
      std::make_shared<ConsumerCore>(fabric, std::move(options), clock, std::move(doorbell));
  ONEPIECE_RETURN_IF_ERROR(core->Open());
  return std::unique_ptr<Consumer>(new Consumer(std::move(core)));
}

Consumer::Consumer(std::shared_ptr<ConsumerCore> core) : core_(std::move(core)) {}
Consumer::~Consumer() { core_->Close(); }

absl::StatusOr<ProducerGrant> Consumer::Enroll(const ProducerIdentity& identity) {
  return core_->Enroll(identity);
}
absl::Status Consumer::Dismiss(ProducerId producer_id, Incarnation incarnation) {
  return core_->Dismiss(producer_id, incarnation);
}
std::optional<Delivery> Consumer::Poll() { return core_->Poll(); }
std::optional<Delivery> Consumer::Wait(base::MonotonicTime deadline) {
  return core_->Wait(deadline);
}
void Consumer::Shut() { core_->Shut(); }
void Consumer::Interrupt() { core_->Interrupt(); }
bool Consumer::Tick(base::MonotonicTime now) { return core_->Tick(now); }
void Consumer::Rest(const std::stop_token& stop, base::Duration watchful, base::Duration calm) {
  core_->Rest(stop, watchful, calm);
}
std::optional<std::string> Consumer::NameOf(ProducerId producer_id) const {
  return core_->NameOf(producer_id);
}

RingHealth Consumer::health() const { return core_->health(); }
ConsumerCounters Consumer::counters() const { return core_->counters(); }
Generation Consumer::generation() const { return core_->generation(); }
Consumer::Fill Consumer::fill() const { return core_->fill(); }
std::function<bool()> Consumer::MarkEnd() const { return core_->MarkEnd(); }
std::uint64_t Consumer::max_message_bytes() const { return core_->options().capacity_bytes / 2; }

}  // namespace onepiece::ring
