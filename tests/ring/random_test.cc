// Several producers as threads, with random sizes and random faults at random operations. Recovery
// has its own thread and the real clock. Every acknowledged message arrives exactly once, in its
// producer's order, with its own bytes.
#include <QtTest>
#include <algorithm>
#include <mutex>
#include <random>
#include <thread>

#include "cluster/ring/recovery.h"
#include "spdlog/spdlog.h"
#include "tests/ring/ring_world.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

struct Plan {
  std::uint64_t seed = 0;
  int producers = 3;
  std::uint64_t messages = 0;  // How many each producer sends.
  std::size_t max_bytes = 0;
  Shape shape = Shape::kShared;
  bool revokes = false;
  fabric::FaultRates rates;
};

/// What one producer's thread did.
struct Story {
  std::uint64_t acknowledged = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t deaths = 0;
  bool stuck = false;
};

/// Sends messages 1 … plan.messages, each until it is acknowledged.
Story Produce(Consumer& consumer, fabric::Fabric& inner,
              const std::shared_ptr<fabric::FaultBoard>& board, const Plan& plan,
              std::uint64_t id) {
  Story story;
  std::mt19937_64 random(plan.seed * 1000 + id);
  auto policy = std::make_shared<fabric::RandomFaults>(random(), plan.rates);
  auto process = std::make_unique<fabric::FaultyFabric>(inner, board, board->NewProcess(), policy);
  std::unique_ptr<Producer> producer;
  std::uint64_t incarnation = 0;
  const auto limit = base::SystemClock().Now() + std::chrono::seconds(300);
  for (std::uint64_t message = 1; message <= plan.messages;) {
    if (base::SystemClock().Now() > limit) {
      story.stuck = true;
      return story;
    }
    if (producer == nullptr) {
      if (board->IsDead(process->self())) {
        ++story.deaths;
        process = std::make_unique<fabric::FaultyFabric>(inner, board, board->NewProcess(), policy);
      }
      producer = ConnectTo(consumer, *process, id, ++incarnation);
      if (producer == nullptr) continue;
      ++story.reconnects;
    }
    const std::size_t size = 1 + (id * 7919 + message * 104729) % plan.max_bytes;
    const auto bytes = Content(id, message, size);
    auto result = producer->Send(message, Cut(bytes),
                                 base::SystemClock().Now() + std::chrono::milliseconds(50));
    if (!result.ok()) {
      story.stuck = true;
      return story;
    }
    if (result->outcome == SendOutcome::kOk) {
      ++story.acknowledged;
      ++message;
    } else if (result->outcome == SendOutcome::kBusy) {
      std::this_thread::yield();
    }
    if (result->reconnect) producer.reset();
  }
  return story;
}

