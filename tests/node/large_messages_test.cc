// Messages that are too large for a ring, on real rings: an Outbox and an Inbox with little memory.
#include "tests/node/large_messages.h"

#include <QtTest>
#include <array>
#include <future>
#include <utility>

#include "cluster/base/crc32c.h"
#include "cluster/message/reference.h"
#include "cluster/node/transfer.h"
#include "cluster/node/value_room.h"
#include "onepiece/v1/config.pb.h"
#include "tests/eventually.h"
#include "tests/reason.h"
#include "tests/values/slow_fabric.h"

namespace onepiece::node {

class LargeMessagesTest : public QObject, private LargeMessages {
  Q_OBJECT
 private Q_SLOTS:
  void init() { SetUp(); }
  void cleanup() { TearDown(); }

  void Deliver_LargerThanTheRing_ArrivesOnce_data() {
    QTest::addColumn<bool>("shared");
    QTest::newRow("shared") << true;
    QTest::newRow("per producer") << false;
  }
  void Deliver_LargerThanTheRing_ArrivesOnce() {
    QFETCH(bool, shared);
    const auto a = Open("i1", 64 * kMiB, shared ? ring::Shape::kShared : ring::Shape::kPerProducer);
    cluster_->Set({a->endpoint});
    const message::Message sent = MakeMessage(9 * kMiB + 17);
    const auto delivered = outbox_->Deliver(sent, kDiffuse, Within(seconds(20)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(Metric("onepiece_value_reservations"), 1.0);
    {
      const auto received = a->inbox->Receive(Within(seconds(20)));
      QVERIFY(received.ok() && Same(received->message, sent));
      QVERIFY(received->bytes > 9 * kMiB);
      QCOMPARE(Metric("onepiece_value_reservations"), 0.0);
      QCOMPARE(Metric("onepiece_value_used_bytes"), static_cast<double>(received->bytes));
      QVERIFY(absl::IsDeadlineExceeded(a->inbox->Receive(clock_.Now()).status()));
    }
    // The memory goes back with the last artifact, to the system a little later.
    QCOMPARE(Metric("onepiece_value_used_bytes"), 0.0);
    clock_.Skip(seconds(11));
    QTRY_COMPARE_WITH_TIMEOUT(Metric("onepiece_value_memory_bytes"), 0.0, 20000);
  }

  void Deliver_NoRoomForIt_GoesElsewhere() {
    const auto a = Open("i1", 6 * kMiB), b = Open("i2", 6 * kMiB);
    cluster_->Set({a->endpoint, b->endpoint});
    const Destination target = Destination::Nodes({a->endpoint, b->endpoint});
    const message::Message first = MakeMessage(4 * kMiB), second = MakeMessage(4 * kMiB);
    QVERIFY(outbox_->Deliver(first, target, Within(seconds(20))).ok());
    const auto elsewhere = outbox_->Deliver(second, target, Within(seconds(20)));
    QVERIFY2(elsewhere.ok(), base::Message(elsewhere.status()).c_str());
    QCOMPARE(elsewhere->endpoint.node_id(), std::string("i2"));
    const auto received = b->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, second));
  }

