// The promises of every backend. Each test runs on each row of Backends(): on shm, and on the
// fabric that $ONEPIECE_TEST_FABRIC names (verbs://rxe0), and on each of them behind the fault
// decorator.
#include <unistd.h>

#include <QtTest>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/fault.h"
#include "cluster/fabric/wire.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::fabric {
namespace {

struct Backend {
  base::ManualClock clock;
  std::unique_ptr<Fabric> base;
  std::unique_ptr<Fabric> decorated;
  Fabric& get() { return decorated != nullptr ? *decorated : *base; }
  base::MonotonicTime Soon() { return clock.Now() + base::Scaled(std::chrono::seconds(30)); }
};

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const QString& uri, bool decorated,
                                                     FrameProtection protection) {
  auto backend = std::make_unique<Backend>();
  ONEPIECE_ASSIGN_OR_RETURN(backend->base,
                            Fabric::Open(uri.toStdString(), backend->clock, {protection}));
  if (decorated) {
    auto board = std::make_shared<FaultBoard>();
    backend->decorated =
        std::make_unique<FaultyFabric>(*backend->base, board, board->NewProcess(), nullptr);
  }
  return backend;
}

}  // namespace

class ConformanceTest : public QObject {
  Q_OBJECT

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Region> region_;
  std::shared_ptr<Doorbell> doorbell_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<Channel> channel_;

  static void Backends() {
    QTest::addColumn<QString>("uri");
    QTest::addColumn<bool>("decorated");
    QTest::addColumn<int>("protection");
    QStringList uris{QString("shm://conformance-%1").arg(getpid())};
// ThreadSanitizer does not instrument UCX, so it would report its locks and copies as races.
#if defined(ONEPIECE_HAVE_UCX) && !defined(__SANITIZE_THREAD__)
    uris << "ucx://lo";
#endif
    if (qEnvironmentVariableIsSet("ONEPIECE_TEST_FABRIC")) {
      uris << qEnvironmentVariable("ONEPIECE_TEST_FABRIC");
    }
    for (const QString& uri : uris) {
      const QByteArray name = uri.section("://", 0, 0).toUtf8();
      QTest::newRow(name.constData()) << uri << false << 0;
      QTest::newRow((name + " behind the fault decorator").constData()) << uri << true << 0;
      if (name != "ucx") continue;
      QTest::newRow("ucx with mac") << uri << false << static_cast<int>(FrameProtection::kMac);
      QTest::newRow("ucx with aead") << uri << false << static_cast<int>(FrameProtection::kAead);
    }
  }
  void Connect() {
    auto link = ConnectLoopback(backend_->get(), *region_);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    access_ = std::move(link->access);
    channel_ = std::move(link->channel);
  }
  absl::Status Do(const std::vector<Op>& chain) {
    return channel_->Execute(chain, backend_->Soon());
  }

 private Q_SLOTS:
  void initTestCase_data() { Backends(); }
  void init() {
    QFETCH_GLOBAL(QString, uri);
    QFETCH_GLOBAL(bool, decorated);
    QFETCH_GLOBAL(int, protection);
    auto backend = OpenBackend(uri, decorated, static_cast<FrameProtection>(protection));
    QVERIFY2(backend.ok(), backend.status().ToString().c_str());
    backend_ = *std::move(backend);
    auto doorbell = backend_->get().MakeDoorbell("doorbell");
    QVERIFY2(doorbell.ok(), doorbell.status().ToString().c_str());
    doorbell_ = *std::move(doorbell);
    auto region = backend_->get().Register(8192, "region", doorbell_);
    QVERIFY2(region.ok(), region.status().ToString().c_str());
    region_ = *std::move(region);
    Connect();
  }
  void cleanup() {
    channel_.reset();
    access_.reset();
    region_.reset();
    doorbell_.reset();
    backend_.reset();
  }

  void Register_GivesZeroedMemoryOfItsLength() {
    QCOMPARE(region_->bytes().size(), std::size_t{8192});
    for (const std::byte value : region_->bytes()) QCOMPARE(value, std::byte{0});
    QCOMPARE(channel_->length_bytes(), std::uint64_t{8192});
  }

