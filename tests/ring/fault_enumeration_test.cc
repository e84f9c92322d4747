// Every single fault at every operation of a send, and pairs of them: afterwards the other
// producers go on, the ring is empty and free, and every acknowledged message has arrived exactly
// once.
#include <QtTest>
#include <functional>
#include <optional>
#include <thread>

#include "spdlog/spdlog.h"
#include "tests/ring/ring_world.h"

namespace onepiece::ring {
namespace {

enum class Trouble { kDie, kTear, kDrop, kBreak, kStall };
constexpr Trouble kTroubles[] = {Trouble::kDie, Trouble::kTear, Trouble::kDrop, Trouble::kBreak,
                                 Trouble::kStall};

const char* Name(Trouble trouble) {
  switch (trouble) {
    case Trouble::kDie:
      return "die";
    case Trouble::kTear:
      return "tear";
    case Trouble::kDrop:
      return "drop";
    case Trouble::kBreak:
      return "break";
    case Trouble::kStall:
      return "stall";
  }
  return "";
}

std::optional<fabric::FaultKind> KindOf(Trouble trouble) {
  switch (trouble) {
    case Trouble::kDie:
      return fabric::FaultKind::kDie;
    case Trouble::kTear:
      return fabric::FaultKind::kTear;
    case Trouble::kDrop:
      return fabric::FaultKind::kDrop;
    case Trouble::kBreak:
      return fabric::FaultKind::kBreak;
    case Trouble::kStall:
      return std::nullopt;
  }
  return std::nullopt;
}

/// A producer whose one send of message 1 meets one fault.
struct Victim {
  std::uint64_t id;
  std::shared_ptr<fabric::PlannedFault> fault;
  fabric::FaultyFabric* process = nullptr;
  std::unique_ptr<Producer> producer;
  std::thread thread;  // Only of a stalled one.
  SendResult result;
  bool reached = false;
  std::atomic<bool> ended{false};  // The thread's send; outlives Send().

  Victim(World& world, std::uint64_t producer_id, std::uint64_t op, Trouble trouble)
      : id(producer_id), fault(std::make_shared<fabric::PlannedFault>(op, KindOf(trouble))) {
    process = &world.NewProcess(fault);
    producer = world.Connect(id, *process);
    ONEPIECE_CHECK(producer != nullptr);
  }
  ~Victim() { Resume(); }

  /// Returns once the send has ended, or has come to its stall.
  void Send(std::size_t size, Trouble trouble) {
    const auto send = [this, size] { result = SendOnce(*producer, id, 1, size); };
    if (trouble != Trouble::kStall) {
      send();
      reached = fault->AwaitReached(base::Duration::zero());
      return;
    }
    thread = std::thread([this, send] {
      send();
      ended.store(true);
    });
    while (!reached && !ended.load()) reached = fault->AwaitReached(std::chrono::milliseconds(1));
    if (!reached) Resume();
  }
  void Resume() {
    if (!thread.joinable()) return;
    fault->Release();
    thread.join();
  }
};

/// Sends message `message` until it is acknowledged, as a service would: reconnecting when told,
/// waiting (on the manual clock) when busy. False when that does not happen within a minute of the
/// ring's time.
bool SendForSure(World& world, std::uint64_t id, std::uint64_t message, std::size_t size,
                 fabric::FaultyFabric& process) {
  auto producer = world.Connect(id, process);
  for (int attempt = 0; attempt < 600; ++attempt) {
    if (producer == nullptr) return false;
    const SendResult result = SendOnce(*producer, id, message, size);
    if (result.outcome == SendOutcome::kOk) return true;
    if (result.reconnect) producer = world.Connect(id, process);
    world.Advance(std::chrono::milliseconds(100));
  }
  return false;
}

/// Moves the tail of a fresh ring to byte `offset`, a multiple of 64.
void MoveTailTo(World& world, std::uint64_t offset) {
  auto producer = world.Connect(99, world.NewProcess());
  for (std::uint64_t id = 1, at = 0; at < offset; ++id) {
    const std::uint64_t size = std::min<std::uint64_t>(1024, offset - at);
    ONEPIECE_CHECK(SendOnce(*producer, 99, id, size).outcome == SendOutcome::kOk);
    world.Drain();
    at += size;
  }
  world.received.clear();
}

struct Scene {
  const char* name;
  std::uint64_t tail;
  std::size_t size;
};
// With 4096 bytes: a small message, a large one, and one that needs a PAD in front.
constexpr Scene kScenes[] = {{"small", 0, 10}, {"large", 1024, 1500}, {"wrap", 3072, 1500}};
constexpr std::uint64_t kA = 1;
constexpr std::uint64_t kB = 2;
constexpr std::uint64_t kC = 3;

}  // namespace

class FaultEnumerationTest : public QObject {
  Q_OBJECT

