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
#include <map>
#include <set>
#include <thread>

#include "cluster/base/crc32c.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fault.h"
#include "cluster/message/message.h"
#include "cluster/node/inbox.h"
#include "cluster/node/outbox.h"
#include "cluster/ring/producer.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "onepiece/v1/ring.grpc.pb.h"

namespace onepiece::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

base::MonotonicTime In(base::Duration delay) { return base::SystemClock().Now() + delay; }

message::Message MakeMessage(std::size_t bytes, const std::string& stage = "diffuse") {
  message::Message message;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "video";
  message.header.stage = stage;
  message.header.deadline = base::SystemClock().WallNow() + seconds(60);
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 31 + (i >> 8));
  message.artifacts.push_back(
      message::BytesArtifact("latents", "application/octet-stream", std::move(data)));
  return message;
}

/// A node that receives.
struct Receiver {
  Receiver(fabric::Fabric& fabric, const std::string& node_id, std::uint64_t incarnation = 1,
           std::uint32_t slots = 64, telemetry::Metrics* metrics = nullptr,
           ring::Shape shape = ring::Shape::kShared)
      : server({.listen = "127.0.0.1:0"}) {
    endpoint.set_node_id(node_id);
    endpoint.set_incarnation(incarnation);
    view.SetSelf(endpoint);
    auto opened = Inbox::Open(fabric, view,
                              {.label = node_id,
                               .shape = shape,
                               .capacity_bytes = 32 << 20,
                               .slots = slots,
                               .metrics = metrics});
    if (!opened.ok()) qFatal("%s", base::Message(opened.status()).c_str());
    inbox = *std::move(opened);
    server.AddService(*inbox->service());
    if (const auto port = server.Start(); !port.ok())
      qFatal("%s", base::Message(port.status()).c_str());
    endpoint.set_address(server.address());
  }
  ~Receiver() { server.Shutdown(base::Duration(0)); }

  v1::Endpoint endpoint;
  ClusterView view;
  std::unique_ptr<Inbox> inbox;
  rpc::Server server;
};

/// The routing that an Outbox sees. Thread-safe.
class Cluster {
 public:
  void Set(const std::vector<v1::Endpoint>& alive) {
    v1::RoutingTable table;
    const base::MutexLock lock(mutex_);
    table.set_epoch(++epoch_);
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("video");
    for (const char* stage : {"text", "image", "paint"}) workflow.add_stages()->set_stage(stage);
    workflow.mutable_stages(2)->add_after("text");
    workflow.mutable_stages(2)->add_after("image");
    v1::Route& paint = *table.add_routes();
    paint.set_app_id("video");
    paint.set_stage("paint");
    v1::Route& route = *table.add_routes();
    route.set_app_id("video");
    route.set_stage("diffuse");
    for (const v1::Endpoint& node : alive) {
      *route.add_instances() = node;
      *table.add_alive() = node;
    }
    *paint.mutable_instances() = route.instances();
    view_.SetRouting(std::make_shared<const Routing>(table));
  }
  void Set(const v1::RoutingTable& table) {
    view_.SetRouting(std::make_shared<const Routing>(table));
  }
  const ClusterView& view() const { return view_; }

 private:
  base::Mutex mutex_;
  std::uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  ClusterView view_;
};

/// Makes one fault at the next operation of that name, or at every one. Thread-safe.
class FaultAt final : public fabric::FaultPolicy {
 public:
  void Arm(std::string name, fabric::FaultKind kind, bool every = false) {
    const base::MutexLock lock(mutex_);
    name_ = std::move(name);
    kind_ = kind;
    every_ = every;
  }
  fabric::Fault Before(const fabric::FaultPoint& point) override {
    const base::MutexLock lock(mutex_);
    if (name_.empty() || name_ != point.name) return {};
    if (!every_) name_.clear();
    return {.kind = kind_};
  }

 private:
  base::Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  fabric::FaultKind kind_ ABSL_GUARDED_BY(mutex_) = fabric::FaultKind::kNone;
  bool every_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Takes connections and answers nothing, like a consumer that was stopped.
class Silent {
 public:
  Silent() {
    sockaddr_in self{};
    self.sin_family = AF_INET;
    self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(self);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&self), size) != 0 || listen(fd_, 16) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&self), &size) != 0)
      qFatal("no socket");
    endpoint.set_node_id("silent");
    endpoint.set_incarnation(1);
    endpoint.set_address("127.0.0.1:" + std::to_string(ntohs(self.sin_port)));
  }
  ~Silent() { close(fd_); }
  /// Waits until somebody connects.
  void AwaitCall() const {
    const int call = accept(fd_, nullptr, nullptr);
    // It stays open, and unanswered, until the process ends.
    if (call < 0) qFatal("no call");
  }

  v1::Endpoint endpoint;

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

std::string ClusterId() {
  static const std::string id = "node-test-" + std::to_string(getpid());
  return id;
}

const Destination kDiffuse = Destination::Stage("video", "diffuse", {});

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

  void Deliver_TooLarge_IsRefused() {
    Receiver a(*fabric_, "i1");
    cluster_->Set({a.endpoint});
    const auto delivered = outbox_->Deliver(MakeMessage(17 << 20), kDiffuse, In(seconds(10)));
    QVERIFY(absl::IsInvalidArgument(delivered.status()));
    QCOMPARE(base::GetReason(delivered.status()).reason, std::string("MESSAGE_TOO_LARGE"));
    const std::string message = base::Message(delivered.status());
    QVERIFY2(message.find("16777216") != std::string::npos, message.c_str());
    QVERIFY2(message.find("ring.capacity_bytes") != std::string::npos, message.c_str());
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
    const Silent silent;
    Receiver b(*fabric_, "i2");
    cluster_->Set({silent.endpoint, b.endpoint});
    const std::unique_ptr<Outbox> outbox = Outbox::Create(
        *fabric_, cluster_->view(), {.node_id = "sender", .open_timeout = seconds(6)});
    auto stuck = std::async(std::launch::async, [&] {
      return outbox->Deliver(MakeMessage(10), Destination::Nodes({silent.endpoint}),
                             In(seconds(10)));
    });
    silent.AwaitCall();
    const base::MonotonicTime asked = base::SystemClock().Now();
    const auto sent = outbox->Deliver(
        MakeMessage(10), Destination::Nodes({silent.endpoint, b.endpoint}), In(seconds(30)));
    QVERIFY2(sent.ok(), base::Message(sent.status()).c_str());
    QCOMPARE(sent->endpoint.node_id(), std::string("i2"));
    QVERIFY(base::SystemClock().Now() - asked < seconds(5));
    QVERIFY(!stuck.get().ok());
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
  static constexpr const char* kCommit = "slot.commit";

  /// A sender and a receiver in one process, as two processes of a board, so that the sender can be
  /// hurt.
  struct FaultyWorld {
    explicit FaultyWorld(fabric::Fabric& inner)
        : board(std::make_shared<fabric::FaultBoard>()),
          policy(std::make_shared<FaultAt>()),
          receiving(inner, board, board->NewProcess(), nullptr),
          sending(inner, board, board->NewProcess(), policy) {}
    std::shared_ptr<fabric::FaultBoard> board;
    std::shared_ptr<FaultAt> policy;
    fabric::FaultyFabric receiving, sending;
  };

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