  void Execute_RunsTheChainInOrder() {
    const std::array<std::uint64_t, 2> first{1, 2};
    const std::array<std::uint64_t, 2> second{3, 4};
    std::array<std::uint64_t, 2> between{};
    std::uint64_t old_value = 0;
    std::array<std::uint64_t, 2> after{};
    QVERIFY(Do({Op::WriteWords("a", 64, first), Op::ReadWords("b", 64, between),
                Op::WriteWords("c", 64, second), Op::CompareAndSwap("d", 64, 3, 9, &old_value),
                Op::ReadWords("e", 64, after)})
                .ok());
    QCOMPARE(between, first);
    QCOMPARE(old_value, std::uint64_t{3});
    QCOMPARE(after, (std::array<std::uint64_t, 2>{9, 4}));
  }

  void Write_GathersItsPieces() {
    std::vector<std::byte> a(100, std::byte{0xaa});
    std::vector<std::byte> b(1, std::byte{0xbb});
    std::vector<std::byte> c(333, std::byte{0xcc});
    const std::vector<std::span<const std::byte>> pieces{a, {}, b, c};
    std::vector<std::byte> back(434);
    QVERIFY(Do({Op::Write("write", 1001, pieces), Op::Read("read", 1001, back)}).ok());
    std::vector<std::byte> expected = a;
    expected.insert(expected.end(), b.begin(), b.end());
    expected.insert(expected.end(), c.begin(), c.end());
    QVERIFY(back == expected);
    QCOMPARE(region_->bytes()[1000], std::byte{0});
    QCOMPARE(region_->bytes()[1001 + 434], std::byte{0});
  }

  void CompareAndSwap_ChangesOnlyAnEqualWord() {
    std::uint64_t first = 7;
    std::uint64_t second = 7;
    QVERIFY(Do({Op::CompareAndSwap("take", 8, 0, 5, &first),
                Op::CompareAndSwap("again", 8, 0, 6, &second)})
                .ok());
    QCOMPARE(first, std::uint64_t{0});
    QCOMPARE(second, std::uint64_t{5});
    QCOMPARE(LoadWord(region_->bytes().data() + 8), std::uint64_t{5});
  }

  void FetchAdd_LosesNothingBetweenChannels() {
    constexpr int kAdds = 2000;
    auto other = ConnectLoopback(backend_->get(), *region_);
    QVERIFY(other.ok());
    const auto add = [this](Channel& channel) {
      for (int i = 0; i < kAdds; ++i) {
        std::uint64_t old_value = 0;
        const Op op = Op::FetchAdd("add", 16, 3, &old_value);
        if (!channel.Execute({&op, 1}, backend_->Soon()).ok()) return;
      }
    };
    std::thread thread([&] { add(*other->channel); });
    add(*channel_);
    thread.join();
    QCOMPARE(LoadWord(region_->bytes().data() + 16), std::uint64_t{2 * kAdds * 3});
  }

  void Execute_RefusesWhatLiesOutside_data() {
    QTest::addColumn<quint64>("offset");
    QTest::addColumn<quint64>("size");
    QTest::newRow("one past the end") << quint64{8185} << quint64{8};
    QTest::newRow("far out") << quint64{1} * 1'000'000 << quint64{8};
    QTest::newRow("offset plus size wraps around") << ~quint64{0} - 3 << quint64{8};
    QTest::newRow("longer than the region") << quint64{0} << quint64{8193};
  }
  void Execute_RefusesWhatLiesOutside() {
    QFETCH(quint64, offset);
    QFETCH(quint64, size);
    const std::vector<std::byte> data(size);
    const std::array<std::span<const std::byte>, 1> pieces{data};
    std::vector<std::byte> into(size);
    const std::array<std::uint64_t, 1> word{1};
    // A valid write in front of the bad one must not happen either.
    const auto write = Do({Op::WriteWords("good", 0, word), Op::Write("bad", offset, pieces)});
    QCOMPARE(Reason(write), std::string("OUT_OF_BOUNDS"));
    QCOMPARE(Reason(Do({Op::Read("bad", offset, into)})), std::string("OUT_OF_BOUNDS"));
    QCOMPARE(LoadWord(region_->bytes().data()), std::uint64_t{0});
    QVERIFY(!channel_->broken());
    QVERIFY(Do({Op::WriteWords("good", 0, word)}).ok());
  }

