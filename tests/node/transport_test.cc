// Inbox and Outbox together: real shared memory, real gRPC, also between processes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QProcess>
#include <QtTest>
#include <atomic>
#include <cstdio>
#include <future>
#include <set>
#include <thread>

#include "cluster/base/crc32c.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fault.h"
#include "cluster/message/message.h"
#include "cluster/message/sender_name.h"
#include "cluster/node/inbox.h"
#include "cluster/node/outbox.h"
#include "cluster/ring/producer.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "tests/node/transport_world.h"

namespace onepiece::node {
namespace {

std::string Get(const std::string& address, const std::string& path) {
  const std::size_t colon = address.rfind(':');
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    if (write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
      char part[4096];
      for (ssize_t got = 0; (got = read(fd, part, sizeof(part))) > 0;)
        answer.append(part, static_cast<std::size_t>(got));
    }
  }
  close(fd);
  return answer;
}

}  // namespace

class TransportTest : public QObject {
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

  void Deliver_ArrivesWhole_data() {
    QTest::addColumn<int>("bytes");
    QTest::newRow("empty artifact") << 0;
    QTest::newRow("4 KiB") << 4096;
    QTest::newRow("4.2 MB") << 4'200'000;
    QTest::newRow("15 MB") << 15'000'000;
  }
  void Deliver_ArrivesWhole() {
    QFETCH(int, bytes);
    Receiver receiver(*fabric_, "i1");
    cluster_->Set({receiver.endpoint});
    message::Message sent = MakeMessage(static_cast<std::size_t>(bytes));
    sent.header.priority = 7;
    sent.parameters["steps"] = std::int64_t{20};
    const auto delivered = outbox_->Deliver(sent, kDiffuse, In(seconds(10)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(delivered->endpoint.node_id(), std::string("i1"));
    QCOMPARE(delivered->attempt, std::uint32_t{0});
    const auto received = receiver.inbox->Receive(In(seconds(10)));
    QVERIFY2(received.ok(), base::Message(received.status()).c_str());
    const message::Message& got = received->message;
    QVERIFY(got.header.uid == sent.header.uid);
    QCOMPARE(got.header.priority, 7);
    QCOMPARE(got.header.sender, std::string("sender"));
    QVERIFY(got.header.sent_time <= received->arrival_wall);
    QVERIFY(got.parameters == sent.parameters);
    QCOMPARE(got.artifacts.size(), std::size_t{1});
    QVERIFY(got.artifacts[0].data.text() == sent.artifacts[0].data.text());
    if (bytes > 0) {
      QCOMPARE(reinterpret_cast<std::uintptr_t>(got.artifacts[0].data.bytes().data()) % 64,
               std::uintptr_t{0});
    }
  }

  // The default id of a node is made of its host's name, which may have dots.
  void NodeIds_MayHaveDots_And128Characters() {
    for (const std::size_t bytes : {30, 128}) {
      std::string id = "instance-host.example.com-1";
      id.resize(bytes, '.');
      Receiver receiver(*fabric_, id);
      cluster_->Set({receiver.endpoint});
      const auto outbox = Outbox::Create(*fabric_, cluster_->view(), {.node_id = id});
      const auto delivered = outbox->Deliver(MakeMessage(1000), kDiffuse, In(seconds(10)));
      QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
      const auto received = receiver.inbox->Receive(In(seconds(10)));
      QVERIFY2(received.ok(), base::Message(received.status()).c_str());
      QCOMPARE(received->message.header.sender, message::SenderName(id));
      outbox->Close();
    }
  }

  void Receive_NothingThere_KeepsItsDeadline() {
    Receiver receiver(*fabric_, "i1");
    QVERIFY(absl::IsDeadlineExceeded(receiver.inbox->Receive(In(milliseconds(30))).status()));
  }

  void Close_EndsReceiveAndRefusesProducers() {
    Receiver receiver(*fabric_, "i1");
    auto waiting = std::async(std::launch::async,
                              [&] { return receiver.inbox->Receive(In(seconds(60))).status(); });
    receiver.inbox->Close();
    QVERIFY(absl::IsCancelled(waiting.get()));
    cluster_->Set({receiver.endpoint});
    const auto delivered = outbox_->Deliver(MakeMessage(10), kDiffuse, In(milliseconds(100)));
    QCOMPARE(base::GetReason(delivered.status()).reason, std::string("UNREACHABLE"));
  }

  // Whatever a sender takes for delivered arrives, however late it was sent; the rest goes on.
  void Shut_WhileOthersSend_GivesOutWhatWasAcknowledged_data() {
    QTest::addColumn<bool>("shared");
    QTest::newRow("shared") << true;
    QTest::newRow("per producer") << false;
  }
  void Shut_WhileOthersSend_GivesOutWhatWasAcknowledged() {
    QFETCH(bool, shared);
    const ring::Shape shape = shared ? ring::Shape::kShared : ring::Shape::kPerProducer;
    Receiver a(*fabric_, "i1", 1, 4096, nullptr, shape);
    cluster_->Set({a.endpoint});
    std::atomic<int> sent = 0;
    std::vector<std::jthread> senders;
    for (int i = 0; i < 3; ++i) {
      senders.emplace_back([&](const std::stop_token& stop) {
        const auto outbox = MakeOutbox(*fabric_);
        while (!stop.stop_requested()) {
          if (!outbox->Deliver(MakeMessage(100), kDiffuse, In(milliseconds(50))).ok()) break;
          ++sent;
        }
      });
    }
    QTRY_VERIFY_WITH_TIMEOUT(sent >= 100, 20000);
    a.inbox->Shut();
    senders.clear();
    int received = 0;
    while (a.inbox->Receive(In(milliseconds(100))).ok()) ++received;
    // A message of each sender may have arrived without its acknowledgement.
    QVERIFY2(received >= sent && received <= sent + 3, std::to_string(received).c_str());
    const auto late = outbox_->Deliver(MakeMessage(10), kDiffuse, In(milliseconds(100)));
    QCOMPARE(base::GetReason(late.status()).reason, std::string("UNREACHABLE"));
  }

  void OpenRing_AnotherIncarnation_IsRefused() {
    Receiver a(*fabric_, "i1", 2);
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(a.endpoint.address()));
    v1::OpenRingRequest request;
    request.set_producer_id(1);
    request.set_incarnation(1);
    request.set_offer((*fabric_->Dial())->offer().Serialize());
    request.set_consumer_incarnation(1);
    const auto response = rpc::Call(*stub, &v1::RingService::Stub::OpenRing, request, seconds(5));
    QVERIFY(absl::IsFailedPrecondition(response.status()));
    QCOMPARE(base::GetReason(response.status()).reason, std::string("STALE_INCARNATION"));
  }

  void Deliver_ConsumerRestarted_Reconnects() {
    auto a = std::make_unique<Receiver>(*fabric_, "i1", 1);
    cluster_->Set({a->endpoint});
    QVERIFY(outbox_->Deliver(MakeMessage(10), kDiffuse, In(seconds(10))).ok());
    a.reset();
    a = std::make_unique<Receiver>(*fabric_, "i1", 2);
    cluster_->Set({a->endpoint});
    const auto delivered = outbox_->Deliver(MakeMessage(20), kDiffuse, In(seconds(10)));
    QVERIFY2(delivered.ok(), base::Message(delivered.status()).c_str());
    QCOMPARE(delivered->endpoint.incarnation(), std::uint64_t{2});
    QVERIFY(a->inbox->Receive(In(seconds(10))).ok());
    QCOMPARE(outbox_->counters().opened, std::uint64_t{2});
  }

  // The fabric counts the round trips of one send to a consumer that does not sleep.
  void Deliver_TakesTheRoundTripsOfTheShape_data() {
    QTest::addColumn<bool>("shared");
    QTest::addColumn<int>("round_trips");
    QTest::newRow("shared") << true << 2;
    QTest::newRow("per producer") << false << 1;
  }
  void Deliver_TakesTheRoundTripsOfTheShape() {
    QFETCH(bool, shared);
    QFETCH(int, round_trips);
    Receiver a(*fabric_, "i1", 1, 64, nullptr,
               shared ? ring::Shape::kShared : ring::Shape::kPerProducer);
    cluster_->Set({a.endpoint});
    constexpr int kMessages = 5;
    for (int i = 0; i < kMessages; ++i) {
      QVERIFY(outbox_->Deliver(MakeMessage(100), kDiffuse, In(seconds(10))).ok());
    }
    for (int i = 0; i < kMessages; ++i) QVERIFY(a.inbox->Receive(In(seconds(10))).ok());
    const OutboxCounters counters = outbox_->counters();
    QCOMPARE(counters.round_trips, std::uint64_t(kMessages * round_trips));
    QCOMPARE(counters.lock_retries, std::uint64_t{0});
    QCOMPARE(counters.doorbells, std::uint64_t{0});
  }

  void RingHealth_SaysWhoIsConnectedUntilTheyLeave() {
    Receiver a(*fabric_, "i1");
    cluster_->Set({a.endpoint});
    QVERIFY(outbox_->Deliver(MakeMessage(100), kDiffuse, In(seconds(10))).ok());
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(a.endpoint.address()));
    const auto ask = [&] {
      return rpc::Call(*stub, &v1::RingService::Stub::GetRingHealth, v1::GetRingHealthRequest(),
                       seconds(5));
    };
    auto health = ask();
    QVERIFY2(health.ok(), base::Message(health.status()).c_str());
    QCOMPARE(health->label(), std::string("i1"));
    QCOMPARE(health->shape(), v1::RING_SHAPE_SHARED);
    QCOMPARE(health->used_slots(), std::uint64_t{1});
    QCOMPARE(health->producers_size(), 1);
    QVERIFY(health->producers(0).connected());
    QCOMPARE(health->producers(0).node_id(), std::string("sender"));
    QCOMPARE(health->producers(0).pid(), getpid());
    QVERIFY(a.inbox->Receive(In(seconds(10))).ok());
    outbox_.reset();  // Says good-bye.
    health = ask();
    QVERIFY(health.ok());
    QVERIFY(!health->producers(0).connected());
    QCOMPARE(health->producers(0).delivered(), std::uint64_t{1});
    v1::CloseRingRequest again;
    again.set_producer_id(health->producers(0).producer_id());
    again.set_incarnation(health->producers(0).incarnation());
    const auto closed = rpc::Call(*stub, &v1::RingService::Stub::CloseRing, again, seconds(5));
    QCOMPARE(base::GetReason(closed.status()).reason, std::string("UNKNOWN_PRODUCER"));
  }

