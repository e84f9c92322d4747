#include "cluster/node/inbox.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"
#include "cluster/node/ring_health.h"
#include "cluster/node/scrape.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/recovery.h"
#include "cluster/rpc/status.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

// The log gets one line in this time, because a producer that sends nonsense sends much of it.
constexpr base::Duration kLogInterval = std::chrono::seconds(5);
// The limit of a producer's name in the ring's health.
constexpr std::size_t kMaxNameBytes = 128;

absl::Status Closed() {
  return base::MakeError(absl::StatusCode::kCancelled, "INBOX_CLOSED", "the inbox is closed");
}

class RingInbox final : public Inbox, private v1::RingService::Service {
 public:
  RingInbox(std::unique_ptr<ring::Consumer> consumer, const ClusterView& view, InboxOptions options,
            base::Clock& clock)
      : view_(view),
        options_(std::move(options)),
        clock_(clock),
        pool_(std::make_shared<BlockPool>(options_.capacity_bytes, options_.block_hook)),
        consumer_(std::move(consumer)),
        recovery_(*consumer_, clock),
        scrape_(options_.metrics, [this](telemetry::Metrics& metrics) {
          ExportRing(consumer_->health(), malformed_, metrics);
        }) {}

  grpc::Service* service() override { return this; }
  absl::StatusOr<Received> Receive(base::MonotonicTime deadline) override;
  void Shut() override { consumer_->Shut(); }
  void Close() override;
  [[nodiscard]] RingStats stats() const override;

 private:
  grpc::Status OpenRing(grpc::ServerContext* context, const v1::OpenRingRequest* request,
                        v1::OpenRingResponse* response) override;
  grpc::Status CloseRing(grpc::ServerContext* context, const v1::CloseRingRequest* request,
                         google::protobuf::Empty* response) override;
  grpc::Status GetRingHealth(grpc::ServerContext* context, const v1::GetRingHealthRequest* request,
                             v1::RingHealth* response) override;
  absl::Status LetIn(const v1::OpenRingRequest& request, v1::OpenRingResponse* response);
  BlockPool::Block TakeBlock(std::size_t bytes);
  absl::StatusOr<message::Message> TakeOut(ring::Delivery delivery);
  void NoteMalformed(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(receive_mutex_);

  const ClusterView& view_;
  const InboxOptions options_;
  base::Clock& clock_;
  const std::shared_ptr<BlockPool> pool_;
  const std::unique_ptr<ring::Consumer> consumer_;
  std::atomic<bool> closed_{false};
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
    received.bytes = delivery->size_bytes();
    absl::StatusOr<message::Message> message = TakeOut(*std::move(delivery));
    if (message.ok()) {
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

absl::StatusOr<message::Message> RingInbox::TakeOut(ring::Delivery delivery) {
  const BlockPool::Block block = TakeBlock(delivery.size_bytes());
  ONEPIECE_RETURN_IF_ERROR(delivery.CopyTo(block.bytes));
  return message::Decode(message::Buffer(block.owner, block.bytes), message::Checksum::kVerified,
                         clock_.Now());
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

grpc::Status RingInbox::CloseRing(grpc::ServerContext* /*context*/,
                                  const v1::CloseRingRequest* request,
                                  google::protobuf::Empty* /*response*/) {
  return rpc::ToGrpc(consumer_->Dismiss(ring::ProducerId(request->producer_id()),
                                        ring::Incarnation(request->incarnation())));
}

grpc::Status RingInbox::GetRingHealth(grpc::ServerContext* /*context*/,
                                      const v1::GetRingHealthRequest* /*request*/,
                                      v1::RingHealth* response) {
  *response = ToProto(consumer_->health(), options_.label, clock_.Now());
  return grpc::Status::OK;
}

grpc::Status RingInbox::OpenRing(grpc::ServerContext* /*context*/,
                                 const v1::OpenRingRequest* request,
                                 v1::OpenRingResponse* response) {
  return rpc::ToGrpc(LetIn(*request, response));
}

absl::Status RingInbox::LetIn(const v1::OpenRingRequest& request, v1::OpenRingResponse* response) {
  if (closed_)
    return base::MakeError(absl::StatusCode::kUnavailable, "INBOX_CLOSED", "the inbox is closed");
  if (request.producer_id() == 0 || request.incarnation() == 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PRODUCER",
                           "producer_id and incarnation must be set");
  }
  const std::uint64_t ours = view_.incarnation();
  if (request.consumer_incarnation() != ours) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION",
                           "another incarnation was meant",
                           {{"incarnation", std::to_string(ours)}});
  }
  ONEPIECE_ASSIGN_OR_RETURN(fabric::Offer offer, fabric::Offer::Parse(request.offer()));
  const ring::ProducerIdentity identity{.producer_id = ring::ProducerId(request.producer_id()),
                                        .incarnation = ring::Incarnation(request.incarnation()),
                                        .offer = std::move(offer),
                                        .name = request.node_id().substr(0, kMaxNameBytes)};
  ONEPIECE_ASSIGN_OR_RETURN(const ring::ProducerGrant grant, consumer_->Enroll(identity));
  response->set_grant(grant.Serialize());
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
}

absl::StatusOr<std::unique_ptr<Inbox>> Inbox::Open(fabric::Fabric& fabric, const ClusterView& view,
                                                   InboxOptions options, base::Clock& clock) {
  ring::ConsumerOptions ring_options;
  const bool shared = options.shape == ring::Shape::kShared;
  if (options.capacity_bytes == 0)
    options.capacity_bytes = std::uint64_t{shared ? 128u : 16u} << 20;
  if (options.slots == 0) options.slots = shared ? 1024 : 128;
  if (options.max_producers == 0) options.max_producers = shared ? 256 : 32;
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
  return std::make_unique<RingInbox>(std::move(consumer), view, std::move(options), clock);
}

}  // namespace onepiece::node
