// What every backend promises. Each test runs on each row of Backends(): a new backend adds a row.
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

namespace onepiece::fabric {
namespace {

struct Backend {
  base::ManualClock clock;
  std::unique_ptr<Fabric> base;
  std::unique_ptr<Fabric> decorated;
  Fabric& get() { return decorated != nullptr ? *decorated : *base; }
  base::MonotonicTime Soon() { return clock.Now() + std::chrono::seconds(1); }
};

std::unique_ptr<Backend> OpenBackend(const QString& name) {
  auto backend = std::make_unique<Backend>();
  auto opened = Fabric::Open("shm://conformance-" + std::to_string(getpid()), backend->clock);
  if (!opened.ok()) return nullptr;
  backend->base = *std::move(opened);
  if (name == "fault decorator") {
    auto board = std::make_shared<FaultBoard>();
    backend->decorated =
        std::make_unique<FaultyFabric>(*backend->base, board, board->NewProcess(), nullptr);
  }
  return backend;
}

std::string Reason(const absl::Status& status) { return base::GetReason(status).reason; }

}  // namespace

class ConformanceTest : public QObject {
  Q_OBJECT

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Region> region_;
  std::shared_ptr<Doorbell> doorbell_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<Channel> channel_;

  static void Backends() {
    QTest::addColumn<QString>("backend");
    QTest::newRow("shm") << "shm";
    QTest::newRow("fault decorator") << "fault decorator";
  }
  absl::Status Do(const std::vector<Op>& chain) {
    return channel_->Execute(chain, backend_->Soon());
  }

 private Q_SLOTS:
  void initTestCase_data() { Backends(); }
  void init() {
    QFETCH_GLOBAL(QString, backend);
    backend_ = OpenBackend(backend);
    QVERIFY(backend_ != nullptr);
    auto doorbell = backend_->get().MakeDoorbell("doorbell");
    QVERIFY2(doorbell.ok(), doorbell.status().ToString().c_str());
    doorbell_ = *std::move(doorbell);
    auto region = backend_->get().Register(8192, "region", doorbell_);
    QVERIFY2(region.ok(), region.status().ToString().c_str());
    region_ = *std::move(region);
    auto link = ConnectLoopback(backend_->get(), *region_);
    QVERIFY2(link.ok(), link.status().ToString().c_str());
    access_ = std::move(link->access);
    channel_ = std::move(link->channel);
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
    // A good write in front of the bad one must not happen either.
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
    const RemoteRegion remote = access_->remote();
    const auto dialer = *backend_->get().Dial();
    access_.reset();
    region_.reset();
    const std::array<std::uint64_t, 1> word{1};
    QCOMPARE(Do({Op::WriteWords("w", 0, word)}).code(), absl::StatusCode::kUnavailable);
    QVERIFY(channel_->broken());
    QCOMPARE(dialer->Connect(remote).status().code(), absl::StatusCode::kUnavailable);
  }

  void Connect_RefusesARegionThatIsNotThis_data() {
    QTest::addColumn<QString>("what");
    for (const char* what : {"key", "length", "backend", "cluster", "path"}) {
      QTest::newRow(what) << what;
    }
  }
  void Connect_RefusesARegionThatIsNotThis() {
    QFETCH(QString, what);
    const auto dialer = *backend_->get().Dial();
    const auto access = *region_->Accept(dialer->offer());
    RemoteRegion remote = access->remote();
    if (what == "key") remote.key ^= 1;
    if (what == "length") remote.length_bytes += 8;
    if (what == "backend") remote.backend = "verbs";
    if (what == "cluster") remote.address = "/onepiece.other.1-1-1.x";
    if (what == "path") remote.address += "/../x";
    QCOMPARE(dialer->Connect(remote).status().code(), absl::StatusCode::kInvalidArgument);
  }

  void Counters_CountRoundTripsAndBytes() {
    const std::array<std::uint64_t, 3> words{};
    std::array<std::uint64_t, 2> into{};
    QVERIFY(Do({Op::WriteWords("w", 0, words), Op::ReadWords("r", 0, into)}).ok());
    QVERIFY(Do({Op::Notify("n")}).ok());
    const ChannelCounters counters = channel_->counters();
    QCOMPARE(counters.chains, std::uint64_t{2});
    QCOMPARE(counters.operations, std::uint64_t{3});
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

  void DoorbellWait_ReturnsAtItsLimit() {
    QElapsedTimer timer;
    timer.start();
    doorbell_->Wait(doorbell_->count(), std::chrono::milliseconds(20));
    QVERIFY(timer.elapsed() < 15000);
  }

  // Words may be seen in any mix while they are written; what carries a check is never mistaken.
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

QTEST_GUILESS_MAIN(onepiece::fabric::ConformanceTest)
#include "conformance_test.moc"
