// Which connections a server takes, by address.
#include "cluster/rpc/connection_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <QtTest>
#include <cstring>
#include <map>

#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using namespace std::chrono_literals;

Origin From(const char* text) {
  sockaddr_storage peer{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(peer);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(peer);
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    peer.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1) {
    peer.ss_family = AF_INET6;
  }
  return OriginOf(peer);
}

v1::CallerLimits Connections(int connections, double per_s) {
  v1::CallerLimits limits;
  limits.set_connections(connections);
  limits.set_connections_per_s(per_s);
  return limits;
}

/// Connections get descriptors as a system gives them: the lowest free one.
struct Addresses {
  /// Returns the descriptor, or -1 when it was refused.
  int Connect(const std::string& from) {
    int fd = 10;
    while (sockets.contains(fd)) ++fd;
    sockets[fd] = ++inodes;
    last = limits.Admit(From(from.c_str()), {.fd = fd, .inode = inodes});
    if (last.verdict == ConnectionLimits::Verdict::kTaken) return fd;
    sockets.erase(fd);
    return -1;
  }
  void End(int fd) { sockets.erase(fd); }
  int ConnectUntilRefused(const std::string& from) {
    int taken = 0;
    while (taken < 100'000 && Connect(from) >= 0) ++taken;
    return taken;
  }

  std::map<int, std::uint64_t> sockets;
  std::uint64_t inodes = 0;
  int looks = 0;
  ConnectionLimits::Answer last;
  base::ManualClock clock;
  ConnectionLimits limits{clock,
                          {.is_open =
                               [this](const ConnectionLimits::Socket& socket) {
                                 ++looks;
                                 const auto now = sockets.find(socket.fd);
                                 return now != sockets.end() && now->second == socket.inode;
                               },
                           .max_origins = 100,
                           .max_descriptor = 5000}};
};

}  // namespace

class ConnectionLimitsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Origins_AreAddresses_AndNetworksOfIpv6() {
    QCOMPARE(From("192.0.2.7").name, std::string("192.0.2.7"));
    QCOMPARE(From("::ffff:192.0.2.7").name, std::string("192.0.2.7"));
    QCOMPARE(From("2001:db8:1:2:3:4:5:6").name, From("2001:db8:1:2::9").name);
    QVERIFY(From("2001:db8:1:2::").name != From("2001:db8:1:3::").name);
    for (const char* loopback : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"})
      QVERIFY2(From(loopback).loopback, loopback);
    for (const char* other : {"128.0.0.1", "::2", "10.0.0.1"})
      QVERIFY2(!From(other).loopback, other);
  }

  void AFlood_IsHeldToTheRate_AndHurtsNoOtherAddress() {
    Addresses world;
    QCOMPARE(world.ConnectUntilRefused("192.0.2.1"), 200);
    QVERIFY(world.last.verdict == ConnectionLimits::Verdict::kTooOften);
    QVERIFY(world.Connect("192.0.2.2") >= 0);
    world.clock.Advance(100ms);
    QCOMPARE(world.ConnectUntilRefused("192.0.2.1"), 20);
    QCOMPARE(world.limits.Refused(ConnectionLimits::Verdict::kTooOften), 2);
    QCOMPARE(world.limits.Refused(ConnectionLimits::Verdict::kTooMany), 0);
  }

