#include "cluster/node/inbox.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"
#include "cluster/message/reference.h"
#include "cluster/node/ring_health.h"
#include "cluster/node/scrape.h"
#include "cluster/node/value_room.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/recovery.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/status.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

// The log gets one line in this time, because a producer that sends nonsense sends much of it.
constexpr base::Duration kLogInterval = std::chrono::seconds(5);
constexpr std::uint64_t kDefaultValueBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kMaxValueBytes = std::uint64_t{1} << 40;
// The limit of a producer's name in the ring's health.
constexpr std::size_t kMaxNameBytes = 128;

absl::Status Foreign(std::string_view reason, const rpc::Caller& caller, const std::string& what) {
  return base::MakeError(absl::StatusCode::kPermissionDenied, reason,
                         caller.name() + " may not use " + what + " of another node");
}

absl::Status Closed() {
  return base::MakeError(absl::StatusCode::kCancelled, "INBOX_CLOSED", "the inbox is closed");
}

class RingInbox final : public Inbox, private v1::RingService::Service {
 public:
  RingInbox(std::unique_ptr<ring::Consumer> consumer, fabric::Fabric& fabric,
            const ClusterView& view, InboxOptions options, base::Clock& clock)
      : view_(view),
        options_(std::move(options)),
        clock_(clock),
        pool_(std::make_shared<BlockPool>(options_.capacity_bytes, options_.block_hook)),
        consumer_(std::move(consumer)),
        values_(options_.takes_values ? std::make_unique<ValueRoom>(
                                            fabric, options_.value_bytes, options_.block_hook,
                                            [this] { return consumer_->MarkEnd(); }, clock)
                                      : nullptr),
        recovery_(*consumer_, clock),
        scrape_(options_.metrics, [this](telemetry::Metrics& metrics) {
          ExportRing(consumer_->health(), malformed_, metrics);
          if (values_ != nullptr) values_->Export(metrics);
        }) {}

  grpc::Service* service() override { return this; }
  absl::StatusOr<Received> Receive(base::MonotonicTime deadline) override;
  void SetAdmission(Admission admission) override { admission_ = std::move(admission); }
  void SetDoor(const rpc::Door* door) override { door_ = door; }
  void Shut() override {
    shut_ = true;
    consumer_->Shut();
  }
  void Close() override;
  [[nodiscard]] RingStats stats() const override;

 private:
  grpc::Status OpenRing(grpc::ServerContext* context, const v1::OpenRingRequest* request,
                        v1::OpenRingResponse* response) override;
  grpc::Status CloseRing(grpc::ServerContext* context, const v1::CloseRingRequest* request,
                         google::protobuf::Empty* response) override;
  grpc::Status GetRingHealth(grpc::ServerContext* context, const v1::GetRingHealthRequest* request,
                             v1::RingHealth* response) override;
  grpc::Status ReserveValue(grpc::ServerContext* context, const v1::ReserveValueRequest* request,
                            v1::ReserveValueResponse* response) override;
  grpc::Status RenewValue(grpc::ServerContext* context, const v1::RenewValueRequest* request,
                          v1::RenewValueResponse* response) override;
  absl::Status CheckIncarnation(std::uint64_t meant) const;
  absl::Status CheckProducer(const rpc::Caller& caller, std::uint64_t producer_id) const;
  absl::Status CheckReservation(const rpc::Caller& caller, std::uint64_t reservation) const;
  absl::Status Reserve(const grpc::ServerContext& context, const v1::ReserveValueRequest& request,
                       v1::ReserveValueResponse* response);
  absl::Status LetIn(const v1::OpenRingRequest& request, v1::OpenRingResponse* response);
  BlockPool::Block TakeBlock(std::size_t bytes);
  bool IsReference(const ring::Delivery& delivery) const;
  absl::StatusOr<message::Buffer> TakeOut(ring::Delivery delivery);
  void NoteMalformed(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(receive_mutex_);

  const ClusterView& view_;
  const InboxOptions options_;
  base::Clock& clock_;
  const std::shared_ptr<BlockPool> pool_;
  const std::unique_ptr<ring::Consumer> consumer_;
  const std::unique_ptr<ValueRoom> values_;  // nullptr: this inbox takes none.
  // Both constant while the service is served.
  Admission admission_;
  const rpc::Door* door_ = nullptr;
  std::atomic<bool> shut_{false}, closed_{false};
  std::atomic<std::uint64_t> malformed_{0};
  base::Mutex receive_mutex_;
  base::MonotonicTime next_log_ ABSL_GUARDED_BY(receive_mutex_){};
  // Last: they stop before the members that they read are destroyed.
  ring::RecoveryRunner recovery_;
  ScrapeHook scrape_;
};

absl::StatusOr<Received> RingInbox::Receive(base::MonotonicTime deadline) {
  const base::MutexLock lock(receive_mutex_);
  while (!closed_) {
    std::optional<ring::Delivery> delivery = consumer_->Wait(deadline);
    if (!delivery.has_value()) {
      if (closed_) break;
      if (clock_.Now() < deadline) continue;
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "NO_MESSAGE",
                             "no message has arrived");
    }
    Received received;
    received.arrival = clock_.Now();
    received.arrival_wall = clock_.WallNow();
    received.by_value = IsReference(*delivery);
    const absl::StatusOr<message::Buffer> bytes = TakeOut(*std::move(delivery));
    absl::StatusOr<message::Message> message =
        bytes.ok() ? message::Decode(*bytes, message::Checksum::kVerified, clock_.Now())
                   : bytes.status();
    if (message.ok()) {
      received.bytes = bytes->size();
      received.message = *std::move(message);
      received.ready = clock_.Now();
      return received;
    }
    NoteMalformed(message.status());
  }
  return Closed();
}

