// The world of the ring's tests: a consumer on a clock that stands still, pretended processes, and
// messages that can be recognised.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/fault.h"
#include "cluster/fabric/process.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/layout.h"
#include "cluster/ring/producer.h"
#include "tests/reason.h"

namespace onepiece::ring {

inline std::uint64_t SeedFromEnvironment() {
  const char* text = std::getenv("ONEPIECE_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : base::RandomU64();
}

inline bool LongRun() {
  const char* text = std::getenv("ONEPIECE_LONG");
  return text != nullptr && std::string(text) == "1";
}

/// The bytes of message `id` of `producer`. The ids and the size determine them.
inline std::vector<std::byte> Content(std::uint64_t producer, std::uint64_t id, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = producer * 0x9e3779b97f4a7c15 + id * 0xbf58476d1ce4e5b9 + size;
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) state = state * 6364136223846793005 + 1442695040888963407;
    bytes[i] = static_cast<std::byte>(state >> (8 * (i % 8)));
  }
  return bytes;
}

/// `bytes` as a gather list of up to three pieces.
inline std::vector<Piece> Cut(std::span<const std::byte> bytes) {
  std::vector<Piece> pieces;
  const std::size_t part = bytes.size() / 3 + 1;
  for (std::size_t at = 0; at < bytes.size(); at += part) {
    const auto piece = bytes.subspan(at, std::min(part, bytes.size() - at));
    pieces.push_back({.bytes = piece, .crc32c = base::Crc32c(piece)});
  }
  return pieces;
}

/// A message as it came out of the ring.
struct Received {
  std::uint64_t producer = 0;
  std::uint64_t id = 0;
  std::size_t size = 0;
  friend auto operator<=>(const Received&, const Received&) = default;
};

/// An enrollment without a producer yet.
struct Enrolled {
  std::unique_ptr<fabric::Dialer> dialer;
  ProducerGrant grant;
};
inline absl::StatusOr<Enrolled> EnrollWith(Consumer& consumer, fabric::Fabric& process,
                                           std::uint64_t producer_id, std::uint64_t incarnation) {
  Enrolled enrolled;
  ONEPIECE_ASSIGN_OR_RETURN(enrolled.dialer, process.Dial());
  ONEPIECE_ASSIGN_OR_RETURN(const ProducerGrant grant,
                            consumer.Enroll({.producer_id = ProducerId(producer_id),
                                             .incarnation = Incarnation(incarnation),
                                             .offer = enrolled.dialer->offer()}));
  // Serialises and parses the grant, as if it had come over the control plane.
  ONEPIECE_ASSIGN_OR_RETURN(enrolled.grant, ProducerGrant::Parse(grant.Serialize()));
  return enrolled;
}
inline std::unique_ptr<Producer> ConnectTo(Consumer& consumer, fabric::Fabric& process,
                                           std::uint64_t producer_id, std::uint64_t incarnation) {
  auto enrolled = EnrollWith(consumer, process, producer_id, incarnation);
  if (!enrolled.ok()) return nullptr;
  auto producer = Producer::Connect(*enrolled->dialer, enrolled->grant);
  return producer.ok() ? *std::move(producer) : nullptr;
}

/// The fabric that tests run on: $ONEPIECE_TEST_FABRIC (verbs://rxe0, ucx://lo), or shared memory.
inline std::string FabricFromEnvironment() {
  const char* text = std::getenv("ONEPIECE_TEST_FABRIC");
  return text != nullptr ? text : "shm://ring-" + std::to_string(getpid());
}

inline bool OnSharedMemory() { return FabricFromEnvironment().starts_with("shm://"); }

/// Opens the fabric once, because on a network that takes a while.
inline fabric::Fabric& TheFabric() {
  static const std::unique_ptr<fabric::Fabric> fabric =
      *fabric::Fabric::Open(FabricFromEnvironment());
  return *fabric;
}

/// True with ONEPIECE_FAULTS=small: run only the cases that a slow machine can do in minutes.
inline bool SmallRun() {
  const char* text = std::getenv("ONEPIECE_FAULTS");
  return text != nullptr && std::string(text) == "small";
}

/// What the Polls of all worlds in this process have cost.
struct PollCosts {
  std::uint64_t polls = 0;
  std::int64_t longest_ns = 0;
  std::int64_t longest_cpu_ns = 0;  ///< Without the time in which others had the processor.
  std::int64_t waits = 0;           ///< Voluntary context switches: Poll gave the processor up.
};
inline PollCosts& ThePollCosts() {
  static PollCosts costs;
  return costs;
}

inline std::int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline std::optional<Delivery> MeasuredPoll(Consumer& consumer) {
  PollCosts& costs = ThePollCosts();
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_THREAD, &before);
  const base::MonotonicTime start = base::SystemClock().Now();
  const std::int64_t cpu_start = ThreadCpuNs();
  auto delivery = consumer.Poll();
  const std::int64_t cpu = ThreadCpuNs() - cpu_start;
  const base::Duration took = base::SystemClock().Now() - start;
  getrusage(RUSAGE_THREAD, &after);
  ++costs.polls;
  costs.longest_ns = std::max<std::int64_t>(costs.longest_ns, took.count());
  costs.longest_cpu_ns = std::max(costs.longest_cpu_ns, cpu);
  costs.waits += after.ru_nvcsw - before.ru_nvcsw;
  return delivery;
}

