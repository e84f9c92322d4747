// The port of our ring over shared memory.
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "cluster/base/crc32c.h"
#include "cluster/base/spin.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/producer.h"
#include "cluster/ring/recovery.h"
#include "tests/bench/port.h"

namespace onepiece::bench {
namespace {

constexpr std::uint64_t kSmallRingBytes = std::uint64_t{1} << 20;
constexpr base::Duration kAlwaysSpin = std::chrono::seconds(30);

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status().ToString());
  return *std::move(value);
}

// The slots of the control block for a producer's request and the consumer's answer.
enum SlotOf : std::size_t { kAsk = 0, kGrant = 8, kBye = 16, kBack = 24 };

class RingPort final : public Port {
 public:
  explicit RingPort(const Link& link) : mode_(link.mode) {
    fabric_ = OrDie(fabric::Fabric::Open("shm://" + link.name));
    Control& control = *link.control;
    switch (link.role) {
      case Role::kConsumer:
        OpenConsumer(link);
        for (int i = 0; i < link.producers; ++i) Enroll(control, i, 0);
        break;
      case Role::kProducer:
        Ask(control, link.index, 0);
        break;
      case Role::kPong:
        OpenConsumer(link);
        Enroll(control, 0, 0);
        Ask(control, 0, kBack);
        break;
      case Role::kPing:
        OpenConsumer(link);
        Ask(control, 0, 0);
        Enroll(control, 0, kBack);
        break;
    }
  }

  // If a ring goes away during a send, the outcome is unknown. So the consumer leaves last.
  ~RingPort() override {
    producer_.reset();
    if (sends_to_ != nullptr) sends_to_->written.Set();
    for (const Control::Slot* bye : receives_from_) bye->written.Await();
  }
  RingPort(const RingPort&) = delete;
  RingPort& operator=(const RingPort&) = delete;

  void Send(std::span<const std::byte> message) override {
    const std::array<ring::Piece, 1> pieces = {
        {{.bytes = message, .crc32c = mode_.checksum ? base::Crc32c(message) : 0}}};
    ++message_id_;
    for (int refused = 0;;) {
      const auto sent = producer_->Send(message_id_, pieces, base::MonotonicTime::max());
      if (!sent.ok()) Die(sent.status().ToString());
      if (sent->outcome == ring::SendOutcome::kOk) return;
      if (sent->outcome == ring::SendOutcome::kUnknown || sent->reconnect) {
        Die(sent->detail.ToString());
      }
      Pause(++refused);  // The ring is full, so the consumer has to run.
    }
  }

  std::size_t Receive(std::span<std::byte> into) override {
    auto delivery = consumer_->Wait(base::MonotonicTime::max());
    if (!delivery.has_value()) Die("the ring brings no message");
    const std::size_t size = delivery->size_bytes();
    if (size > into.size()) Die("a message is longer than any that was sent");
    if (const auto status = delivery->CopyTo(into.first(size)); !status.ok()) {
      Die(status.ToString());
    }
    return size;
  }

 private:
  // The first pauses are short. Later ones give the processor to the other producers.
  static void Pause(int refused) {
    constexpr int kSpins = 64;
    constexpr int kRelaxesPerSpin = 16;
    for (int i = 0; i < kRelaxesPerSpin; ++i) base::RelaxProcessor();
    if (refused > kSpins) sched_yield();
  }

  void OpenConsumer(const Link& link) {
    ring::ConsumerOptions options;
    options.label = link.role == Role::kPing ? "ping" : "bench";
    const std::uint64_t footprint = ring::Layout::Footprint(link.message_bytes);
    options.capacity_bytes = std::max(kSmallRingBytes, 4 * footprint);
    options.spin = link.mode.spin ? kAlwaysSpin : base::Duration::zero();
    consumer_ = OrDie(ring::Consumer::Create(*fabric_, options));
    recovery_ = std::make_unique<ring::RecoveryRunner>(*consumer_);
  }

  // The producer's id, then its offer.
  void Enroll(Control& control, int index, std::size_t base) {
    const std::string ask = control.Await(base + kAsk + static_cast<std::size_t>(index));
    std::uint64_t id = 0;
    if (ask.size() < sizeof(id)) Die("malformed request for enrollment");
    std::memcpy(&id, ask.data(), sizeof(id));
    const auto offer = OrDie(fabric::Offer::Parse(std::string_view(ask).substr(sizeof(id))));
    const auto grant = OrDie(consumer_->Enroll({.producer_id = ring::ProducerId(id),
                                                .incarnation = ring::Incarnation(1),
                                                .offer = offer}));
    control.Publish(base + kGrant + static_cast<std::size_t>(index), grant.Serialize());
    receives_from_.push_back(&control.slots[base + kBye + static_cast<std::size_t>(index)]);
  }

  void Ask(Control& control, int index, std::size_t base) {
    const auto dialer = OrDie(fabric_->Dial());
    const std::uint64_t id = static_cast<std::uint64_t>(index) + 1;
    std::string ask(reinterpret_cast<const char*>(&id), sizeof(id));
    ask += dialer->offer().Serialize();
    control.Publish(base + kAsk + static_cast<std::size_t>(index), ask);
    const auto grant = OrDie(
        ring::ProducerGrant::Parse(control.Await(base + kGrant + static_cast<std::size_t>(index))));
    producer_ =
        OrDie(ring::Producer::Connect(*dialer, grant, {.payload_checksum = mode_.checksum}));
    sends_to_ = &control.slots[base + kBye + static_cast<std::size_t>(index)];
  }

  const Mode mode_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<ring::Consumer> consumer_;
  std::unique_ptr<ring::RecoveryRunner> recovery_;
  std::unique_ptr<ring::Producer> producer_;
  std::uint64_t message_id_ = 0;
  Control::Slot* sends_to_ = nullptr;  // The slot for the good-bye.
  std::vector<const Control::Slot*> receives_from_;
};

}  // namespace

std::unique_ptr<Port> OpenRingPort(const Link& link) { return std::make_unique<RingPort>(link); }

}  // namespace onepiece::bench