  void Execute_RefusesMisalignedWords() {
    std::array<std::uint64_t, 1> word{1};
    std::uint64_t old_value = 0;
    QCOMPARE(Reason(Do({Op::WriteWords("w", 4, word)})), std::string("OUT_OF_BOUNDS"));
    QCOMPARE(Reason(Do({Op::ReadWords("r", 4, word)})), std::string("OUT_OF_BOUNDS"));
    QCOMPARE(Reason(Do({Op::CompareAndSwap("c", 4, 0, 1, &old_value)})),
             std::string("OUT_OF_BOUNDS"));
    QCOMPARE(Reason(Do({Op::FetchAdd("f", 12, 1, &old_value)})), std::string("OUT_OF_BOUNDS"));
  }

  void Execute_FailsForEverOnceBroken() {
    const std::array<std::uint64_t, 1> word{1};
    channel_->Break();
    QCOMPARE(Reason(Do({Op::WriteWords("w", 0, word)})), std::string("CHANNEL_BROKEN"));
    QCOMPARE(LoadWord(region_->bytes().data()), std::uint64_t{0});
    QVERIFY(channel_->broken());
  }

  void Execute_BreaksAtItsDeadline() {
    const std::array<std::uint64_t, 1> word{1};
    const Op op = Op::WriteWords("w", 0, word);
    const auto status = channel_->Execute({&op, 1}, backend_->clock.Now());
    QCOMPARE(status.code(), absl::StatusCode::kDeadlineExceeded);
    QCOMPARE(LoadWord(region_->bytes().data()), std::uint64_t{0});
    QVERIFY(channel_->broken());
    QCOMPARE(channel_->counters().failures, std::uint64_t{1});
  }

  void Execute_FailsOnceTheRegionIsGone() {
    const auto dialer = *backend_->get().Dial();
    auto access = *region_->Accept(dialer->offer());
    const RemoteRegion remote = access->remote();
    access.reset();
    access_.reset();
    region_.reset();
    const std::array<std::uint64_t, 1> word{1};
    QCOMPARE(Do({Op::WriteWords("w", 0, word)}).code(), absl::StatusCode::kUnavailable);
    QVERIFY(channel_->broken());
    QCOMPARE(dialer->Connect(remote).status().code(), absl::StatusCode::kUnavailable);
  }

  void Reader_ReadsAndChangesNothing() {
    const auto dialer = *backend_->get().Dial();
    const auto access = *region_->Accept(dialer->offer(), Rights::kReadOnly);
    const auto remote = RemoteRegion::Parse(access->remote().Serialize());
    QVERIFY(remote.ok() && *remote == access->remote());
    auto reader = dialer->Connect(*remote);
    QVERIFY2(reader.ok(), reader.status().ToString().c_str());
    const std::array<std::uint64_t, 2> words{7, 8};
    QVERIFY(Do({Op::WriteWords("w", 64, words)}).ok());
    std::array<std::uint64_t, 2> seen{};
    std::array<std::byte, 16> bytes{};
    std::uint64_t old_value = 0;
    const std::array<std::span<const std::byte>, 1> pieces{bytes};
    const std::uint32_t rung = doorbell_->count();
    for (const Op& op : {Op::WriteWords("w", 64, seen), Op::Write("w", 64, pieces),
                         Op::CompareAndSwap("c", 64, 7, 9, &old_value),
                         Op::FetchAdd("a", 64, 1, &old_value), Op::Notify("n")}) {
      QCOMPARE(Reason((*reader)->Execute({&op, 1}, backend_->Soon())), std::string("READ_ONLY"));
    }
    const Op reads[] = {Op::ReadWords("r", 64, seen), Op::Read("b", 64, bytes)};
    const auto status = (*reader)->Execute(reads, backend_->Soon());
    QVERIFY2(status.ok(), status.ToString().c_str());
    QCOMPARE(seen, words);
    QCOMPARE(std::memcmp(bytes.data(), words.data(), bytes.size()), 0);
    QCOMPARE(doorbell_->count(), rung);
  }

