#include "cluster/node/outbox.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/message/sender_name.h"
#include "cluster/node/backoff.h"
#include "cluster/node/goodbyes.h"
#include "cluster/node/scrape.h"
#include "cluster/node/transfer.h"
#include "cluster/ring/producer.h"
#include "cluster/rpc/channel.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

// A ring's lock is held for microseconds. If it is held longer, its holder has died, and the
// consumer needs a moment to find that out. Meanwhile another candidate may take the message.
constexpr base::Duration kLockPatience = std::chrono::milliseconds(100);
// A consumer whose oldest message is the same for so long, while others take theirs, was stopped or
// has more than it can take. Scaled.
constexpr base::Duration kStuckAfter = std::chrono::milliseconds(300);
// How often a link looks whether its consumer takes messages. Scaled.
constexpr base::Duration kLookInterval = std::chrono::milliseconds(50);
// How long a turn writes a large message before other messages get their turn. Scaled.
constexpr base::Duration kWriteTurn = std::chrono::milliseconds(100);
// A message that would take more than this part of a ring travels as a value. So no message holds
// more than this part of the room, and the reader is done with it soon.
constexpr std::uint64_t kRingParts = 8;

// The reason of a turn that ends while the outcome of a send is unknown, or a message half written.
constexpr char kOpen[] = "OUTCOME_OPEN";

enum class Outcome : std::uint8_t {
  kOk,
  kBusy,
  kUnreachable,
  kUnknown,
  kTooLarge,  ///< The consumer can never take it.
  kByValue,   ///< It is too large for the ring, and not for the consumer.
  kHeld,      ///< The consumer keeps the room for it.
  kLost,      ///< What was sent is never received. The message begins anew.
};

/// Our side of one consumer incarnation's ring.
struct Link {
  Link(v1::Endpoint consumer, Goodbyes& all)
      : endpoint(std::move(consumer)),
        goodbyes(all),
        stub(v1::RingService::NewStub(rpc::MakeChannel(endpoint.address()))) {}
  /// Says good-bye, so that the consumer keeps no place for a producer that is gone.
  ~Link() {
    // The producer goes before the good-bye. The ring takes a good-bye to mean that none of the
    // producer's operations is under way, which nobody can enforce on shm.
    producer.reset();
    if (open_incarnation == 0) return;
    v1::CloseRingRequest request;
    request.set_producer_id(producer_id);
    request.set_incarnation(open_incarnation);
    goodbyes.Say(stub, request);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const v1::Endpoint endpoint;
  Goodbyes& goodbyes;
  const std::shared_ptr<Goodbyes::Stub> stub;
  /// Of this link alone: opening a ring again fences the producer that opened it before under the
  /// same id, and another link to the same ring may have a send under way.
  const std::uint64_t producer_id = base::RandomU64();
  base::TimedMutex mutex;
  std::unique_ptr<ring::Producer> producer ABSL_GUARDED_BY(mutex);
  std::uint64_t opens ABSL_GUARDED_BY(mutex) = 0;  // OpenRing calls so far.
  // The incarnation under which the ring let us in last; 0: never.
  std::uint64_t open_incarnation ABSL_GUARDED_BY(mutex) = 0;
  // The largest message that the consumer takes as a value; 0: none.
  std::uint64_t max_value_bytes ABSL_GUARDED_BY(mutex) = 0;
  Backoff open_backoff ABSL_GUARDED_BY(mutex){std::chrono::milliseconds(20),
                                              std::chrono::seconds(1)};
  base::MonotonicTime next_open ABSL_GUARDED_BY(mutex){};
  // Why there is no producer before next_open.
  absl::Status open_error ABSL_GUARDED_BY(mutex);
  // Whether the consumer takes messages, as the link saw it last: the oldest message that waited,
  // if one did, and since when it has been that one.
  std::optional<std::uint64_t> oldest ABSL_GUARDED_BY(mutex);
  base::MonotonicTime oldest_since ABSL_GUARDED_BY(mutex){};
  base::MonotonicTime next_look ABSL_GUARDED_BY(mutex){};
  bool stuck ABSL_GUARDED_BY(mutex) = false;
  // The counters that the sums contain already.
  fabric::ChannelCounters seen ABSL_GUARDED_BY(mutex);
  ring::ProducerCounters seen_sends ABSL_GUARDED_BY(mutex);
};

class RingOutbox final : public Outbox {
 public:
  RingOutbox(fabric::Fabric& fabric, const ClusterView& view, OutboxOptions options,
             base::Clock& clock)
      : fabric_(fabric),
        view_(view),
        options_(std::move(options)),
        clock_(clock),
        scrape_(options_.metrics, [this](telemetry::Metrics& metrics) { Export(metrics); }) {}

