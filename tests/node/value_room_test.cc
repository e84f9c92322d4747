// Memory that senders reserve for large messages: answers that are lost, bytes that are spoilt.
#include "cluster/node/value_room.h"

#include <QtTest>
#include <array>
#include <future>
#include <set>

#include "cluster/message/reference.h"
#include "tests/eventually.h"
#include "tests/node/large_messages.h"
#include "tests/reason.h"
#include "tests/values/slow_fabric.h"

namespace onepiece::node {

class ValueRoomTest : public QObject, private LargeMessages {
  Q_OBJECT
 private Q_SLOTS:
  void init() { SetUp(); }
  void cleanup() { TearDown(); }

  // Nobody else may get memory that a living process may still write into, so it goes at once.
  void Receive_SpoiltBytes_AreOver_AndTheirMemoryGoes() {
    values::SlowFabric slow(*receiving_);
    const auto a = std::make_unique<Receiver>(slow, "i1",
                                              InboxOptions{.capacity_bytes = kRingBytes,
                                                           .slots = kSlots,
                                                           .value_bytes = 64 * kMiB,
                                                           .metrics = metrics_.get()},
                                              1, clock_);
    const auto dialer = *other_->Dial();
    const auto reserved = ReserveAt(*a, 2 * kMiB, dialer->offer());
    QVERIFY(reserved.ok());
    const auto writer = *dialer->Connect(*fabric::RemoteRegion::Parse(reserved->region()));
    SendRaw(*a,
            message::EncodeReference(
                {.reservation = reserved->reservation(), .length_bytes = 2 * kMiB, .crc32c = 1}));
    slow.revoke_gate().HoldNext();
    auto receiving = std::async(std::launch::async,
                                [&] { return a->inbox->Receive(Within(seconds(5))).status(); });
    const bool held = slow.revoke_gate().WaitUntilHeld();
    // It is neither received nor lost while it is checked.
    const auto meanwhile = RenewAt(*a, reserved->reservation());
    slow.revoke_gate().Release();
    QVERIFY(held);
    QCOMPARE(Reason(meanwhile.status()), std::string("BEING_CHECKED"));
    QVERIFY(absl::IsDeadlineExceeded(receiving.get()));
    const auto fate = RenewAt(*a, reserved->reservation());
    QVERIFY(fate.ok());
    QCOMPARE(static_cast<int>(fate->fate()), static_cast<int>(v1::RenewValueResponse::OVER));
    QCOMPARE(Metric("onepiece_value_memory_bytes"), 0.0);
    const std::array late = {std::byte{7}};
    const std::array pieces = {std::span<const std::byte>(late)};
    const std::array chain = {fabric::Op::Write("write", reserved->offset(), pieces)};
    QVERIFY(!writer->Execute(chain, In(seconds(10))).ok());
  }

