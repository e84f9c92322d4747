// A peer that writes anything anywhere. The consumer delivers nothing wrong and counts everything
// that it drops, and the other producers go on.
#include <QtTest>
#include <array>

#include "tests/ring/ring_world.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

/// A small ring whose producer 1 is hostile.
struct HostileWorld : World {
  fabric::FaultyFabric& process = NewProcess();
  Hostile hostile{*Enroll(1, process)};
  HostileWorld() : World(SmallRing()) {}
};

}  // namespace

class HostileTest : public QObject {
  Q_OBJECT

  static void NextMessageArrives(World& world) {
    auto producer = world.Connect(9, world.NewProcess());
    QVERIFY(producer != nullptr);
    QCOMPARE(SendOnce(*producer, 9, 1, 300).outcome, SendOutcome::kOk);
    world.Drain();
    QCOMPARE(world.Count(9, 1), 1);
  }

 private Q_SLOTS:
  void Slot_ThatIsDroppedIsCounted_data() {
    QTest::addColumn<QString>("what");
    QTest::newRow("unknown owner") << "owner";
    QTest::newRow("other generation") << "generation";
    QTest::newRow("wrong payload checksum") << "payload";
  }
  void Slot_ThatIsDroppedIsCounted() {
    QFETCH(QString, what);
    HostileWorld world;
    Slot slot = world.hostile.First();
    if (what == "owner") slot.owner += 100;
    if (what == "generation") ++slot.generation.value;
    if (what == "payload") slot.payload_crc32c ^= 1;
    world.hostile.Commit(slot);
    auto delivery = world.consumer->Poll();
    QCOMPARE(delivery.has_value(), what == "payload");
    if (delivery.has_value()) {
      std::vector<std::byte> bytes(100);
      QCOMPARE(Reason(delivery->CopyTo(bytes)), std::string("BAD_PAYLOAD_CHECKSUM"));
    }
    const ConsumerCounters counters = world.consumer->counters();
    QCOMPARE(counters.bad_owner, std::uint64_t(what == "owner"));
    QCOMPARE(counters.bad_generation, std::uint64_t(what == "generation"));
    QCOMPARE(counters.bad_payload, std::uint64_t(what == "payload"));
    QCOMPARE(counters.moves, std::uint64_t{0});
    NextMessageArrives(world);
  }

  void Payload_ThatWasWrongIsTakenWhenResent() {
    HostileWorld world;
    Slot slot = world.hostile.First();
    slot.payload_crc32c ^= 1;
    world.hostile.Commit(slot);
    auto delivery = world.consumer->Poll();
    QVERIFY(delivery.has_value());
    std::vector<std::byte> bytes(100);
    QVERIFY(!delivery->CopyTo(bytes).ok());
    auto producer = world.Connect(1, world.process);
    QCOMPARE(SendOnce(*producer, 1, 1, 100).outcome, SendOutcome::kOk);
    world.Drain();
    QVERIFY(world.received == (std::vector<Received>{{1, 1, 100}}));
    QCOMPARE(world.corrupt, 0);
  }

  void Slot_OutOfBoundsMovesTheRing_data() {
    QTest::addColumn<quint64>("offset");
    QTest::addColumn<quint64>("length");
    QTest::addColumn<bool>("pad");
    QTest::newRow("offset ahead") << quint64{64} << quint64{100} << false;
    QTest::newRow("offset far away") << ~quint64{0} - 63 << quint64{100} << false;
    QTest::newRow("offset not aligned") << quint64{8} << quint64{100} << false;
    QTest::newRow("no length") << quint64{0} << quint64{0} << false;
    QTest::newRow("longer than half") << quint64{0} << quint64{2049} << false;
    QTest::newRow("longer than everything") << quint64{0} << ~quint64{0} << false;
    QTest::newRow("footprint wraps around") << quint64{0} << ~quint64{0} - 62 << false;
    QTest::newRow("pad at the start of a lap") << quint64{0} << quint64{4096} << true;
    QTest::newRow("pad of another length") << quint64{0} << quint64{64} << true;
  }
  void Slot_OutOfBoundsMovesTheRing() {
    QFETCH(quint64, offset);
    QFETCH(quint64, length);
    QFETCH(bool, pad);
    HostileWorld world;
    Slot slot = world.hostile.First();
    slot.offset = offset;
    slot.length_bytes = length;
    if (pad) slot.state = SlotState::kPad;
    world.hostile.Commit(slot);
    QVERIFY(!world.consumer->Poll().has_value());
    QCOMPARE(world.consumer->counters().bad_structure, std::uint64_t{1});
    QVERIFY(!world.consumer->Poll().has_value());
    const Generation before = world.consumer->generation();
    QVERIFY(world.consumer->Tick(world.clock.Now()));
    QCOMPARE(world.consumer->generation(), Generation(before.value + 1));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    world.Drain();
    for (const Received& got : world.received) QVERIFY(got.size <= 2048);
    NextMessageArrives(world);
  }

