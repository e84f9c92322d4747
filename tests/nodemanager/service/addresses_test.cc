#include "nodemanager/service/addresses.h"

#include <QTcpServer>
#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/rpc/server.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::Node NodeAt(const std::string& id, const std::string& address) {
  v1::Node node = MakeNode(id, v1::INSTANCE);
  node.set_address(address);
  return node;
}

void ApplyTo(StateMachine& state, const v1::Command& command) {
  if (state.Apply(state.applied_index() + 1, command).code() != 0) qFatal("a command is refused");
}

}  // namespace

class AddressesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Loopback_IsToldFromTheRest() {
    for (const char* address : {"127.0.0.1:7000", "127.1.2.3:1", "localhost:80", "LocalHost:80",
                                "[::1]:7000", "[::ffff:127.0.0.1]:7000"})
      QVERIFY2(IsLoopback(address), address);
    for (const char* address :
         {"10.0.0.1:7000", "128.0.0.1:7", "12.7.0.1:1", "[2001:db8::1]:7", "[::ffff:10.0.0.1]:7",
          "127.example.org:7", "localhost.example.org:7", "host:127"})
      QVERIFY2(!IsLoopback(address), address);
  }

  void LoopbackAddressOfAnotherHost_IsRefused() {
    const StateMachine empty;
    for (const char* peer :
         {"ipv4:10.0.0.2:50000", "ipv6:[fe80::1]:50000", "ipv6:%5Bfe80::1%5D:50000"}) {
      const absl::Status status = CheckLoopback(empty, NodeAt("i", "127.0.0.1:7001"), peer);
      QCOMPARE(Reason(status), std::string("LOOPBACK_ADDRESS"));
      const std::string message = base::Message(status);
      for (const char* word : {"127.0.0.1:7001", "'i'", peer, "--advertise"})
        QVERIFY2(message.find(word) != std::string::npos, message.c_str());
      QVERIFY(CheckLoopback(empty, NodeAt("i", "10.0.0.2:7001"), peer).ok());
    }
    for (const char* peer : {"ipv4:127.0.0.1:50000", "ipv6:[::1]:50000", "ipv6:%5B::1%5D:5",
                             "ipv6:[::ffff:127.0.0.1]:5", "unix:/run/x", ""})
      QVERIFY2(CheckLoopback(empty, NodeAt("i", "127.0.0.1:7001"), peer).ok(), peer);
  }

  void MixedCluster_IsRefused_AndTheOthersAreNamed() {
    for (const bool loopback : {true, false}) {
      const std::string first = loopback ? "127.0.0.1:1" : "10.0.0.1:1",
                        second = loopback ? "10.0.0.2:2" : "[::1]:2";
      StateMachine state;
      for (const char* id : {"one", "two"}) ApplyTo(state, RegisterCommand(NodeAt(id, first)));
      QVERIFY(CheckLoopback(state, NodeAt("new", first), "").ok());
      const absl::Status status = CheckLoopback(state, NodeAt("new", second), "");
      QCOMPARE(Reason(status), std::string("LOOPBACK_ADDRESS"));
      const std::string message = base::Message(status);
      for (const std::string& word : {std::string("'new'"), second, "one (" + first + ")",
                                      "two (" + first + ")", std::string("--advertise")})
        QVERIFY2(message.find(word) != std::string::npos, message.c_str());
      // Neither the node's own last address nor a dead node counts.
      ApplyTo(state, EndCommand("one"));
      QCOMPARE(Reason(CheckLoopback(state, NodeAt("one", second), "")),
               std::string("LOOPBACK_ADDRESS"));
      QVERIFY(CheckLoopback(state, NodeAt("two", second), "").ok());
    }
  }

  void Dial_ReachesAServer_AndNothingElse() {
    rpc::Server server({});
    QVERIFY(server.Start().ok());
    QVERIFY(Dialling(server.address(), std::chrono::seconds(20)).Check().ok());
    // One port takes connections and says nothing. The other one is closed.
    QTcpServer silent;
    QVERIFY(silent.listen(QHostAddress::LocalHost));
    QTcpServer closed;
    QVERIFY(closed.listen(QHostAddress::LocalHost));
    const quint16 closed_port = closed.serverPort();
    closed.close();
    for (const quint16 port : {silent.serverPort(), closed_port}) {
      const std::string address = "127.0.0.1:" + std::to_string(port);
      const base::MonotonicTime begin = base::SystemClock().Now();
      const absl::Status status = Dialling(address, std::chrono::milliseconds(100)).Check();
      QCOMPARE(Reason(status), std::string("UNREACHABLE_ADDRESS"));
      QVERIFY(base::Message(status).find(address) != std::string::npos);
      QVERIFY(base::SystemClock().Now() - begin < std::chrono::seconds(10));
    }
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::AddressesTest)
#include "addresses_test.moc"