  absl::StatusOr<Delivered> Deliver(const message::Message& message, const Destination& destination,
                                    base::MonotonicTime deadline) override;
  absl::StatusOr<Delivered> DeliverInTurns(const message::Message& message,
                                           const Destination& destination,
                                           base::MonotonicTime deadline,
                                           std::shared_ptr<OpenDelivery>& open) override;
  void Close() override;
  [[nodiscard]] OutboxCounters counters() const override;

 private:
  /// One message on its way.
  struct Delivery final : OpenDelivery {
    Delivery(const message::Message& to_send, base::MonotonicTime limit, Backoff pauses)
        : message(to_send), deadline(limit), backoff(pauses) {}
    message::Message message;
    message::Encoded encoded;
    std::uint64_t id = 0;
    base::Duration encode{};
    base::WallTime start{};
    base::MonotonicTime deadline;
    base::Duration patience_for{};   // How long the caller waits without progress.
    base::MonotonicTime patience{};  // Until when. Never later than the deadline.
    bool in_turns = false;
    Backoff backoff;
    // The ring that may have the message. It stays the same one, under the same producer id, even
    // when the outbox prunes its links meanwhile.
    std::shared_ptr<Link> doubtful;
    // A message that travels as a value, and where to. It stays with that consumer while the room
    // there lasts, because writing it anew costs more than waiting for the ring.
    std::shared_ptr<Link> carrier;
    std::unique_ptr<Transfer> transfer;
    std::uint64_t room_request = 0;  // As in Transfer::Reserve.
    bool turn_over = false;          // Other messages get their turn now.
    // The table of the last round of attempts, by which the consumer was chosen, and the state of
    // that round.
    std::shared_ptr<const Routing> chosen_by;
    bool any_candidate = false, any_busy = false, all_too_small = false;
    absl::Status last_error;
    void DropTransfer() {
      transfer.reset();
      carrier.reset();
    }
    void BeginPatience(base::MonotonicTime now) {
      // Compared before it is added, because its default, Duration::max(), would overflow.
      patience = patience_for < deadline - now ? now + patience_for : deadline;
    }
    /// When the caller gets an answer at the latest.
    [[nodiscard]] base::MonotonicTime limit() const {
      return doubtful != nullptr && !in_turns ? deadline : patience;
    }
  };

