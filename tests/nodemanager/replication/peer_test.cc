// Tests the sending half of a connection to one replica: what is sent arrives in order, and nobody
// waits for a replica that takes nothing.
#include "nodemanager/replication/peer.h"

#include <QtTest>
#include <future>

#include "cluster/rpc/server.h"
#include "nodemanager/replication/codec.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;
using testing::Eventually;

const base::Duration kPeerLimit = base::Scaled(seconds(30));

// A server that collects the rounds of the TakeOvers and the first slots of the Accepts that it
// gets. It reads nothing until Read() is called.
class Receiver final : public v1::ReplicaService::Service {
 public:
  explicit Receiver(bool reads, const std::string& listen = "127.0.0.1:0")
      : server_(rpc::ServerOptions{.listen = listen}) {
    if (reads) Read();
    server_.AddService(*this);
    if (!server_.Start().ok()) qFatal("the server does not start");
  }
  ~Receiver() override {
    Read();
    server_.Shutdown(base::Duration::zero());
  }
  grpc::Status Exchange(grpc::ServerContext*, grpc::ServerReader<v1::ReplicaEnvelope>* reader,
                        google::protobuf::Empty*) override {
    ++streams_;
    read_.get_future().wait();
    v1::ReplicaEnvelope envelope;
    while (reader->Read(&envelope)) {
      const base::MutexLock lock(mutex_);
      for (const v1::ReplicaMessage& message : envelope.messages()) {
        got_.push_back(message.has_accept() ? message.accept().first()
                                            : message.take_over().released().round());
      }
    }
    return grpc::Status::OK;
  }
  void Read() {
    if (!std::exchange(reads_, true)) read_.set_value();
  }
  std::vector<std::uint64_t> got() {
    const base::MutexLock lock(mutex_);
    return got_;
  }
  [[nodiscard]] int streams() const { return streams_; }
  [[nodiscard]] const std::string& address() const { return server_.address(); }

 private:
  std::promise<void> read_;
  bool reads_ = false;
  std::atomic<int> streams_{0};
  base::Mutex mutex_;
  std::vector<std::uint64_t> got_ ABSL_GUARDED_BY(mutex_);
  rpc::Server server_;
};

std::shared_ptr<const EncodedMessage> Small(std::uint64_t number) {
  return std::make_shared<const EncodedMessage>(paxos::Message{
      paxos::ReplicaId{1}, paxos::ReplicaId{2}, paxos::TakeOver{{number, paxos::ReplicaId{1}}}});
}

std::shared_ptr<const EncodedMessage> Large(std::uint64_t number) {
  paxos::LogEntry entry;
  entry.kind = paxos::LogEntry::Kind::kCommand;
  entry.payload = std::make_shared<const std::string>(1 << 20, 'x');
  paxos::Accept accept{{1, paxos::ReplicaId{1}}, paxos::Slot{number}, {entry}};
  return std::make_shared<const EncodedMessage>(
      paxos::Message{paxos::ReplicaId{1}, paxos::ReplicaId{2}, std::move(accept)});
}

std::vector<std::uint64_t> UpTo(std::uint64_t last) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 1; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

}  // namespace

class PeerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Messages_ArriveInOrder() {
    Receiver receiver(true);
    Peer peer(receiver.address(), {}, base::SystemClock());
    for (const std::uint64_t i : UpTo(3000)) peer.Send(Small(i));
    QVERIFY(Eventually(kPeerLimit, [&] { return receiver.got() == UpTo(3000); }));
    QCOMPARE(receiver.streams(), 1);
  }

  // Two threads never write at once, whoever of the senders and the peer's own thread it is.
  void ManySenders_MixTheirMessagesAndLoseNone() {
    Receiver receiver(true);
    Peer peer(receiver.address(), {}, base::SystemClock());
    std::vector<std::future<void>> senders;
    for (std::uint64_t sender = 0; sender < 4; ++sender) {
      senders.push_back(std::async(std::launch::async, [&peer, sender] {
        for (std::uint64_t i = 0; i < 500; ++i) peer.Send(Small(sender * 500 + i + 1));
      }));
    }
    for (auto& sender : senders) sender.get();
    QVERIFY(Eventually(kPeerLimit, [&] { return receiver.got().size() == 2000; }));
    std::vector<std::uint64_t> got = receiver.got();
    std::ranges::sort(got);
    QVERIFY(got == UpTo(2000));
  }

  // The sender is the log's thread, which must not wait for anybody.
  void ReceiverThatReadsNothing_HoldsUpNobody() {
    Receiver receiver(false);
    Peer peer(receiver.address(), {}, base::SystemClock());
    for (const std::uint64_t i : UpTo(24)) peer.Send(Large(i));
    QVERIFY(Eventually(kPeerLimit, [&] { return receiver.streams() == 1; }));
    for (std::uint64_t i = 25; i <= 32; ++i) peer.Send(Large(i));
    QVERIFY(receiver.got().empty());
    receiver.Read();
    QVERIFY(Eventually(kPeerLimit, [&] { return receiver.got() == UpTo(32); }));
    peer.Send(Small(33));
    QVERIFY(Eventually(kPeerLimit, [&] { return receiver.got() == UpTo(33); }));
  }

  void ReceiverThatReadsNothing_DoesNotKeepThePeerFromEnding() {
    Receiver receiver(false);
    {
      Peer peer(receiver.address(), {}, base::SystemClock());
      for (const std::uint64_t i : UpTo(24)) peer.Send(Large(i));
      QVERIFY(Eventually(kPeerLimit, [&] { return receiver.streams() == 1; }));
    }
    receiver.Read();
  }

  void ReceiverThatComesBack_IsSpokenToAgain() {
    auto receiver = std::make_unique<Receiver>(true);
    const std::string address = receiver->address();
    Peer peer(address, {}, base::SystemClock());
    peer.Send(Small(1));
    QVERIFY(Eventually(kPeerLimit, [&] { return receiver->got() == UpTo(1); }));
    receiver.reset();
    receiver = std::make_unique<Receiver>(true, address);
    QVERIFY(Eventually(kPeerLimit, [&] {
      peer.Send(Small(2));  // As heartbeats do. The first ones are lost with the old stream.
      return !receiver->got().empty();
    }));
    QCOMPARE(receiver->got().front(), std::uint64_t{2});
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::PeerTest)
#include "peer_test.moc"