  // Without the check of its bounds, an absurd length would make an absurd timeout.
  void Reservation_OutOfBoundsMovesTheRing() {
    HostileWorld world;
    Slot slot = world.hostile.First();
    slot.state = SlotState::kReserved;
    slot.length_bytes = ~std::uint64_t{0} >> 1;
    world.hostile.Commit(slot);
    QVERIFY(world.consumer->Tick(world.clock.Now()));
    QCOMPARE(world.consumer->counters().bad_structure, std::uint64_t{1});
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    NextMessageArrives(world);
  }

  void Slot_WithBadHeaderChecksumIsNotYetWritten() {
    HostileWorld world;
    SlotWords words = EncodeSlot(world.hostile.First());
    words[7] ^= 1;
    world.hostile.PutTail(1, 128);
    world.hostile.Words(world.hostile.layout.SlotOffset(0), words);
    QVERIFY(!world.consumer->Poll().has_value());
    world.Advance(std::chrono::milliseconds(500));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
    words[7] ^= 1;  // The rest of the slot arrives.
    world.hostile.Words(world.hostile.layout.SlotOffset(0), words);
    auto delivery = world.consumer->Poll();
    QVERIFY(delivery.has_value());
    std::vector<std::byte> bytes(100);
    QVERIFY(delivery->CopyTo(bytes).ok());
  }

  void Slot_ThatStaysTornMovesTheRingAtItsTimeout() {
    HostileWorld world;
    SlotWords words = EncodeSlot(world.hostile.First());
    words[7] ^= 1;
    world.hostile.PutTail(1, 128);
    world.hostile.Words(world.hostile.layout.SlotOffset(0), words);
    world.Advance(std::chrono::milliseconds(1500));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    QCOMPARE(world.consumer->counters().abandoned, std::uint64_t{1});
    NextMessageArrives(world);
  }

  void Slot_BeyondTheTailIsNotConsumed() {
    HostileWorld world;
    world.hostile.Put(world.hostile.First());
    QVERIFY(!world.consumer->Poll().has_value());
    world.Advance(std::chrono::seconds(5));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
    NextMessageArrives(world);
    QCOMPARE(world.received.size(), std::size_t{1});
  }

  void Tail_ThatStaysUnreadableMovesTheRing_data() {
    QTest::addColumn<quint64>("seq");
    QTest::addColumn<quint64>("check");
    QTest::newRow("check fails") << quint64{1} << quint64{1};
    QTest::newRow("more slots than there are") << quint64{9} << quint64{0};
    QTest::newRow("behind the consumer") << ~quint64{0} << quint64{0};
  }
  void Tail_ThatStaysUnreadableMovesTheRing() {
    QFETCH(quint64, seq);
    QFETCH(quint64, check);
    HostileWorld world;
    TailWords words = EncodeTail({.seq = seq, .offset = 64});
    words[2] ^= check;
    world.hostile.Words(kTailOffset, words);
    auto producer = world.Connect(2, world.NewProcess());
    QCOMPARE(SendOnce(*producer, 2, 1, 10).outcome, SendOutcome::kBusy);
    QVERIFY(!world.consumer->Poll().has_value());
    world.Advance(std::chrono::milliseconds(700));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    QVERIFY(SendOnce(*producer, 2, 1, 10).reconnect);
    NextMessageArrives(world);
  }

  void Lock_OfNobodyMovesTheRing() {
    HostileWorld world;
    const std::array<std::uint64_t, 1> word{LockWord(77, 1)};
    world.hostile.Words(kLockOffset, word);
    world.Advance(std::chrono::milliseconds(700));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    NextMessageArrives(world);
  }

  void Producer_RefusesAHostileHead_data() {
    QTest::addColumn<QString>("what");
    QTest::addColumn<bool>("reconnect");
    QTest::newRow("check") << "check" << false;
    QTest::newRow("capacity") << "capacity" << true;
    QTest::newRow("slots") << "slots" << true;
    QTest::newRow("generation") << "generation" << true;
    QTest::newRow("head ahead of tail") << "seq" << false;
    QTest::newRow("offset ahead of tail") << "offset" << false;
  }
  void Producer_RefusesAHostileHead() {
    QFETCH(QString, what);
    QFETCH(bool, reconnect);
    HostileWorld world;
    Head head{.generation = world.hostile.grant.generation, .capacity_bytes = 4096, .slots = 8};
    if (what == "capacity") head.capacity_bytes = 1 << 20;
    if (what == "slots") head.slots = 1024;
    if (what == "generation") ++head.generation.value;
    if (what == "seq") head.seq = 5;
    if (what == "offset") head.offset = 64;
    HeadWords words = EncodeHead(head);
    if (what == "check") words[6] ^= 1;
    world.hostile.Words(kHeadOffset, words);
    auto producer = world.Connect(2, world.NewProcess());
    const SendResult result = SendOnce(*producer, 2, 1, 10);
    QCOMPARE(result.outcome, SendOutcome::kBusy);
    QCOMPARE(result.reconnect, reconnect);
    std::array<std::uint64_t, 1> lock{1};
    const fabric::Op read = fabric::Op::ReadWords("lock", kLockOffset, lock);
    QVERIFY(world.hostile.channel->Execute({&read, 1}, base::MonotonicTime::max()).ok());
    QCOMPARE(lock[0], std::uint64_t{0});  // The sender has given it back.
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::HostileTest)
#include "hostile_test.moc"