  absl::Status Encode(Delivery& delivery);
  absl::StatusOr<std::optional<v1::Endpoint>> Round(Delivery& delivery,
                                                    const Destination& destination,
                                                    std::uint64_t start);
  std::vector<v1::Endpoint> InOrder(const Destination& destination, const Routing& routing,
                                    std::uint64_t start);
  bool IsStuck(const v1::Endpoint& endpoint);
  absl::StatusOr<bool> Resolve(Delivery& delivery);
  absl::Status Undecided(const Delivery& delivery) const;
  absl::StatusOr<std::optional<v1::Endpoint>> GoOn(Delivery& delivery);
  absl::StatusOr<Outcome> TrySend(Delivery& delivery, const std::shared_ptr<Link>& link);
  Outcome Reserve(Delivery& delivery, const std::shared_ptr<Link>& link);
  Outcome WriteValue(Delivery& delivery);
  Outcome RenewLease(Delivery& delivery);
  absl::StatusOr<Outcome> SendValue(Delivery& delivery, Link& link);
  absl::StatusOr<Outcome> SendThroughRing(Delivery& delivery, Link& link,
                                          std::span<const message::Piece> pieces);
  std::optional<Outcome> TooLargeForRing(Delivery& delivery, const Link& link)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(link.mutex);
  bool IsClosed() const;
  absl::Status OpenProducer(Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(link.mutex);
  void CountRoundTrips(Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(link.mutex);
  std::shared_ptr<Link> LinkTo(const v1::Endpoint& endpoint);
  bool Pause(Delivery& delivery);
  absl::Status GiveUp(const Delivery& delivery) const;
  std::shared_ptr<Delivery> Begin(const message::Message& message, base::MonotonicTime deadline);
  absl::StatusOr<Delivered> Turn(Delivery& delivery, const Destination& destination);
  absl::StatusOr<Delivered> Run(Delivery& delivery, const Destination& destination);
  Delivered Taken(const Delivery& delivery, const v1::Endpoint& taker);
  void Note(const Delivery& delivery, const absl::StatusOr<Delivered>& result);
  void Export(telemetry::Metrics& metrics) const;

  fabric::Fabric& fabric_;
  const ClusterView& view_;
  const OutboxOptions options_;
  base::Clock& clock_;
  std::atomic<std::uint64_t> next_message_id_{1};
  // If all senders began with the first instance, they would keep step and meet at every instance.
  std::atomic<std::uint64_t> next_start_{RendezvousWeight({}, options_.node_id)};
  std::atomic<std::uint64_t> sent_{0}, sent_bytes_{0}, busy_{0}, unknown_{0}, opened_{0},
      operations_{0}, round_trips_{0}, lock_retries_{0}, doorbells_{0};
  Goodbyes goodbyes_;  // Outlives the links, whose destructors use it.
  RestingChannels resting_{clock_};

  // May be taken while a Link's mutex is held, never the other way round.
  mutable base::Mutex mutex_;
  base::CondVar closed_changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t pruned_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, std::uint64_t>, std::shared_ptr<Link>> links_
      ABSL_GUARDED_BY(mutex_);
  ScrapeHook scrape_;  // Last: it stops before the members that it reads are destroyed.
};

std::shared_ptr<RingOutbox::Delivery> RingOutbox::Begin(const message::Message& message,
                                                        base::MonotonicTime deadline) {
  auto delivery = std::make_shared<Delivery>(message, deadline,
                                             Backoff(options_.backoff_min, options_.backoff_max));
  delivery->message.header.sender = message::SenderName(options_.node_id);
  delivery->start = clock_.WallNow();
  return delivery;
}

absl::StatusOr<Delivered> RingOutbox::Deliver(const message::Message& message,
                                              const Destination& destination,
                                              base::MonotonicTime deadline) {
  return Turn(*Begin(message, deadline), destination);
}

absl::StatusOr<Delivered> RingOutbox::DeliverInTurns(const message::Message& message,
                                                     const Destination& destination,
                                                     base::MonotonicTime deadline,
                                                     std::shared_ptr<OpenDelivery>& open) {
  auto delivery = std::static_pointer_cast<Delivery>(std::exchange(open, nullptr));
  if (delivery == nullptr) delivery = Begin(message, deadline);
  delivery->in_turns = true;
  absl::StatusOr<Delivered> result = Turn(*delivery, destination);
  if (base::GetReason(result.status()).reason == kOpen) open = std::move(delivery);
  return result;
}

absl::StatusOr<Delivered> RingOutbox::Turn(Delivery& delivery, const Destination& destination) {
  delivery.patience_for = destination.patience;
  delivery.BeginPatience(clock_.Now());
  absl::StatusOr<Delivered> result = Run(delivery, destination);
  if (base::GetReason(result.status()).reason != kOpen) Note(delivery, result);
  return result;
}

absl::StatusOr<Delivered> RingOutbox::Run(Delivery& delivery, const Destination& destination) {
  delivery.turn_over = false;
  if (delivery.doubtful == nullptr && delivery.transfer == nullptr) {
    ONEPIECE_RETURN_IF_ERROR(Encode(delivery));
    delivery.BeginPatience(clock_.Now());  // Checksums of gigabytes take a while.
  }
  const std::uint64_t start =
      destination.order == Destination::Order::kRoundRobin ? next_start_++ : 0;
  while (true) {
    if (delivery.doubtful != nullptr) {
      ONEPIECE_ASSIGN_OR_RETURN(const bool arrived, Resolve(delivery));
      if (arrived) return Taken(delivery, delivery.doubtful->endpoint);
    }
    ONEPIECE_ASSIGN_OR_RETURN(const std::optional<v1::Endpoint> taker,
                              Round(delivery, destination, start));
    if (taker.has_value()) return Taken(delivery, *taker);
    if (delivery.turn_over || !Pause(delivery))
      return delivery.doubtful == nullptr ? GiveUp(delivery) : Undecided(delivery);
  }
}

Delivered RingOutbox::Taken(const Delivery& delivery, const v1::Endpoint& taker) {
  ++sent_;
  sent_bytes_ += delivery.encoded.total_bytes;
  return {.endpoint = taker,
          .attempt = delivery.message.header.attempt,
          .routing_epoch = delivery.chosen_by->epoch(),
          .encode = delivery.encode};
}

absl::Status RingOutbox::Encode(Delivery& delivery) {
  delivery.message.header.sent_time = clock_.WallNow();
  const base::MonotonicTime start = clock_.Now();
  ONEPIECE_ASSIGN_OR_RETURN(delivery.encoded, message::Encode(delivery.message, start));
  delivery.id = next_message_id_++;
  delivery.encode += clock_.Now() - start;
  return absl::OkStatus();
}

// Offers the message to every candidate once. Returns nullopt when no candidate took it, or when
// one may have it: then delivery.doubtful is that one's link.
absl::StatusOr<std::optional<v1::Endpoint>> RingOutbox::Round(Delivery& delivery,
                                                              const Destination& destination,
                                                              std::uint64_t start) {
  const std::shared_ptr<const Routing> routing = delivery.chosen_by = view_.routing();
  delivery.any_candidate = delivery.any_busy = false;
  delivery.all_too_small = true;
  if (delivery.transfer != nullptr) {
    ONEPIECE_ASSIGN_OR_RETURN(auto taker, GoOn(delivery));
    if (taker.has_value() || delivery.transfer != nullptr) return taker;
  }
  for (const v1::Endpoint& candidate : InOrder(destination, *routing, start)) {
    if (!routing->IsAlive(candidate.node_id(), candidate.incarnation())) continue;
    delivery.any_candidate = true;
    const std::shared_ptr<Link> link = LinkTo(candidate);
    ONEPIECE_ASSIGN_OR_RETURN(const Outcome outcome, TrySend(delivery, link));
    if (outcome == Outcome::kOk) return candidate;
    if (outcome == Outcome::kUnknown) delivery.doubtful = link;
    if (outcome == Outcome::kBusy) delivery.any_busy = true;
    if (outcome != Outcome::kTooLarge) delivery.all_too_small = false;
    if (delivery.doubtful != nullptr || delivery.transfer != nullptr) return std::nullopt;
  }
  if (delivery.any_candidate && delivery.all_too_small) return delivery.last_error;
  return std::nullopt;
}

// Goes on with the consumer that has room for the message. Without an answer the transfer is still
// there, unless the room is lost.
absl::StatusOr<std::optional<v1::Endpoint>> RingOutbox::GoOn(Delivery& delivery) {
  const std::shared_ptr<Link> link = delivery.carrier;
  const v1::Endpoint& consumer = link->endpoint;
  if (!delivery.chosen_by->IsAlive(consumer.node_id(), consumer.incarnation())) {
    delivery.DropTransfer();
    return std::nullopt;
  }
  delivery.any_candidate = true;
  delivery.all_too_small = false;
  ONEPIECE_ASSIGN_OR_RETURN(const Outcome outcome, TrySend(delivery, link));
  if (outcome == Outcome::kOk) return consumer;
  if (outcome == Outcome::kUnknown) delivery.doubtful = link;
  if (outcome == Outcome::kBusy) delivery.any_busy = true;
  return std::nullopt;
}

// Returns the candidates in the order in which they are asked. Round-robin, those that take nothing
// come last: a process that was stopped for a moment would go on collecting work, because its ring
// has room and its memory needs no processor.
std::vector<v1::Endpoint> RingOutbox::InOrder(const Destination& destination,
                                              const Routing& routing, std::uint64_t start) {
  std::vector<v1::Endpoint> candidates = destination.candidates(routing);
  if (destination.order == Destination::Order::kAsGiven || candidates.size() < 2) return candidates;
  std::rotate(candidates.begin(),
              candidates.begin() + static_cast<std::ptrdiff_t>(start % candidates.size()),
              candidates.end());
  std::stable_partition(candidates.begin(), candidates.end(),
                        [this](const v1::Endpoint& endpoint) { return !IsStuck(endpoint); });
  return candidates;
}

// Whether the consumer's oldest message has waited for kStuckAfter and still waits. A look costs a
// round trip, so it is made at intervals.
bool RingOutbox::IsStuck(const v1::Endpoint& endpoint) {
  std::shared_ptr<Link> link;
  {
    const base::MutexLock lock(mutex_);
    const auto known = links_.find({endpoint.node_id(), endpoint.incarnation()});
    if (known == links_.end()) return false;
    link = known->second;
  }
  const base::MonotonicTime now = clock_.Now();
  // A link that is in use shows by that whether it is of use.
  if (!link->mutex.TryLockUntil(now)) return false;
  const base::TimedMutexRelease release(link->mutex);
  if (link->producer == nullptr) return false;
  if (now < link->next_look) return link->stuck;
  link->next_look = now + base::Scaled(kLookInterval);
  const std::optional<ring::Position> position = link->producer->Look();
  CountRoundTrips(*link);
  const bool waits = position.has_value() && position->oldest != position->next;
  if (!waits) {
    link->oldest.reset();
  } else if (link->oldest != position->oldest) {
    link->oldest = position->oldest;
    link->oldest_since = now;
  }
  link->stuck = link->oldest.has_value() && now - link->oldest_since >= base::Scaled(kStuckAfter);
  return link->stuck;
}

// Finds out the outcome of the send to delivery.doubtful: whether the message arrived there. Only a
// resend to the same ring tells, because that ring drops a second copy, or the consumer's death.
// Until then BUSY and "unreachable" are answers to the resend and say nothing about the first copy.
absl::StatusOr<bool> RingOutbox::Resolve(Delivery& delivery) {
  const v1::Endpoint& consumer = delivery.doubtful->endpoint;
  while (true) {
    if (view_.routing()->IsOver(consumer.node_id(), consumer.incarnation(),
                                delivery.chosen_by->epoch(),
                                delivery.chosen_by->table().workflow_set())) {
      ++delivery.message.header.attempt;
      spdlog::warn("outbox: consumer died with a message under way uid={} node={} attempt={}",
                   delivery.message.header.uid.ToString(), consumer.node_id(),
                   delivery.message.header.attempt);
      delivery.DropTransfer();
      ONEPIECE_RETURN_IF_ERROR(Encode(delivery));
      delivery.doubtful = nullptr;
      return false;
    }
    ONEPIECE_ASSIGN_OR_RETURN(const Outcome outcome, TrySend(delivery, delivery.doubtful));
    if (outcome == Outcome::kOk) return true;
    if (outcome == Outcome::kLost) {
      delivery.doubtful = nullptr;
      return false;
    }
    if (!Pause(delivery)) return Undecided(delivery);
  }
}

absl::Status RingOutbox::Undecided(const Delivery& delivery) const {
  const std::string& node_id = delivery.doubtful->endpoint.node_id();
  const bool late = clock_.Now() >= delivery.deadline;
  const bool open = delivery.in_turns && !late && !IsClosed();
  return base::MakeError(
      late   ? absl::StatusCode::kDeadlineExceeded
      : open ? absl::StatusCode::kUnavailable
             : absl::StatusCode::kCancelled,
      open ? kOpen : "OUTCOME_UNKNOWN",
      "may have arrived at " + node_id + ": " + base::Message(delivery.last_error),
      {{"node_id", node_id}});
}

absl::StatusOr<Outcome> RingOutbox::TrySend(Delivery& delivery, const std::shared_ptr<Link>& link) {
  if (delivery.transfer == nullptr) {
    ONEPIECE_ASSIGN_OR_RETURN(const Outcome outcome,
                              SendThroughRing(delivery, *link, delivery.encoded.pieces));
    if (outcome != Outcome::kByValue) return outcome;
    // Without the link's mutex from here on: other messages to this consumer go past.
    const Outcome reserved = Reserve(delivery, link);
    if (reserved != Outcome::kOk) return reserved;
  }
  return SendValue(delivery, *link);
}

Outcome RingOutbox::Reserve(Delivery& delivery, const std::shared_ptr<Link>& link) {
  auto transfer =
      Transfer::Reserve({.fabric = fabric_,
                         .goodbyes = goodbyes_,
                         .resting = resting_,
                         .stub = link->stub,
                         .node_id = options_.node_id,
                         .consumer_incarnation = link->endpoint.incarnation(),
                         .call_timeout = options_.open_timeout,
                         .clock = clock_},
                        delivery.message.header, delivery.encoded, delivery.room_request);
  if (transfer.ok()) {
    delivery.transfer = *std::move(transfer);
    delivery.carrier = link;
    return Outcome::kOk;
  }
  delivery.last_error =
      base::Annotate(transfer.status(), "memory for values of " + link->endpoint.node_id());
  if (absl::IsInvalidArgument(transfer.status())) return Outcome::kTooLarge;
  if (!absl::IsResourceExhausted(transfer.status())) return Outcome::kUnreachable;
  ++busy_;
  return Outcome::kBusy;
}

// Writes until all bytes are there, or until the turn is over. The consumer has agreed to take the
// message, so the patience does not count meanwhile. It begins anew for the reference, which may
// have to wait for the ring. A consumer that stands still ends the write by the limit of a piece.
Outcome RingOutbox::WriteValue(Delivery& delivery) {
  const base::MonotonicTime limit =
      delivery.in_turns ? std::min(delivery.deadline, clock_.Now() + base::Scaled(kWriteTurn))
                        : delivery.deadline;
  while (!delivery.transfer->written()) {
    const absl::StatusOr<bool> written = delivery.transfer->WriteNext();
    ++operations_;
    ++round_trips_;
    if (!written.ok()) {
      delivery.last_error = base::Annotate(
          written.status(), "memory for values of " + delivery.carrier->endpoint.node_id());
      delivery.DropTransfer();
      return Outcome::kUnreachable;
    }
    if (!*written && (IsClosed() || clock_.Now() >= limit)) {
      delivery.turn_over = true;
      delivery.last_error =
          base::MakeError(absl::StatusCode::kUnavailable, "HALF_WRITTEN", "it is being written");
      return Outcome::kBusy;
    }
  }
  delivery.BeginPatience(clock_.Now());
  return Outcome::kOk;
}

// Returns kOk when the message was received, kHeld while it may be, kLost when it never will, and
// kUnknown when the consumer does not say.
Outcome RingOutbox::RenewLease(Delivery& delivery) {
  const auto fate = delivery.transfer->Renew();
  if (!fate.ok()) {
    delivery.last_error = fate.status();
    return Outcome::kUnknown;
  }
  if (*fate == v1::RenewValueResponse::OPEN) return Outcome::kHeld;
  if (*fate == v1::RenewValueResponse::RECEIVED) return Outcome::kOk;
  delivery.DropTransfer();
  // The ring may have the reference, and would take another one of the same id for a resend.
  delivery.id = next_message_id_++;
  return Outcome::kLost;
}

// The reference goes through the ring only while the reservation is held, so that the consumer
// finds it. A reference that the ring took late proves nothing: the consumer is asked.
absl::StatusOr<Outcome> RingOutbox::SendValue(Delivery& delivery, Link& link) {
  if (!delivery.transfer->written()) {
    const Outcome written = WriteValue(delivery);
    if (written != Outcome::kOk) return written;
  }
  const bool doubtful = delivery.doubtful != nullptr;
  if (delivery.transfer->IsDue()) {
    const Outcome renewed = RenewLease(delivery);
    const bool unknown = renewed == Outcome::kUnknown;
    if (renewed != Outcome::kHeld && (!unknown || doubtful)) return renewed;
    if (unknown && !delivery.transfer->IsHeld()) {
      delivery.DropTransfer();
      return Outcome::kUnreachable;
    }
  }
  const auto bytes = delivery.transfer->reference();
  const message::Piece reference{bytes, base::Crc32c(bytes)};
  delivery.transfer->Keep(true);
  ONEPIECE_ASSIGN_OR_RETURN(const Outcome outcome,
                            SendThroughRing(delivery, link, {&reference, 1}));
  if (outcome == Outcome::kOk && !delivery.transfer->IsHeld()) {
    const Outcome renewed = RenewLease(delivery);
    return renewed == Outcome::kHeld ? Outcome::kOk : renewed;
  }
  if (outcome == Outcome::kOk) return outcome;
  if (outcome == Outcome::kUnknown || doubtful) return outcome;
  delivery.transfer->Keep(false);
  if (outcome == Outcome::kUnreachable) delivery.DropTransfer();
  return outcome;
}

// What a message that is too large for the ring does instead; nullopt when it goes through it.
std::optional<Outcome> RingOutbox::TooLargeForRing(Delivery& delivery, const Link& link) {
  const std::uint64_t bytes = delivery.encoded.total_bytes;
  const std::uint64_t ring_bytes = 2 * link.producer->max_message_bytes();
  if (link.max_value_bytes == 0 || bytes <= ring_bytes / kRingParts) return std::nullopt;
  if (bytes <= link.max_value_bytes) return Outcome::kByValue;
  delivery.last_error = base::MakeError(
      absl::StatusCode::kInvalidArgument, "MESSAGE_TOO_LARGE",
      "the message has " + std::to_string(bytes) + " bytes; " + link.endpoint.node_id() +
          " takes at most " + std::to_string(link.max_value_bytes) + " (ring.value_bytes)");
  return Outcome::kTooLarge;
}

absl::StatusOr<Outcome> RingOutbox::SendThroughRing(Delivery& delivery, Link& link,
                                                    std::span<const message::Piece> pieces) {
  // Another delivery may be opening this ring, which takes seconds when the consumer does not
  // answer. Meanwhile another candidate may take the message.
  const base::MonotonicTime until =
      std::min(delivery.limit(), clock_.Now() + base::Scaled(kLockPatience));
  if (!link.mutex.TryLockUntil(until)) return Outcome::kBusy;
  const base::TimedMutexRelease release(link.mutex);
  // The second attempt is for a ring that has moved since the last send.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (link.producer == nullptr) {
      if (const absl::Status opened = OpenProducer(link); !opened.ok()) {
        delivery.last_error = opened;
        return Outcome::kUnreachable;
      }
    }
    if (delivery.transfer == nullptr) {
      if (const auto instead = TooLargeForRing(delivery, link)) return *instead;
    }
    const base::MonotonicTime patience = clock_.Now() + base::Scaled(kLockPatience);
    absl::StatusOr<ring::SendResult> result =
        link.producer->Send(delivery.id, pieces, std::min(delivery.deadline, patience));
    CountRoundTrips(link);
    ONEPIECE_RETURN_IF_ERROR(result.status());
    // The producer goes before the next OpenRing, which tells the ring that the former one is
    // destroyed.
    if (result->reconnect) link.producer.reset();
    if (result->outcome == ring::SendOutcome::kOk) return Outcome::kOk;
    delivery.last_error = result->detail;
    if (result->outcome == ring::SendOutcome::kUnknown) {
      ++unknown_;
      return Outcome::kUnknown;
    }
    ++busy_;
    if (!result->reconnect) break;
  }
  return Outcome::kBusy;
}

absl::Status RingOutbox::OpenProducer(Link& link) {
  if (clock_.Now() < link.next_open) return link.open_error;
  v1::OpenRingRequest request;
  request.set_node_id(options_.node_id);
  request.set_producer_id(link.producer_id);
  request.set_consumer_incarnation(link.endpoint.incarnation());
  // The ring refuses an incarnation that is not greater than the last one of the producer id. That
  // id is this link's alone, so counting its calls is enough.
  request.set_incarnation(++link.opens);
  const auto open = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(link.mutex) -> absl::Status {
    ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Dialer> dialer, fabric_.Dial());
    request.set_offer(dialer->offer().Serialize());
    link.open_incarnation =
        request.incarnation();  // Even without an answer: the ring may have let us in.
    ONEPIECE_ASSIGN_OR_RETURN(
        const v1::OpenRingResponse response,
        rpc::Call(*link.stub, &v1::RingService::Stub::OpenRing, request, options_.open_timeout));
    ONEPIECE_ASSIGN_OR_RETURN(const ring::ProducerGrant grant,
                              ring::ProducerGrant::Parse(response.grant()));
    link.max_value_bytes = response.max_value_bytes();
    ONEPIECE_ASSIGN_OR_RETURN(link.producer, ring::Producer::Connect(*dialer, grant, {}, clock_));
    return absl::OkStatus();
  };
  absl::Status status = open();
  if (!status.ok()) {
    link.next_open = clock_.Now() + link.open_backoff.Next();
    link.open_error = base::Annotate(status, "ring of " + link.endpoint.node_id());
    return link.open_error;
  }
  ++opened_;
  link.open_backoff.Reset();
  link.oldest.reset();
  link.stuck = false;
  link.seen = {};
  link.seen_sends = {};
  return absl::OkStatus();
}

