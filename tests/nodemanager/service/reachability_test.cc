#include "nodemanager/service/reachability.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QTcpServer>
#include <QTcpSocket>
#include <QThread>
#include <QtTest>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/rpc/server.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

constexpr base::Duration kLong = std::chrono::seconds(20);

std::string AddressOf(const QTcpServer& server) {
  return "127.0.0.1:" + std::to_string(server.serverPort());
}

// A port of which the kernel takes no connection any more, as if packets to it were lost.
class FullPort {
 public:
  FullPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd_, raw, size) != 0 || listen(fd_, 0) != 0 || getsockname(fd_, raw, &size) != 0)
      qFatal("no port");
    port_ = ntohs(address.sin_port);
    // One more than fits waits in vain.
    for (int i = 0; i < 2; ++i) {
      waiting_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      (void)connect(waiting_.back(), raw, size);
    }
  }
  ~FullPort() {
    for (const int fd : waiting_) close(fd);
    close(fd_);
  }
  FullPort(const FullPort&) = delete;
  FullPort& operator=(const FullPort&) = delete;
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int fd_;
  int port_ = 0;
  std::vector<int> waiting_;
};

// A port that says `greeting` to everybody who connects, or closes the connection if it is empty.
class Greeter : public QThread {
 public:
  explicit Greeter(QByteArray greeting) : greeting_(std::move(greeting)) {
    if (!server_.listen(QHostAddress::LocalHost)) qFatal("no port");
    address_ = AddressOf(server_);
    server_.moveToThread(this);
    start();
  }
  ~Greeter() override {
    requestInterruption();
    wait();
  }
  const std::string& address() const { return address_; }

 protected:
  void run() override {
    while (!isInterruptionRequested()) {
      if (!server_.waitForNewConnection(10)) continue;
      const std::unique_ptr<QTcpSocket> socket(server_.nextPendingConnection());
      if (!greeting_.isEmpty()) {
        socket->write(greeting_);
        socket->waitForBytesWritten(1000);
        socket->waitForReadyRead(1000);
      }
      socket->close();
    }
    server_.close();
  }

 private:
  const QByteArray greeting_;
  QTcpServer server_;
  std::string address_;
};

}  // namespace

class ReachabilityTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Server_IsReached() {
    rpc::Server server({});
    QVERIFY(server.Start().ok());
    Reachability reachability(kLong, false, clock_);
    QVERIFY(reachability.Check(server.address()).ok());
    // A name is dialled with gRPC.
    const std::string port = server.address().substr(server.address().rfind(':'));
    QVERIFY(reachability.Check("localhost" + port).ok());
    QCOMPARE(reachability.dialled(), std::size_t{2});
  }

  // A loaded process: the kernel takes the connection, and nobody has time for it yet.
  void SilentPort_IsReached_AndSoon() {
    QTcpServer silent;
    QVERIFY(silent.listen(QHostAddress::LocalHost));
    Reachability reachability(kLong, false, clock_);
    const base::MonotonicTime begin = base::SystemClock().Now();
    QVERIFY(reachability.Check(AddressOf(silent)).ok());
    QVERIFY(base::SystemClock().Now() - begin < kLong / 2);
  }

  // A node with TLS waits for its client's first word.
  void WithTls_WhoeverSpeaksFirstIsNoNode() {
    QTcpServer silent;
    QVERIFY(silent.listen(QHostAddress::LocalHost));
    rpc::Server insecure({});
    QVERIFY(insecure.Start().ok());
    Reachability reachability(kLong, true, clock_);
    QVERIFY(reachability.Check(AddressOf(silent)).ok());
    QCOMPARE(Reason(reachability.Check(insecure.address())), std::string("UNREACHABLE_ADDRESS"));
  }

  void WhatIsNoNode_IsRefused_data() {
    QTest::addColumn<QString>("kind");
    for (const char* kind : {"closed", "full", "other protocol", "closes", "nonsense", "no port"})
      QTest::newRow(kind) << kind;
  }
  void WhatIsNoNode_IsRefused() {
    QFETCH(const QString, kind);
    QTcpServer closed;
    QVERIFY(closed.listen(QHostAddress::LocalHost));
    std::string address = AddressOf(closed);
    closed.close();
    std::unique_ptr<FullPort> full;
    std::unique_ptr<Greeter> greeter;
    base::Duration limit = kLong;
    if (kind == "full") {
      full = std::make_unique<FullPort>();
      address = full->address();
      limit = std::chrono::milliseconds(100);  // Nothing else ends it.
    } else if (kind == "other protocol" || kind == "closes") {
      greeter = std::make_unique<Greeter>(kind == "closes" ? "" : "SSH-2.0-OpenSSH_9.2\r\n");
      address = greeter->address();
    } else if (kind == "nonsense") {
      address = "256.0.0.1:7";
      limit = std::chrono::milliseconds(100);
    } else if (kind == "no port") {
      address = "127.0.0.1";
      limit = std::chrono::milliseconds(100);
    }
    Reachability reachability(limit, false, clock_);
    const absl::Status status = reachability.Check(address);
    QCOMPARE(Reason(status), std::string("UNREACHABLE_ADDRESS"));
    QVERIFY(base::Message(status).find(address) != std::string::npos);
    QVERIFY(base::Message(status).find("--advertise") != std::string::npos);
    // A failure is not remembered: the port may be open the next time.
    (void)reachability.Check(address);
    QCOMPARE(reachability.dialled(), std::size_t{2});
  }

  void Reached_IsRememberedForAWhile() {
    rpc::Server server({});
    QVERIFY(server.Start().ok());
    const std::string address = server.address();
    Reachability reachability(kLong, false, clock_);
    QVERIFY(reachability.Check(address).ok());
    server.Shutdown(base::Duration::zero());
    clock_.Advance(Reachability::kRemembered - std::chrono::nanoseconds(1));
    QVERIFY(reachability.Check(address).ok());
    QCOMPARE(reachability.dialled(), std::size_t{1});
    clock_.Advance(std::chrono::nanoseconds(1));
    QCOMPARE(Reason(reachability.Check(address)), std::string("UNREACHABLE_ADDRESS"));
    QCOMPARE(reachability.dialled(), std::size_t{2});
  }

  void OneAddress_IsDialledOnceAtATime() {
    const FullPort full;
    Reachability reachability(std::chrono::milliseconds(500), false, clock_);
    std::atomic<int> refused{0};
    {
      std::vector<std::jthread> callers;
      for (int i = 0; i < 16; ++i) {
        callers.emplace_back([&] { refused += reachability.Check(full.address()).ok() ? 0 : 1; });
      }
    }
    QCOMPARE(refused.load(), 16);
    // On a busy machine some callers may come when the first attempt is over.
    QVERIFY(reachability.dialled() < 16);
  }

  void NoLimit_MeansNoDial() {
    Reachability reachability({}, false, clock_);
    QVERIFY(reachability.Check("127.0.0.1:1").ok());
    QCOMPARE(reachability.dialled(), std::size_t{0});
  }

 private:
  base::ManualClock clock_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ReachabilityTest)
#include "reachability_test.moc"