  // A peer may be any program, so the owner's end refuses what the peer's own channel would not.
  void Reader_ThatClaimsMore_IsRefusedByTheOwner_data() {
    QTest::addColumn<int>("kind");
    for (const auto& [name, kind] : {std::pair{"write", Op::Kind::kWrite},
                                     {"words", Op::Kind::kWriteWords},
                                     {"swap", Op::Kind::kCompareAndSwap},
                                     {"add", Op::Kind::kFetchAdd}}) {
      QTest::newRow(name) << static_cast<int>(kind);
    }
  }
  void Reader_ThatClaimsMore_IsRefusedByTheOwner() {
    QFETCH(int, kind);
    const auto dialer = *backend_->get().Dial();
    const auto access = *region_->Accept(dialer->offer(), Rights::kReadOnly);
    if (access->remote().backend == "shm") QSKIP("whoever may open a segment may write into it");
    RemoteRegion remote = access->remote();
    remote.rights = Rights::kReadWrite;
    auto channel = dialer->Connect(remote);
    QVERIFY2(channel.ok(), channel.status().ToString().c_str());
    const std::array<std::uint64_t, 1> word{1};
    std::uint64_t old_value = 0;
    const std::array<std::span<const std::byte>, 1> pieces{std::as_bytes(std::span(word))};
    Op op = Op::Write("write", 0, pieces);
    if (kind == static_cast<int>(Op::Kind::kWriteWords)) op = Op::WriteWords("words", 0, word);
    if (kind == static_cast<int>(Op::Kind::kFetchAdd)) op = Op::FetchAdd("add", 0, 1, &old_value);
    if (kind == static_cast<int>(Op::Kind::kCompareAndSwap)) {
      op = Op::CompareAndSwap("swap", 0, 0, 1, &old_value);
    }
    QCOMPARE(Reason((*channel)->Execute({&op, 1}, backend_->Soon())),
             std::string("CHANNEL_BROKEN"));
    QCOMPARE(LoadWord(region_->bytes().data()), std::uint64_t{0});
  }

  void Connect_RefusesARegionThatIsNotThis_data() {
    QTest::addColumn<QString>("what");
    for (const char* what : {"key", "longer", "shorter", "backend", "address", "path", "details"}) {
      QTest::newRow(what) << what;
    }
  }
  void Connect_RefusesARegionThatIsNotThis() {
    QFETCH(QString, what);
    const auto dialer = *backend_->get().Dial();
    const auto access = *region_->Accept(dialer->offer());
    RemoteRegion remote = access->remote();
    if (what == "key") remote.key ^= 1;
    if (what == "longer") remote.length_bytes += 8;
    if (what == "shorter") remote.length_bytes -= 8;
    if (what == "backend") remote.backend = "other";
    if (what == "address") remote.address = "/onepiece.other.1-1-1.x";
    if (what == "details") remote.details += "x";
    if (what == "path") remote.address += "/../x";
    QCOMPARE(dialer->Connect(remote).status().code(), absl::StatusCode::kInvalidArgument);
  }

  void Register_TakesTheLabelOfAnyName() {
    for (const std::string& name :
         {std::string("instance-host.example.com-1"), std::string(128, '.'),
          std::string("жук/../x"), std::string()}) {
      const auto region = backend_->get().Register(4096, LabelOf(name));
      QVERIFY2(region.ok(), region.status().ToString().c_str());
    }
    QCOMPARE(LabelOf("a.b_c-1"), std::string("a-b_c-1"));
  }

  void Register_RefusesWhatIsNotARegion_data() {
    QTest::addColumn<quint64>("length");
    QTest::addColumn<QString>("label");
    QTest::newRow("nothing") << quint64{0} << "label";
    QTest::newRow("half a word") << quint64{12} << "label";
    QTest::newRow("beyond any memory") << ~quint64{7} << "label";
    QTest::newRow("no label") << quint64{4096} << "";
    QTest::newRow("a path") << quint64{4096} << "a/b";
  }
  void Register_RefusesWhatIsNotARegion() {
    QFETCH(quint64, length);
    QFETCH(QString, label);
    const auto region = backend_->get().Register(length, label.toStdString());
    QCOMPARE(region.status().code(), absl::StatusCode::kInvalidArgument);
  }

  void Accept_RefusesAnOfferThatIsNotOne_data() {
    QTest::addColumn<QString>("what");
    for (const char* what : {"backend", "details"}) QTest::newRow(what) << what;
  }
  void Accept_RefusesAnOfferThatIsNotOne() {
    QFETCH(QString, what);
    const auto dialer = *backend_->get().Dial();
    Offer offer = dialer->offer();
    if (what == "backend") offer.backend = "other";
    if (what == "details") {
      if (offer.details.empty()) QSKIP("this backend's offers have no details");
      offer.details.front() = static_cast<char>(offer.details.front() ^ 1);
    }
    QCOMPARE(region_->Accept(offer).status().code(), absl::StatusCode::kInvalidArgument);
  }