void RingOutbox::CountRoundTrips(Link& link) {
  const fabric::ChannelCounters now = link.producer->channel_counters();
  operations_ += now.operations - link.seen.operations;
  round_trips_ += now.round_trips - link.seen.round_trips;
  link.seen = now;
  const ring::ProducerCounters& sends = link.producer->counters();
  lock_retries_ += sends.lock_retries - link.seen_sends.lock_retries;
  doorbells_ += sends.notifies - link.seen_sends.notifies;
  link.seen_sends = sends;
}

std::shared_ptr<Link> RingOutbox::LinkTo(const v1::Endpoint& endpoint) {
  // Prunes by the newest table and not by the caller's, because an older table may lack a node
  // whose link is in use. The empty table of a node that changes its set says nothing.
  const std::shared_ptr<const Routing> newest = view_.routing();
  // These are destroyed without the mutex, because closing a connection may take a while.
  std::vector<std::shared_ptr<Link>> dead;
  const base::MutexLock lock(mutex_);
  if (newest->epoch() > 0 && pruned_epoch_ != newest->epoch()) {
    pruned_epoch_ = newest->epoch();
    std::erase_if(links_, [&](auto& link) {
      if (newest->IsAlive(link.first.first, link.first.second)) return false;
      dead.push_back(std::move(link.second));
      return true;
    });
  }
  std::shared_ptr<Link>& link = links_[{endpoint.node_id(), endpoint.incarnation()}];
  if (link == nullptr) link = std::make_shared<Link>(endpoint, goodbyes_);
  return link;
}

