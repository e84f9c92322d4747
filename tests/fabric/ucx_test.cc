// The properties of the ucx backend alone: the fence against late writes, the caller's memory after
// a deadline, and answers that are damaged or belong to another. Over TCP on the loopback
// interface.
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <QElapsedTimer>
#include <QtTest>
#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/ucx/listening_sockets.h"
#include "cluster/fabric/ucx/ucx_link.h"
#include "cluster/fabric/ucx/ucx_seal.h"
#include "cluster/fabric/ucx/ucx_target.h"
#include "cluster/fabric/ucx/ucx_wire.h"
#include "cluster/fabric/ucx/ucx_worker.h"
#include "tests/eventually.h"
#include "tests/fabric/child.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::fabric {
namespace {

constexpr char kUri[] = "ucx://lo";
constexpr std::size_t kRegionBytes = std::size_t{4} << 20;
constexpr int kCutOff = 42;  // The exit code of a child whose channel broke.

/// A TCP connection of somebody who knows nothing.
class Stranger {
 public:
  explicit Stranger(int family = AF_INET)
      : fd_(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  /// False when nobody answers within 200 ms.
  bool Connect(std::uint16_t port, std::uint32_t from = INADDR_LOOPBACK) const {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(from);
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) return false;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return Connect(reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  bool Connect6(std::uint16_t port) const {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    to.sin6_addr = in6addr_loopback;
    return Connect(reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  bool Listen() const {
    sockaddr_in6 own{};
    own.sin6_family = AF_INET6;
    own.sin6_addr = in6addr_loopback;
    return bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0 &&
           listen(fd_, 16) == 0;
  }
  int fd() const { return fd_; }
  void Say(const std::string& bytes) const {
    (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

 private:
  bool Connect(const sockaddr* to, socklen_t size) const {
    if (connect(fd_, to, size) == 0) return true;
    pollfd poll_fd{.fd = fd_, .events = POLLOUT, .revents = 0};
    return poll(&poll_fd, 1, 200) == 1 && poll_fd.revents == POLLOUT;
  }
  const int fd_;
};

std::vector<std::uint16_t> PortsSince(const std::vector<ListeningSocket>& before) {
  std::vector<std::uint16_t> ports;
  for (const ListeningSocket& socket : ListeningSocketsOfThisProcess()) {
    if (std::ranges::find(before, socket) == before.end()) ports.push_back(socket.port);
  }
  return ports;
}

long ResidentBytes() {
  long all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

base::MonotonicTime In(base::Duration time) { return base::SystemClock().Now() + time; }

/// Writes other bytes again and again until its channel breaks.
int WriteUntilCutOff(const Child& parent) {
  auto fabric = Fabric::Open(kUri);
  if (!fabric.ok()) return 1;
  const auto dialer = *(*fabric)->Dial();
  parent.Send(dialer->offer().Serialize());
  const auto remote = RemoteRegion::Parse(parent.Receive());
  if (!remote.ok()) return 2;
  auto channel = dialer->Connect(*remote);
  if (!channel.ok()) return 3;
  std::vector<std::byte> data(kRegionBytes);
  const std::array<std::span<const std::byte>, 1> pieces{data};
  for (int i = 1;; ++i) {
    std::fill(data.begin(), data.end(), static_cast<std::byte>(i | 1));
    const Op write = Op::Write("write", 0, pieces);
    if (!(*channel)->Execute({&write, 1}, In(base::Scaled(std::chrono::seconds(20)))).ok()) {
      return kCutOff;
    }
  }
}

/// Owns a region until it is told to end. The exit code says whether that worked.
int OwnUntilTold(const Child& parent) {
  auto fabric = Fabric::Open(kUri);
  if (!fabric.ok()) return 1;
  auto region = *(*fabric)->Register(kRegionBytes, "region");
  auto access = region->Accept(*Offer::Parse(parent.Receive()));
  if (!access.ok()) return 2;
  parent.Send((*access)->remote().Serialize());
  (void)parent.Receive();
  return 0;
}

UcxAgreement AgreementOf(const UcxOffer& ours, const RemoteRegion& remote) {
  const UcxDetails details = *UcxDetails::Parse(remote.details);
  return {.offer_secret = ours.secret,
          .grant_secret = details.secret,
          .protection = details.protection,
          .key = remote.key,
          .length_bytes = remote.length_bytes,
          .address = remote.address};
}

/// Asks for much more than the owner keeps, and never takes an answer.
int AskAndNeverReceive(const Child& parent) {
  auto context = UcxContext::Open("lo");
  if (!context.ok()) return 1;
  auto worker = UcxWorker::Create(*context);
  if (!worker.ok()) return 2;
  const UcxOffer ours{.protection = FrameProtection::kNone, .secret = NewUcxSecret()};
  parent.Send(Offer{.backend = kUcxBackend, .peer = SelfIdentity(), .details = ours.Serialize()}
                  .Serialize());
  const auto remote = RemoteRegion::Parse(parent.Receive());
  const auto details = UcxDetails::Parse(remote->details);
  ucp_ep_params_t to{};
  to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  to.address = reinterpret_cast<const ucp_address_t*>(details->worker_address.data());
  ucp_ep_h endpoint = nullptr;
  if (ucp_ep_create((*worker)->get(), &to, &endpoint) != UCS_OK) return 3;
  const auto send = [&](UcxMessage message, const void* header, std::size_t bytes) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
    const ucs_status_ptr_t sent =
        ucp_am_send_nbx(endpoint, message, header, bytes, nullptr, 0, &params);
    while (UCS_PTR_IS_PTR(sent) && ucp_request_check_status(sent) == UCS_INPROGRESS) {
      (*worker)->Progress();
    }
    if (UCS_PTR_IS_PTR(sent)) ucp_request_free(sent);
  };
  const UcxAgreement agreement = AgreementOf(ours, *remote);
  const std::string nonce = NewUcxSecret();
  const std::string hello = UcxHello{.nonce = nonce, .tag = agreement.HelloTag(nonce)}.Serialize();
  send(kUcxHello, hello.data(), hello.size());
  UcxSealer sealer(agreement.protection, agreement.KeyToOwner(nonce));
  for (std::uint64_t i = 0; i < 64; ++i) {
    const UcxOp op{
        .sequence = i, .index = i, .kind = UcxKind::kRead, .length_bytes = remote->length_bytes};
    const UcxSealedHeader header = sealer.Seal(std::as_bytes(std::span(&op, 1)), {}, nullptr);
    send(kUcxOp, header.bytes.data(), header.size);
  }
  (void)parent.Receive();  // No progress, and so no answer taken, until it is killed.
  return 0;
}

}  // namespace

class UcxTest : public QObject {
  Q_OBJECT

  static inline sighandler_t hang_up_at_start_ = SIG_ERR;

 public:
  // Called by main() before Qt catches signals itself.
  static void initMain() {
    struct sigaction action {};
    if (sigaction(SIGHUP, nullptr, &action) == 0) hang_up_at_start_ = action.sa_handler;
  }

 private Q_SLOTS:
  // The writer is stopped in the middle of a write of many segments. Some have landed, some lie in
  // the sockets, and some are not yet sent. After the fence none of its writes lands.
  void Revoke_LeavesNoLateWriteOfAStoppedProcess() {
    constexpr int kRounds = 8;
    int in_the_middle = 0;
    for (int round = 0; round < kRounds; ++round) {
      Child writer(WriteUntilCutOff);
      auto fabric = Fabric::Open(kUri);
      QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
      auto region = *(*fabric)->Register(kRegionBytes, "region");
      const auto offer = Offer::Parse(writer.Receive());
      QVERIFY(offer.ok());
      auto access = *region->Accept(*offer);
      writer.Send(access->remote().Serialize());
      const std::span<std::byte> memory = region->bytes();
      // Each round stops it at another place of the memory.
      const std::byte* at = memory.data() + kRegionBytes / kRounds * static_cast<unsigned>(round);
      QElapsedTimer timer;
      timer.start();
      while (LoadWord(at) == 0 && timer.elapsed() < 30000) std::this_thread::yield();
      writer.Signal(SIGSTOP);
      writer.AwaitStopped();
      QVERIFY(access->Revoke());
      if (memory.front() != memory.back()) ++in_the_middle;
      std::fill(memory.begin(), memory.end(), std::byte{0});
      writer.Signal(SIGCONT);
      // It goes on until its channel is broken, and then ends.
      QCOMPARE(writer.Reap(), kCutOff);
      QVERIFY(std::ranges::all_of(memory, [](std::byte value) { return value == std::byte{0}; }));
      access.reset();
      region.reset();
    }
    qInfo("%d of %d writers were stopped in the middle of a write", in_the_middle, kRounds);
  }

  // The owner is stopped, so the write cannot complete. After its deadline the caller frees its
  // memory, and a late access to it would crash.
  void Deadline_GivesTheCallersMemoryBack() {
    Child owner(OwnUntilTold);
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    const auto dialer = *(*fabric)->Dial();
    owner.Send(dialer->offer().Serialize());
    auto channel = dialer->Connect(*RemoteRegion::Parse(owner.Receive()));
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    owner.Signal(SIGSTOP);
    owner.AwaitStopped();
    void* data = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    QVERIFY(data != MAP_FAILED);
    // A word behind the memory into which the peer answers.
    auto* answer = static_cast<std::uint64_t*>(data);
    const std::array<std::span<const std::byte>, 1> pieces{
        std::span(static_cast<const std::byte*>(data) + 64, kRegionBytes - 64)};
    const Op chain[] = {Op::FetchAdd("add", 0, 1, answer), Op::Write("write", 64, pieces)};
    const auto status = (*channel)->Execute(chain, In(std::chrono::milliseconds(200)));
    munmap(data, kRegionBytes);
    QCOMPARE(status.code(), absl::StatusCode::kDeadlineExceeded);
    QVERIFY((*channel)->broken());
    owner.Signal(SIGCONT);
    owner.Send("end");
    QCOMPARE(owner.Reap(), 0);
  }

  // It asks for 256 MiB.
  void PeerThatNeverReceives_IsClosed() {
    const std::uint64_t before = UcxProgress::flooded_peers();
    Child peer(AskAndNeverReceive);
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(kRegionBytes, "region");
    auto access = *region->Accept(*Offer::Parse(peer.Receive()));
    auto link = ConnectLoopback(**fabric, *region);
    QVERIFY(link.ok());
    peer.Send(access->remote().Serialize());
    QVERIFY(testing::Eventually([&] { return UcxProgress::flooded_peers() == before + 1; }));
    // The others go on.
    const std::array<std::uint64_t, 1> word{7};
    const Op write = Op::WriteWords("w", 0, word);
    QVERIFY(link->channel->Execute({&write, 1}, In(base::Scaled(std::chrono::seconds(20)))).ok());
    QVERIFY(access->Revoke());
  }

  // A channel checks its operations, but a peer may be any program.
  void OwnerRefusesWhatLiesOutside_AlsoWhereTheSumWraps() {
    constexpr std::uint64_t kBytes = 4096, kMax = std::numeric_limits<std::uint64_t>::max();
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(kBytes, "region");
    const auto dialer = *(*fabric)->Dial();
    const auto context = UcxContext::Open("lo");
    QVERIFY(context.ok());
    const std::array<std::byte, 64> data{std::byte{1}};
    for (const std::uint64_t offset :
         {kMax, kMax - 7, kMax - 63, kMax - 64, kBytes, kBytes - 8, kBytes - 63}) {
      const auto access = *region->Accept(dialer->offer());
      const base::MonotonicTime deadline = In(base::Scaled(std::chrono::seconds(20)));
      auto link =
          UcxLink::Connect(*context, *UcxOffer::Parse(dialer->offer()), access->remote(), deadline);
      QVERIFY2(link.ok(), link.status().ToString().c_str());
      const std::array<std::span<const std::byte>, 1> pieces{data};
      const Op write = Op::Write("write", offset, pieces);
      QCOMPARE(Reason((*link)->Execute({&write, 1}, deadline)), std::string("CHANNEL_BROKEN"));
      QVERIFY(std::ranges::all_of(region->bytes(), [](auto byte) { return byte == std::byte{0}; }));
    }
  }

  // More than the owner keeps for a peer, in one operation and in several of a chain.
  void Read_OfAnySize_ComesWhole() {
    constexpr std::size_t kWords = ((std::size_t{80} << 20) + 8) / sizeof(std::uint64_t);
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(kWords * sizeof(std::uint64_t), "region");
    const std::span<std::byte> memory = region->bytes();
    for (std::size_t i = 0; i < kWords; ++i) {
      StoreWord(memory.data() + i * sizeof(std::uint64_t), i * 0x9e3779b97f4a7c15U);
    }
    auto link = ConnectLoopback(**fabric, *region);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    std::vector<std::byte> whole(memory.size()), part(std::size_t{17} << 20);
    std::array<std::byte, 8> end{};
    std::uint64_t old_value = 0;
    const Op chain[] = {Op::Read("part", 24, part), Op::Read("whole", 0, whole),
                        Op::Read("end", memory.size() - end.size(), end),
                        Op::FetchAdd("add", 8, 0, &old_value)};
    const auto status = link->channel->Execute(chain, In(base::Scaled(std::chrono::seconds(60))));
    QVERIFY2(status.ok(), status.ToString().c_str());
    QVERIFY(std::ranges::equal(whole, memory));
    QVERIFY(std::ranges::equal(part, memory.subspan(24, part.size())));
    QVERIFY(std::ranges::equal(end, memory.last(end.size())));
    QCOMPARE(old_value, LoadWord(memory.data() + 8));
    link->channel.reset();
    link->access.reset();
  }

  void Connect_RefusesDamagedDetails() {
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(4096, "region");
    const auto dialer = *(*fabric)->Dial();
    const auto access = *region->Accept(dialer->offer());
    for (std::size_t i = 0; i < access->remote().details.size(); ++i) {
      RemoteRegion remote = access->remote();
      remote.details[i] = static_cast<char>(remote.details[i] ^ 0x10);
      QCOMPARE(Reason(dialer->Connect(remote).status()), std::string("WRONG_REGION"));
      remote.details.resize(i);
      QCOMPARE(Reason(dialer->Connect(remote).status()), std::string("WRONG_REGION"));
    }
  }

  void Connect_RefusesAnAnswerThatIsTaken() {
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(4096, "region");
    auto link = ConnectLoopback(**fabric, *region);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    // The port accepts nobody any more.
    const auto context = UcxContext::Open("lo");
    QVERIFY(context.ok());
    const auto thief = *(*fabric)->Dial();
    QCOMPARE(UcxLink::Connect(*context, *UcxOffer::Parse(thief->offer()), link->access->remote(),
                              In(std::chrono::milliseconds(300)))
                 .status()
                 .code(),
             absl::StatusCode::kDeadlineExceeded);
    const std::array<std::uint64_t, 1> word{7};
    const Op write = Op::WriteWords("w", 0, word);
    QVERIFY(link->channel->Execute({&write, 1}, In(std::chrono::seconds(20))).ok());
    link->channel.reset();
    link->access.reset();
  }

  void Ends_ThatProtectFramesDifferently_RefuseEachOther() {
    auto weak = Fabric::Open(kUri);
    auto strong = Fabric::Open(kUri, base::SystemClock(), {FrameProtection::kMac});
    QVERIFY(weak.ok() && strong.ok());
    auto region = *(*strong)->Register(4096, "region");
    const auto weak_dialer = *(*weak)->Dial();
    QCOMPARE(Reason(region->Accept(weak_dialer->offer()).status()),
             std::string("PROTECTION_DIFFERS"));
    // An owner that answers with less than the dialler has offered.
    const auto dialer = *(*strong)->Dial();
    const auto access = *region->Accept(dialer->offer());
    RemoteRegion remote = access->remote();
    UcxDetails details = *UcxDetails::Parse(remote.details);
    details.protection = FrameProtection::kNone;
    remote.details = details.Serialize();
    QCOMPARE(Reason(dialer->Connect(remote).status()), std::string("PROTECTION_DIFFERS"));
  }

  void Connect_WithoutTheSecretIsRefused_AndHindersNobody() {
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(4096, "region");
    const auto dialer = *(*fabric)->Dial();
    const auto access = *region->Accept(dialer->offer());
    RemoteRegion remote = access->remote();
    UcxDetails details = *UcxDetails::Parse(remote.details);
    details.secret[5] ^= 1;
    remote.details = details.Serialize();
    QCOMPARE(Reason(dialer->Connect(remote).status()), std::string("WRONG_REGION"));
    const auto thief = *(*fabric)->Dial();  // It knows the answer, but not the offer.
    QCOMPARE(Reason(thief->Connect(access->remote()).status()), std::string("WRONG_REGION"));
    auto channel = dialer->Connect(access->remote());
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    const std::array<std::uint64_t, 1> word{7};
    const Op write = Op::WriteWords("w", 0, word);
    QVERIFY((*channel)->Execute({&write, 1}, In(base::Scaled(std::chrono::seconds(20)))).ok());
  }

  // Connections that say nothing, that begin to speak, and that speak nonsense, before the peer
  // comes. It comes through, and then the port is shut.
  void Flood_OfHalfOpenConnections_HindersNobody() {
    constexpr std::size_t kStrangers = 300;
    auto fabric = Fabric::Open(kUri, base::SystemClock(), {FrameProtection::kMac});
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(4096, "region");
    const auto dialer = *(*fabric)->Dial();
    const auto before = ListeningSocketsOfThisProcess();
    auto access = *region->Accept(dialer->offer());
    const std::vector<std::uint16_t> ports = PortsSince(before);
    QCOMPARE(ports.size(), std::size_t{1});
    const long memory_before = ResidentBytes();
    std::vector<Stranger> strangers(kStrangers);
    for (std::size_t i = 0; i < kStrangers; ++i) {
      QVERIFY(strangers[i].Connect(ports[0]));
      if (i % 3 == 1) strangers[i].Say(std::string(1, '\x78'));
      if (i % 3 == 2) strangers[i].Say(std::string(4096, '\xff'));
    }
    auto channel = dialer->Connect(access->remote());
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    const std::array<std::uint64_t, 1> word{7};
    const Op write = Op::WriteWords("w", 0, word);
    QVERIFY((*channel)->Execute({&write, 1}, In(base::Scaled(std::chrono::seconds(20)))).ok());
    QVERIFY(ResidentBytes() - memory_before < long{64} << 20);
    Stranger late;
    QVERIFY(!late.Connect(ports[0]));
    QVERIFY(access->Revoke());
  }

  // 127.0.0.2 is no address of an interface, so it stands for another host.
  void Owner_AdmitsTheHostOfThePeerAlone() {
    auto fabric = Fabric::Open(kUri);
    QVERIFY2(fabric.ok(), fabric.status().ToString().c_str());
    auto region = *(*fabric)->Register(4096, "region");
    const auto dialer = *(*fabric)->Dial();
    const auto before = ListeningSocketsOfThisProcess();
    const auto access = *region->Accept(dialer->offer());
    const std::vector<std::uint16_t> ports = PortsSince(before);
    QCOMPARE(ports.size(), std::size_t{1});
    Stranger elsewhere, here;
    QVERIFY(!elsewhere.Connect(ports[0], INADDR_LOOPBACK + 1));
    QVERIFY(here.Connect(ports[0]));
    auto channel = dialer->Connect(access->remote());
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
  }

  void Filter_ComparesWholeAddressesOfIpv6() {
    const Stranger listener(AF_INET6);
    if (!listener.Listen()) QSKIP("this host has no IPv6");
    const auto sockets = ListeningSocketsOfThisProcess();
    const auto ours = std::ranges::find(sockets, listener.fd(), &ListeningSocket::fd);
    QVERIFY(ours != sockets.end());
    std::string loopback(16, '\0');
    loopback[15] = 1;
    for (const std::size_t wrong : {0, 5, 10, 15}) {
      std::string other = loopback;
      other[wrong] ^= 0x40;
      AdmitOnly(*ours, {std::string("\x7f\0\0\1", 4), other});
      QVERIFY(!Stranger(AF_INET6).Connect6(ours->port));
    }
    AdmitOnly(*ours, {std::string("\x7f\0\0\1", 4), std::string(16, 'x'), loopback});
    QVERIFY(Stranger(AF_INET6).Connect6(ours->port));
    Deafen(*ours);
    QVERIFY(!Stranger(AF_INET6).Connect6(ours->port));
  }

  void Owner_ShutsThePortWhenNobodyComes() {
    const auto context = UcxContext::Open("lo");
    QVERIFY(context.ok());
    const auto progress = UcxProgress::Start(std::chrono::milliseconds(30));
    QVERIFY(progress.ok());
    const std::size_t before = ListeningSocketsOfThisProcess().size();
    auto memory = UcxMemory::Allocate(4096);
    QVERIFY(memory.ok());
    auto target = UcxTarget::Open(*context, *memory, nullptr, {}, Rights::kReadWrite);
    QVERIFY(target.ok());
    QCOMPARE(ListeningSocketsOfThisProcess().size(), before + 1);
    QVERIFY((*progress)->Add(*target).ok());
    QVERIFY(testing::Eventually([&] { return ListeningSocketsOfThisProcess().size() == before; }));
  }

  // The library catches SIGHUP when it is loaded, but `onepiece up --foreground` must end with its
  // shell.
  void Library_LeavesTheHangUpSignalAlone() { QVERIFY(hang_up_at_start_ == SIG_DFL); }
};

}  // namespace onepiece::fabric

ONEPIECE_TEST(onepiece::fabric::UcxTest)
#include "ucx_test.moc"