BlockPool::Block RingInbox::TakeBlock(std::size_t bytes) {
  if (options_.blocks) {
    if (auto block = options_.blocks(bytes); block.ok()) return *std::move(block);
  }
  return pool_->Take(bytes);
}

bool RingInbox::IsReference(const ring::Delivery& delivery) const {
  return values_ != nullptr && delivery.size_bytes() == message::kReferenceBytes;
}

absl::StatusOr<message::Buffer> RingInbox::TakeOut(ring::Delivery delivery) {
  if (IsReference(delivery)) return values_->Receive(std::move(delivery));
  const BlockPool::Block block = TakeBlock(delivery.size_bytes());
  ONEPIECE_RETURN_IF_ERROR(delivery.CopyTo(block.bytes));
  return message::Buffer(block.owner, block.bytes);
}

void RingInbox::NoteMalformed(const absl::Status& status) {
  // The ring counts a wrong checksum itself, and takes the resend.
  if (!absl::IsDataLoss(status)) ++malformed_;
  if (clock_.Now() < next_log_) return;
  next_log_ = clock_.Now() + kLogInterval;
  spdlog::warn("inbox: message dropped: {} (malformed so far: {})", base::Message(status),
               malformed_.load());
}

void RingInbox::Close() {
  // The flag comes first: after Interrupt every Wait returns at once, and Receive must see why.
  closed_ = true;
  consumer_->Interrupt();
}

RingStats RingInbox::stats() const {
  const ring::Consumer::Fill fill = consumer_->fill();
  // A ring of lanes has no memory before its first producer, and shows one lane's size until then.
  return {.slots = std::max<std::uint64_t>(fill.slots, options_.slots),
          .slots_used = fill.messages,
          .capacity_bytes = std::max(fill.capacity_bytes, options_.capacity_bytes),
          .bytes_used = fill.bytes,
          .malformed = malformed_,
          .ring = consumer_->counters()};
}

// Else any node could end a live producer's connection, and what the ring has acknowledged to it
// would be sent again or lost.
absl::Status RingInbox::CheckProducer(const rpc::Caller& caller, std::uint64_t producer_id) const {
  if (caller.insecure()) return absl::OkStatus();
  const std::optional<std::string> owner = consumer_->NameOf(ring::ProducerId(producer_id));
  if (!owner || caller.CheckNode(*owner).ok()) return absl::OkStatus();
  return Foreign("FOREIGN_PRODUCER", caller, "the producer");
}