void Run(const Plan& plan) {
  auto inner = *fabric::Fabric::Open(FabricFromEnvironment());
  auto board = std::make_shared<fabric::FaultBoard>(plan.revokes);
  fabric::FaultyFabric consumer_fabric(*inner, board, fabric::SelfIdentity(), nullptr);
  ConsumerOptions options;
  options.capacity_bytes = 16384;
  options.slots = 16;
  options.max_producers = 1024;
  options.shape = plan.shape;
  options.timeouts.lock = std::chrono::milliseconds(100);
  options.timeouts.fill_base = std::chrono::milliseconds(100);
  options.timeouts.sweep = std::chrono::milliseconds(50);
  options.timeouts.scale = 1;
  auto consumer = *Consumer::Create(consumer_fabric, options);
  std::vector<std::vector<std::uint64_t>> received(plan.producers + 1);
  int corrupt = 0;
  std::atomic<bool> finished{false};
  std::vector<Story> stories(plan.producers + 1);
  {
    const RecoveryRunner recovery(*consumer, base::SystemClock(), std::chrono::milliseconds(2));
    std::thread reader([&] {
      while (true) {
        // Read before the wait, so that the wait finds every message sent before `finished`.
        const bool last = finished.load();
        board->Land();
        const auto patience = std::chrono::milliseconds(last ? 500 : 20);
        auto delivery = consumer->Wait(base::SystemClock().Now() + patience);
        if (!delivery.has_value()) {
          if (last) return;
          continue;
        }
        std::vector<std::byte> bytes(delivery->size_bytes());
        const std::uint64_t id = delivery->producer_id().value;
        const std::uint64_t message = delivery->message_id();
        if (!delivery->CopyTo(bytes).ok() || bytes != Content(id, message, bytes.size())) {
          ++corrupt;
        }
        received.at(id).push_back(message);
      }
    });
    std::vector<std::thread> threads;
    for (int i = 1; i <= plan.producers; ++i) {
      threads.emplace_back([&, i] { stories[i] = Produce(*consumer, *inner, board, plan, i); });
    }
    for (auto& thread : threads) thread.join();
    finished.store(true);
    reader.join();
  }
  const ConsumerCounters counters = consumer->counters();
  qInfo(
      "delivered %llu, duplicates %llu, holes %llu, abandoned %llu, locks %llu, tails %llu, "
      "moves %llu, sleeps %llu",
      (unsigned long long)counters.delivered, (unsigned long long)counters.duplicates,
      (unsigned long long)counters.holes_skipped, (unsigned long long)counters.abandoned,
      (unsigned long long)counters.locks_broken, (unsigned long long)counters.tails_repaired,
      (unsigned long long)counters.moves, (unsigned long long)counters.sleeps);
  QCOMPARE(corrupt, 0);
  for (int i = 1; i <= plan.producers; ++i) {
    QVERIFY(!stories[i].stuck);
    QCOMPARE(stories[i].acknowledged, plan.messages);
    QCOMPARE(received[i].size(), std::size_t(plan.messages));
    for (std::uint64_t m = 0; m < plan.messages; ++m) QCOMPARE(received[i][m], m + 1);
  }
  QCOMPARE(counters.bad_payload, std::uint64_t{0});
  QCOMPARE(counters.bad_owner, std::uint64_t{0});
  QCOMPARE(counters.bad_structure, std::uint64_t{0});
  QCOMPARE(consumer->fill().messages, std::uint64_t{0});
}

}  // namespace

class RandomTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }

  void Producers_WithoutFaults() {
    Plan plan{.seed = SeedFromEnvironment(), .producers = 4, .max_bytes = 3000};
    plan.messages = SmallRun() ? 200 : LongRun() ? 250'000 : 4'000;
    qInfo("ONEPIECE_SEED=%llu", (unsigned long long)plan.seed);
    Run(plan);
  }

  void Producers_WithEveryKindOfFault_data() {
    QTest::addColumn<bool>("per_producer");
    QTest::addColumn<bool>("revokes");
    QTest::newRow("shared") << false << false;
    QTest::newRow("shared, revoking") << false << true;
    QTest::newRow("of its own") << true << false;
    QTest::newRow("of its own, revoking") << true << true;
  }
  void Producers_WithEveryKindOfFault() {
    QFETCH(bool, per_producer);
    QFETCH(bool, revokes);
    if (!revokes && !OnSharedMemory()) QSKIP("this fabric revokes");
    const std::uint64_t seed = SeedFromEnvironment();
    const int rounds = LongRun() ? 50 : 1;
    for (int round = 0; round < rounds && !QTest::currentTestFailed(); ++round) {
      Plan plan{.seed = seed + round,
                .producers = 3,
                .messages = SmallRun() ? 100u : 1'000u,
                .max_bytes = 8192,
                .shape = per_producer ? Shape::kPerProducer : Shape::kShared,
                .revokes = revokes};
      plan.rates = {.delay = 0.002,
                    .drop = 0.002,
                    .tear = 0.001,
                    .die = 0.002,
                    .break_channel = 0.002,
                    .split = 0.002,
                    .late = 0.002};
      qInfo("ONEPIECE_SEED=%llu", (unsigned long long)plan.seed);
      Run(plan);
    }
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::RandomTest)
#include "random_test.moc"
