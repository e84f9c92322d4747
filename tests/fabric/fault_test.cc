#include "cluster/fabric/fault.h"

#include <unistd.h>

#include <QtTest>
#include <array>
#include <thread>

#include "cluster/base/status.h"
#include "cluster/fabric/process.h"
#include "tests/test_main.h"

namespace onepiece::fabric {

class FaultTest : public QObject {
  Q_OBJECT

  std::unique_ptr<Fabric> shm_;
  std::unique_ptr<FaultyFabric> owner_;
  std::unique_ptr<Region> region_;
  std::shared_ptr<FaultBoard> board_;
  PeerIdentity self_;
  std::unique_ptr<FaultyFabric> fabric_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<Channel> channel_;

  void Connect(std::shared_ptr<FaultPolicy> policy) {
    fabric_ = std::make_unique<FaultyFabric>(*shm_, board_, self_, std::move(policy));
    auto link = ConnectLoopback(*fabric_, *region_);
    QVERIFY(link.ok());
    access_ = std::move(link->access);
    channel_ = std::move(link->channel);
  }
  // Writes four words, each in an operation of its own.
  absl::Status WriteFour() {
    static constexpr std::array<std::uint64_t, 2> kWords{7, 7};
    const Op chain[] = {Op::WriteWords("w0", 0, kWords), Op::WriteWords("w1", 64, kWords),
                        Op::WriteWords("w2", 128, kWords), Op::WriteWords("w3", 192, kWords)};
    return channel_->Execute(chain, base::SystemClock().Now() + std::chrono::seconds(10));
  }
  std::string Written() {
    std::string text;
    for (int i = 0; i < 4; ++i) {
      const std::byte* at = region_->bytes().data() + 64 * i;
      text += std::to_string((LoadWord(at) == 7 ? 1 : 0) + (LoadWord(at + 8) == 7 ? 1 : 0));
    }
    return text;
  }

  void Stop() {
    channel_.reset();
    access_.reset();
    region_.reset();
  }

  void Start(bool revokes) {
    Stop();
    auto shm = Fabric::Open("shm://fault-" + std::to_string(getpid()));
    QVERIFY(shm.ok());
    shm_ = *std::move(shm);
    board_ = std::make_shared<FaultBoard>(revokes);
    self_ = board_->NewProcess();
    owner_ = std::make_unique<FaultyFabric>(*shm_, board_, SelfIdentity(), nullptr);
    auto region = owner_->Register(4096, "region", nullptr);
    QVERIFY(region.ok());
    region_ = *std::move(region);
  }

 private Q_SLOTS:
  void init() { Start(/*revokes=*/false); }
  void cleanup() { Stop(); }

  void Fault_LeavesExactlyItsPrefix_data() {
    QTest::addColumn<int>("kind");
    QTest::addColumn<QString>("written");
    QTest::addColumn<bool>("dead");
    QTest::newRow("drop") << int(FaultKind::kDrop) << "2200" << false;
    QTest::newRow("die") << int(FaultKind::kDie) << "2200" << true;
    QTest::newRow("tear") << int(FaultKind::kTear) << "2210" << true;
    QTest::newRow("break") << int(FaultKind::kBreak) << "2220" << false;
  }
  void Fault_LeavesExactlyItsPrefix() {
    QFETCH(int, kind);
    QFETCH(QString, written);
    QFETCH(bool, dead);
    Connect(std::make_shared<PlannedFault>(2, static_cast<FaultKind>(kind)));
    QVERIFY(!WriteFour().ok());
    QCOMPARE(QString::fromStdString(Written()), written);
    QVERIFY(channel_->broken());
    QCOMPARE(board_->IsDead(self_), dead);
    QCOMPARE(access_->PeerIsDead(), dead);
    QCOMPARE(access_->Revoke(), dead);
  }

  void Die_SilencesTheProcessesOtherChannels() {
    Connect(nullptr);
    board_->Kill(self_);
    QVERIFY(!WriteFour().ok());
    QCOMPARE(Written(), std::string("0000"));
  }

  void Late_LandsTheRestWhenTold_data() {
    QTest::addColumn<bool>("revokes");
    QTest::addColumn<QString>("before");  // What happens before the landing.
    QTest::addColumn<QString>("written");
    QTest::newRow("nothing") << false << QString("") << QString("2222");
    QTest::newRow("death") << false << QString("kill") << QString("2200");
    QTest::newRow("revocation") << true << QString("revoke") << QString("2200");
    QTest::newRow("channel gone, cannot revoke") << false << QString("destroy") << QString("2200");
    QTest::newRow("channel gone, can revoke") << true << QString("destroy") << QString("2222");
  }
  void Late_LandsTheRestWhenTold() {
    QFETCH(bool, revokes);
    QFETCH(QString, before);
    QFETCH(QString, written);
    Start(revokes);
    Connect(std::make_shared<PlannedFault>(2, FaultKind::kLate));
    QVERIFY(!WriteFour().ok());
    QCOMPARE(Written(), std::string("2200"));
    if (before == "kill") board_->Kill(self_);
    if (before == "revoke") QVERIFY(access_->Revoke());
    if (before == "destroy") channel_.reset();
    board_->Land();
    QCOMPARE(QString::fromStdString(Written()), written);
    QCOMPARE(board_->Land(), 0);
  }

  void Revoke_StopsALivePeerWhereTheBoardSaysSo() {
    Start(/*revokes=*/true);
    Connect(nullptr);
    QVERIFY(access_->Revoke());
    QVERIFY(!access_->PeerIsDead());
    QVERIFY(!WriteFour().ok());
    QCOMPARE(Written(), std::string("0000"));
  }

  void Stall_HoldsTheOperationUntilReleased() {
    auto stall = std::make_shared<PlannedFault>(1, std::nullopt);
    Connect(stall);
    absl::Status status;
    std::thread writer([&] { status = WriteFour(); });
    const bool reached = stall->AwaitReached(std::chrono::seconds(30));
    const std::string before = Written();
    stall->Release();
    writer.join();
    QVERIFY(reached);
    QCOMPARE(before, std::string("2000"));
    QCOMPARE(stall->reached_name(), std::string("w1"));
    QVERIFY(status.ok());
    QCOMPARE(Written(), std::string("2222"));
  }

  void RandomFaults_RepeatWithTheirSeed() {
    const FaultRates rates{
        .delay = 0.2, .drop = 0.2, .tear = 0.1, .die = 0.1, .break_channel = 0.2};
    RandomFaults one(42, rates);
    RandomFaults two(42, rates);
    int faults = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const Fault a = one.Before({.index = i});
      const Fault b = two.Before({.index = i});
      QCOMPARE(a.kind, b.kind);
      QCOMPARE(a.delay, b.delay);
      if (a.kind != FaultKind::kNone) ++faults;
    }
    QVERIFY(faults > 650 && faults < 950);
  }
};

}  // namespace onepiece::fabric

ONEPIECE_TEST(onepiece::fabric::FaultTest)
#include "fault_test.moc"
