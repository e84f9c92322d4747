// A ring's health, the cost of an idle ring, and how fast recovery notices a dead producer: by
// events, on a clock that stands still.
#include <QtTest>
#include <thread>

#include "cluster/ring/recovery.h"
#include "spdlog/spdlog.h"
#include "tests/eventually.h"
#include "tests/ring/observers.h"
#include "tests/ring/ring_world.h"
#include "tests/ring/shape_rows.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

template <typename Condition>
bool Soon(Condition condition) {
  return testing::Eventually(std::chrono::seconds(20), condition);
}

/// A ring whose consumer sleeps at once. On a clock that stands still a spin would never end.
ConsumerOptions SleepyRing() {
  ConsumerOptions options = SmallRing();
  options.spin = base::Duration::zero();
  return options;
}

}  // namespace

class HealthTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }

  // The fabric counts the operations; the producer does not claim them.
  void Send_PostsTheseOperationsAndNoOthers_data() {
    QTest::addColumn<bool>("shared");
    QTest::addColumn<QString>("operations");
    QTest::addColumn<int>("round_trips");
    QTest::newRow("shared") << true
                            << "lock.take lines.read slot.reserve tail.write lock.free "
                               "payload.write slot.commit head.confirm"
                            << 2;
    QTest::newRow("per producer") << false << "payload.write slot.commit head.confirm" << 1;
  }
  void Send_PostsTheseOperationsAndNoOthers() {
    QFETCH(bool, shared);
    QFETCH(QString, operations);
    QFETCH(int, round_trips);
    World world(SmallRing(shared ? Shape::kShared : Shape::kPerProducer));
    const auto names = std::make_shared<NamesOnly>();
    auto producer = world.Connect(1, world.NewProcess(names));
    for (std::uint64_t id = 1; id <= 3; ++id) {
      const auto before = producer->channel_counters();
      names->Take();
      QCOMPARE(SendOnce(*producer, 1, id, 500).outcome, SendOutcome::kOk);
      const auto after = producer->channel_counters();
      QCOMPARE(QString::fromStdString(names->Take()), operations);
      QCOMPARE(after.chains - before.chains, std::uint64_t(round_trips));
      QCOMPARE(after.operations - before.operations, std::uint64_t(operations.count(' ') + 1));
      world.Drain();
    }
  }

  void Health_SaysWhoIsConnectedAndWhatTheyDid_data() { AddShapeRows(); }
  void Health_SaysWhoIsConnectedAndWhatTheyDid() {
    QFETCH(Shape, shape);
    const bool shared = shape == Shape::kShared;
    World world(SmallRing(shape));
    auto& process = world.NewProcess();
    auto& other = world.NewProcess();
    auto first = world.Connect(1, process);
    auto second = world.Connect(2, other);
    for (const std::uint64_t id : {1, 2, 2}) {
      QCOMPARE(SendOnce(*first, 1, id, 100).outcome, SendOutcome::kOk);
      world.Drain();
    }
    QCOMPARE(SendOnce(*second, 2, 1, 500).outcome, SendOutcome::kOk);
    world.consumer->Tick(world.clock.Now());
    world.clock.Advance(std::chrono::seconds(3));
    RingHealth health = world.consumer->health();
    QCOMPARE(health.shape, shape);
    QCOMPARE(health.used_slots, std::uint64_t{1});
    QCOMPARE(health.used_bytes, std::uint64_t{512});
    QCOMPARE(health.slots, std::uint64_t(shared ? 8 : 16));
    QCOMPARE(health.capacity_bytes, std::uint64_t(shared ? 4096 : 8192));
    QCOMPARE(health.oldest_age, base::Duration(std::chrono::seconds(3)));
    QVERIFY(!health.sleeping);
    QCOMPARE(health.producers.size(), std::size_t{2});
    QCOMPARE(health.producers[0].producer_id, ProducerId(1));
    QCOMPARE(health.producers[0].delivered, std::uint64_t{2});
    QCOMPARE(health.producers[0].delivered_bytes, std::uint64_t{200});
    QCOMPARE(health.producers[0].duplicates, std::uint64_t{1});
    QVERIFY(health.producers[0].peer == process.self());
    QVERIFY(health.producers[0].connected && health.producers[1].connected);
    QCOMPARE(health.producers[1].delivered, std::uint64_t{0});

    world.Drain();
    world.consumer->Tick(world.clock.Now());
    first = world.Connect(1, process);
    QVERIFY(world.consumer->Dismiss(ProducerId(2), Incarnation(1)).ok());
    health = world.consumer->health();
    QCOMPARE(health.oldest_age, base::Duration::zero());
    QCOMPARE(health.producers[0].enrollments, std::uint64_t{2});
    QCOMPARE(health.producers[0].incarnation, Incarnation(2));
    QVERIFY(health.producers[0].connected);
    QVERIFY(!health.producers[1].connected);
    QCOMPARE(health.producers[1].delivered, std::uint64_t{1});
  }

  void Health_RemembersABoundedNumberOfThoseWhoLeft() {
    ConsumerOptions options = SmallRing();
    options.max_producers = 2;
    World world(options);
    auto& process = world.NewProcess();
    for (std::uint64_t id = 1; id <= 300; ++id) {
      QVERIFY(world.Enroll(id, process).ok());
      QVERIFY(world.consumer->Dismiss(ProducerId(id), Incarnation(1)).ok());
      world.clock.Advance(std::chrono::seconds(1));
      world.consumer->Tick(world.clock.Now());
    }
    const RingHealth health = world.consumer->health();
    QVERIFY(health.producers.size() <= 70);
    QVERIFY(std::ranges::any_of(
        health.producers, [](const auto& one) { return one.producer_id == ProducerId(300); }));
  }

  void Health_NamesALiarInItsOwnSegment() {
    World world(SmallRing(Shape::kPerProducer));
    auto& process = world.NewProcess();
    Hostile hostile(*world.Enroll(1, process));
    Slot slot = hostile.First();
    slot.length_bytes = 1 << 20;
    hostile.Put(slot);
    world.Drain();
    world.consumer->Tick(world.clock.Now());
    const RingHealth health = world.consumer->health();
    QCOMPARE(health.producers.size(), std::size_t{1});
    QCOMPARE(health.producers[0].hostile, std::uint64_t{1});
    QVERIFY(health.producers[0].peer == process.self());
  }

  void Stall_IsCountedOnceAndForItsProducer() {
    World world(SmallRing());
    Hostile holder(*world.Enroll(1, world.NewProcess()));
    const std::array<std::uint64_t, 1> word{LockWord(holder.grant.owner, 7)};
    holder.Words(kLockOffset, word);
    world.Advance(std::chrono::milliseconds(400), std::chrono::milliseconds(20));
    const RingHealth health = world.consumer->health();
    QCOMPARE(health.counters.stalls, std::uint64_t{1});
    QCOMPARE(health.counters.moves, std::uint64_t{1});
    QCOMPARE(health.producers[0].stalls, std::uint64_t{1});
  }

  // A sleeping consumer wakes up ten times a second, and recovery looks as often.
  void Idle_RecoveryRests() {
    World world(SleepyRing());
    const Reader reader(*world.consumer);
    QVERIFY(Soon([&] { return world.consumer->health().sleeping; }));
    const RecoveryRunner runner(*world.consumer, world.clock);
    const auto looks = [&] { return world.consumer->counters().looks; };
    QVERIFY(Soon([&] { return looks() == 1; }));
    // The sleeper wakes up meanwhile to look at the ring. If it is awake while recovery decides how
    // long to rest, that costs two more looks.
    for (int i = 0; i < 1000; ++i) world.clock.Advance(std::chrono::milliseconds(1));
    QVERIFY2(looks() <= 40, std::to_string(looks()).c_str());
  }

  // No time passes here: the next producer, the sleeping consumer and recovery wake one another.
  void DeadLockHolder_IsNoticedByEvents() {
    World world(SleepyRing());
    const Reader reader(*world.consumer);
    QVERIFY(Soon([&] { return world.consumer->health().sleeping; }));
    const RecoveryRunner runner(*world.consumer, world.clock);
    QVERIFY(Soon([&] { return world.consumer->counters().looks == 1; }));
    auto& process =
        world.NewProcess(std::make_shared<fabric::PlannedFault>(1, fabric::FaultKind::kDie));
    auto dies = world.Connect(1, process);
    QVERIFY(SendOnce(*dies, 1, 1, 100).outcome != SendOutcome::kOk);
    auto next = world.Connect(2, world.NewProcess());
    QVERIFY(Soon([&] { return SendOnce(*next, 2, 1, 100).outcome == SendOutcome::kOk; }));
    QVERIFY(Soon([&] { return reader.got() == 1; }));
    QCOMPARE(world.consumer->counters().locks_broken, std::uint64_t{1});
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
  }

  // The same for a producer that died between its reservation and its commit.
  void DeadReservation_IsSkippedByEvents() {
    World world(SleepyRing());
    const Reader reader(*world.consumer);
    QVERIFY(Soon([&] { return world.consumer->health().sleeping; }));
    const RecoveryRunner runner(*world.consumer, world.clock);
    QVERIFY(Soon([&] { return world.consumer->counters().looks == 1; }));
    auto& process =
        world.NewProcess(std::make_shared<fabric::PlannedFault>(5, fabric::FaultKind::kDie));
    auto dies = world.Connect(1, process);
    QVERIFY(SendOnce(*dies, 1, 1, 100).outcome == SendOutcome::kUnknown);
    auto next = world.Connect(2, world.NewProcess());
    QCOMPARE(SendOnce(*next, 2, 1, 100).outcome, SendOutcome::kOk);
    QVERIFY(Soon([&] { return reader.got() == 1; }));
    QCOMPARE(world.consumer->counters().holes_skipped, std::uint64_t{1});
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::HealthTest)
#include "health_test.moc"
