// The ring without faults: order, room, wrap, deduplication, enrollment, sleep.
#include <QtTest>
#include <array>
#include <atomic>
#include <thread>

#include "cluster/ring/recovery.h"
#include "tests/eventually.h"
#include "tests/ring/observers.h"
#include "tests/ring/ring_world.h"
#include "tests/ring/shape_rows.h"
#include "tests/test_main.h"

namespace onepiece::ring {

class RingTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void Send_ArrivesInOrderAndWhole_data() { AddShapeRows(); }
  void Send_ArrivesInOrderAndWhole() {
    QFETCH(Shape, shape);
    World world(SmallRing(shape));
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(producer != nullptr);
    QVERIFY(SendMany(world, *producer));
    QCOMPARE(world.received.size(), std::size_t{200});
    for (std::uint64_t i = 0; i < 200; ++i) QCOMPARE(world.received[i].id, i + 1);
    QCOMPARE(world.corrupt, 0);
    QCOMPARE(producer->counters().sent, std::uint64_t{200});
    QVERIFY(world.consumer->counters().pads > 10);  // 100 kB through 4 KiB wrap many times.
    QCOMPARE(world.consumer->fill().messages, std::uint64_t{0});
    QCOMPARE(world.consumer->fill().bytes, std::uint64_t{0});
  }

