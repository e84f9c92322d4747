// The rules by which an Outbox delivers, on real rings.
#include "cluster/node/outbox.h"

#include <QtTest>
#include <future>
#include <map>

#include "onepiece/v1/ring.grpc.pb.h"
#include "tests/node/transport_world.h"

namespace onepiece::node {
namespace {

/// Lets nobody in and nobody go until the test says so, like a consumer that was stopped.
class StoppedRing final : public v1::RingService::Service {
 public:
  StoppedRing() {
    server_.AddService(*this);
    if (!server_.Start().ok()) qFatal("no server");
    endpoint.set_node_id("stopped");
    endpoint.set_incarnation(1);
    endpoint.set_address(server_.address());
  }
  ~StoppedRing() override {
    GoOn();
    server_.Shutdown(base::Duration(0));
  }
  void GoOn() {
    const base::MutexLock lock(mutex_);
    stopped_ = false;
    changed_.NotifyAll();
  }
  grpc::Status OpenRing(grpc::ServerContext*, const v1::OpenRingRequest*,
                        v1::OpenRingResponse*) override {
    base::MutexLock lock(mutex_);
    asked_ = true;
    changed_.NotifyAll();
    changed_.WaitFor(lock, seconds(30),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !stopped_; });
    return {grpc::StatusCode::UNAVAILABLE, "stopped"};
  }
  bool WaitAsked() {
    base::MutexLock lock(mutex_);
    return changed_.WaitFor(lock, seconds(20),
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return asked_; });
  }

  v1::Endpoint endpoint;

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = true;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  rpc::Server server_{{.listen = "127.0.0.1:0"}};
};

}  // namespace

class OutboxTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    auto opened = fabric::Fabric::Open("shm://" + ClusterId());
    QVERIFY(opened.ok());
    fabric_ = *std::move(opened);
    cluster_ = std::make_unique<Cluster>();
    outbox_ = MakeOutbox(*fabric_);
  }
  void cleanup() {
    outbox_.reset();
    cluster_.reset();
    fabric_.reset();
  }

  void Deliver_Stage_GoesRound() {
    Receiver a(*fabric_, "i1"), b(*fabric_, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    std::map<std::string, int> got;
    for (int i = 0; i < 6; ++i) {
      const auto sent = outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(10)));
      QVERIFY(sent.ok());
      ++got[sent->endpoint.node_id()];
      Receiver& taker = sent->endpoint.node_id() == "i1" ? a : b;
      QVERIFY(taker.inbox->Receive(In(seconds(10))).ok());
    }
    QCOMPARE(got["i1"], 3);
    QCOMPARE(got["i2"], 3);
  }

  // A process that is stopped has room in its ring. It collects no more work while others take
  // theirs, and has its share again when it goes on.
  void Deliver_Stage_WhoTakesNothingComesLast_data() {
    QTest::addColumn<bool>("shared");
    QTest::newRow("shared") << true;
    QTest::newRow("per producer") << false;
  }
  void Deliver_Stage_WhoTakesNothingComesLast() {
    QFETCH(bool, shared);
    const ring::Shape shape = shared ? ring::Shape::kShared : ring::Shape::kPerProducer;
    Receiver stopped(*fabric_, "i1", 1, 16384, nullptr, shape);
    Receiver other(*fabric_, "i2", 1, 64, nullptr, shape);
    cluster_->Set({stopped.endpoint, other.endpoint});
    const auto to_other = [&](int count) {
      for (int i = 0; i < count; ++i) {
        const auto sent = outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(10)));
        if (!sent.ok() || sent->endpoint.node_id() != "i2") return false;
        if (!other.inbox->Receive(In(seconds(10))).ok()) return false;
      }
      return true;
    };
    QTRY_VERIFY_WITH_TIMEOUT(to_other(20), 20000);
    QVERIFY(stopped.inbox->stats().slots_used > 0);
    while (stopped.inbox->Receive(In(milliseconds(100))).ok()) {
    }
    QTRY_VERIFY_WITH_TIMEOUT(!to_other(20), 20000);
  }

  void Deliver_SendersBeginAtPlacesOfTheirOwn() {
    Receiver a(*fabric_, "i1"), b(*fabric_, "i2"), c(*fabric_, "i3"), d(*fabric_, "i4");
    cluster_->Set({a.endpoint, b.endpoint, c.endpoint, d.endpoint});
    for (int i = 1; i <= 16; ++i) {
      const auto outbox =
          Outbox::Create(*fabric_, cluster_->view(), {.node_id = "instance-" + std::to_string(i)});
      QVERIFY(outbox->Deliver(MakeMessage(10), kDiffuse, In(seconds(10))).ok());
    }
    for (const Receiver* receiver : {&a, &b, &c, &d}) {
      const std::uint64_t got = receiver->inbox->stats().slots_used;
      QVERIFY2(got >= 1 && got <= 8, std::to_string(got).c_str());
    }
  }

  void Deliver_Nodes_KeepsTheOrder() {
    Receiver a(*fabric_, "i1"), b(*fabric_, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    const Destination destination = Destination::Nodes({b.endpoint, a.endpoint});
    for (int i = 0; i < 3; ++i)
      QVERIFY(outbox_->Deliver(MakeMessage(10), destination, In(seconds(10))).ok());
    QCOMPARE(b.inbox->stats().slots_used, std::uint64_t{3});
  }

  void Deliver_Busy_GoesToTheNext() {
    Receiver a(*fabric_, "i1", 1, 4), b(*fabric_, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    const Destination destination = Destination::Nodes({a.endpoint, b.endpoint});
    for (int i = 0; i < 10; ++i)
      QVERIFY(outbox_->Deliver(MakeMessage(10), destination, In(seconds(10))).ok());
    QVERIFY(a.inbox->stats().slots_used <= 4);
    QCOMPARE(a.inbox->stats().slots_used + b.inbox->stats().slots_used, std::uint64_t{10});
    QVERIFY(outbox_->counters().busy > 0);
  }

  void Deliver_AllBusy_WaitsForRoom() {
    Receiver a(*fabric_, "i1", 1, 4);
    cluster_->Set({a.endpoint});
    absl::Status last;
    int taken = 0;
    for (; last.ok() && taken < 10; ++taken) {
      // The first one connects.
      const seconds first(taken == 0 ? 10 : 1);
      last = outbox_->Deliver(MakeMessage(10), kDiffuse, In(first)).status();
    }
    QVERIFY(absl::IsResourceExhausted(last));
    QCOMPARE(base::GetReason(last).reason, std::string("RING_FULL"));
    auto waiting = std::async(std::launch::async, [&] {
      return outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(20))).status();
    });
    QVERIFY(a.inbox->Receive(In(seconds(10))).ok());
    QVERIFY(waiting.get().ok());
  }

  void Deliver_BeforeAJoin_GoesToTheMeetingPointAlone() {
    Receiver a(*fabric_, "i1", 1, 4), b(*fabric_, "i2", 1, 4);
    cluster_->Set({a.endpoint, b.endpoint});
    const auto uid = base::Uid::GenerateRandom();
    const Destination destination = Destination::Stage("video", "paint", uid);
    const auto point = cluster_->view().routing()->MeetingPoint("video", "paint", uid);
    QVERIFY(point.has_value());
    Receiver& here = point->node_id() == "i1" ? a : b;
    Receiver& there = point->node_id() == "i1" ? b : a;
    absl::StatusOr<Delivered> last;
    int taken = 0;
    do {
      last =
          outbox_->Deliver(MakeMessage(10, "paint"), destination, In(seconds(taken == 0 ? 10 : 1)));
      if (last.ok()) QCOMPARE(last->endpoint.node_id(), point->node_id());
    } while (last.ok() && ++taken < 10);
    // Even when that instance is busy and the other one is idle.
    QCOMPARE(base::GetReason(last.status()).reason, std::string("RING_FULL"));
    QCOMPARE(there.inbox->stats().slots_used, std::uint64_t{0});
    // A delivery that waits for it goes to the other as soon as the table says so.
    auto waiting = std::async(std::launch::async, [&] {
      return outbox_->Deliver(MakeMessage(10, "paint"), destination, In(seconds(20)));
    });
    cluster_->Set({there.endpoint});
    const auto moved = waiting.get();
    QVERIFY(moved.ok());
    QCOMPARE(moved->endpoint.node_id(), there.endpoint.node_id());
    QVERIFY(here.inbox->stats().slots_used > 0);
    const Destination without = Destination::Stage("video", "paint", uid, there.endpoint.node_id());
    QCOMPARE(
        base::GetReason(outbox_->Deliver(MakeMessage(10), without, In(milliseconds(20))).status())
            .reason,
        std::string("NO_INSTANCE"));
  }

  void Deliver_NoCandidates_SaysSoAtTheDeadline() {
    const auto delivered = outbox_->Deliver(MakeMessage(10), kDiffuse, In(milliseconds(50)));
    QVERIFY(absl::IsUnavailable(delivered.status()));
    QCOMPARE(base::GetReason(delivered.status()).reason, std::string("NO_INSTANCE"));
  }

  void Deliver_InstanceComesWhileItWaits_IsFound() {
    Receiver a(*fabric_, "i1");
    auto waiting = std::async(std::launch::async, [&] {
      return outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(20))).status();
    });
    cluster_->Set({a.endpoint});
    QVERIFY(waiting.get().ok());
  }

  void Deliver_Unreachable_GoesToTheNext() {
    Receiver a(*fabric_, "i1");
    v1::Endpoint gone;
    gone.set_node_id("i0");
    gone.set_incarnation(1);
    gone.set_address("127.0.0.1:1");
    cluster_->Set({gone, a.endpoint});
    for (int i = 0; i < 4; ++i) {
      const auto delivered = outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(10)));
      QVERIFY(delivered.ok());
      QCOMPARE(delivered->endpoint.node_id(), std::string("i1"));
    }
  }

  void Deliver_TooLarge_IsRefused() {
    Receiver a(*fabric_, "i1", {.capacity_bytes = 32 << 20, .takes_values = false});
    cluster_->Set({a.endpoint});
    const auto delivered = outbox_->Deliver(MakeMessage(17 << 20), kDiffuse, In(seconds(10)));
    QVERIFY(absl::IsInvalidArgument(delivered.status()));
    QCOMPARE(base::GetReason(delivered.status()).reason, std::string("MESSAGE_TOO_LARGE"));
    const std::string message = base::Message(delivered.status());
    QVERIFY2(message.find("16777216") != std::string::npos, message.c_str());
    QVERIFY2(message.find("ring.capacity_bytes") != std::string::npos, message.c_str());
  }

  // The acknowledgement is lost: the resend finds out, and the consumer drops the second copy.
  void Deliver_OutcomeUnknown_IsResentAndArrivesOnce_data() {
    QTest::addColumn<int>("kind");
    QTest::newRow("message arrived") << static_cast<int>(fabric::FaultKind::kBreak);
    QTest::newRow("message lost") << static_cast<int>(fabric::FaultKind::kDrop);
  }
  void Deliver_OutcomeUnknown_IsResentAndArrivesOnce() {
    QFETCH(int, kind);
    FaultyWorld world(*fabric_);
    Receiver a(world.receiving, "i1");
    cluster_->Set({a.endpoint});
    const std::unique_ptr<Outbox> outbox = MakeOutbox(world.sending);
    QVERIFY(outbox->Deliver(MakeMessage(10), kDiffuse, In(seconds(20))).ok());
    world.policy->Arm(kCommit, static_cast<fabric::FaultKind>(kind));
    const message::Message message = MakeMessage(1000);
    const auto delivered = outbox->Deliver(message, kDiffuse, In(seconds(20)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(delivered->attempt, std::uint32_t{0});
    QCOMPARE(outbox->counters().unknown, std::uint64_t{1});
    QVERIFY(a.inbox->Receive(In(seconds(20))).ok());
    const auto received = a.inbox->Receive(In(seconds(20)));
    QVERIFY(received.ok());
    QVERIFY(received->message.header.uid == message.header.uid);
    QVERIFY(absl::IsDeadlineExceeded(a.inbox->Receive(In(milliseconds(50))).status()));
  }

  void Deliver_OutcomeUnknown_GoesElsewhereOnlyWhenTheConsumerIsDead() {
    FaultyWorld world(*fabric_);
    Receiver a(world.receiving, "i1"), b(world.receiving, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    const std::unique_ptr<Outbox> outbox = MakeOutbox(world.sending);
    const Destination destination = Destination::Nodes({a.endpoint, b.endpoint});
    QVERIFY(outbox->Deliver(MakeMessage(10), destination, In(seconds(20))).ok());
    a.inbox->Close();  // It cannot be asked any more.
    world.policy->Arm(kCommit, fabric::FaultKind::kDrop);
    const auto doubtful = outbox->Deliver(MakeMessage(10), destination, In(milliseconds(300)));
    QVERIFY(absl::IsDeadlineExceeded(doubtful.status()));
    QCOMPARE(base::GetReason(doubtful.status()).reason, std::string("OUTCOME_UNKNOWN"));
    QCOMPARE(base::GetReason(doubtful.status()).metadata.at("node_id"), std::string("i1"));
    QCOMPARE(b.inbox->stats().slots_used, std::uint64_t{0});
  }

  void Deliver_ConsumerDeclaredDead_IsAnotherAttemptElsewhere() {
    FaultyWorld world(*fabric_);
    Receiver a(world.receiving, "i1"), b(world.receiving, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    const std::unique_ptr<Outbox> outbox = MakeOutbox(world.sending);
    const Destination destination = Destination::Nodes({a.endpoint, b.endpoint});
    QVERIFY(outbox->Deliver(MakeMessage(10), destination, In(seconds(20))).ok());
    a.inbox->Close();
    world.policy->Arm(kCommit, fabric::FaultKind::kDrop);
    auto waiting = std::async(std::launch::async, [&] {
      return outbox->Deliver(MakeMessage(10), destination, In(seconds(20)));
    });
    QTRY_VERIFY_WITH_TIMEOUT(outbox->counters().unknown == 1, 10000);
    QCOMPARE(b.inbox->stats().slots_used, std::uint64_t{0});
    cluster_->Set({b.endpoint});
    const auto delivered = waiting.get();
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(delivered->endpoint.node_id(), std::string("i2"));
    QCOMPARE(delivered->attempt, std::uint32_t{1});
    const auto received = b.inbox->Receive(In(seconds(10)));
    QVERIFY(received.ok());
    QCOMPARE(received->message.header.attempt, std::uint32_t{1});
  }

  // A node that changes its workflow set sees an empty table for a while, and then the new set's. A
  // node that restarts its watch may see a table that is older than the consumer.
  void Deliver_OutcomeUnknown_ATableThatCannotKnowIsNoDeath_data() {
    QTest::addColumn<int>("epoch");
    QTest::addColumn<QString>("set");
    QTest::newRow("empty") << 0 << "";
    QTest::newRow("older") << 1 << "";
    QTest::newRow("another set") << 9 << "other";
  }
  void Deliver_OutcomeUnknown_ATableThatCannotKnowIsNoDeath() {
    QFETCH(int, epoch);
    QFETCH(QString, set);
    FaultyWorld world(*fabric_);
    Receiver a(world.receiving, "i1"), b(world.receiving, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    cluster_->Set({a.endpoint, b.endpoint});  // Epoch 2.
    const std::unique_ptr<Outbox> outbox = MakeOutbox(world.sending);
    const Destination destination = Destination::Nodes({a.endpoint, b.endpoint});
    QVERIFY(outbox->Deliver(MakeMessage(10), destination, In(seconds(20))).ok());
    a.inbox->Close();
    world.policy->Arm(kCommit, fabric::FaultKind::kDrop);
    auto waiting = std::async(std::launch::async, [&] {
      return outbox->Deliver(MakeMessage(10), destination, In(seconds(2)));
    });
    QTRY_VERIFY_WITH_TIMEOUT(outbox->counters().unknown == 1, 10000);
    v1::RoutingTable table;
    table.set_epoch(static_cast<std::uint64_t>(epoch));
    table.set_workflow_set(set.toStdString());
    if (epoch > 0) *table.add_alive() = b.endpoint;
    cluster_->Set(table);
    const auto doubtful = waiting.get();
    QCOMPARE(base::GetReason(doubtful.status()).reason, std::string("OUTCOME_UNKNOWN"));
    QCOMPARE(b.inbox->stats().slots_used, std::uint64_t{0});
  }

  // Every acknowledgement is lost. The caller has its turn back, and no turn makes a second copy.
  void DeliverInTurns_OutcomeStaysUnknown_GoesOnWithTheSameMessage() {
    FaultyWorld world(*fabric_);
    Receiver a(world.receiving, "i1"), b(world.receiving, "i2");
    cluster_->Set({a.endpoint, b.endpoint});
    const std::unique_ptr<Outbox> outbox = MakeOutbox(world.sending);
    Destination destination = Destination::Nodes({a.endpoint, b.endpoint});
    destination.patience = milliseconds(50);
    QVERIFY(outbox->Deliver(MakeMessage(10), destination, In(seconds(20))).ok());
    QVERIFY(a.inbox->Receive(In(seconds(20))).ok());
    world.policy->Arm(kCommit, fabric::FaultKind::kBreak, /*every=*/true);
    const message::Message message = MakeMessage(10);
    const base::MonotonicTime deadline = In(seconds(60));
    std::shared_ptr<OpenDelivery> open;
    for (int turn = 0; turn < 3; ++turn) {
      const auto sent = outbox->DeliverInTurns(message, destination, deadline, open);
      QVERIFY(absl::IsUnavailable(sent.status()));
      QCOMPARE(base::GetReason(sent.status()).reason, std::string("OUTCOME_OPEN"));
      QVERIFY(open != nullptr);
    }
    QVERIFY(base::SystemClock().Now() < deadline - seconds(30));
    world.policy->Arm("", fabric::FaultKind::kNone);
    absl::StatusOr<Delivered> sent;
    do {
      sent = outbox->DeliverInTurns(message, destination, deadline, open);
    } while (!sent.ok() && open != nullptr);
    QVERIFY2(sent.ok(), base::Message(sent.status()).c_str());
    QVERIFY(open == nullptr);
    QCOMPARE(sent->endpoint.node_id(), std::string("i1"));
    const auto received = a.inbox->Receive(In(seconds(20)));
    QVERIFY(received.ok() && received->message.header.uid == message.header.uid);
    QVERIFY(absl::IsDeadlineExceeded(a.inbox->Receive(In(milliseconds(50))).status()));
    QCOMPARE(b.inbox->stats().slots_used, std::uint64_t{0});
  }

  // A consumer that was stopped takes the call and does not answer. Others do not wait for the
  // delivery that asks it.
  void Deliver_WhileAnotherOpensARing_GoesToTheNext() {
    StoppedRing stopped;
    Receiver b(*fabric_, "i2");
    cluster_->Set({stopped.endpoint, b.endpoint});
    const std::unique_ptr<Outbox> outbox = Outbox::Create(
        *fabric_, cluster_->view(), {.node_id = "sender", .open_timeout = seconds(12)});
    auto stuck = std::async(std::launch::async, [&] {
      return outbox->Deliver(MakeMessage(10), Destination::Nodes({stopped.endpoint}),
                             In(seconds(12)));
    });
    QVERIFY(stopped.WaitAsked());
    const base::MonotonicTime asked = base::SystemClock().Now();
    const auto sent = outbox->Deliver(
        MakeMessage(10), Destination::Nodes({stopped.endpoint, b.endpoint}), In(seconds(30)));
    QVERIFY2(sent.ok(), base::Message(sent.status()).c_str());
    QCOMPARE(sent->endpoint.node_id(), std::string("i2"));
    QVERIFY(base::SystemClock().Now() - asked < seconds(8));
    outbox->Close();
    stopped.GoOn();
  }

  void Close_EndsDeliveriesThatWait() {
    auto waiting = std::async(std::launch::async, [&] {
      return outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(60))).status();
    });
    outbox_->Close();
    const absl::Status status = waiting.get();
    QVERIFY(absl::IsCancelled(status));
    QCOMPARE(base::GetReason(status).reason, std::string("OUTBOX_CLOSED"));
  }

 private:
  std::unique_ptr<Outbox> MakeOutbox(fabric::Fabric& fabric) {
    return Outbox::Create(fabric, cluster_->view(), {.node_id = "sender"});
  }

  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Outbox> outbox_;
};

}  // namespace onepiece::node

int main(int argc, char** argv) {
  QCoreApplication app(argc, argv);
  onepiece::node::OutboxTest test;
  return QTest::qExec(&test, argc, argv);
}
#include "outbox_test.moc"
