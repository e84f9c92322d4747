// The properties of the verbs backend alone. They need the device that $ONEPIECE_TEST_FABRIC names
// (verbs://rxe0). Without one, only the tests that need none run. ONEPIECE_LONG=1 makes 10^4
// connections.
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <QDir>
#include <QElapsedTimer>
#include <QProcess>
#include <QtTest>
#include <array>
#include <numeric>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/verbs/verbs_fabric.h"
#include "tests/eventually.h"
#include "tests/fabric/child.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::fabric {
namespace {

/// The kernel's objects of this process as `rdma resource show` counts them, and its numbers in
/// /proc.
struct Held {
  QByteArray objects;
  qsizetype descriptors = 0;
  qint64 resident_kib = 0;
};

Held WhatIsHeld() {
  Held held;
  QProcess rdma;
  rdma.start("rdma", {"resource", "show"});
  if (rdma.waitForFinished()) held.objects = rdma.readAllStandardOutput();
  held.descriptors = QDir("/proc/self/fd").entryList(QDir::Files | QDir::System).size();
  QFile statm("/proc/self/statm");
  if (statm.open(QIODevice::ReadOnly)) {
    held.resident_kib = statm.readAll().split(' ').value(1).toLongLong() * getpagesize() / 1024;
  }
  return held;
}

/// Takes a capability from this thread, and gives it back.
class WithoutCapability {
 public:
  explicit WithoutCapability(int capability) {
    syscall(SYS_capget, &header_, before_.data());
    auto data = before_;
    data[0].effective &= ~(1U << capability);
    taken_ = syscall(SYS_capset, &header_, data.data()) == 0;
  }
  ~WithoutCapability() { syscall(SYS_capset, &header_, before_.data()); }
  WithoutCapability(const WithoutCapability&) = delete;
  WithoutCapability& operator=(const WithoutCapability&) = delete;
  [[nodiscard]] bool taken() const { return taken_; }

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> before_{};
  bool taken_ = false;
};

constexpr int kChannelBroke = 42;  // The exit code of a child whose channel broke.

/// Writes other bytes again and again until its channel breaks.
int WriteForEver(const Child& parent, const std::string& address) {
  auto fabric = OpenVerbsFabric(address, base::SystemClock());
  if (!fabric.ok()) return 1;
  const auto dialer = *(*fabric)->Dial();
  parent.Send(dialer->offer().Serialize());
  const auto remote = RemoteRegion::Parse(parent.Receive());
  if (!remote.ok()) return 2;
  auto channel = dialer->Connect(*remote);
  if (!channel.ok()) return 3;
  std::vector<std::byte> data(100'000);
  const std::array<std::span<const std::byte>, 1> pieces{data};
  for (int i = 1;; ++i) {
    std::fill(data.begin(), data.end(), static_cast<std::byte>(i));
    const Op write = Op::Write("write", 0, pieces);
    const auto deadline = base::SystemClock().Now() + base::Scaled(std::chrono::seconds(10));
    if (!(*channel)->Execute({&write, 1}, deadline).ok()) return kChannelBroke;
  }
}

/// Owns a region until it is killed.
int OwnForEver(const Child& parent, const std::string& address) {
  auto fabric = OpenVerbsFabric(address, base::SystemClock());
  if (!fabric.ok()) return 1;
  auto region = *(*fabric)->Register(4096, "region");
  auto access = region->Accept(*Offer::Parse(parent.Receive()));
  if (!access.ok()) return 2;
  parent.Send((*access)->remote().Serialize());
  while (true) pause();
}

}  // namespace

class VerbsTest : public QObject {
  Q_OBJECT

  std::string address_;  // The part of the URI behind verbs://.
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Region> region_;

  static base::MonotonicTime Soon() {
    return base::SystemClock().Now() + base::Scaled(std::chrono::seconds(30));
  }
  static absl::Status Do(Channel& channel, const std::vector<Op>& chain) {
    return channel.Execute(chain, Soon());
  }
  static absl::Status WriteWord(Channel& channel) {
    static constexpr std::array<std::uint64_t, 1> kWord{7};
    return Do(channel, {Op::WriteWords("w", 0, kWord)});
  }
  bool Open(VerbsKeys keys) {
    auto fabric = OpenVerbsFabric(address_, base::SystemClock(), keys);
    if (!fabric.ok()) return false;
    fabric_ = *std::move(fabric);
    auto region = fabric_->Register(8192, "region");
    if (region.ok()) region_ = *std::move(region);
    return region.ok();
  }
  static void BothKeys() {
    QTest::addColumn<bool>("windows");
    QTest::newRow("windows") << true;
    QTest::newRow("registrations") << false;
  }
  static VerbsKeys Keys(bool windows) {
    return windows ? VerbsKeys::kBest : VerbsKeys::kRegistrations;
  }