  void MarkEnd_IsPassedByWhatCameBefore_data() {
    QTest::addColumn<bool>("shared");
    QTest::addColumn<bool>("retired");
    QTest::newRow("shared") << true << false;
    QTest::newRow("shared, retired") << true << true;
    QTest::newRow("lanes") << false << false;
    QTest::newRow("lanes, retired") << false << true;
  }
  void MarkEnd_IsPassedByWhatCameBefore() {
    QFETCH(bool, shared);
    QFETCH(bool, retired);
    ConsumerOptions options = SmallRing();
    options.shape = shared ? Shape::kShared : Shape::kPerProducer;
    World world(options);
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(world.consumer->MarkEnd()());
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 500)));
    auto first = world.consumer->MarkEnd();
    QVERIFY(Ok(SendOnce(*producer, 1, 2, 500)));
    if (retired) world.consumer->Shut();
    auto both = world.consumer->MarkEnd();
    const auto take = [&] {
      auto delivery = world.consumer->Poll();
      QVERIFY(delivery.has_value());
      QVERIFY(!first() && !both());
      std::vector<std::byte> bytes(500);
      QVERIFY(delivery->CopyTo(bytes).ok());
    };
    QVERIFY(!first() && !both());
    take();
    // A segment that the ring has left is passed as a whole.
    QCOMPARE(first(), !retired);
    QVERIFY(!both());
    if (retired) {
      take();
    } else {
      QVERIFY(world.consumer->Poll().has_value());
    }
    QVERIFY(first() && both() && world.consumer->MarkEnd()());
  }

  void Send_TakesTwoRoundTrips() {
    World world(SmallRing());
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 500)));
    QCOMPARE(producer->channel_counters().chains, std::uint64_t{2});
  }

  void Send_RefusesWhatNeverFits() {
    World world(SmallRing());
    auto producer = world.Connect(1, world.NewProcess());
    QCOMPARE(producer->max_message_bytes(), std::uint64_t{2048});
    QCOMPARE(Reason(SendOnce(*producer, 1, 1, 2049).detail), std::string("MESSAGE_TOO_LARGE"));
    QCOMPARE(Reason(SendOnce(*producer, 1, 1, 0).detail), std::string("EMPTY_MESSAGE"));
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 2048)));
    QCOMPARE(producer->channel_counters().chains, std::uint64_t{2});
  }

  void Send_IsBusyWithoutRoomAndGoesOnWithIt_data() {
    QTest::addColumn<int>("size");
    QTest::addColumn<int>("fit");
    QTest::newRow("bytes run out") << 1000 << 4;
    QTest::newRow("slots run out") << 512 << 8;
  }
  void Send_IsBusyWithoutRoomAndGoesOnWithIt() {
    QFETCH(int, size);
    QFETCH(int, fit);
    World world(SmallRing());
    auto producer = world.Connect(1, world.NewProcess());
    std::uint64_t id = 0;
    for (int i = 0; i < fit; ++i) QVERIFY(Ok(SendOnce(*producer, 1, ++id, size)));
    const SendResult full = SendOnce(*producer, 1, ++id, size);
    QCOMPARE(full.outcome, SendOutcome::kBusy);
    QVERIFY(!full.reconnect);
    QCOMPARE(Reason(full.detail), std::string("RING_FULL"));
    QCOMPARE(producer->counters().busy_full, std::uint64_t{1});
    // Released out of order: room comes back only with the oldest.
    auto first = world.consumer->Poll();
    auto second = world.consumer->Poll();
    QVERIFY(first.has_value() && second.has_value());
    std::vector<std::byte> bytes(size);
    QVERIFY(second->CopyTo(bytes).ok());
    QVERIFY(bytes == Content(1, 2, size));
    QCOMPARE(SendOnce(*producer, 1, id, size).outcome, SendOutcome::kBusy);
    QVERIFY(first->CopyTo(bytes).ok());
    QVERIFY(bytes == Content(1, 1, size));
    QVERIFY(Ok(SendOnce(*producer, 1, id, size)));
    world.Drain();
    QCOMPARE(world.received.size(), std::size_t(fit - 1));
    QCOMPARE(world.corrupt, 0);
  }

  void Delivery_ReleasedUnreadIsCountedAndFreesItsRoom() {
    World world(SmallRing());
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 2000)));
    {
      const auto delivery = world.consumer->Poll();
      QVERIFY(delivery.has_value());
    }
    QCOMPARE(world.consumer->counters().released_unread, std::uint64_t{1});
    QCOMPARE(world.consumer->fill().bytes, std::uint64_t{0});
  }

  void Send_WithoutPayloadChecksumSaysSoInItsSlot() {
    World world(SmallRing());
    auto& process = world.NewProcess();
    auto enrolled = world.Enroll(1, process);
    QVERIFY(enrolled.ok());
    const auto producer =
        Producer::Connect(*enrolled->dialer, enrolled->grant, {.payload_checksum = false});
    QVERIFY(producer.ok());
    const auto bytes = Content(1, 1, 1000);
    const Piece wrong{.bytes = bytes, .crc32c = ~base::Crc32c(bytes)};
    const auto sent = (*producer)->Send(1, {&wrong, 1}, base::MonotonicTime::min());
    QVERIFY(sent.ok() && Ok(*sent));
    world.Drain();
    QCOMPARE(world.Count(1, 1), 1);
    QCOMPARE(world.corrupt, 0);
    QCOMPARE(world.consumer->counters().bad_payload, std::uint64_t{0});
  }

  void Poll_DropsWhatItHasSeenAlsoAfterAReconnect() {
    World world(SmallRing());
    auto& process = world.NewProcess();
    auto producer = world.Connect(1, process);
    auto other = world.Connect(2, world.NewProcess());
    QVERIFY(Ok(SendOnce(*producer, 1, 7, 100)));
    QVERIFY(Ok(SendOnce(*producer, 1, 7, 100)));
    QVERIFY(Ok(SendOnce(*other, 2, 7, 100)));
    world.Drain();
    producer = world.Connect(1, process);
    QVERIFY(producer != nullptr);
    QVERIFY(Ok(SendOnce(*producer, 1, 7, 100)));
    QVERIFY(Ok(SendOnce(*producer, 1, 8, 100)));
    world.Drain();
    QVERIFY(world.received == (std::vector<Received>{{1, 7, 100}, {2, 7, 100}, {1, 8, 100}}));
    QCOMPARE(world.consumer->counters().duplicates, std::uint64_t{2});
  }

  void Poll_HoldsAResendBackUntilTheFirstCopyIsSettled() {
    World world(SmallRing());
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(Ok(SendOnce(*producer, 1, 7, 100)));
    auto first = world.consumer->Poll();
    QVERIFY(first.has_value());
    QVERIFY(Ok(SendOnce(*producer, 1, 7, 100)));
    QVERIFY(!world.consumer->Poll().has_value());
    QCOMPARE(world.consumer->counters().duplicates, std::uint64_t{0});
    std::vector<std::byte> bytes(100);
    QVERIFY(first->CopyTo(bytes).ok());
    QVERIFY(!world.consumer->Poll().has_value());
    QCOMPARE(world.consumer->counters().duplicates, std::uint64_t{1});
  }

  void Dedup_ForgetsBeyondItsWindowOnly() {
    ConsumerOptions options = SmallRing();
    options.dedup_window = 4;
    World world(options);
    auto producer = world.Connect(1, world.NewProcess());
    for (const std::uint64_t id : {1, 2, 3, 4, 1, 5, 1}) {
      QVERIFY(Ok(SendOnce(*producer, 1, id, 10)));
      world.Drain();
    }
    QCOMPARE(world.consumer->counters().duplicates, std::uint64_t{1});
    QCOMPARE(world.Count(1, 1), 2);
  }

  void Enroll_WantsGreaterIncarnationsLivingProcessesAndRoom() {
    ConsumerOptions options = SmallRing();
    options.max_producers = 2;
    World world(options);
    const auto ask = [&](std::uint64_t id, std::uint64_t incarnation, fabric::Fabric& who) {
      return Reason(EnrollWith(*world.consumer, who, id, incarnation).status());
    };
    auto& process = world.NewProcess();
    QCOMPARE(ask(1, 5, process), std::string());
    QCOMPARE(ask(1, 5, process), std::string("STALE_INCARNATION"));
    QCOMPARE(ask(1, 4, process), std::string("STALE_INCARNATION"));
    QCOMPARE(ask(1, 6, process), std::string());
    auto& dead = world.NewProcess();
    world.board->Kill(dead.self());
    QCOMPARE(ask(2, 1, dead), std::string("PEER_GONE"));
    auto& second = world.NewProcess();
    QCOMPARE(ask(2, 1, second), std::string());
    auto& third = world.NewProcess();
    QCOMPARE(ask(3, 1, third), std::string("TOO_MANY_OWNERS"));
    QVERIFY(world.consumer->Dismiss(ProducerId(2), Incarnation(1)).ok());
    QCOMPARE(Reason(world.consumer->Dismiss(ProducerId(9), Incarnation(1))),
             std::string("UNKNOWN_PRODUCER"));
    QCOMPARE(ask(3, 1, third), std::string());
    world.board->Kill(third.self());
    QCOMPARE(ask(2, 2, second), std::string());
  }

  void Enroll_TakesThePlaceOfASilentProducerWhereItCanBeFenced_data() {
    QTest::addColumn<bool>("revokes");
    QTest::newRow("can be fenced") << true;
    QTest::newRow("cannot") << false;
  }
  void Enroll_TakesThePlaceOfASilentProducerWhereItCanBeFenced() {
    QFETCH(bool, revokes);
    ConsumerOptions options = SmallRing();
    options.max_producers = 2;
    World world(options, revokes);
    auto silent = world.Connect(1, world.NewProcess());
    auto busy = world.Connect(2, world.NewProcess());
    auto& third = world.NewProcess();
    QCOMPARE(Reason(world.Enroll(3, third).status()), std::string("TOO_MANY_OWNERS"));
    world.Advance(2 * base::Scaled(std::chrono::minutes(1)), std::chrono::seconds(1));
    QVERIFY(Ok(SendOnce(*busy, 2, 1, 10)));
    world.Advance(std::chrono::seconds(2), std::chrono::seconds(1));
    QCOMPARE(world.Enroll(3, third).ok(), revokes);
    QCOMPARE(Ok(SendOnce(*silent, 1, 1, 10)), !revokes);
    QVERIFY(Ok(SendOnce(*busy, 2, 2, 10)));
    QVERIFY(!world.Enroll(4, world.NewProcess()).ok());
  }

  void Enroll_ManyTimesNeverRunsOutOfOwners() {
    World world(SmallRing());
    auto& process = world.NewProcess();
    for (int i = 0; i < 70000; ++i) QVERIFY(world.Enroll(1, process).ok());
    auto producer = world.Connect(1, process);
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 10)));
    world.Drain();
    QCOMPARE(world.received.size(), std::size_t{1});
  }

  void Dismiss_StillDeliversWhatWasCommitted_data() { AddShapeRows(); }
  void Dismiss_StillDeliversWhatWasCommitted() {
    QFETCH(Shape, shape);
    World world(SmallRing(shape));
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 10)));
    producer.reset();
    QVERIFY(world.consumer->Dismiss(ProducerId(1), Incarnation(1)).ok());
    QCOMPARE(Reason(world.consumer->Dismiss(ProducerId(1), Incarnation(1))),
             std::string("UNKNOWN_PRODUCER"));
    for (int i = 0; i < 5; ++i) {
      world.clock.Advance(std::chrono::seconds(1));
      world.consumer->Tick(world.clock.Now());
    }
    world.Drain();
    QCOMPARE(world.Count(1, 1), 1);
    QVERIFY(!world.consumer->health().producers[0].connected);
  }

  // The good-bye was said for a producer that lives, where nobody can fence it. Its place is free
  // until it sends again.
  void Dismiss_OfOneThatCannotBeFenced_LosesNothing() {
    ConsumerOptions options = SmallRing();
    options.max_producers = 2;
    World world(options, /*revokes=*/false);
    auto producer = world.Connect(1, world.NewProcess());
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 10)));
    QVERIFY(world.consumer->Dismiss(ProducerId(1), Incarnation(1)).ok());
    auto second = world.Connect(2, world.NewProcess());
    auto third = world.Connect(3, world.NewProcess());
    for (int i = 0; i < 5; ++i) {
      world.clock.Advance(std::chrono::seconds(1));
      world.consumer->Tick(world.clock.Now());
    }
    world.Drain();
    const auto connected = [&] {
      return std::ranges::count_if(world.consumer->health().producers,
                                   [](const auto& one) { return one.connected; });
    };
    QCOMPARE(connected(), std::ptrdiff_t{2});
    QVERIFY(Ok(SendOnce(*producer, 1, 2, 10)));
    world.Drain();
    QCOMPARE(world.Count(1, 1), 1);
    QCOMPARE(world.Count(1, 2), 1);
    QCOMPARE(connected(), std::ptrdiff_t{3});
    QCOMPARE(world.consumer->counters().bad_owner, std::uint64_t{0});
  }

  void Producer_LearnsThatTheConsumerIsGone() {
    World world(SmallRing());
    auto& process = world.NewProcess();
    auto producer = world.Connect(1, process);
    QVERIFY(Ok(SendOnce(*producer, 1, 1, 10)));
    auto held = world.consumer->Poll();
    QVERIFY(held.has_value());
    world.consumer.reset();
    const SendResult gone = SendOnce(*producer, 1, 2, 10);
    QCOMPARE(gone.outcome, SendOutcome::kBusy);
    QVERIFY(gone.reconnect);
    // A delivery outlives its consumer.
    std::vector<std::byte> bytes(10);
    QVERIFY(held->CopyTo(bytes).ok());
    QVERIFY(bytes == Content(1, 1, 10));

    world.consumer = *Consumer::Create(*world.consumer_fabric, SmallRing(), world.clock);
    QCOMPARE(SendOnce(*producer, 1, 2, 10).outcome, SendOutcome::kBusy);
    producer = world.Connect(1, process);
    QVERIFY(producer != nullptr);
    QVERIFY(Ok(SendOnce(*producer, 1, 2, 10)));
    world.Drain();
    QCOMPARE(world.Count(1, 2), 1);
  }

  void Create_RefusesOptionsOutOfBounds() {
    World world(SmallRing());
    const auto create = [&](const ConsumerOptions& options) {
      return Reason(Consumer::Create(world.fabric, options).status());
    };
    ConsumerOptions options = SmallRing();
    options.slots = 2;
    QCOMPARE(create(options), std::string("BAD_RING_OPTIONS"));
    options = SmallRing();
    options.capacity_bytes = 100;
    QCOMPARE(create(options), std::string("BAD_RING_OPTIONS"));
    options.capacity_bytes = std::uint64_t{1} << 40;
    // Elsewhere the machine decides how much memory there is.
    if (OnSharedMemory()) QCOMPARE(create(options), std::string("SHARED_MEMORY_FULL"));
  }

  // On the real clock: the commit wakes a sleeping consumer, not its own timeout.
  void Wait_IsWokenByEveryMessage() {
    auto shm = *fabric::Fabric::Open("shm://ringwait-" + std::to_string(getpid()));
    auto consumer = *Consumer::Create(*shm, SmallRing());
    auto producer = ConnectTo(*consumer, *shm, 1, 1);
    QVERIFY(producer != nullptr);
    constexpr std::uint64_t kMessages = 300;
    const Reader reader(*consumer);
    QElapsedTimer timer;
    timer.start();
    for (std::uint64_t id = 1; id <= kMessages; ++id) {
      SendResult sent;
      do {  // One attempt may read a line that the consumer is just writing: busy.
        sent = SendOnce(*producer, 1, id, 64);
      } while (sent.outcome == SendOutcome::kBusy && timer.elapsed() < 20000);
      if (sent.outcome != SendOutcome::kOk) break;
      while (reader.got() < id && timer.elapsed() < 20000) std::this_thread::yield();
    }
    QVERIFY2(testing::Eventually([&] { return reader.got() == kMessages; }),
             std::to_string(reader.got()).c_str());
    // Doorbells slept through would cost 100 ms each.
    QVERIFY2(timer.elapsed() < 10000, std::to_string(timer.elapsed()).c_str());
  }

  // While somebody else holds the lock, a producer waits on its own clock, not in real time.
  void Backoff_WaitsOnTheProducersClock() {
    constexpr base::Duration kBackoff = std::chrono::minutes(1);
    base::ManualClock clock;
    auto shm = *fabric::Fabric::Open("shm://ringclock-" + std::to_string(getpid()), clock);
    auto consumer = *Consumer::Create(*shm, SmallRing(), clock);
    Hostile holder(*EnrollWith(*consumer, *shm, 1, 1));
    const std::array<std::uint64_t, 1> taken{LockWord(holder.grant.owner, 7)};
    holder.Words(kLockOffset, taken);
    const auto enrolled = *EnrollWith(*consumer, *shm, 2, 1);
    auto producer = *Producer::Connect(
        *enrolled.dialer, enrolled.grant,
        {.backoff_min = kBackoff, .backoff_max = kBackoff, .chain_timeout = 1000 * kBackoff},
        clock);
    const auto bytes = Content(2, 1, 100);
    std::atomic<bool> sent{false};
    std::thread sender([&] {
      const auto result = producer->Send(1, Cut(bytes), base::MonotonicTime::max());
      sent = result.ok() && Ok(*result);
    });
    const bool tried = testing::Eventually([&] { return producer->channel_counters().chains > 0; });
    const std::array<std::uint64_t, 1> free{0};
    holder.Words(kLockOffset, free);
    const bool arrived = testing::Eventually([&] {
      clock.Advance(kBackoff);
      return sent.load();
    });
    sender.join();
    QVERIFY(tried && arrived);
  }

  void Interrupt_EndsAWait() {
    auto shm = *fabric::Fabric::Open("shm://ringint-" + std::to_string(getpid()));
    auto consumer = *Consumer::Create(*shm, SmallRing());
    const RecoveryRunner runner(*consumer);
    bool got_something = false;
    std::thread reader([&] {
      got_something =
          consumer->Wait(base::SystemClock().Now() + std::chrono::seconds(60)).has_value();
    });
    QElapsedTimer timer;
    timer.start();
    consumer->Interrupt();
    reader.join();
    QVERIFY(!got_something);
    QVERIFY(timer.elapsed() < 30000);
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::RingTest)
#include "ring_test.moc"