absl::Status RingInbox::CheckReservation(const rpc::Caller& caller,
                                         std::uint64_t reservation) const {
  if (caller.insecure()) return absl::OkStatus();
  const std::optional<std::string> owner = values_->SenderOf(reservation);
  if (!owner || caller.CheckNode(*owner).ok()) return absl::OkStatus();
  return Foreign("FOREIGN_RESERVATION", caller, "the reservation");
}

grpc::Status RingInbox::CloseRing(grpc::ServerContext* context, const v1::CloseRingRequest* request,
                                  google::protobuf::Empty* /*response*/) {
  const absl::Status own = CheckProducer(rpc::CallerOf(door_, *context), request->producer_id());
  if (!own.ok()) return rpc::ToGrpc(own);
  return rpc::ToGrpc(consumer_->Dismiss(ring::ProducerId(request->producer_id()),
                                        ring::Incarnation(request->incarnation())));
}

grpc::Status RingInbox::GetRingHealth(grpc::ServerContext* /*context*/,
                                      const v1::GetRingHealthRequest* /*request*/,
                                      v1::RingHealth* response) {
  *response = ToProto(consumer_->health(), options_.label, clock_.Now());
  return grpc::Status::OK;
}

grpc::Status RingInbox::OpenRing(grpc::ServerContext* context, const v1::OpenRingRequest* request,
                                 v1::OpenRingResponse* response) {
  const rpc::Caller caller = rpc::CallerOf(door_, *context);
  absl::Status own = caller.CheckNode(request->node_id());
  if (own.ok()) own = CheckProducer(caller, request->producer_id());
  if (!own.ok()) return rpc::ToGrpc(own);
  return rpc::ToGrpc(LetIn(*request, response));
}

absl::Status RingInbox::CheckIncarnation(std::uint64_t meant) const {
  const std::uint64_t ours = view_.incarnation();
  if (meant == ours) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                         "another incarnation was meant", {{"incarnation", std::to_string(ours)}});
}

grpc::Status RingInbox::ReserveValue(grpc::ServerContext* context,
                                     const v1::ReserveValueRequest* request,
                                     v1::ReserveValueResponse* response) {
  return rpc::ToGrpc(Reserve(*context, *request, response));
}

absl::Status RingInbox::Reserve(const grpc::ServerContext& context,
                                const v1::ReserveValueRequest& request,
                                v1::ReserveValueResponse* response) {
  if (closed_ || shut_)
    return base::MakeError(absl::StatusCode::kUnavailable, "INBOX_CLOSED", "the inbox is closed");
  ONEPIECE_RETURN_IF_ERROR(rpc::CallerOf(door_, context).CheckNode(request.node_id()));
  ONEPIECE_RETURN_IF_ERROR(CheckIncarnation(request.consumer_incarnation()));
  if (values_ == nullptr) {
    return base::MakeError(absl::StatusCode::kUnimplemented, "NO_VALUES",
                           "this node takes messages through its ring only");
  }
  // A repetition is not admitted again: it would compete with itself for room.
  if (auto reserved = values_->FindReserved(request); reserved.has_value()) {
    ONEPIECE_ASSIGN_OR_RETURN(*response, *std::move(reserved));
    return absl::OkStatus();
  }
  std::shared_ptr<const void> admitted;
  if (admission_) {
    ONEPIECE_ASSIGN_OR_RETURN(admitted, admission_(request));
  }
  // Nobody would write into the room. The sender has perhaps asked again, or somebody else.
  if (context.IsCancelled()) {
    return base::MakeError(absl::StatusCode::kCancelled, "CALLER_GONE", "nobody waits any more");
  }
  ONEPIECE_ASSIGN_OR_RETURN(*response, values_->Reserve(request, std::move(admitted)));
  return absl::OkStatus();
}

