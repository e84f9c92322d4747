// Gives hostile ring memory to the consumer. Whatever a peer writes into lines, slots and payloads,
// the consumer reads nothing out of bounds and delivers no message that is too long, and recovery
// brings the ring back.
//
// The input is a program. Each step is an opcode byte and its operands. A step can correct the
// checks, because otherwise the fuzzer would never get past them.
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/layout.h"
#include "cluster/ring/producer.h"
#include "spdlog/spdlog.h"

namespace onepiece::ring {
namespace {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  std::uint64_t Take(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes && size_ > 0; ++i, ++data_, --size_) {
      value |= std::uint64_t{*data_} << (8 * i);
    }
    return value;
  }
  /// A small number most of the time, and sometimes any number.
  std::uint64_t Number() {
    const std::uint64_t kind = Take(1);
    if (kind < 192) return kind;
    if (kind < 224) return Take(2);
    return Take(8);
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

constexpr std::uint64_t kProducerId = 1;
constexpr std::size_t kMaxSteps = 64;

ConsumerOptions Options() {
  ConsumerOptions options;
  options.capacity_bytes = 4096;
  options.slots = 8;
  options.timeouts.scale = 1;
  return options;
}

class Session {
 public:
  explicit Session(Input input)
      : input_(input),
        fabric_(*fabric::Fabric::Open("shm://fuzz-" + std::to_string(getpid()), clock_)),
        consumer_(*Consumer::Create(*fabric_, Options(), clock_)) {
    Reconnect();
  }

  void Run() {
    for (std::size_t step = 0; step < kMaxSteps && !input_.empty(); ++step) Step();
    Drain();
    // Whatever has happened, recovery ends, and so does a send of a new producer. Its message need
    // not arrive: the program may have overwritten the head, which only the consumer writes.
    for (int i = 0; i < 40; ++i) {
      clock_.Advance(std::chrono::milliseconds(100));
      consumer_->Tick(clock_.Now());
      Drain();
    }
    Reconnect();
    if (channel_ == nullptr) return;
    auto producer = Producer::Connect(**fabric_->Dial(), grant_, {}, clock_);
    ONEPIECE_CHECK(producer.ok());
    const std::vector<std::byte> bytes(100, std::byte{7});
    const Piece piece{.bytes = bytes, .crc32c = base::Crc32c(bytes)};
    for (int attempt = 0; attempt < 2; ++attempt) {
      auto sent = (*producer)->Send(~std::uint64_t{0}, {&piece, 1}, base::MonotonicTime::min());
      ONEPIECE_CHECK(sent.ok());
    }
    Drain();
  }

 private:
  void Reconnect() {
    const auto dialer = *fabric_->Dial();
    auto grant = consumer_->Enroll({.producer_id = ProducerId(kProducerId),
                                    .incarnation = Incarnation(++incarnation_),
                                    .offer = dialer->offer()});
    channel_.reset();
    if (!grant.ok()) return;
    grant_ = *grant;
    layout_ = {.capacity_bytes = grant_.capacity_bytes, .slots = grant_.slots};
    channel_ = *dialer->Connect(grant_.region);
  }

  void Put(std::uint64_t at, std::span<const std::uint64_t> words) {
    const fabric::Op op = fabric::Op::WriteWords("fuzz", at, words);
    if (channel_ != nullptr) (void)channel_->Execute({&op, 1}, base::MonotonicTime::max());
  }

  /// Spoils one word sometimes, so that checks fail too.
  template <std::size_t kSize>
  void PutLine(std::uint64_t at, std::array<std::uint64_t, kSize> words) {
    const std::uint64_t spoil = input_.Take(1);
    if (spoil >= 240) words[spoil % kSize] ^= input_.Take(8);
    Put(at, words);
  }

  void Step() {
    switch (input_.Take(1) % 9) {
      case 0: {
        Slot slot{
            .seq = input_.Number(),
            .offset = input_.Number() * (input_.Take(1) < 200 ? kLineBytes : 1),
            .length_bytes = input_.Number(),
            .message_id = input_.Number(),
            .generation = Generation(grant_.generation.value + (input_.Take(1) < 230 ? 0 : 1)),
            .owner = static_cast<std::uint16_t>(grant_.owner + (input_.Take(1) < 230 ? 0 : 1)),
            .state = static_cast<SlotState>(input_.Take(1) % 5),
            .payload_crc32c = static_cast<std::uint32_t>(input_.Number())};
        PutLine(layout_.SlotOffset(slot.seq), EncodeSlot(slot));
        break;
      }
      case 1:
        PutLine(kTailOffset,
                EncodeTail({.seq = input_.Number(), .offset = input_.Number() * kLineBytes}));
        break;
      case 2:
        PutLine(kLockOffset, std::array<std::uint64_t, 1>{LockWord(
                                 static_cast<std::uint16_t>(input_.Take(1)), input_.Number())});
        break;
      case 3: {
        const std::uint64_t at = input_.Take(2) * 8 % (grant_.region.length_bytes - 64);
        PutLine(at, std::array<std::uint64_t, 1>{input_.Take(8)});
        break;
      }
      case 4:
        Drain();
        break;
      case 5:
        clock_.Advance(std::chrono::milliseconds(input_.Take(1) * 10));
        consumer_->Tick(clock_.Now());
        break;
      case 6:
        Reconnect();
        break;
      case 7:
        held_.reset();
        held_ = consumer_->Poll();
        break;
      case 8:
        PutLine(kHeadOffset, EncodeHead({.seq = input_.Number(),
                                         .offset = input_.Number(),
                                         .generation = grant_.generation,
                                         .capacity_bytes = 4096,
                                         .slots = 8}));
        break;
    }
  }

  void Drain() {
    held_.reset();
    while (auto delivery = consumer_->Poll()) {
      ONEPIECE_CHECK(delivery->size_bytes() > 0);
      ONEPIECE_CHECK(delivery->size_bytes() <= consumer_->max_message_bytes());
      std::vector<std::byte> out(delivery->size_bytes());
      (void)delivery->CopyTo(out);
    }
  }

  Input input_;
  base::ManualClock clock_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<Consumer> consumer_;
  ProducerGrant grant_;
  Layout layout_;
  std::unique_ptr<fabric::Channel> channel_;
  std::optional<Delivery> held_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace
}  // namespace onepiece::ring

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = (spdlog::set_level(spdlog::level::off), true);
  (void)quiet;
  onepiece::ring::Session(onepiece::ring::Input(data, size)).Run();
  return 0;
}
