// A segment for each producer (FDR-S): one round trip, fair turns, and no producer suffers from
// what another does wrong.
#include <QtTest>
#include <functional>
#include <thread>

#include "spdlog/spdlog.h"
#include "tests/eventually.h"
#include "tests/ring/observers.h"
#include "tests/ring/ring_world.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

ConsumerOptions SmallLanes() { return SmallRing(Shape::kPerProducer); }

}  // namespace

class LanesTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }

  void Send_TakesOneRoundTripAndAnotherOnlyToLookForRoom() {
    World world(SmallLanes());
    const auto names = std::make_shared<NamesOnly>();
    auto producer = world.Connect(1, world.NewProcess(names));
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 1500)));
    QCOMPARE(names->Take(), std::string("payload.write slot.commit head.confirm"));
    QCOMPARE(producer->channel_counters().chains, std::uint64_t{1});
    QVERIFY(Ok(SendOnce(*producer, 1, 2, 1500)));
    QCOMPARE(producer->channel_counters().chains, std::uint64_t{2});
    QCOMPARE(world.consumer->fill().messages, std::uint64_t{2});
    QCOMPARE(world.consumer->fill().bytes, std::uint64_t{3072});
    names->Take();
    const SendResult full = SendOnce(*producer, 1, 3, 1500);
    QCOMPARE(full.outcome, SendOutcome::kBusy);
    QVERIFY(!full.reconnect);
    QCOMPARE(Reason(full.detail), std::string("RING_FULL"));
    QCOMPARE(names->Take(), std::string("head.read"));
    world.Drain();
    // Its knowledge of the room was old, so it reads the head. The same chain writes a PAD, too.
    QVERIFY(Ok(SendOnce(*producer, 1, 3, 1500)));
    QCOMPARE(names->Take(),
             std::string("head.read payload.write slot.pad slot.commit head.confirm"));
    QVERIFY(Ok(SendOnce(*producer, 1, 4, 100)));
    QCOMPARE(names->Take(), std::string("payload.write slot.commit head.confirm"));
    world.Drain();
    QCOMPARE(world.received.size(), std::size_t{4});
    QCOMPARE(world.corrupt, 0);
  }

  void Poll_GivesEveryProducerItsTurn() {
    World world(SmallLanes());
    std::vector<std::unique_ptr<Producer>> producers;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      producers.push_back(world.Connect(id, world.NewProcess()));
    }
    for (std::uint64_t message = 1; message <= 4; ++message) {
      QVERIFY(Ok(SendOnce(*producers[0], 1, message, 100)));
    }
    QVERIFY(Ok(SendOnce(*producers[1], 2, 1, 100)));
    QVERIFY(Ok(SendOnce(*producers[2], 3, 1, 100)));
    world.Drain();
    QVERIFY(world.received ==
            (std::vector<Received>{
                {1, 1, 100}, {2, 1, 100}, {3, 1, 100}, {1, 2, 100}, {1, 3, 100}, {1, 4, 100}}));
  }

  void AStalledProducerBothersNobody() {
    World world(SmallLanes());
    for (std::uint64_t op = 0; op < 3; ++op) {
      const std::uint64_t id = 10 + op;
      const auto fault = std::make_shared<fabric::PlannedFault>(op, std::nullopt);
      auto stalled = world.Connect(id, world.NewProcess(fault));
      SendResult result;
      std::thread thread([&] { result = SendOnce(*stalled, id, 1, 500); });
      while (!fault->AwaitReached(std::chrono::seconds(1))) {
      }
      auto other = world.Connect(1, world.NewProcess());
      QVERIFY(Ok(SendOnce(*other, 1, op + 1, 2000)));
      world.Advance(std::chrono::seconds(60), std::chrono::seconds(1));
      fault->Release();
      thread.join();
      QVERIFY(Ok(result));
      world.Drain();
      QCOMPARE(world.Count(1, op + 1), 1);
      QCOMPARE(world.Count(id, 1), 1);
    }
    QCOMPARE(world.consumer->counters().hostile, std::uint64_t{0});
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
    QCOMPARE(world.corrupt, 0);
  }

  // Every fault at every operation: an acknowledged message has arrived, a resend arrives, and the
  // others go on.
  void EveryFaultAtEveryOperation() {
    using fabric::FaultKind;
    for (const FaultKind kind :
         {FaultKind::kDie, FaultKind::kTear, FaultKind::kDrop, FaultKind::kBreak}) {
      for (std::uint64_t op = 0; op < 8; ++op) {
        World world(SmallLanes());
        const auto fault = std::make_shared<fabric::PlannedFault>(op, kind);
        auto& process = world.NewProcess(fault);
        auto producer = world.Connect(1, process);
        // The third message needs a PAD. Operations: 0 1 2, 3 4 5, 6 (the head) and 7.
        for (std::uint64_t id = 1; id <= 3 && producer != nullptr; ++id) {
          const SendResult result = SendOnce(*producer, 1, id, 1500);
          world.Drain();
          if (!result.reconnect) QCOMPARE(result.outcome, SendOutcome::kOk);
          if (!result.reconnect) continue;
          const bool dead = world.board->IsDead(process.self());
          producer = world.Connect(1, dead ? world.NewProcess() : process);
          QVERIFY(producer != nullptr);
          QVERIFY(Ok(SendOnce(*producer, 1, id, 1500)));
          world.Drain();
        }
        world.Advance(std::chrono::seconds(2));
        for (std::uint64_t id = 1; id <= 3; ++id) QCOMPARE(world.Count(1, id), 1);
        QCOMPARE(world.corrupt, 0);
        QCOMPARE(world.consumer->counters().hostile, std::uint64_t{0});
        QCOMPARE(world.consumer->fill().messages, std::uint64_t{0});
      }
    }
  }

  void Reconnect_TakesCommittedMessagesAlongAndShutsTheFormerOut() {
    World world(SmallLanes());
    auto first = world.Connect(1, world.NewProcess());
    QVERIFY(Ok(SendOnce(*first, 1, 1, 100)));
    QVERIFY(Ok(SendOnce(*first, 1, 2, 100)));
    auto held = world.consumer->Poll();
    QVERIFY(held.has_value());
    // Another process enrolls while the first one lives, as after a restart that the first missed.
    auto second = world.Connect(1, world.NewProcess());
    QVERIFY(second != nullptr);
    QVERIFY(Ok(SendOnce(*second, 1, 2, 100)));  // A resend.
    QVERIFY(Ok(SendOnce(*second, 1, 3, 100)));
    const SendResult late = SendOnce(*first, 1, 9, 100);
    QVERIFY(late.outcome != SendOutcome::kOk);
    QVERIFY(late.reconnect);
    std::vector<std::byte> bytes(100);
    QVERIFY(held->CopyTo(bytes).ok());
    QVERIFY(bytes == Content(1, 1, 100));
    world.Drain();
    QVERIFY(world.received == (std::vector<Received>{{1, 2, 100}, {1, 3, 100}}));
    QCOMPARE(world.consumer->counters().duplicates, std::uint64_t{1});
    QCOMPARE(world.consumer->counters().lanes_retired, std::uint64_t{1});
  }

  void DeadProducer_LeavesItsMessagesAndNoSegment() {
    World world(SmallLanes());
    auto& process = world.NewProcess();
    auto producer = world.Connect(1, process);
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 100)));
    world.board->Kill(process.self());
    world.clock.Advance(std::chrono::seconds(1));
    world.consumer->Tick(world.clock.Now());
    QCOMPARE(world.consumer->counters().lanes_retired, std::uint64_t{1});
    QCOMPARE(world.consumer->fill().slots, std::uint64_t{0});
    world.Drain();
    QCOMPARE(world.Count(1, 1), 1);
  }

  // The memory is bounded even when a producer enrolls again and again and nobody takes its
  // messages.
  void Enroll_IsRefusedWhileOldSegmentsHoldTooMuch() {
    ConsumerOptions options = SmallLanes();
    options.max_producers = 2;
    World world(options);
    auto& process = world.NewProcess();
    for (std::uint64_t id = 1; id <= 3; ++id) {
      auto producer = world.Connect(1, process);
      QVERIFY(producer != nullptr);
      QVERIFY(Ok(SendOnce(*producer, 1, id, 10)));
    }
    QCOMPARE(Reason(world.Enroll(1, process).status()), std::string("TOO_MANY_OWNERS"));
    world.Drain();
    QCOMPARE(world.received.size(), std::size_t{3});
    QVERIFY(world.Enroll(1, process).ok());
    auto& other = world.NewProcess();
    QVERIFY(world.Enroll(2, other).ok());
    QCOMPARE(Reason(world.Enroll(3, other).status()), std::string("TOO_MANY_OWNERS"));
    world.board->Kill(other.self());
    world.clock.Advance(std::chrono::seconds(1));
    world.consumer->Tick(world.clock.Now());
    QVERIFY(world.Enroll(3, process).ok());
  }

  void ALiarLosesItsOwnSegmentOnly_data() {
    QTest::addColumn<QString>("what");
    for (const char* what : {"owner", "generation", "offset", "length", "reserved", "pad"}) {
      QTest::newRow(what) << what;
    }
  }
  void ALiarLosesItsOwnSegmentOnly() {
    QFETCH(QString, what);
    World world(SmallLanes());
    auto honest = world.Connect(2, world.NewProcess());
    auto& process = world.NewProcess();
    Hostile hostile(*world.Enroll(1, process));
    Slot slot = hostile.First();
    if (what == "owner") slot.owner -= 1;  // The honest one's.
    if (what == "generation") ++slot.generation.value;
    if (what == "offset") slot.offset = 64;
    if (what == "length") slot.length_bytes = 1 << 20;
    if (what == "reserved") slot.state = SlotState::kReserved;
    if (what == "pad") slot.state = SlotState::kPad;
    hostile.Put(slot);
    QVERIFY(Ok(SendOnce(*honest, 2, 1, 100)));
    world.Drain();
    world.Advance(std::chrono::milliseconds(200));
    QCOMPARE(world.consumer->counters().hostile, std::uint64_t{1});
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
    QVERIFY(Ok(SendOnce(*honest, 2, 2, 100)));
    world.Drain();
    QVERIFY(world.received == (std::vector<Received>{{2, 1, 100}, {2, 2, 100}}));
    QCOMPARE(world.corrupt, 0);
  }

  void Garbage_OverAWholeSegmentHarmsNobodyElse() {
    World world(SmallLanes());
    auto honest = world.Connect(2, world.NewProcess());
    auto& process = world.NewProcess();
    Hostile hostile(*world.Enroll(1, process));
    std::mt19937_64 random(SeedFromEnvironment());
    std::vector<std::uint64_t> garbage(hostile.grant.region.length_bytes / 8);
    for (std::uint64_t id = 1; id <= 200; ++id) {
      for (auto& word : garbage) word = random() % 4 == 0 ? random() : random() % 8;
      hostile.Words(0, garbage);
      QVERIFY(Ok(SendOnce(*honest, 2, id, 500)));
      world.Advance(std::chrono::milliseconds(20), std::chrono::milliseconds(20));
      QCOMPARE(world.Count(2, id), 1);
    }
    QCOMPARE(world.corrupt, 0);
    QCOMPARE(world.received.size(), std::size_t{200});
  }

  void Grant_OfAnotherVersionOrShapeIsRefused() {
    World world(SmallLanes());
    const auto enrolled = world.Enroll(1, world.NewProcess());
    QCOMPARE(enrolled->grant.shape, Shape::kPerProducer);
    std::string bytes = enrolled->grant.Serialize();
    bytes[8] = static_cast<char>(bytes[8] + 1);
    const absl::Status status = ProducerGrant::Parse(bytes).status();
    QCOMPARE(Reason(status), std::string("PROTOCOL_VERSION"));
    ProducerGrant other = enrolled->grant;
    other.shape = static_cast<Shape>(7);
    QCOMPARE(Reason(ProducerGrant::Parse(other.Serialize()).status()),
             std::string("MALFORMED_GRANT"));
  }

  // On the real clock: the commit wakes a sleeping consumer, even when the segment is younger than
  // its sleep.
  void Wait_IsWokenByEveryMessageOfManyProducers() {
    auto shm = *fabric::Fabric::Open("shm://lanewait-" + std::to_string(getpid()));
    auto consumer = *Consumer::Create(*shm, SmallLanes());
    constexpr std::uint64_t kMessages = 200;
    const Reader reader(*consumer);
    QElapsedTimer timer;
    timer.start();
    for (std::uint64_t id = 1; id <= kMessages; ++id) {
      auto producer = ConnectTo(*consumer, *shm, 1 + id % 4, id);
      if (producer == nullptr) break;
      if (SendOnce(*producer, 1 + id % 4, id, 64).outcome != SendOutcome::kOk) break;
      while (reader.got() < id && timer.elapsed() < 20000) std::this_thread::yield();
    }
    QVERIFY2(testing::Eventually([&] { return reader.got() == kMessages; }),
             std::to_string(reader.got()).c_str());
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::LanesTest)
#include "lanes_test.moc"