 private Q_SLOTS:
  void init() {
    const std::string uri = qgetenv("ONEPIECE_TEST_FABRIC").toStdString();
    const bool here = uri.starts_with("verbs://");
    const bool needs_none = QByteArray(QTest::currentTestFunction()).startsWith("Open_");
    if (!here && !needs_none) QSKIP("ONEPIECE_TEST_FABRIC names no RDMA device");
    address_ = here ? uri.substr(8) : "";
  }
  void cleanup() {
    region_.reset();
    fabric_.reset();
  }

  void Open_RefusesWhatItIsNot_data() {
    QTest::addColumn<QString>("address");
    QTest::addColumn<QString>("reason");
    QTest::newRow("no such device") << "no_such_device"
                                    << "NO_RDMA_DEVICE";
    for (const char* bad : {":1", "rxe0:0", "rxe0:x", "rxe0:999", "rxe0/gid=", "rxe0/gid=256",
                            "rxe0/gid=-1", "rxe0/mtu=1", "rxe0/", "rxe0:1:1"}) {
      QTest::newRow(bad) << bad << "BAD_FABRIC_URI";
    }
  }
  void Open_RefusesWhatItIsNot() {
    QFETCH(QString, address);
    QFETCH(QString, reason);
    const auto fabric = OpenVerbsFabric(address.toStdString(), base::SystemClock());
    QCOMPARE(QString::fromStdString(Reason(fabric.status())), reason);
  }

  void Device_IsNamedWhereItOrItsPartIsMissing() {
    const std::string device = address_.substr(0, address_.find_first_of(":/"));
    const auto other = OpenVerbsFabric("no_such_device", base::SystemClock());
    QVERIFY(base::Message(other.status()).find(device) != std::string::npos);
    QCOMPARE(Reason(OpenVerbsFabric(device + ":200", base::SystemClock()).status()),
             std::string("NO_RDMA_DEVICE"));
    QCOMPARE(Reason(OpenVerbsFabric(device + "/gid=255", base::SystemClock()).status()),
             std::string("NO_GID"));
    QVERIFY(OpenVerbsFabric(device + ":1/gid=0", base::SystemClock()).ok());
    QVERIFY(OpenVerbsFabric("", base::SystemClock()).ok());
  }

  void Chain_IsOnePostListAndOneCompletion() {
    QVERIFY(Open(VerbsKeys::kBest));
    auto link = ConnectLoopback(*fabric_, *region_);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    const std::array<std::uint64_t, 9> words{};
    std::array<std::uint64_t, 16> lines{};
    const std::vector<std::byte> payload(1000);
    const std::array<std::span<const std::byte>, 1> pieces{payload};
    std::uint64_t holder = 0;
    QVERIFY(Do(*link->channel,
               {Op::CompareAndSwap("take", 0, 0, 1, &holder), Op::ReadWords("lines", 64, lines)})
                .ok());
    QCOMPARE(link->channel->counters().round_trips, std::uint64_t{1});
    QCOMPARE(link->channel->counters().work_requests, std::uint64_t{2});
    QVERIFY(Do(*link->channel,
               {Op::WriteWords("slot", 192, words), Op::WriteWords("tail", 64, words),
                Op::CompareAndSwap("free", 0, 1, 0, &holder), Op::Write("payload", 1024, pieces),
                Op::WriteWords("commit", 192, words), Op::ReadWords("head", 128, lines)})
                .ok());
    QCOMPARE(link->channel->counters().round_trips, std::uint64_t{2});
    QCOMPARE(link->channel->counters().work_requests, std::uint64_t{8});
  }