  // Somebody else's late write falls into the message before it is received.
  void Deliver_BytesAreSpoilt_AreSentAgain() {
    std::span<std::byte> memory;
    const auto a =
        std::make_unique<Receiver>(*receiving_, "i1",
                                   InboxOptions{.capacity_bytes = kRingBytes,
                                                .slots = kSlots,
                                                .value_bytes = 64 * kMiB,
                                                .block_hook =
                                                    [&memory](std::span<std::byte> fresh) {
                                                      if (memory.empty() && fresh.size() > kMiB)
                                                        memory = fresh;
                                                      return std::shared_ptr<const void>();
                                                    }},
                                   1, clock_);
    Front front(*a);
    absl::Status first = absl::OkStatus();
    front.before_renew = [&] {
      if (first.ok()) first = a->inbox->Receive(Within(milliseconds(100))).status();
    };
    cluster_->Set({front.endpoint});
    script_->Once(kCommit, [&] {
      memory[kMiB] ^= std::byte{1};
      // So long that the sender asks what became of the message.
      clock_.Skip(base::Scaled(ValueRoom::kLease) * 3 / 4);
      return fabric::FaultKind::kNone;
    });
    const message::Message sent = MakeMessage(2 * kMiB);
    const auto delivered = outbox_->Deliver(sent, kDiffuse, Within(seconds(600)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QVERIFY(absl::IsDeadlineExceeded(first));
    QCOMPARE(a->inbox->stats().malformed, std::uint64_t{1});
    const auto received = a->inbox->Receive(Within(seconds(20)));
    QVERIFY(received.ok() && Same(received->message, sent));
  }

  void ReserveValue_AnswerIsLost_HoldsOneReservation() {
    const auto a = Open("i1", 64 * kMiB);
    const auto dialer = *other_->Dial();
    std::set<std::uint64_t> reservations;
    for (int i = 0; i < 1000; ++i) {
      const auto reserved = ReserveAt(*a, kMiB, dialer->offer(), 7);
      QVERIFY2(reserved.ok(), base::Message(reserved.status()).c_str());
      reservations.insert(reserved->reservation());
    }
    QCOMPARE(reservations.size(), std::size_t{1});
    QCOMPARE(Metric("onepiece_value_reservations"), 1.0);
    // Its lease began anew, and its newest offer is let in.
    const auto newest = *other_->Dial();
    const auto reserved = ReserveAt(*a, kMiB, newest->offer(), 7);
    QVERIFY(reserved.ok() && reservations.contains(reserved->reservation()));
    QVERIFY(newest->Connect(*fabric::RemoteRegion::Parse(reserved->region())).ok());
    // Other requests have reservations of their own.
    QVERIFY(ReserveAt(*a, kMiB, dialer->offer(), 8).ok());
    QVERIFY(ReserveAt(*a, kMiB, dialer->offer()).ok());
    QVERIFY(ReserveAt(*a, kMiB, dialer->offer()).ok());
    QCOMPARE(Metric("onepiece_value_reservations"), 4.0);
  }

  void Deliver_AnswersAreLost_HoldsOneReservation() {
    const auto a = Open("i1", 64 * kMiB);
    Front front(*a);
    cluster_->Set({front.endpoint});
    front.LoseAnswers(5);
    const message::Message sent = MakeMessage(2 * kMiB), next = MakeMessage(2 * kMiB);
    QVERIFY(outbox_->Deliver(sent, kDiffuse, Within(seconds(60))).ok());
    QCOMPARE(Metric("onepiece_value_reservations"), 1.0);
    QVERIFY(outbox_->Deliver(next, kDiffuse, Within(seconds(60))).ok());
    QCOMPARE(Metric("onepiece_value_reservations"), 2.0);
    for (const message::Message* message : {&sent, &next}) {
      const auto received = a->inbox->Receive(Within(seconds(20)));
      QVERIFY(received.ok() && Same(received->message, *message));
    }
  }

  // Its sender went away while the request waited for its turn.
  void ReserveValue_NobodyWaits_ReservesNothing() {
    const auto a = Open("i1", 64 * kMiB);
    std::promise<void> entered, go_on;
    std::atomic<bool> dropped{false};
    a->inbox->SetAdmission([&](const v1::ReserveValueRequest&) -> Inbox::Admitted {
      entered.set_value();
      go_on.get_future().wait();
      return std::shared_ptr<const void>(&dropped, [&](const void*) { dropped = true; });
    });
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(a->endpoint.address()));
    v1::ReserveValueRequest request;
    request.set_node_id("raw");
    request.set_consumer_incarnation(1);
    request.set_length(kMiB);
    const auto dialer = *other_->Dial();
    request.set_offer(dialer->offer().Serialize());
    grpc::ClientContext context;
    auto call = std::async(std::launch::async, [&] {
      v1::ReserveValueResponse response;
      return stub->ReserveValue(&context, request, &response).ok();
    });
    entered.get_future().wait();
    context.TryCancel();
    const bool answered = call.get();
    // The server has heard of it when it answers a later call of the same connection.
    const auto later = rpc::Call(*stub, &v1::RingService::Stub::GetRingHealth, {}, seconds(20));
    go_on.set_value();
    QVERIFY(!answered && later.ok());
    // What admitted it is kept with a reservation, and goes without one.
    QVERIFY(testing::Eventually([&] { return dropped.load(); }));
    QCOMPARE(Metric("onepiece_value_reservations"), 0.0);
  }
};

}  // namespace onepiece::node

int main(int argc, char** argv) {
  QCoreApplication app(argc, argv);
  onepiece::node::ValueRoomTest test;
  return QTest::qExec(&test, argc, argv);
}
#include "value_room_test.moc"