// Returns false when the delivery's time is over, or Close() was called.
bool RingOutbox::Pause(Delivery& delivery) {
  const base::MonotonicTime limit = delivery.limit();
  const base::MonotonicTime until = std::min(limit, clock_.Now() + delivery.backoff.Next());
  base::MutexLock lock(mutex_);
  clock_.WaitUntil(closed_changed_, lock, {}, until,
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_; });
  return !closed_ && clock_.Now() < limit;
}

absl::Status RingOutbox::GiveUp(const Delivery& delivery) const {
  const base::MonotonicTime now = clock_.Now();
  if (now < delivery.deadline && IsClosed()) {
    return base::MakeError(absl::StatusCode::kCancelled, "OUTBOX_CLOSED", "the outbox is closed");
  }
  if (delivery.in_turns && delivery.transfer != nullptr && now < delivery.deadline) {
    const std::string& node_id = delivery.carrier->endpoint.node_id();
    return base::MakeError(absl::StatusCode::kUnavailable, kOpen, "is on its way to " + node_id,
                           {{"node_id", node_id}});
  }
  if (!delivery.any_candidate) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NO_INSTANCE", "nobody to send it to");
  }
  if (delivery.any_busy) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "RING_FULL",
                           "every ring is busy: " + base::Message(delivery.last_error));
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "UNREACHABLE",
                         base::Message(delivery.last_error));
}

