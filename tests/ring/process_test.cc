// Producers as real processes: killed at random.
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <algorithm>
#include <array>
#include <random>

#include "spdlog/spdlog.h"
#include "tests/eventually.h"
#include "tests/ring/ring_world.h"

namespace onepiece::ring {
namespace {

constexpr int kProducers = 3;

/// Memory that children share with the test.
struct Board {
  std::array<std::atomic<std::uint64_t>, kProducers + 1> acknowledged;
  std::array<std::atomic<std::uint64_t>, kProducers + 1> incarnation;
};

Board* NewBoard() {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Board();
}

/// A child process with a socket to it: the control plane of this test. The child asks for
/// admission with its PeerIdentity, the test answers with a grant.
struct Child {
  pid_t pid = -1;
  int fd = -1;
  void Reap() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      close(fd);
    }
    pid = -1;
  }
  ~Child() { Reap(); }
};

struct Request {
  std::uint64_t producer_id;
  std::uint64_t incarnation;
  std::array<char, 256> offer;  // Serialised, the rest is zeros behind its length.
  std::size_t offer_bytes;
};

std::unique_ptr<Producer> ConnectInChild(int fd, fabric::Fabric& fabric, std::uint64_t id,
                                         Board* board) {
  const auto dialer = *fabric.Dial();
  const std::string offer = dialer->offer().Serialize();
  Request request{id, ++board->incarnation[id], {}, offer.size()};
  ONEPIECE_CHECK(offer.size() <= request.offer.size());
  std::ranges::copy(offer, request.offer.begin());
  if (write(fd, &request, sizeof request) != sizeof request) _exit(2);
  std::array<char, 1024> answer;
  const ssize_t size = read(fd, answer.data(), answer.size());
  if (size <= 0) _exit(2);
  auto grant = ProducerGrant::Parse({answer.data(), static_cast<std::size_t>(size)});
  if (!grant.ok()) return nullptr;
  auto producer = Producer::Connect(*dialer, *grant);
  return producer.ok() ? *std::move(producer) : nullptr;
}

/// Sends message acknowledged + 1 and so on until `messages`; never returns.
[[noreturn]] void SendAll(int fd, const std::string& uri, std::uint64_t id, std::uint64_t messages,
                          std::size_t max_bytes, Board* board) {
  auto fabric = *fabric::Fabric::Open(uri);
  auto producer = ConnectInChild(fd, *fabric, id, board);
  while (board->acknowledged[id].load() < messages) {
    if (producer == nullptr) {
      producer = ConnectInChild(fd, *fabric, id, board);
      continue;
    }
    const std::uint64_t message = board->acknowledged[id].load() + 1;
    const auto bytes = Content(id, message, 1 + (id * 7919 + message * 104729) % max_bytes);
    auto result = producer->Send(message, Cut(bytes),
                                 base::SystemClock().Now() + std::chrono::milliseconds(50));
    if (!result.ok()) _exit(3);
    if (result->outcome == SendOutcome::kOk) board->acknowledged[id].store(message);
    // A producer that asks again and again for room takes the processor from the one that holds the
    // ring up.
    if (result->outcome == SendOutcome::kBusy) testing::Pause(std::chrono::microseconds(200));
    if (result->reconnect) producer.reset();
  }
  while (true) pause();
}

/// Answers at most one request that waits on `child`'s socket.
void Serve(Consumer& consumer, Child& child) {
  Request request;
  if (recv(child.fd, &request, sizeof request, MSG_DONTWAIT) != sizeof request) return;
  auto grant =
      consumer.Admit({.producer_id = request.producer_id,
                      .incarnation = request.incarnation,
                      .offer = *fabric::Offer::Parse({request.offer.data(), request.offer_bytes})});
  const std::string answer = grant.ok() ? grant->Serialize() : "refused";
  (void)!write(child.fd, answer.data(), answer.size());
}

template <typename Body>
void Spawn(Child& child, Body body) {
  int fds[2];
  ONEPIECE_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
  child.pid = fork();
  ONEPIECE_CHECK(child.pid >= 0);
  if (child.pid == 0) {
    close(fds[0]);
    body(fds[1]);
    _exit(0);
  }
  close(fds[1]);
  child.fd = fds[0];
}

}  // namespace

class ProcessTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }

  // One thread in the parent, so that fork is safe: it consumes, recovers, admits and kills.
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
    Board* board = NewBoard();
    QVERIFY(board != nullptr);
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
    const auto all_acknowledged = [&] {
      return std::all_of(board->acknowledged.begin() + 1, board->acknowledged.end(),
                         [&](const auto& count) { return count.load() == messages; });
    };
    QElapsedTimer timer;
    timer.start();
    const int limit_ms = LongRun() ? 800'000 : 100'000;
    auto next_kill = base::SystemClock().Now();
    for (bool idle = false; timer.elapsed() < limit_ms && !(idle && all_acknowledged());) {
      const auto now = base::SystemClock().Now();
      auto delivery = consumer->Wait(now + std::chrono::milliseconds(5));
      idle = !delivery.has_value();
      if (delivery.has_value()) {
        std::vector<std::byte> bytes(delivery->size_bytes());
        const std::uint64_t id = delivery->producer_id();
        const std::uint64_t message = delivery->message_id();
        const bool good =
            delivery->CopyTo(bytes).ok() && bytes == Content(id, message, bytes.size());
        if (!good) ++corrupt;
        received[id].push_back(message);
      }
      consumer->Tick(now);
      for (std::uint64_t id = 1; id <= kProducers; ++id) Serve(*consumer, children[id]);
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
    munmap(board, sizeof(Board));
  }
};

}  // namespace onepiece::ring

QTEST_GUILESS_MAIN(onepiece::ring::ProcessTest)
#include "process_test.moc"