  void Chain_LongerThanTheSendQueueIsPostedInParts() {
    QVERIFY(Open(VerbsKeys::kBest));
    auto link = ConnectLoopback(*fabric_, *region_);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    std::array<std::uint64_t, 150> before{};
    std::vector<Op> chain;
    for (std::uint64_t& word : before) chain.push_back(Op::FetchAdd("add", 0, 1, &word));
    QVERIFY(Do(*link->channel, chain).ok());
    std::array<std::uint64_t, 150> expected{};
    std::iota(expected.begin(), expected.end(), 0);
    QCOMPARE(before, expected);
    QCOMPARE(link->channel->counters().work_requests, std::uint64_t{150});
    QCOMPARE(link->channel->counters().round_trips, std::uint64_t{3});
  }

  void Write_LargerThanTheDevicesLargestMessageIsSplit() {
    constexpr std::size_t kBytes = 20 * 1024 * 1024;
    QVERIFY(Open(VerbsKeys::kBest));
    auto region = fabric_->Register(kBytes, "large");
    QVERIFY2(region.ok(), region.status().ToString().c_str());
    auto link = ConnectLoopback(*fabric_, **region);
    QVERIFY(link.ok());
    std::vector<std::byte> data(kBytes);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i ^ i >> 11);
    const std::array<std::span<const std::byte>, 1> pieces{data};
    const auto status = Do(*link->channel, {Op::Write("write", 0, pieces)});
    QVERIFY2(status.ok(), status.ToString().c_str());
    QVERIFY(std::equal(data.begin(), data.end(), (*region)->bytes().begin()));
    QCOMPARE(link->channel->counters().round_trips, std::uint64_t{1});
    link->channel.reset();
    link->access.reset();
  }

  void Key_HoldsForOnePeerAndUntilItIsRevoked_data() { BothKeys(); }
  void Key_HoldsForOnePeerAndUntilItIsRevoked() {
    QFETCH(bool, windows);
    QVERIFY(Open(Keys(windows)));
    auto first = ConnectLoopback(*fabric_, *region_);
    QVERIFY2(first.ok(), first.status().ToString().c_str());
    QVERIFY(WriteWord(*first->channel).ok());
    // The second peer uses the first one's key.
    const auto dialer = *fabric_->Dial();
    auto access = *region_->Accept(dialer->offer());
    RemoteRegion remote = access->remote();
    QVERIFY(remote.key != first->access->remote().key);
    remote.key = first->access->remote().key;
    const auto stolen = dialer->Connect(remote);
    QCOMPARE(Reason(stolen.status()), std::string("WRONG_REGION"));
    QVERIFY(WriteWord(*first->channel).ok());
    // An answer to another offer.
    const auto other = *fabric_->Dial();
    QCOMPARE(Reason(other->Connect(access->remote()).status()), std::string("WRONG_REGION"));
    // A revoked access.
    QVERIFY(first->access->Revoke());
    StoreWord(region_->bytes().data(), 0);
    const auto late = WriteWord(*first->channel);
    QCOMPARE(Reason(late), std::string("CHANNEL_BROKEN"));
    QVERIFY(base::Message(late).find("operation w: ") != std::string::npos);
    QCOMPARE(LoadWord(region_->bytes().data()), std::uint64_t{0});
    // The owner of the channel connects anew.
    auto again = ConnectLoopback(*fabric_, *region_);
    QVERIFY(again.ok());
    QVERIFY(WriteWord(*again->channel).ok());
    QCOMPARE(LoadWord(region_->bytes().data()), std::uint64_t{7});
  }

  void Mtu_IsTheLowerOfBoth() {
    // In the details: a word, the address (a word and 16 bytes), LID, queue pair, packet number.
    constexpr std::size_t kMtuAt = 8 + 24 + 3 * 8;
    constexpr char kMtu256 = 1;
    QVERIFY(Open(VerbsKeys::kBest));
    const auto dialer = *fabric_->Dial();
    Offer offer = dialer->offer();
    QVERIFY(offer.details[kMtuAt] > kMtu256);
    offer.details[kMtuAt] = kMtu256;
    const auto access = *region_->Accept(offer);
    QCOMPARE(access->remote().details[kMtuAt], kMtu256);
    auto channel = dialer->Connect(access->remote());
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    // An end that takes longer packets than the other refuses what comes.
    const std::vector<std::byte> data(5000, std::byte{1});
    const std::array<std::span<const std::byte>, 1> pieces{data};
    QVERIFY(Do(**channel, {Op::Write("write", 0, pieces)}).ok());
    QVERIFY(std::equal(data.begin(), data.end(), region_->bytes().begin()));
    offer.details[kMtuAt] = 6;
    QCOMPARE(Reason(region_->Accept(offer).status()), std::string("MALFORMED_OFFER"));
  }