void RingOutbox::Note(const Delivery& delivery, const absl::StatusOr<Delivered>& result) {
  const base::WallTime start = delivery.start;
  const base::WallTime end = clock_.WallNow();
  const std::string outcome = result.ok() ? "OK" : base::GetReason(result.status()).reason;
  if (options_.metrics != nullptr) {
    options_.metrics
        ->Histogram("onepiece_send_seconds",
                    "Time from encoding a message to its acknowledgement, by outcome",
                    telemetry::DurationBuckets(), {{"outcome", outcome}})
        .Observe(base::ToSeconds(end - start));
  }
  if (options_.spans == nullptr) return;
  v1::Span span;
  span.set_operation("send");
  span.set_stage(delivery.message.header.stage);
  span.set_start_unix_ns(start.time_since_epoch().count());
  span.set_end_unix_ns(end.time_since_epoch().count());
  auto& attributes = *span.mutable_attributes();
  attributes["outcome"] = outcome;
  attributes["bytes"] = std::to_string(delivery.encoded.total_bytes);
  if (result.ok()) attributes["to"] = result->endpoint.node_id();
  options_.spans->Record(delivery.message.header.uid, std::move(span));
}

void RingOutbox::Export(telemetry::Metrics& metrics) const {
  const auto count = [&](const char* name, const char* help, std::uint64_t total) {
    telemetry::RaiseTo(metrics.Counter(name, help), static_cast<double>(total));
  };
  const OutboxCounters now = counters();
  count("onepiece_sent_messages_total", "Messages that a ring acknowledged", now.sent);
  count("onepiece_sent_bytes_total", "Bytes of the messages that a ring acknowledged",
        now.sent_bytes);
  count("onepiece_send_busy_total", "Attempts that a ring refused", now.busy);
  count("onepiece_send_unknown_total", "Attempts whose outcome a resend had to find out",
        now.unknown);
  count("onepiece_rings_opened_total", "Rings opened, again or for the first time", now.opened);
  count("onepiece_send_lock_retries_total", "Times that another producer had a ring's lock",
        now.lock_retries);
  count("onepiece_send_doorbells_total", "Times that a sleeping consumer was woken", now.doorbells);
  count("onepiece_fabric_operations_total", "One-sided operations of all sends", now.operations);
  count("onepiece_fabric_round_trips_total", "Round trips of all sends", now.round_trips);
}