  void Deliver_NoRoomAnywhere_WaitsForIt() {
    const auto a = Open("i1", 6 * kMiB);
    cluster_->Set({a->endpoint});
    QVERIFY(outbox_->Deliver(MakeMessage(4 * kMiB), kDiffuse, Within(seconds(20))).ok());
    auto held = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(held.ok());
    const message::Message second = MakeMessage(4 * kMiB);
    auto waiting = std::async(std::launch::async, [&] {
      return outbox_->Deliver(second, kDiffuse, Within(seconds(60)));
    });
    QTRY_VERIFY_WITH_TIMEOUT(outbox_->counters().busy > 0, 20000);
    held = absl::CancelledError();
    QVERIFY(waiting.get().ok());
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, second));
  }

  void Deliver_NoRoomInTime_IsRingFull() {
    const auto a = Open("i1", 6 * kMiB);
    cluster_->Set({a->endpoint});
    QVERIFY(outbox_->Deliver(MakeMessage(4 * kMiB), kDiffuse, Within(seconds(20))).ok());
    const auto refused =
        outbox_->Deliver(MakeMessage(4 * kMiB), kDiffuse, Within(milliseconds(300)));
    QCOMPARE(Reason(refused.status()), std::string("RING_FULL"));
    QVERIFY(outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(20))).ok());
  }

  void Deliver_LargerThanAnyRoom_FailsAtOnce() {
    const auto a = Open("i1", 4 * kMiB), b = Open("i2", 8 * kMiB);
    cluster_->Set({a->endpoint, b->endpoint});
    const Destination target = Destination::Nodes({a->endpoint, b->endpoint});
    const auto fits = outbox_->Deliver(MakeMessage(6 * kMiB), target, Within(seconds(20)));
    QVERIFY2(fits.ok(), base::Message(fits.status()).c_str());
    QCOMPARE(fits->endpoint.node_id(), std::string("i2"));
    const auto refused = outbox_->Deliver(MakeMessage(9 * kMiB), target, Within(seconds(20)));
    QCOMPARE(Reason(refused.status()), std::string("MESSAGE_TOO_LARGE"));
    const std::string text = base::Message(refused.status());
    QVERIFY2(text.find(std::to_string(8 * kMiB)) != std::string::npos, text.c_str());
    QVERIFY2(text.find("ring.value_bytes") != std::string::npos, text.c_str());
  }

  void Deliver_OutcomeUnknown_IsResentAndArrivesOnce_data() {
    QTest::addColumn<int>("kind");
    QTest::newRow("reference arrived") << static_cast<int>(fabric::FaultKind::kBreak);
    QTest::newRow("reference lost") << static_cast<int>(fabric::FaultKind::kDrop);
  }
  void Deliver_OutcomeUnknown_IsResentAndArrivesOnce() {
    QFETCH(int, kind);
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    script_->Once(kCommit, [&] { return static_cast<fabric::FaultKind>(kind); });
    const message::Message sent = MakeMessage(2 * kMiB);
    const auto delivered = outbox_->Deliver(sent, kDiffuse, Within(seconds(20)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(outbox_->counters().unknown, std::uint64_t{1});
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
    QVERIFY(absl::IsDeadlineExceeded(a->inbox->Receive(clock_.Now()).status()));
    QCOMPARE(a->inbox->stats().malformed, std::uint64_t{0});
  }

  // A write fails half way. Nothing has been sent, so the message goes to the next.
  void Deliver_WriteFails_GoesElsewhere() {
    const auto a = Open("i1", 64 * kMiB), b = Open("i2", 64 * kMiB);
    cluster_->Set({a->endpoint, b->endpoint});
    const Destination target = Destination::Nodes({a->endpoint, b->endpoint});
    script_->Once(kWrite, [] { return fabric::FaultKind::kDrop; });
    const message::Message sent = MakeMessage(9 * kMiB);
    const auto delivered = outbox_->Deliver(sent, target, Within(seconds(20)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(delivered->endpoint.node_id(), std::string("i2"));
    const auto received = b->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
    // The room at the first one was given up, and not left to its lease.
    QTRY_COMPARE_WITH_TIMEOUT(Metric("onepiece_value_used_bytes"), 0.0, 20000);
  }

  // Small messages to the same consumer go past a large one, in every gap between two pieces.
  void Deliver_WhileALargeOneIsWritten_SmallOnesPass() {
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    int passed = 0;
    script_->At(kWrite, [&] {
      if (outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(5))).ok()) ++passed;
      return fabric::FaultKind::kNone;
    });
    QVERIFY(outbox_->Deliver(MakeMessage(9 * kMiB), kDiffuse, Within(seconds(60))).ok());
    QCOMPARE(passed, 3);
    for (int i = 0; i < 3; ++i) {
      const auto received = a->inbox->Receive(Within(seconds(20)));
      QVERIFY(received.ok() && received->bytes < kMiB);
    }
    const auto large = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(large.ok() && large->bytes > 9 * kMiB);
  }

  // A turn of a large message ends, so that the same lane can send another in between.
  void DeliverInTurns_GivesTheTurnBackBetweenPieces() {
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    script_->At(kWrite, [&] {
      clock_.Skip(base::Scaled(milliseconds(150)));  // A slow fabric.
      return fabric::FaultKind::kNone;
    });
    const message::Message large = MakeMessage(9 * kMiB);
    std::shared_ptr<OpenDelivery> open;
    int turns = 0;
    absl::StatusOr<Delivered> sent;
    do {
      sent = outbox_->DeliverInTurns(large, kDiffuse, Within(seconds(60)), open);
      ++turns;
      QVERIFY(outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(5))).ok());
    } while (!sent.ok() && open != nullptr);
    QVERIFY2(sent.ok(), base::Message(sent.status()).c_str());
    QCOMPARE(turns, 3);
    const auto small = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(small.ok() && small->bytes < kMiB);
    // One that is given up half way leaves no room taken.
    QVERIFY(!outbox_->DeliverInTurns(large, kDiffuse, Within(seconds(60)), open).ok());
    QVERIFY(open != nullptr);
    QCOMPARE(Metric("onepiece_value_reservations"), 2.0);
    open.reset();
    QTRY_COMPARE_WITH_TIMEOUT(Metric("onepiece_value_reservations"), 1.0, 20000);
  }

  // Patience is for whoever waits. A consumer that takes the message has as long as that needs.
  void Deliver_WritesLongerThanItsPatience_Arrives() {
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    Destination target = kDiffuse;
    target.patience = seconds(1);
    int pieces = 0;
    script_->At(kWrite, [&] {
      clock_.Skip(seconds(2));
      ++pieces;
      return fabric::FaultKind::kNone;
    });
    const message::Message sent = MakeMessage(9 * kMiB);
    const auto delivered = outbox_->Deliver(sent, target, Within(seconds(600)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(pieces, 3);
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
  }

  // The ring has no room for the reference at first. The patience began anew with the last piece.
  void Deliver_RingIsFullAfterALongWrite_WaitsForItToo() {
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    Destination target = kDiffuse;
    target.patience = seconds(20);
    int pieces = 0;
    script_->At(kWrite, [&] {
      clock_.Skip(seconds(21));
      if (++pieces < 3) return fabric::FaultKind::kNone;
      bool sent = true;
      for (std::size_t i = 0; i < kSlots && sent; ++i)
        sent = outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(20))).ok();
      return sent ? fabric::FaultKind::kNone : fabric::FaultKind::kBreak;
    });
    const message::Message large = MakeMessage(9 * kMiB);
    auto waiting = std::async(
        std::launch::async, [&] { return outbox_->Deliver(large, target, Within(seconds(900))); });
    QTRY_VERIFY_WITH_TIMEOUT(outbox_->counters().busy > 0, 20000);
    for (std::size_t i = 0; i < kSlots; ++i) {
      const auto received = a->inbox->Receive(Within(seconds(20)));
      QVERIFY(received.ok() && received->bytes < kMiB);
    }
    const auto delivered = waiting.get();
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
  }

  // The sender dies between reservation and reference.
  void Reservation_OfADeadSender_ComesBack_data() {
    QTest::addColumn<bool>("shared");
    QTest::newRow("shared") << true;
    QTest::newRow("per producer") << false;
  }
  void Reservation_OfADeadSender_ComesBack() {
    QFETCH(bool, shared);
    const auto a = Open("i1", 6 * kMiB, shared ? ring::Shape::kShared : ring::Shape::kPerProducer);
    cluster_->Set({a->endpoint});
    QVERIFY(outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(20))).ok());
    QVERIFY(a->inbox->Receive(Within(seconds(20))).ok());
    QVERIFY(ReserveAt(*a, 4 * kMiB).ok());
    QCOMPARE(Reason(ReserveAt(*a, 4 * kMiB).status()), std::string("TOO_MANY_RESERVATIONS"));
    board_->Kill(other_->Dial().value()->offer().peer);
    clock_.Skip(base::Scaled(ValueRoom::kLease) + seconds(1));
    QTRY_COMPARE_WITH_TIMEOUT(Metric("onepiece_value_reservations"), 0.0, 20000);
    QCOMPARE(Metric("onepiece_value_used_bytes"), 0.0);
    QCOMPARE(Metric("onepiece_value_reservations_abandoned_total"), 1.0);
  }

  // A busy instance's ring is never empty.
  void Reservation_OfADeadSender_ComesBackBehindABacklog() {
    const auto a = Open("i1", 6 * kMiB);
    cluster_->Set({a->endpoint});
    QVERIFY(ReserveAt(*a, 4 * kMiB).ok());
    board_->Kill(other_->Dial().value()->offer().peer);
    clock_.Skip(base::Scaled(ValueRoom::kLease) + seconds(1));
    QVERIFY(outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(20))).ok());
    QVERIFY(testing::Eventually([&] {
      if (!outbox_->Deliver(MakeMessage(100), kDiffuse, Within(seconds(20))).ok()) return false;
      if (!a->inbox->Receive(Within(seconds(20))).ok()) return false;
      return Metric("onepiece_value_reservations") == 0;
    }));
    QCOMPARE(Metric("onepiece_value_used_bytes"), 0.0);
    QVERIFY(ReserveAt(*a, 4 * kMiB, sending_->Dial().value()->offer()).ok());
  }

  // A fence takes its time. Meanwhile messages come and go, also large ones.
  void Receive_WhileADeadSenderIsFenced_GoesOn() {
    values::SlowFabric slow(*receiving_);
    const auto a = std::make_unique<Receiver>(
        slow, "i1",
        InboxOptions{.capacity_bytes = kRingBytes, .slots = kSlots, .value_bytes = 64 * kMiB}, 1,
        clock_);
    cluster_->Set({a->endpoint});
    QVERIFY(ReserveAt(*a, 4 * kMiB).ok());
    slow.revoke_gate().HoldNext();
    clock_.Skip(base::Scaled(ValueRoom::kLease) + seconds(1));
    const message::Message large = MakeMessage(2 * kMiB);
    auto passing = std::async(std::launch::async, [&] {
      // The first look finds the reservation, whoever makes it.
      (void)a->inbox->Receive(Within(milliseconds(100)));
      if (!slow.revoke_gate().WaitUntilHeld()) return false;
      if (!outbox_->Deliver(large, kDiffuse, Within(seconds(20))).ok()) return false;
      const auto received = a->inbox->Receive(Within(seconds(20)));
      return received.ok() && Same(received->message, large);
    });
    const bool ready = passing.wait_for(seconds(30)) == std::future_status::ready;
    slow.revoke_gate().Release();
    QVERIFY(ready && passing.get());
  }

  // The reference is in the ring, its sender was told so, and the consumer is slow.
  void Reservation_WithAReferenceInTheRing_OutlivesItsLease() {
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    QVERIFY(outbox_->Deliver(MakeMessage(4 * kMiB), kDiffuse, Within(seconds(20))).ok());
    QVERIFY(a->inbox->Receive(Within(seconds(20))).ok());
    const message::Message sent = MakeMessage(2 * kMiB);
    QVERIFY(outbox_->Deliver(sent, kDiffuse, Within(seconds(20))).ok());
    board_->Kill(sending_->Dial().value()->offer().peer);
    const double both = Metric("onepiece_value_memory_bytes");
    clock_.Skip(base::Scaled(ValueRoom::kLease) + base::Scaled(kFenceLimit) + seconds(1));
    // The first one's memory goes when reservations have been looked through.
    QTRY_VERIFY_WITH_TIMEOUT(Metric("onepiece_value_memory_bytes") < both, 20000);
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
    QCOMPARE(a->inbox->stats().malformed, std::uint64_t{0});
  }

  // The sender stood still for so long that its room was given away. The message begins anew.
  void Deliver_SenderStoodStill_ArrivesOnceAllTheSame_data() {
    QTest::addColumn<QString>("at");
    QTest::newRow("while it wrote") << kWrite;
    QTest::newRow("before the reference") << kCommit;
  }
  void Deliver_SenderStoodStill_ArrivesOnceAllTheSame() {
    QFETCH(QString, at);
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    script_->Once(at.toStdString(), [&] {
      clock_.Skip(base::Scaled(ValueRoom::kLease) + seconds(2));
      const bool over = at == kCommit || testing::Eventually([&] {
                          return Metric("onepiece_value_reservations_abandoned_total") == 1;
                        });
      return over ? fabric::FaultKind::kNone : fabric::FaultKind::kBreak;
    });
    const message::Message sent = MakeMessage(9 * kMiB);
    const auto delivered = outbox_->Deliver(sent, kDiffuse, Within(seconds(600)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
    QVERIFY(absl::IsDeadlineExceeded(a->inbox->Receive(clock_.Now()).status()));
    QCOMPARE(a->inbox->stats().malformed, std::uint64_t{0});
    QCOMPARE(Metric("onepiece_value_reservations_abandoned_total"), at == kWrite ? 1.0 : 0.0);
  }

  // The consumer restarts, or is declared dead, with a message half written.
  void Deliver_ConsumerGoesWhileItIsWritten_GoesElsewhere() {
    const auto a = Open("i1", 64 * kMiB), b = Open("i2", 64 * kMiB);
    cluster_->Set({a->endpoint, b->endpoint});
    const Destination target = Destination::Nodes({a->endpoint, b->endpoint});
    script_->Once(kWrite, [&] {
      clock_.Skip(base::Scaled(milliseconds(150)));
      cluster_->Set({b->endpoint});
      return fabric::FaultKind::kNone;
    });
    const message::Message sent = MakeMessage(9 * kMiB);
    std::shared_ptr<OpenDelivery> open;
    absl::StatusOr<Delivered> delivered;
    do {
      delivered = outbox_->DeliverInTurns(sent, target, Within(seconds(60)), open);
    } while (!delivered.ok() && open != nullptr);
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(delivered->endpoint.node_id(), std::string("i2"));
    const auto received = b->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
  }

  // The reference is good, and a byte of an artifact is not what was sent.
  void Receive_ChangedBytes_AreRefused_data() {
    QTest::addColumn<bool>("changed");
    QTest::newRow("as they were sent") << false;
    QTest::newRow("one byte changed") << true;
  }
  void Receive_ChangedBytes_AreRefused() {
    QFETCH(bool, changed);
    const auto a = Open("i1", 64 * kMiB);
    const auto encoded = message::Encode(MakeMessage(kMiB), clock_.Now());
    QVERIFY(encoded.ok());
    std::vector<std::byte> bytes;
    for (const message::Piece& piece : encoded->pieces)
      bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
    const std::uint32_t crc32c = base::Crc32c(bytes);
    if (changed) bytes.back() ^= std::byte{1};
    const auto dialer = *other_->Dial();
    const auto reserved = ReserveAt(*a, bytes.size(), dialer->offer());
    QVERIFY(reserved.ok());
    const auto channel = dialer->Connect(*fabric::RemoteRegion::Parse(reserved->region()));
    QVERIFY(channel.ok());
    const std::array pieces = {std::span<const std::byte>(bytes)};
    const std::array chain = {fabric::Op::Write("write", reserved->offset(), pieces)};
    QVERIFY((*channel)->Execute(chain, In(seconds(10))).ok());
    SendRaw(*a, message::EncodeReference({.reservation = reserved->reservation(),
                                          .length_bytes = bytes.size(),
                                          .crc32c = crc32c}));
    QCOMPARE(a->inbox->Receive(Within(milliseconds(200))).ok(), !changed);
    QCOMPARE(a->inbox->stats().malformed, std::uint64_t{changed ? 1u : 0u});
  }

  void Receive_MalformedReference_IsCountedAndSkipped() {
    const auto a = Open("i1", 64 * kMiB);
    cluster_->Set({a->endpoint});
    // To nothing that is here; of other bytes than were reserved; with a wrong checksum.
    SendRaw(*a, message::EncodeReference({.reservation = 7, .length_bytes = 100}));
    const auto reserved = ReserveAt(*a, 2 * kMiB);
    QVERIFY(reserved.ok());
    SendRaw(*a, message::EncodeReference(
                    {.reservation = reserved->reservation(), .length_bytes = 2 * kMiB + 1}));
    const auto unwritten = ReserveAt(*a, 2 * kMiB);
    QVERIFY(unwritten.ok());
    SendRaw(*a,
            message::EncodeReference(
                {.reservation = unwritten->reservation(), .length_bytes = 2 * kMiB, .crc32c = 1}));
    // And 40 bytes that are no reference at all.
    SendRaw(*a, std::array<std::byte, message::kReferenceBytes>{});
    const message::Message good = MakeMessage(2 * kMiB);
    QVERIFY(outbox_->Deliver(good, kDiffuse, Within(seconds(20))).ok());
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, good));
    QCOMPARE(a->inbox->stats().malformed, std::uint64_t{4});
    QCOMPARE(Metric("onepiece_value_reservations"), 0.0);
  }

  void Open_RefusesAnAbsurdLimit() {
    v1::RingConfig config;
    config.set_value_bytes(-1);
    InboxOptions options{.label = "i1"};
    ApplyRingConfig(config, options);
    const auto opened = Inbox::Open(*fabric_, cluster_->view(), options, clock_);
    QCOMPARE(Reason(opened.status()), std::string("BAD_RING_OPTIONS"));
  }

  void ReserveValue_RefusesNonsense() {
    const auto a = Open("i1", 6 * kMiB);
    QCOMPARE(Reason(ReserveAt(*a, 7 * kMiB).status()), std::string("MESSAGE_TOO_LARGE"));
    QCOMPARE(Reason(ReserveAt(*a, 0).status()), std::string("BAD_SIZE"));
    a->endpoint.set_incarnation(2);
    QCOMPARE(Reason(ReserveAt(*a, kMiB).status()), std::string("STALE_INCARNATION"));
    a->endpoint.set_incarnation(1);
    a->inbox->Shut();
    QCOMPARE(Reason(ReserveAt(*a, kMiB).status()), std::string("INBOX_CLOSED"));
  }
};

}  // namespace onepiece::node

int main(int argc, char** argv) {
  QCoreApplication app(argc, argv);
  onepiece::node::LargeMessagesTest test;
  return QTest::qExec(&test, argc, argv);
}
#include "large_messages_test.moc"