  // Somebody else says good-bye for the sender, who goes on sending. Each message that is taken for
  // delivered arrives.
  void CloseRing_NotByTheSender_LosesNothing_data() {
    QTest::addColumn<bool>("shared");
    QTest::newRow("shared") << true;
    QTest::newRow("per producer") << false;
  }
  void CloseRing_NotByTheSender_LosesNothing() {
    QFETCH(bool, shared);
    Receiver a(*fabric_, "i1", 1, 64, nullptr,
               shared ? ring::Shape::kShared : ring::Shape::kPerProducer);
    cluster_->Set({a.endpoint});
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(a.endpoint.address()));
    const auto deliver = [&](Outbox& outbox) {
      const message::Message message = MakeMessage(100);
      const auto sent = outbox.Deliver(message, kDiffuse, In(seconds(10)));
      QVERIFY2(sent.ok(), base::Message(sent.status()).c_str());
      const auto received = a.inbox->Receive(In(seconds(5)));
      QVERIFY2(received.ok(), base::Message(received.status()).c_str());
      QVERIFY(received->message.header.uid == message.header.uid);
    };
    deliver(*outbox_);
    for (int round = 0; round < 3; ++round) {
      const auto health = rpc::Call(*stub, &v1::RingService::Stub::GetRingHealth,
                                    v1::GetRingHealthRequest(), seconds(5));
      QVERIFY(health.ok());
      for (const v1::RingProducer& producer : health->producers()) {
        v1::CloseRingRequest close;
        close.set_producer_id(producer.producer_id());
        close.set_incarnation(producer.incarnation());
        if (!producer.connected()) continue;
        QVERIFY(rpc::Call(*stub, &v1::RingService::Stub::CloseRing, close, seconds(5)).ok());
      }
      // Others come, which is when the ring forgets who has left.
      for (int i = 0; i < 3; ++i) deliver(*MakeOutbox(*fabric_));
      deliver(*outbox_);
    }
    QCOMPARE(a.inbox->stats().ring.bad_owner, std::uint64_t{0});
  }

  void Receive_MalformedMessage_IsCountedAndSkipped() {
    Receiver a(*fabric_, "i1");
    const std::unique_ptr<ring::Producer> producer = ConnectRaw(a);
    QVERIFY(producer != nullptr);
    const std::string junk(1000, 'j');
    const std::span<const std::byte> bytes = std::as_bytes(std::span(junk));
    const base::Piece piece{.bytes = bytes, .crc32c = base::Crc32c(bytes)};
    const auto sent = producer->Send(1, {&piece, 1}, In(seconds(5)));
    QVERIFY(sent.ok() && sent->outcome == ring::SendOutcome::kOk);
    cluster_->Set({a.endpoint});
    const message::Message good = MakeMessage(100);
    QVERIFY(outbox_->Deliver(good, kDiffuse, In(seconds(10))).ok());
    const auto received = a.inbox->Receive(In(seconds(10)));
    QVERIFY(received.ok());
    QVERIFY(received->message.header.uid == good.header.uid);
    QCOMPARE(a.inbox->stats().malformed, std::uint64_t{1});
  }

  void Deliver_FromManyThreads_LosesAndRepeatsNothing() {
    constexpr int kThreads = 4, kEach = 200;
    Receiver a(*fabric_, "i1", 1, 8), b(*fabric_, "i2", 1, 8);
    cluster_->Set({a.endpoint, b.endpoint});
    base::Mutex mutex;
    std::multiset<base::Uid> sent, got;
    std::atomic<bool> failed = false;
    std::vector<std::jthread> threads;
    for (Receiver* receiver : {&a, &b}) {
      threads.emplace_back([&, receiver] {
        while (true) {
          const auto received = receiver->inbox->Receive(In(seconds(20)));
          if (!received.ok()) return;
          const base::MutexLock lock(mutex);
          got.insert(received->message.header.uid);
          if (got.size() == kThreads * kEach) {
            a.inbox->Close();
            b.inbox->Close();
          }
        }
      });
    }
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          const message::Message message = MakeMessage(static_cast<std::size_t>(i) * 37);
          if (!outbox_->Deliver(message, kDiffuse, In(seconds(20))).ok()) failed = true;
          const base::MutexLock lock(mutex);
          sent.insert(message.header.uid);
        }
      });
    }
    threads.clear();
    QVERIFY(!failed);
    QVERIFY(sent == got);
  }

  void Peer_ConsumerKilled_WorkGoesToAnother() {
    QProcess peer;
    const v1::Endpoint killed = StartPeer(peer, {"--receive"});
    QVERIFY(!killed.address().empty());
    Receiver b(*fabric_, "i2");
    cluster_->Set({killed, b.endpoint});
    const Destination destination = Destination::Nodes({killed, b.endpoint});
    const auto first = outbox_->Deliver(MakeMessage(1000), destination, In(seconds(20)));
    QVERIFY2(first.ok(), base::Message(first.status()).c_str());
    QCOMPARE(first->endpoint.node_id(), std::string("peer"));
    QTRY_VERIFY_WITH_TIMEOUT(peer.canReadLine(), 20000);
    QCOMPARE(peer.readLine().trimmed(), QByteArray("received 1000"));
    peer.kill();
    QVERIFY(peer.waitForFinished(10000));
    auto waiting = std::async(std::launch::async, [&] {
      return outbox_->Deliver(MakeMessage(1000), destination, In(seconds(20)));
    });
    // This is what the NodeManager does when heartbeats stop.
    cluster_->Set({b.endpoint});
    const auto second = waiting.get();
    QVERIFY2(second.ok(), base::Message(second.status()).c_str());
    QCOMPARE(second->endpoint.node_id(), std::string("i2"));
    QVERIFY(b.inbox->Receive(In(seconds(10))).ok());
  }

  void Peer_ProducerKilledWhileSending_RingGoesOn() {
    Receiver a(*fabric_, "i1", 1, 16);
    cluster_->Set({a.endpoint});
    for (int round = 0; round < 3; ++round) {
      QProcess peer;
      peer.start(QCoreApplication::applicationFilePath(),
                 {"--send", QString::fromStdString(ClusterId()),
                  QString::fromStdString(a.endpoint.address())});
      QVERIFY(peer.waitForStarted(10000));
      for (int i = 0; i < 20 + round; ++i) QVERIFY(a.inbox->Receive(In(seconds(20))).ok());
      peer.kill();
      const message::Message message = MakeMessage(1000);
      QVERIFY(peer.waitForFinished(10000));
      auto waiting = std::async(std::launch::async, [&] {
        return outbox_->Deliver(message, kDiffuse, In(seconds(30))).status();
      });
      bool found = false;
      while (!found) {
        const auto received = a.inbox->Receive(In(seconds(30)));
        QVERIFY2(received.ok(), base::Message(received.status()).c_str());
        found = received->message.header.uid == message.header.uid;
      }
      QVERIFY(waiting.get().ok());
    }
    QCOMPARE(a.inbox->stats().malformed, std::uint64_t{0});
    QCOMPARE(a.inbox->stats().ring.bad_payload, std::uint64_t{0});
  }

  void Metrics_ShowWhatWentThrough() {
    telemetry::Metrics metrics("test", "n1");
    telemetry::Spans spans("n1");
    const auto address = metrics.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    const message::Message message = MakeMessage(1000);
    {
      Receiver a(*fabric_, "i1", 1, 64, &metrics);
      cluster_->Set({a.endpoint});
      const auto outbox = Outbox::Create(
          *fabric_, cluster_->view(), {.node_id = "sender", .metrics = &metrics, .spans = &spans});
      QVERIFY(outbox->Deliver(message, kDiffuse, In(seconds(10))).ok());
      QVERIFY(a.inbox->Receive(In(seconds(10))).ok());
      const std::string text = Get(*address, "/metrics");
      for (const char* line :
           {"onepiece_ring_slots 64", "onepiece_ring_received_messages_total 1",
            "onepiece_sent_messages_total 1", "onepiece_send_seconds_count{outcome=\"OK\"} 1",
            "onepiece_fabric_round_trips_total 2"}) {
        QVERIFY2(text.find(std::string("\n") + line) != std::string::npos, line);
      }
    }
    // The objects are gone, and their metrics are still served.
    QVERIFY(Get(*address, "/metrics").find("\nonepiece_sent_messages_total 1") !=
            std::string::npos);
    const std::vector<v1::Span> found = spans.Find(message.header.uid);
    QCOMPARE(found.size(), std::size_t{1});
    QCOMPARE(found[0].operation(), std::string("send"));
    QCOMPARE(found[0].attributes().at("to"), std::string("i1"));
  }

  // Killed peers leave their memory behind, as they do for an embedded cluster's supervisor.
  void cleanupTestCase() { QVERIFY(fabric::UnlinkStale(ClusterId()).ok()); }

 private:
  std::unique_ptr<Outbox> MakeOutbox(fabric::Fabric& fabric) {
    return Outbox::Create(fabric, cluster_->view(), {.node_id = "sender"});
  }

  std::unique_ptr<ring::Producer> ConnectRaw(const Receiver& receiver) {
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(receiver.endpoint.address()));
    v1::OpenRingRequest request;
    request.set_producer_id(77);
    request.set_incarnation(1);
    const auto dialer = *fabric_->Dial();
    request.set_offer(dialer->offer().Serialize());
    request.set_consumer_incarnation(receiver.endpoint.incarnation());
    const auto response = rpc::Call(*stub, &v1::RingService::Stub::OpenRing, request, seconds(5));
    if (!response.ok()) return nullptr;
    const auto grant = ring::ProducerGrant::Parse(response->grant());
    if (!grant.ok()) return nullptr;
    auto producer = ring::Producer::Connect(*dialer, *grant);
    return producer.ok() ? *std::move(producer) : nullptr;
  }

  v1::Endpoint StartPeer(QProcess& peer, const QStringList& arguments) {
    v1::Endpoint endpoint;
    peer.start(QCoreApplication::applicationFilePath(),
               arguments + QStringList{QString::fromStdString(ClusterId())});
    if (!peer.waitForStarted(10000)) return endpoint;
    while (!peer.canReadLine()) {
      if (!peer.waitForReadyRead(20000)) return endpoint;
    }
    endpoint.set_node_id("peer");
    endpoint.set_incarnation(1);
    endpoint.set_address(peer.readLine().trimmed().toStdString());
    return endpoint;
  }

  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Outbox> outbox_;
};