  static std::string Where(const World&, const char* what, const Victim& victim, std::uint64_t op) {
    return std::string(what) + " producer " + std::to_string(victim.id) + " at operation " +
           std::to_string(op) + " " + victim.fault->reached_name();
  }

  // What must hold when everybody has finished.
  static void CheckEnd(World& world, const std::vector<std::uint64_t>& sure,
                       const std::vector<std::uint64_t>& maybe, const std::string& where) {
    world.Advance(std::chrono::seconds(5));
    QVERIFY2(world.corrupt == 0, where.c_str());
    for (const std::uint64_t id : sure) QVERIFY2(world.Count(id, 1) == 1, where.c_str());
    for (const std::uint64_t id : maybe) QVERIFY2(world.Count(id, 1) <= 1, where.c_str());
    QVERIFY2(world.consumer->fill().messages == 0, where.c_str());
    QVERIFY2(world.consumer->fill().bytes == 0, where.c_str());
    // Free: a newcomer needs one attempt.
    auto producer = world.Connect(50, world.NewProcess());
    QVERIFY2(SendOnce(*producer, 50, 1, 2048).outcome == SendOutcome::kOk, where.c_str());
    world.Drain();
    QVERIFY2(world.Count(50, 1) == 1, where.c_str());
  }

  // One fault at operation `op` of A's send; then B sends; then A comes back if `resend`. False
  // when the send has fewer operations.
  bool OneFault(const Scene& scene, Trouble trouble, std::uint64_t op, bool resend) {
    World world(SmallRing());
    MoveTailTo(world, scene.tail);
    Victim a(world, kA, op, trouble);
    a.Send(scene.size, trouble);
    if (!a.reached) return false;
    const std::string where = Where(world, Name(trouble), a, op) + " " + scene.name;
    auto& b_process = world.NewProcess();
    const bool b_sent = SendForSure(world, kB, 1, scene.size, b_process);
    a.Resume();  // Late writes of a stalled one, after it has been fenced.
    const bool a_acknowledged = a.result.outcome == SendOutcome::kOk;
    bool a_sent = a_acknowledged;
    if (resend && !a_acknowledged) {
      const bool dead = world.board->IsDead(a.process->self());
      a.producer.reset();
      // Dead: a new process of the same service. Alive: its next connection, without another fault.
      auto& process = dead ? world.NewProcess() : *a.process;
      a_sent = SendForSure(world, kA, 1, scene.size, process);
      if (!a_sent) qWarning("A could not resend: %s", where.c_str());
    }
    if (!b_sent) qWarning("B could not send: %s", where.c_str());
    if (!b_sent || (resend && !a_sent)) QTest::qFail("no progress", __FILE__, __LINE__);
    CheckEnd(world, a_sent ? std::vector{kA, kB} : std::vector{kB}, {kA}, where);
    if (world.consumer->counters().moves > 0) ++moves_seen_;
    if (world.consumer->counters().holes_skipped > 0) ++holes_seen_;
    if (world.consumer->counters().locks_broken > 0) ++locks_seen_;
    if (world.consumer->counters().tails_repaired > 0) ++tails_seen_;
    return true;
  }

  int moves_seen_ = 0;
  int holes_seen_ = 0;
  int locks_seen_ = 0;
  int tails_seen_ = 0;

 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }

  void EveryFaultAtEveryOperation() {
    for (const Scene& scene : kScenes) {
      for (const Trouble trouble : kTroubles) {
        for (const bool resend : {false, true}) {
          std::uint64_t operations = 0;
          while (OneFault(scene, trouble, operations, resend)) {
            if (QTest::currentTestFailed()) return;
            ++operations;
          }
          // Two in round trip 1; six in round trip 2, one more with a PAD.
          QCOMPARE(operations, std::uint64_t(scene.tail == 3072 ? 9 : 8));
        }
      }
    }
    // The enumeration has been where it should.
    QVERIFY(moves_seen_ > 0);
    QVERIFY(holes_seen_ > 0);
    QVERIFY(locks_seen_ > 0);
    QVERIFY(tails_seen_ > 0);
  }

  // A meets its fault while B is stalled in mid-send: C goes on, and all late writes are harmless.
  void EveryPairOfFaults() {
    int pairs = 0;
    for (const Scene& scene : {kScenes[0], kScenes[2]}) {
      for (const Trouble first : {Trouble::kStall, Trouble::kDie, Trouble::kTear}) {
        for (const Trouble second : {Trouble::kStall, Trouble::kDie, Trouble::kBreak}) {
          for (std::uint64_t i = 0; i < 9; ++i) {
            for (std::uint64_t j = 0; j < 9; ++j) {
              World world(SmallRing());
              MoveTailTo(world, scene.tail);
              Victim a(world, kA, i, first);
              Victim b(world, kB, j, second);
              a.Send(scene.size, first);
              b.Send(scene.size, second);
              const std::string where = Where(world, Name(first), a, i) + ", " +
                                        Where(world, Name(second), b, j) + ", " + scene.name;
              const bool c_sent = SendForSure(world, kC, 1, scene.size, world.NewProcess());
              b.Resume();
              a.Resume();
              QVERIFY2(c_sent, where.c_str());
              std::vector<std::uint64_t> sure{kC};
              if (a.result.outcome == SendOutcome::kOk) sure.push_back(kA);
              if (b.result.outcome == SendOutcome::kOk) sure.push_back(kB);
              CheckEnd(world, sure, {kA, kB}, where);
              if (QTest::currentTestFailed()) return;
              ++pairs;
            }
          }
        }
      }
    }
    QCOMPARE(pairs, 2 * 3 * 3 * 81);
  }

  // A live producer that stalls less than the time-outs is left alone.
  void AShortStallIsNotSuspected() {
    for (std::uint64_t op = 0; op < 8; ++op) {
      World world(SmallRing());
      Victim a(world, kA, op, Trouble::kStall);
      a.Send(100, Trouble::kStall);
      QVERIFY(a.reached);
      world.Advance(std::chrono::milliseconds(400));
      a.Resume();
      QCOMPARE(a.result.outcome, SendOutcome::kOk);
      QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
      world.Drain();
      QCOMPARE(world.Count(kA, 1), 1);
    }
  }

  // Messages that were complete when the ring moved are taken along, in order, once.
  void AMoveTakesCommittedMessagesAlong() {
    World world(SmallRing());
    Victim a(world, kA, 6, Trouble::kStall);  // Payload written, not committed.
    a.Send(100, Trouble::kStall);
    QVERIFY(a.reached);
    auto& process = world.NewProcess();
    auto producer = world.Connect(kB, process);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      QCOMPARE(SendOnce(*producer, kB, id, 200).outcome, SendOutcome::kOk);
    }
    QVERIFY(!world.consumer->Poll().has_value());  // A's hole is in front.
    world.Advance(std::chrono::milliseconds(1500));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    const SendResult moved = SendOnce(*producer, kB, 5, 200);
    QCOMPARE(moved.outcome, SendOutcome::kBusy);
    QVERIFY(moved.reconnect);
    QVERIFY(SendForSure(world, kB, 5, 200, process));
    a.Resume();
    QCOMPARE(a.result.outcome, SendOutcome::kUnknown);
    QVERIFY(a.result.reconnect);
    QVERIFY(SendForSure(world, kA, 1, 100, *a.process));
    world.Drain();
    QVERIFY(
        world.received ==
        (std::vector<Received>{
            {kB, 1, 200}, {kB, 2, 200}, {kB, 3, 200}, {kB, 4, 200}, {kB, 5, 200}, {kA, 1, 100}}));
    QCOMPARE(world.corrupt, 0);
  }
};

}  // namespace onepiece::ring

QTEST_GUILESS_MAIN(onepiece::ring::FaultEnumerationTest)
#include "fault_enumeration_test.moc"