  void Write_CarriesLargePieces_data() {
    QTest::addColumn<QList<int>>("sizes");
    QTest::newRow("one") << QList<int>{3'000'001};
    QTest::newRow("large among small") << QList<int>{100, 70'000, 3, 200'000, 1, 65'535};
    QTest::newRow("many small") << QList<int>(200, 4001);
  }
  void Write_CarriesLargePieces() {
    QFETCH(QList<int>, sizes);
    auto region = backend_->get().Register(4 * 1024 * 1024, "large");
    QVERIFY(region.ok());
    auto link = ConnectLoopback(backend_->get(), **region);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    std::vector<std::byte> data(
        static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), 0)));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::vector<std::span<const std::byte>> pieces;
    std::size_t at = 0;
    for (const int size : sizes) {
      pieces.push_back(std::span(data).subspan(at, static_cast<std::size_t>(size)));
      at += static_cast<std::size_t>(size);
    }
    std::vector<std::byte> back(data.size());
    const Op chain[] = {Op::Write("write", 13, pieces), Op::Read("read", 13, back)};
    const auto status = link->channel->Execute(chain, backend_->Soon());
    QVERIFY2(status.ok(), status.ToString().c_str());
    QVERIFY(back == data);
    QCOMPARE((*region)->bytes()[12], std::byte{0});
    QCOMPARE((*region)->bytes()[13 + data.size()], std::byte{0});
    link->channel.reset();
    link->access.reset();
  }

  void Revoke_LeavesNoLateWrite() {
    constexpr int kRounds = 10;
    for (int round = 0; round < kRounds; ++round) {
      std::atomic<bool> written{false};
      std::thread peer([&] {
        std::vector<std::byte> data(8000);
        const std::vector<std::span<const std::byte>> pieces{data};
        for (int i = 1;; ++i) {
          std::fill(data.begin(), data.end(), static_cast<std::byte>(i));
          if (!Do({Op::Write("write", 0, pieces)}).ok()) return;
          written.store(true);
        }
      });
      while (!written.load()) std::this_thread::yield();
      const bool revoked = access_->Revoke();
      if (!revoked) {
        channel_->Break();
        peer.join();
        QSKIP("this backend cannot take what a living peer has");
      }
      const std::vector<std::byte> then(region_->bytes().begin(), region_->bytes().end());
      peer.join();
      QVERIFY(std::equal(then.begin(), then.end(), region_->bytes().begin()));
      QVERIFY(channel_->broken());
      QVERIFY(access_->Revoke());
      Connect();
      const std::array<std::uint64_t, 1> word{7};
      QVERIFY(Do({Op::WriteWords("w", 0, word)}).ok());
    }
  }

  void Revoke_LeavesTheOtherPeersAlone() {
    auto other = ConnectLoopback(backend_->get(), *region_);
    QVERIFY(other.ok());
    (void)other->access->Revoke();
    const std::array<std::uint64_t, 1> word{7};
    QVERIFY(Do({Op::WriteWords("w", 0, word), Op::Notify("ring")}).ok());
  }

  void Notify_WithoutADoorbellDoesNothing() {
    auto region = backend_->get().Register(4096, "silent");
    QVERIFY(region.ok());
    auto link = ConnectLoopback(backend_->get(), **region);
    QVERIFY(link.ok());
    const std::array<std::uint64_t, 1> word{7};
    const Op chain[] = {Op::Notify("ring"), Op::WriteWords("w", 0, word), Op::Notify("ring")};
    QVERIFY(link->channel->Execute(chain, backend_->Soon()).ok());
    QCOMPARE(LoadWord((*region)->bytes().data()), std::uint64_t{7});
    link->channel.reset();
    link->access.reset();
  }

  void Counters_CountRoundTripsAndBytes() {
    const std::array<std::uint64_t, 3> words{};
    std::array<std::uint64_t, 2> into{};
    QVERIFY(Do({Op::WriteWords("w", 0, words), Op::ReadWords("r", 0, into)}).ok());
    QVERIFY(Do({Op::Notify("n")}).ok());
    const ChannelCounters counters = channel_->counters();
    QCOMPARE(counters.chains, std::uint64_t{2});
    QCOMPARE(counters.operations, std::uint64_t{3});
    QCOMPARE(counters.work_requests, std::uint64_t{3});
    QFETCH_GLOBAL(bool, decorated);  // The decorator executes each operation by itself.
    QCOMPARE(counters.round_trips, std::uint64_t{decorated ? 3U : 2U});
    QCOMPARE(counters.bytes_written, std::uint64_t{24});
    QCOMPARE(counters.bytes_read, std::uint64_t{16});
    QCOMPARE(counters.failures, std::uint64_t{0});
  }

  void Doorbell_WakesASleeper() {
    const std::uint32_t seen = doorbell_->count();
    std::atomic<bool> woken{false};
    std::thread sleeper([&] {
      while (doorbell_->count() == seen) doorbell_->Wait(seen, std::chrono::seconds(5));
      woken.store(true);
    });
    QVERIFY(Do({Op::Notify("ring")}).ok());
    sleeper.join();
    QVERIFY(woken.load());
  }

  void Doorbell_RungBeforeTheWaitIsNotSleptThrough() {
    const std::uint32_t seen = doorbell_->count();
    QVERIFY(Do({Op::Notify("ring")}).ok());
    QElapsedTimer timer;
    timer.start();
    doorbell_->Wait(seen, std::chrono::seconds(20));
    QVERIFY(timer.elapsed() < 15000);
  }

  void Doorbell_CountsRingsOfPeersAndOfItsOwner() {
    const std::uint32_t seen = doorbell_->count();
    for (int i = 0; i < 2000; ++i) QVERIFY(Do({Op::Notify("ring")}).ok());
    doorbell_->Ring();
    QTRY_COMPARE(doorbell_->count(), seen + 2001);
  }

  void Doorbell_WakesEverySleeper() {
    const std::uint32_t seen = doorbell_->count();
    std::vector<std::thread> sleepers;
    for (int i = 0; i < 3; ++i) {
      sleepers.emplace_back([&] {
        while (doorbell_->count() == seen) doorbell_->Wait(seen, std::chrono::seconds(20));
      });
    }
    QVERIFY(Do({Op::Notify("ring")}).ok());
    QElapsedTimer timer;
    timer.start();
    for (std::thread& sleeper : sleepers) sleeper.join();
    QVERIFY(timer.elapsed() < 15000);
  }

  void DoorbellWait_ReturnsAtItsLimit() {
    QElapsedTimer timer;
    timer.start();
    doorbell_->Wait(doorbell_->count(), std::chrono::milliseconds(20));
    QVERIFY(timer.elapsed() < 15000);
  }

  // A reader may see any mix of words while they are written, but a line with a check never
  // misleads it.
  void ReadWords_OfAWriterInMotionAreCaughtByTheirCheck() {
    const auto check = [](std::uint64_t a, std::uint64_t b) { return a * 31 + b * 17 + 1; };
    std::atomic<bool> stop{false};
    std::array<std::uint64_t, 3> start{0, 0, check(0, 0)};
    QVERIFY(Do({Op::WriteWords("w", 0, start)}).ok());
    auto reader = ConnectLoopback(backend_->get(), *region_);
    QVERIFY(reader.ok());
    std::thread writer([&] {
      for (std::uint64_t i = 1; !stop.load(); ++i) {
        const std::array<std::uint64_t, 3> words{i, 3 * i, check(i, 3 * i)};
        if (!Do({Op::WriteWords("w", 0, words)}).ok()) return;
      }
    });
    int good = 0;
    int wrong = 0;
    for (int i = 0; i < 20000; ++i) {
      std::array<std::uint64_t, 3> seen{};
      const Op op = Op::ReadWords("r", 0, seen);
      if (!reader->channel->Execute({&op, 1}, backend_->Soon()).ok()) break;
      if (seen[2] != check(seen[0], seen[1])) continue;
      ++good;
      if (seen[1] != 3 * seen[0]) ++wrong;
    }
    stop.store(true);
    writer.join();
    QVERIFY(good > 0);
    QCOMPARE(wrong, 0);
  }
};

}  // namespace onepiece::fabric

ONEPIECE_TEST(onepiece::fabric::ConformanceTest)
#include "conformance_test.moc"