  void Accept_NamesAPeerThatCannotBeReached() {
    // In the details: a word, the address (a word and 16 bytes, the last four of IPv4).
    constexpr std::size_t kIpv4At = 8 + 8 + 12;
    QVERIFY(Open(VerbsKeys::kBest));
    Offer offer = (*fabric_->Dial())->offer();
    offer.details.replace(kIpv4At, 4, "\xcb\x00\x71\x01", 4);  // 203.0.113.1, nobody's.
    const auto access = region_->Accept(offer);
    if (access.ok()) QSKIP("this network has a way to everywhere");
    QCOMPARE(Reason(access.status()), std::string("PEER_UNREACHABLE"));
    QVERIFY(base::Message(access.status()).find(" to ::ffff:203.0.113.1: ") != std::string::npos);
  }

  void Doorbell_ServesRegionsOfBothKindsOfKeys_data() { BothKeys(); }
  void Doorbell_ServesRegionsOfBothKindsOfKeys() {
    QFETCH(bool, windows);
    QVERIFY(Open(Keys(windows)));
    const auto doorbell = *fabric_->MakeDoorbell("bell");
    std::vector<std::unique_ptr<Region>> regions;
    std::vector<Loopback> links;
    for (int i = 0; i < 3; ++i) {
      regions.push_back(*fabric_->Register(4096, "belled", doorbell));
      auto link = ConnectLoopback(*fabric_, *regions.back());
      QVERIFY2(link.ok(), link.status().ToString().c_str());
      links.push_back(*std::move(link));
    }
    const std::uint32_t seen = doorbell->count();
    for (Loopback& link : links) QVERIFY(Do(*link.channel, {Op::Notify("ring")}).ok());
    QTRY_COMPARE(doorbell->count(), seen + 3);
    links.clear();
  }