/// A consumer and its world. Time moves only by Advance.
struct World {
  base::ManualClock clock;
  fabric::Fabric& fabric = TheFabric();
  std::shared_ptr<fabric::FaultBoard> board;
  std::unique_ptr<fabric::FaultyFabric> consumer_fabric;
  std::vector<std::unique_ptr<fabric::FaultyFabric>> fabrics;
  std::unique_ptr<Consumer> consumer;
  std::map<std::uint64_t, std::uint64_t> incarnations;
  std::vector<Received> received;
  int corrupt = 0;
  const Shape shape;

  /// With `revokes` the backend can fence a living peer.
  explicit World(const ConsumerOptions& options, bool revokes = false)
      : board(std::make_shared<fabric::FaultBoard>(revokes)), shape(options.shape) {
    consumer_fabric =
        std::make_unique<fabric::FaultyFabric>(fabric, board, fabric::SelfIdentity(), nullptr);
    consumer = *Consumer::Create(*consumer_fabric, options, clock);
  }

  /// The fabric of a new pretended process.
  fabric::FaultyFabric& NewProcess(std::shared_ptr<fabric::FaultPolicy> policy = nullptr) {
    fabrics.push_back(std::make_unique<fabric::FaultyFabric>(fabric, board, board->NewProcess(),
                                                             std::move(policy)));
    return *fabrics.back();
  }

  absl::StatusOr<Enrolled> Enroll(std::uint64_t producer_id, fabric::Fabric& process) {
    return EnrollWith(*consumer, process, producer_id, ++incarnations[producer_id]);
  }

  std::unique_ptr<Producer> Connect(std::uint64_t producer_id, fabric::Fabric& process) {
    return ConnectTo(*consumer, process, producer_id, ++incarnations[producer_id]);
  }

  /// Takes all messages. Counts those whose bytes are not the ones that were sent.
  void Drain() {
    while (auto delivery = MeasuredPoll(*consumer)) {
      std::vector<std::byte> bytes(delivery->size_bytes());
      const Received got{delivery->producer_id().value, delivery->message_id(), bytes.size()};
      if (!delivery->CopyTo(bytes).ok() || bytes != Content(got.producer, got.id, got.size)) {
        ++corrupt;
      }
      received.push_back(got);
    }
  }

  /// Lets recovery see time pass, in steps shorter than any timeout.
  void Advance(base::Duration by, base::Duration step = std::chrono::milliseconds(100)) {
    for (base::Duration done{}; done < by; done += step) {
      clock.Advance(step);
      consumer->Tick(clock.Now());
      Drain();
    }
  }

  [[nodiscard]] int Count(std::uint64_t producer, std::uint64_t id) const {
    int count = 0;
    for (const Received& got : received) count += got.producer == producer && got.id == id ? 1 : 0;
    return count;
  }
};

/// Tries once to send message `id`: its deadline has passed, so it tries the lock once.
inline SendResult SendOnce(Producer& producer, std::uint64_t producer_id, std::uint64_t id,
                           std::size_t size) {
  const auto bytes = Content(producer_id, id, size);
  auto result = producer.Send(id, Cut(bytes), base::MonotonicTime::min());
  if (!result.ok()) {
    return {.outcome = SendOutcome::kBusy, .reconnect = false, .detail = result.status()};
  }
  return *std::move(result);
}

inline bool Ok(const SendResult& result) {
  return result.outcome == SendOutcome::kOk && !result.reconnect;
}

/// Sends 200 messages of producer 1, of 1 to 1000 bytes, and drains each. Together they have 100
/// kB, which wrap a small ring many times. Returns false at the first that is not sent.
inline bool SendMany(World& world, Producer& producer) {
  for (std::uint64_t id = 1; id <= 200; ++id) {
    if (!Ok(SendOnce(producer, 1, id, 1 + id * 37 % 1000))) return false;
    world.Drain();
  }
  return true;
}

inline ConsumerOptions SmallRing(Shape shape = Shape::kShared) {
  ConsumerOptions options;
  options.shape = shape;
  options.capacity_bytes = 4096;
  options.slots = 8;
  options.timeouts.scale = 1;
  return options;
}

/// A producer that breaks the rules: it writes words where it wants, through its own channel.
struct Hostile {
  ProducerGrant grant;
  Layout layout;
  std::unique_ptr<fabric::Channel> channel;

  explicit Hostile(const Enrolled& with)
      : grant(with.grant),
        layout{.capacity_bytes = grant.capacity_bytes, .slots = grant.slots},
        channel(*with.dialer->Connect(grant.region)) {}
  void Words(std::uint64_t at, std::span<const std::uint64_t> words) {
    const fabric::Op op = fabric::Op::WriteWords("hostile", at, words);
    ONEPIECE_CHECK(channel->Execute({&op, 1}, base::MonotonicTime::max()).ok());
  }
  void Put(const Slot& slot) { Words(layout.SlotOffset(slot.seq), EncodeSlot(slot)); }
  void PutTail(std::uint64_t seq, std::uint64_t offset) {
    Words(kTailOffset, EncodeTail({.seq = seq, .offset = offset}));
  }
  /// Commits the ring's first slot, for a payload of up to 128 bytes.
  void Commit(const Slot& slot) {
    PutTail(1, 128);
    Put(slot);
  }
  /// The slot that a correct producer commits as the first message of a fresh ring. Its payload is
  /// zeros.
  Slot First() const {
    return {.seq = 0,
            .offset = 0,
            .length_bytes = 100,
            .message_id = 1,
            .generation = grant.generation,
            .owner = grant.owner,
            .state = SlotState::kCommitted,
            .payload_crc32c = base::Crc32c(std::vector<std::byte>(100))};
  }
};

}  // namespace onepiece::ring