grpc::Status RingInbox::RenewValue(grpc::ServerContext* context,
                                   const v1::RenewValueRequest* request,
                                   v1::RenewValueResponse* response) {
  const absl::Status meant = CheckIncarnation(request->consumer_incarnation());
  if (!meant.ok() || values_ == nullptr) return rpc::ToGrpc(meant);
  const absl::Status own = CheckReservation(rpc::CallerOf(door_, *context), request->reservation());
  if (!own.ok()) return rpc::ToGrpc(own);
  absl::StatusOr<v1::RenewValueResponse> renewed = values_->Renew(*request);
  if (renewed.ok()) *response = *std::move(renewed);
  return rpc::ToGrpc(renewed.status());
}

absl::Status RingInbox::LetIn(const v1::OpenRingRequest& request, v1::OpenRingResponse* response) {
  if (closed_)
    return base::MakeError(absl::StatusCode::kUnavailable, "INBOX_CLOSED", "the inbox is closed");
  if (request.producer_id() == 0 || request.incarnation() == 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PRODUCER",
                           "producer_id and incarnation must be set");
  }
  ONEPIECE_RETURN_IF_ERROR(CheckIncarnation(request.consumer_incarnation()));
  ONEPIECE_ASSIGN_OR_RETURN(fabric::Offer offer, fabric::Offer::Parse(request.offer()));
  const ring::ProducerIdentity identity{.producer_id = ring::ProducerId(request.producer_id()),
                                        .incarnation = ring::Incarnation(request.incarnation()),
                                        .offer = std::move(offer),
                                        .name = request.node_id().substr(0, kMaxNameBytes)};
  ONEPIECE_ASSIGN_OR_RETURN(const ring::ProducerGrant grant, consumer_->Enroll(identity));
  response->set_grant(grant.Serialize());
  if (values_ != nullptr) response->set_max_value_bytes(values_->max_bytes());
  spdlog::debug("inbox: producer let in node={} pid={} owner={}", request.node_id(),
                identity.offer.peer.pid, grant.owner);
  return absl::OkStatus();
}

}  // namespace

void ApplyRingConfig(const v1::RingConfig& config, InboxOptions& options) {
  options.shape = config.shape() == v1::RING_SHAPE_PER_PRODUCER ? ring::Shape::kPerProducer
                                                                : ring::Shape::kShared;
  options.capacity_bytes = static_cast<std::uint64_t>(config.capacity_bytes());
  options.slots = static_cast<std::uint32_t>(config.slots());
  options.max_producers = static_cast<std::uint32_t>(config.max_producers());
  options.value_bytes = static_cast<std::uint64_t>(config.value_bytes());
}

absl::StatusOr<std::unique_ptr<Inbox>> Inbox::Open(fabric::Fabric& fabric, const ClusterView& view,
                                                   InboxOptions options, base::Clock& clock) {
  ring::ConsumerOptions ring_options;
  const bool shared = options.shape == ring::Shape::kShared;
  if (options.capacity_bytes == 0)
    options.capacity_bytes = std::uint64_t{shared ? 128u : 16u} << 20;
  if (options.slots == 0) options.slots = shared ? 1024 : 128;
  if (options.max_producers == 0) options.max_producers = shared ? 256 : 32;
  if (options.value_bytes == 0) options.value_bytes = kDefaultValueBytes;
  if (options.value_bytes > kMaxValueBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_RING_OPTIONS",
                           "value_bytes is at most 2^40, not " +
                               std::to_string(static_cast<std::int64_t>(options.value_bytes)));
  }
  ring_options.label = fabric::LabelOf(options.label);
  ring_options.shape = options.shape;
  ring_options.capacity_bytes = options.capacity_bytes;
  ring_options.slots = options.slots;
  ring_options.max_producers = options.max_producers;
  // The ring refuses to remember fewer producers than it lets in.
  ring_options.dedup_producers = std::max(ring_options.dedup_producers, options.max_producers);
  ring_options.timeouts = options.timeouts;
  ONEPIECE_ASSIGN_OR_RETURN(std::unique_ptr<ring::Consumer> consumer,
                            ring::Consumer::Create(fabric, ring_options, clock));
  return std::make_unique<RingInbox>(std::move(consumer), fabric, view, std::move(options), clock);
}

}  // namespace onepiece::node