namespace {

// The peer that receives: prints its address, then a line for each message, until it is killed.
int ReceiveAsPeer(const std::string& cluster_id) {
  const auto fabric = fabric::Fabric::Open("shm://" + cluster_id);
  if (!fabric.ok()) return 1;
  Receiver receiver(**fabric, "peer");
  std::printf("%s\n", receiver.endpoint.address().c_str());
  std::fflush(stdout);
  while (true) {
    const auto received = receiver.inbox->Receive(In(seconds(60)));
    if (!received.ok()) return 1;
    std::printf("received %zu\n", received->message.artifacts[0].data.size());
    std::fflush(stdout);
  }
}

// The peer that sends as fast as it can until it is killed.
int SendAsPeer(const std::string& cluster_id, const std::string& address) {
  const auto fabric = fabric::Fabric::Open("shm://" + cluster_id);
  if (!fabric.ok()) return 1;
  Cluster cluster;
  v1::Endpoint endpoint;
  endpoint.set_node_id("i1");
  endpoint.set_incarnation(1);
  endpoint.set_address(address);
  cluster.Set({endpoint});
  const auto outbox = Outbox::Create(**fabric, cluster.view(), {.node_id = "peer"});
  const message::Message message = MakeMessage(1'000'000);
  while (outbox->Deliver(message, kDiffuse, In(seconds(60))).ok()) {
  }
  return 1;
}

}  // namespace
}  // namespace onepiece::node

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--receive")
    return onepiece::node::ReceiveAsPeer(argv[2]);
  if (argc == 4 && std::string_view(argv[1]) == "--send")
    return onepiece::node::SendAsPeer(argv[2], argv[3]);
  QCoreApplication app(argc, argv);
  onepiece::node::TransportTest test;
  return QTest::qExec(&test, argc, argv);
}
#include "transport_test.moc"