  void Revoke_EndsWhatAnotherProcessWrites_data() {
    QTest::addColumn<bool>("dies");
    QTest::newRow("killed") << true;
    QTest::newRow("stopped, then continued") << false;
  }
  void Revoke_EndsWhatAnotherProcessWrites() {
    QFETCH(bool, dies);
    Child child([this](const Child& parent) { return WriteForEver(parent, address_); });
    QVERIFY(Open(VerbsKeys::kBest));
    auto region = *fabric_->Register(100'000, "target");
    const auto offer = Offer::Parse(child.Receive());
    QVERIFY(offer.ok());
    auto access = region->Accept(*offer);
    QVERIFY2(access.ok(), access.status().ToString().c_str());
    child.Send((*access)->remote().Serialize());
    const std::byte* words = region->bytes().data();
    QVERIFY(testing::Eventually(base::Scaled(std::chrono::seconds(20)),
                                [&] { return LoadWord(words + 99'992) != 0; }));
    child.Signal(dies ? SIGKILL : SIGSTOP);
    if (dies) {
      QVERIFY(
          testing::Eventually(std::chrono::seconds(20), [&] { return (*access)->PeerIsDead(); }));
    }
    QCOMPARE((*access)->PeerIsDead(), dies);
    QVERIFY((*access)->Revoke());
    const std::vector<std::byte> then(region->bytes().begin(), region->bytes().end());
    if (!dies) {
      child.Signal(SIGCONT);
      QCOMPARE(child.Reap(), kChannelBroke);
    }
    QVERIFY(std::equal(then.begin(), then.end(), region->bytes().begin()));
    access->reset();
  }

  void Execute_FailsOnceTheOwnersProcessIsDead() {
    Child child([this](const Child& parent) { return OwnForEver(parent, address_); });
    QVERIFY(Open(VerbsKeys::kBest));
    const auto dialer = *fabric_->Dial();
    child.Send(dialer->offer().Serialize());
    const auto remote = RemoteRegion::Parse(child.Receive());
    QVERIFY(remote.ok());
    auto channel = dialer->Connect(*remote);
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    QVERIFY(WriteWord(**channel).ok());
    child.Signal(SIGKILL);
    (void)child.Reap();
    QCOMPARE(Reason(WriteWord(**channel)), std::string("CHANNEL_BROKEN"));
  }

  void Execute_EndsInRealTimeWhenItsClockStandsStill() {
    base::ManualClock clock;
    auto fabric = *OpenVerbsFabric(address_, clock);
    auto region = *fabric->Register(4096, "region");
    auto link = ConnectLoopback(*fabric, *region);
    QVERIFY(link.ok());
    QVERIFY(link->access->Revoke());  // The owner does not answer any more.
    const std::array<std::uint64_t, 1> word{7};
    const Op op = Op::WriteWords("w", 0, word);
    const auto status =
        link->channel->Execute({&op, 1}, clock.Now() + std::chrono::milliseconds(50));
    QCOMPARE(status.code(), absl::StatusCode::kDeadlineExceeded);
    QVERIFY(link->channel->broken());
  }

  void Register_NamesTheLimitOfLockedMemory() {
    QVERIFY(Open(VerbsKeys::kBest));
    constexpr int kIpcLock = 14;  // CAP_IPC_LOCK ignores the limit.
    const WithoutCapability ordinary(kIpcLock);
    if (!ordinary.taken()) QSKIP("cannot give up CAP_IPC_LOCK");
    rlimit before{};
    QCOMPARE(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    QCOMPARE(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    const auto region = fabric_->Register(16 << 20, "large");
    QCOMPARE(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    QCOMPARE(Reason(region.status()), std::string("MEMLOCK_LIMIT"));
    QVERIFY(base::Message(region.status()).find("RLIMIT_MEMLOCK is 1048576") != std::string::npos);
  }

  void Connections_LeaveNothingBehind_data() { BothKeys(); }
  void Connections_LeaveNothingBehind() {
    QFETCH(bool, windows);
    const int cycles = qEnvironmentVariableIntValue("ONEPIECE_LONG") != 0 ? 10'000 : 60;
    QVERIFY(Open(Keys(windows)));
    const auto doorbell = *fabric_->MakeDoorbell("bell");
    region_ = *fabric_->Register(8192, "region", doorbell);
    Held start;
    QElapsedTimer timer;
    base::Duration longest_revoke{};
    for (int i = 0; i < cycles + 20; ++i) {
      if (i == 20) {  // The first connections fill the caches that the next ones use.
        start = WhatIsHeld();
        timer.start();
      }
      auto link = ConnectLoopback(*fabric_, *region_);
      QVERIFY2(link.ok(), link.status().ToString().c_str());
      QVERIFY(WriteWord(*link->channel).ok());
      QVERIFY(Do(*link->channel, {Op::Notify("ring")}).ok());
      (void)doorbell->count();  // Its owner looks from time to time.
      // Ends connections in each possible way. A peer that is cut off waits for nobody.
      if (i % 3 == 0) {
        const base::MonotonicTime before = base::SystemClock().Now();
        QVERIFY(link->access->Revoke());
        longest_revoke = std::max(longest_revoke, base::SystemClock().Now() - before);
      }
      if (i % 3 == 1) link->channel->Break();
      if (i % 6 == 0) {
        const std::array<std::uint64_t, 1> word{7};
        const Op op = Op::WriteWords("w", 0, word);
        const auto soon = base::SystemClock().Now() + std::chrono::milliseconds(1);
        QVERIFY(!link->channel->Execute({&op, 1}, soon).ok());
      }
    }
    const qint64 took_ms = timer.elapsed();
    const Held end = WhatIsHeld();
    qInfo("%d connections in %lld ms, longest revocation %lld us; resident %lld -> %lld KiB; %s",
          cycles, static_cast<long long>(took_ms),
          static_cast<long long>(longest_revoke.count() / 1000),
          static_cast<long long>(start.resident_kib), static_cast<long long>(end.resident_kib),
          end.objects.trimmed().constData());
    QVERIFY(!start.objects.isEmpty());
    QCOMPARE(end.objects, start.objects);
    QCOMPARE(end.descriptors, start.descriptors);
    QVERIFY(end.resident_kib < start.resident_kib + 1024);
  }
};

}  // namespace onepiece::fabric

ONEPIECE_TEST(onepiece::fabric::VerbsTest)
#include "verbs_test.moc"
