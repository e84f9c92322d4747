// Tests the streams between replicas: where they lead, and when they end.
#include "nodemanager/replication/transport.h"

#include <QtTest>
#include <atomic>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;
using testing::Eventually;

const base::Duration kTransportLimit = base::Scaled(seconds(30));
constexpr GroupId kGroup{5};
constexpr paxos::ReplicaId kSelf{1}, kPeer{2};

// A server that counts the streams to its address.
class Listener final : public v1::ReplicaService::Service {
 public:
  bool Start() {
    server_.AddService(*this);
    return server_.Start().ok();
  }
  ~Listener() override { server_.Shutdown(seconds(5)); }
  grpc::Status Exchange(grpc::ServerContext*, grpc::ServerReader<v1::ReplicaEnvelope>* reader,
                        google::protobuf::Empty*) override {
    ++open_;
    v1::ReplicaEnvelope envelope;
    while (reader->Read(&envelope)) continue;
    --open_;
    return grpc::Status::OK;
  }
  [[nodiscard]] int open() const { return open_; }
  [[nodiscard]] const std::string& address() const { return server_.address(); }

 private:
  std::atomic<int> open_{0};
  rpc::Server server_{rpc::ServerOptions{.listen = "127.0.0.1:0"}};
};

paxos::Message ToOther() { return {kSelf, kPeer, paxos::TakeOver{{1, kSelf}}}; }

v1::ReplicaEnvelope HelloOf(paxos::ReplicaId replica, const std::string& address) {
  v1::ReplicaEnvelope envelope;
  v1::ReplicaHello& hello = *envelope.mutable_hello();
  hello.set_cluster_id("test");
  hello.set_name("nm-" + std::to_string(replica.value));
  hello.set_address(address);
  hello.set_replica(replica.value);
  hello.set_boot(1);
  hello.set_group(kGroup.value);
  return envelope;
}

// Opens a stream as `replica`, and ends it.
grpc::Status Speak(const std::string& to, paxos::ReplicaId replica, const std::string& address) {
  const auto stub = v1::ReplicaService::NewStub(rpc::MakeChannel(to));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kTransportLimit);
  google::protobuf::Empty response;
  const auto writer = stub->Exchange(&context, &response);
  writer->Write(HelloOf(replica, address));
  writer->WritesDone();
  return writer->Finish();
}

}  // namespace

class TransportTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Otherwise the transport would dial an address for ever that nobody has any more.
  void StreamToAnOldAddress_EndsWhenItsReplicaSpeaksFromANewOne() {
    Listener before, after;
    QVERIFY(before.Start() && after.Start());
    Transport transport(
        {.receive = [](const paxos::Message&) {}, .invited = [](const std::string&, GroupId) {}},
        base::SystemClock());
    rpc::Server server(rpc::ServerOptions{.listen = "127.0.0.1:0"});
    server.AddService(transport);
    QVERIFY(server.Start().ok());
    transport.Start({"test", "nm-1", server.address(), kSelf, kGroup});
    transport.SetPeers({{{"nm-1", server.address(), kSelf}, {"nm-2", before.address(), kPeer}}},
                       {});
    transport.Send({ToOther()});
    QVERIFY(Eventually(kTransportLimit, [&] { return before.open() == 1; }));

    const auto stub = v1::ReplicaService::NewStub(rpc::MakeChannel(server.address()));
    grpc::ClientContext context;
    rpc::SetTimeout(context, kTransportLimit);
    google::protobuf::Empty response;
    const auto writer = stub->Exchange(&context, &response);
    QVERIFY(writer->Write(HelloOf(kPeer, after.address())));
    QVERIFY(Eventually(kTransportLimit, [&] { return before.open() == 0; }));
    QCOMPARE(transport.FoundAt(kPeer), after.address());
    transport.Send({ToOther()});
    QVERIFY(Eventually(kTransportLimit, [&] { return after.open() == 1; }));
    QCOMPARE(before.open(), 0);

    // The seat moves once more. Its address is newer than the one that the replica told.
    transport.SetPeers({{{"nm-1", server.address(), kSelf}, {"nm-2", after.address(), kPeer}}}, {});
    transport.SetPeers({{{"nm-1", server.address(), kSelf}, {"nm-2", before.address(), kPeer}}},
                       {});
    QVERIFY(Eventually(kTransportLimit, [&] { return after.open() == 0; }));
    context.TryCancel();
    (void)writer->Finish();
    transport.Stop();
    server.Shutdown(seconds(5));
  }

  // Otherwise messages to the member would go to its seat's old address.
  void ManyStrangersSpeak_AMemberIsNotForgotten() {
    Transport transport(
        {.receive = [](const paxos::Message&) {}, .invited = [](const std::string&, GroupId) {}},
        base::SystemClock());
    rpc::Server server(rpc::ServerOptions{.listen = "127.0.0.1:0"});
    server.AddService(transport);
    QVERIFY(server.Start().ok());
    transport.Start({"test", "nm-1", server.address(), kSelf, kGroup});
    transport.SetPeers({{{"nm-1", server.address(), kSelf}, {"nm-2", "127.0.0.1:1", kPeer}}}, {});
    QVERIFY(Speak(server.address(), kPeer, "127.0.0.1:2").ok());
    for (std::uint64_t stranger = 100; stranger < 120; ++stranger)
      QVERIFY(Speak(server.address(), paxos::ReplicaId{stranger}, "127.0.0.1:3").ok());
    QCOMPARE(transport.FoundAt(kPeer), std::string("127.0.0.1:2"));
    QCOMPARE(transport.FoundAt(paxos::ReplicaId{100}),
             std::string());  // The strangers are bounded.
    QCOMPARE(transport.FoundAt(paxos::ReplicaId{119}), std::string("127.0.0.1:3"));
    transport.Stop();
    server.Shutdown(seconds(5));
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::TransportTest)
#include "transport_test.moc"