  void OpenConnections_Count_UntilTheyEnd() {
    Addresses world;
    world.limits.Follow(Connections(100, 10'000));
    const int first = world.Connect("192.0.2.1");
    QCOMPARE(world.ConnectUntilRefused("192.0.2.1"), 99);
    QVERIFY(world.last.verdict == ConnectionLimits::Verdict::kTooMany);
    QVERIFY(world.Connect("192.0.2.2") >= 0);
    world.End(first);
    world.clock.Advance(1s);
    QCOMPARE(world.Connect("192.0.2.1"), first);
    QCOMPARE(world.Connect("192.0.2.1"), -1);
  }

  // The descriptor of a connection that ended may be another's, in whose name nothing is freed.
  void ADescriptorThatIsGivenAgain_CountsOnce() {
    Addresses world;
    world.limits.Follow(Connections(100, 10'000));
    const int first = world.Connect("192.0.2.1");
    QCOMPARE(world.ConnectUntilRefused("192.0.2.1"), 99);
    world.End(first);
    QCOMPARE(world.Connect("192.0.2.2"), first);
    world.clock.Advance(1s);
    QVERIFY(world.Connect("192.0.2.1") >= 0);
    QCOMPARE(world.Connect("192.0.2.1"), -1);
    world.sockets[first] = ++world.inodes;  // A file of the process has it now.
    world.clock.Advance(1s);
    QCOMPARE(world.Connect("192.0.2.1"), -1);
    QCOMPARE(world.ConnectUntilRefused("192.0.2.2"), 100);
  }

  void AnAddressAtItsLimit_CostsNoLookForEachConnection() {
    Addresses world;
    world.limits.Follow(Connections(100, 1'000'000));
    QCOMPARE(world.ConnectUntilRefused("192.0.2.1"), 100);
    const int looks = world.looks;
    for (int i = 0; i < 1000; ++i) QCOMPARE(world.Connect("192.0.2.1"), -1);
    QCOMPARE(world.looks, looks);
    world.clock.Advance(100ms);
    QCOMPARE(world.Connect("192.0.2.1"), -1);
    QCOMPARE(world.looks, looks + 100);
  }

  void ARefusal_IsSaidOncePerTenSecondsAndAddress() {
    Addresses world;
    QCOMPARE(world.ConnectUntilRefused("192.0.2.1"), 200);
    QVERIFY(world.last.say);
    QCOMPARE(world.Connect("192.0.2.1"), -1);
    QVERIFY(!world.last.say);
    QCOMPARE(world.ConnectUntilRefused("192.0.2.2"), 200);
    QVERIFY(world.last.say);
    world.clock.Advance(10s);
    world.ConnectUntilRefused("192.0.2.1");
    QVERIFY(world.last.say);
  }

  // An embedded cluster of a thousand nodes has one address.
  void Loopback_IsLimited_OnlyWhenTheConfigurationSaysSo() {
    Addresses world;
    for (int i = 0; i < 4000; ++i) QVERIFY(world.Connect("127.0.0.1") >= 0);
    world.limits.Follow(Connections(100, 0));
    QCOMPARE(world.ConnectUntilRefused("127.0.0.1"), 100);
    QVERIFY(world.last.verdict == ConnectionLimits::Verdict::kTooMany);
    world.limits.Follow(Connections(0, 50));
    QCOMPARE(world.ConnectUntilRefused("127.0.0.2"), 50);
    QVERIFY(world.last.verdict == ConnectionLimits::Verdict::kTooOften);
    world.limits.Follow({});
    QVERIFY(world.Connect("127.0.0.1") >= 0);
  }

  void TheProcess_KeepsDescriptorsForItself() {
    Addresses world;
    QCOMPARE(world.ConnectUntilRefused("127.0.0.1"), 5000 - 10);
    QVERIFY(world.last.verdict == ConnectionLimits::Verdict::kNoRoom);
    QCOMPARE(world.limits.Refused(ConnectionLimits::Verdict::kNoRoom), 1);
  }

  // Networks of IPv6 are cheap: whoever has one has thousands.
  void TheTableOfAddresses_IsBounded() {
    Addresses world;
    std::vector<int> open;
    for (int i = 0; i < 100; ++i) open.push_back(world.Connect("192.0.2." + std::to_string(i)));
    // These share one account.
    int taken = 0;
    for (int i = 0; i < 250; ++i) taken += world.Connect("198.51.100." + std::to_string(i)) >= 0;
    QCOMPARE(taken, 200);
    // Whoever is known keeps an account, and those who have left make room.
    QVERIFY(world.Connect("192.0.2.1") >= 0);
    for (const int fd : open) world.End(fd);
    world.clock.Advance(2s);
    for (int i = 0; i < 100; ++i) QVERIFY(world.Connect("203.0.113.1") >= 0);
    QCOMPARE(world.ConnectUntilRefused("203.0.113.2"), 200);
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::ConnectionLimitsTest)
#include "connection_limits_test.moc"