bool RingOutbox::IsClosed() const {
  const base::MutexLock lock(mutex_);
  return closed_;
}

void RingOutbox::Close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  closed_changed_.NotifyAll();
}

OutboxCounters RingOutbox::counters() const {
  return {.sent = sent_,
          .sent_bytes = sent_bytes_,
          .busy = busy_,
          .unknown = unknown_,
          .opened = opened_,
          .operations = operations_,
          .round_trips = round_trips_,
          .lock_retries = lock_retries_,
          .doorbells = doorbells_};
}

}  // namespace

Destination Destination::Stage(std::string app, std::string stage, const base::Uid& uid,
                               std::string without) {
  return {.order = Order::kRoundRobin,
          .candidates = [app = std::move(app), stage = std::move(stage), uid,
                         without = std::move(without)](const Routing& routing) {
            std::vector<v1::Endpoint> endpoints;
            if (routing.GraphOf(app).Predecessors(stage).size() > 1) {
              const auto meeting_point = routing.MeetingPoint(app, stage, uid, without);
              if (meeting_point.has_value()) endpoints.push_back(*meeting_point);
              return endpoints;
            }
            for (const v1::Endpoint& instance : routing.Instances(app, stage)) {
              if (instance.node_id() != without) endpoints.push_back(instance);
            }
            return endpoints;
          }};
}

Destination Destination::DatabasesFor(const base::Uid& uid) {
  return {.order = Order::kAsGiven,
          .candidates = [uid](const Routing& routing) { return routing.DatabasesFor(uid); }};
}

Destination Destination::Nodes(std::vector<v1::Endpoint> endpoints) {
  return {.order = Order::kAsGiven,
          .candidates = [endpoints = std::move(endpoints)](const Routing&) { return endpoints; }};
}

std::unique_ptr<Outbox> Outbox::Create(fabric::Fabric& fabric, const ClusterView& view,
                                       OutboxOptions options, base::Clock& clock) {
  return std::make_unique<RingOutbox>(fabric, view, std::move(options), clock);
}

}  // namespace onepiece::node
