// Producers as real processes: some are killed at random, others are left alone.
#include <QtTest>
#include <algorithm>
#include <array>
#include <random>

#include "spdlog/spdlog.h"
#include "tests/eventually.h"
#include "tests/ring/children.h"
#include "tests/ring/ring_world.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

constexpr int kProducers = 3;
constexpr int kLiveProducers = 4;

/// Memory that children share with the test.
struct Board {
  std::array<std::atomic<std::uint64_t>, kLiveProducers + 1> acknowledged;
  std::array<std::atomic<std::uint64_t>, kLiveProducers + 1> incarnation;
};

/// Sends message acknowledged + 1 and so on until `messages`; never returns.
[[noreturn]] void SendAll(int fd, const std::string& uri, std::uint64_t id, std::uint64_t messages,
                          std::size_t max_bytes, Board* board) {
  auto fabric = *fabric::Fabric::Open(uri);
  auto producer = ConnectInChild(fd, *fabric, id, board->incarnation[id]);
  while (board->acknowledged[id].load() < messages) {
    if (producer == nullptr) {
      producer = ConnectInChild(fd, *fabric, id, board->incarnation[id]);
      continue;
    }
    const std::uint64_t message = board->acknowledged[id].load() + 1;
    const auto bytes = Content(id, message, 1 + (id * 7919 + message * 104729) % max_bytes);
    auto result = producer->Send(message, Cut(bytes),
                                 base::SystemClock().Now() + std::chrono::milliseconds(50));
    if (!result.ok()) _exit(3);
    if (result->outcome == SendOutcome::kOk) board->acknowledged[id].store(message);
    // A producer that retries without a pause takes the processor from the one that holds the ring
    // up.
    if (result->outcome == SendOutcome::kBusy) testing::Pause(std::chrono::microseconds(200));
    if (result->reconnect) producer.reset();
  }
  while (true) pause();
}

bool AllAcknowledged(const Board& board, std::uint64_t messages) {
  return std::all_of(board.acknowledged.begin() + 1, board.acknowledged.begin() + 1 + kProducers,
                     [&](const auto& count) { return count.load() == messages; });
}

}  // namespace

class ProcessTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }

  // The parent has one thread, so that fork is safe. It consumes, recovers, enrolls and kills.
  void KilledProducersLoseNothingAcknowledged() {
    const std::uint64_t seed = SeedFromEnvironment();
    qInfo("ONEPIECE_SEED=%llu", (unsigned long long)seed);
    std::mt19937_64 random(seed);
    const std::string uri = "shm://process-" + std::to_string(getpid());
    auto fabric = *fabric::Fabric::Open(uri);
    ConsumerOptions options;
    options.capacity_bytes = 1 << 16;
    options.slots = 32;
    options.timeouts.scale = 1;
    auto consumer = *Consumer::Create(*fabric, options);
    Board* board = NewShared<Board>();
    const std::uint64_t messages = LongRun() ? 300'000 : 10'000;
    const int max_kills = LongRun() ? 3000 : 150;
    std::array<Child, kProducers + 1> children;
    const auto start = [&](std::uint64_t id) {
      Spawn(children[id], [&](int fd) { SendAll(fd, uri, id, messages, 6'000, board); });
    };
    for (std::uint64_t id = 1; id <= kProducers; ++id) start(id);

    std::array<std::vector<std::uint64_t>, kProducers + 1> received;
    int corrupt = 0;
    int kills = 0;
    QElapsedTimer timer;
    timer.start();
    const int limit_ms = LongRun() ? 800'000 : 100'000;
    auto next_kill = base::SystemClock().Now();
    for (bool finished = false; timer.elapsed() < limit_ms && !finished;) {
      // Read before the wait, so that the wait finds all messages that are acknowledged by now.
      const bool all = AllAcknowledged(*board, messages);
      const auto now = base::SystemClock().Now();
      auto delivery = consumer->Wait(now + std::chrono::milliseconds(5));
      finished = all && !delivery.has_value() && consumer->fill().messages == 0;
      if (delivery.has_value()) {
        std::vector<std::byte> bytes(delivery->size_bytes());
        const std::uint64_t id = delivery->producer_id().value;
        const std::uint64_t message = delivery->message_id();
        const bool good =
            delivery->CopyTo(bytes).ok() && bytes == Content(id, message, bytes.size());
        if (!good) ++corrupt;
        received[id].push_back(message);
      }
      consumer->Tick(now);
      for (std::uint64_t id = 1; id <= kProducers; ++id) Serve(*consumer, children[id].fd);
      if (now >= next_kill && kills < max_kills) {
        const std::uint64_t id = 1 + random() % kProducers;
        children[id].Reap();
        start(id);
        ++kills;
        next_kill = now + std::chrono::microseconds(random() % 10'000);
      }
    }
    for (Child& child : children) child.Reap();
    const ConsumerCounters counters = consumer->counters();
    qInfo("%d kills in %lld ms: duplicates %llu, holes %llu, locks %llu, tails %llu, moves %llu",
          kills, (long long)timer.elapsed(), (unsigned long long)counters.duplicates,
          (unsigned long long)counters.holes_skipped, (unsigned long long)counters.locks_broken,
          (unsigned long long)counters.tails_repaired, (unsigned long long)counters.moves);
    QCOMPARE(corrupt, 0);
    QVERIFY(kills > 0);
    for (std::uint64_t id = 1; id <= kProducers; ++id) {
      QCOMPARE(board->acknowledged[id].load(), messages);
      QCOMPARE(received[id].size(), std::size_t(messages));
      for (std::uint64_t m = 0; m < messages; ++m) QCOMPARE(received[id][m], m + 1);
    }
  }

  // Timeouts are for dead and stalled producers. One that lives and is only slow is never fenced.
  void LiveProducersAreNeverFenced() {
    const std::string uri = "shm://live-" + std::to_string(getpid());
    auto fabric = *fabric::Fabric::Open(uri);
    ConsumerOptions options;
    options.capacity_bytes = 1 << 16;
    options.slots = 32;
    options.timeouts.scale = 1;
    auto consumer = *Consumer::Create(*fabric, options);
    Board* board = NewShared<Board>();
    std::array<Child, kLiveProducers + 1> children;
    for (std::uint64_t id = 1; id <= kLiveProducers; ++id) {
      Spawn(children[id],
            [&](int fd) { SendAll(fd, uri, id, std::uint64_t{1} << 62, 6'000, board); });
    }
    std::array<std::uint64_t, kLiveProducers + 1> last{};
    std::uint64_t wrong = 0;
    const auto end = base::SystemClock().Now() +
                     (LongRun() ? std::chrono::seconds(60) : std::chrono::seconds(5));
    while (base::SystemClock().Now() < end) {
      const auto now = base::SystemClock().Now();
      if (auto delivery = consumer->Wait(now + std::chrono::milliseconds(5))) {
        std::vector<std::byte> bytes(delivery->size_bytes());
        const std::uint64_t id = delivery->producer_id().value;
        const std::uint64_t message = delivery->message_id();
        const bool good =
            delivery->CopyTo(bytes).ok() && bytes == Content(id, message, bytes.size());
        if (!good || message != ++last[id]) ++wrong;
      }
      consumer->Tick(now);
      for (std::uint64_t id = 1; id <= kLiveProducers; ++id) Serve(*consumer, children[id].fd);
    }
    const ConsumerCounters counters = consumer->counters();
    for (Child& child : children) child.Reap();
    qInfo("live producers: %llu delivered (%llu, %llu, %llu, %llu), fences = %llu, moves = %llu",
          (unsigned long long)counters.delivered, (unsigned long long)last[1],
          (unsigned long long)last[2], (unsigned long long)last[3], (unsigned long long)last[4],
          (unsigned long long)counters.owners_fenced, (unsigned long long)counters.moves);
    QCOMPARE(wrong, std::uint64_t{0});
    QVERIFY(std::ranges::all_of(last.begin() + 1, last.end(), [](auto n) { return n > 0; }));
    QCOMPARE(counters.owners_fenced, std::uint64_t{0});
    QCOMPARE(counters.moves, std::uint64_t{0});
    QCOMPARE(counters.locks_broken, std::uint64_t{0});
    QCOMPARE(counters.holes_skipped, std::uint64_t{0});
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::ProcessTest)
#include "process_test.moc"
