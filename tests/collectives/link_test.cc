// One link, both of whose ends are in the test: slots, and who is rung.
#include "stages/collectives/link.h"

#include <QtTest>
#include <algorithm>
#include <array>

#include "tests/collectives/values.h"
#include "tests/collectives/worlds.h"
#include "tests/test_main.h"

namespace onepiece::collectives {
namespace {

constexpr AreaLayout kLayout{.workers = 2, .slots = 2, .slot_bytes = 64};
constexpr GroupKey kGroup{.epoch = 3, .hash = 5};

}  // namespace

class LinkTest : public QObject {
  Q_OBJECT

  std::unique_ptr<fabric::Fabric> fabric_;
  std::array<std::shared_ptr<fabric::Doorbell>, 2> bells_;
  std::array<std::unique_ptr<fabric::Region>, 2> regions_;
  std::array<std::unique_ptr<Link>, 2> links_;

  absl::Status Send(std::uint32_t from, std::span<const std::byte> bytes = {}) {
    if (!links_[from]->CanSend()) return absl::ResourceExhaustedError("no slot");
    return links_[from]->Send({.group = kGroup, .message_bytes = bytes.size()}, bytes, Soon());
  }
  /// The first byte of the header with which worker 0 sends its `sequence`-th chunk.
  std::byte* HeaderAtOne(std::uint64_t sequence) {
    return regions_[1]->bytes().data() + kLayout.SlotHeader(0, sequence);
  }

 private Q_SLOTS:
  void init() {
    fabric_ = *fabric::Fabric::Open(FabricWorlds::ShmUri());
    std::array<std::unique_ptr<fabric::Channel>, 2> into;
    std::array<std::unique_ptr<fabric::Access>, 2> accesses;
    for (std::size_t i = 0; i < 2; ++i) {
      bells_[i] = *fabric_->MakeDoorbell("bell");
      regions_[i] = *fabric_->Register(kLayout.RegionBytes(), "region", bells_[i]);
      auto loopback = *fabric::ConnectLoopback(*fabric_, *regions_[i]);
      into[i] = std::move(loopback.channel);
      accesses[i] = std::move(loopback.access);
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      links_[i] = std::make_unique<Link>(kLayout, i, 1 - i, regions_[i]->bytes().data(),
                                         std::move(accesses[i]), std::move(into[1 - i]));
    }
  }
  void cleanup() {
    links_ = {};
    regions_ = {};
    bells_ = {};
    fabric_.reset();
  }

  void Sleepers_AreRungOnceANap() {
    const std::uint32_t before = bells_[1]->count();
    QVERIFY(Send(0).ok());
    QCOMPARE(bells_[1]->count(), before);  // It does not sleep.
    QVERIFY(links_[1]->AnnounceSleep(Soon()).ok());
    QVERIFY(Send(0).ok());
    QCOMPARE(bells_[1]->count(), before + 1);
    for (int i = 0; i < 2; ++i) {
      QVERIFY(links_[1]->Peek() != nullptr);
      QVERIFY(links_[1]->Read(3, Soon()).ok());
    }
    QVERIFY(Send(0).ok());
    QCOMPARE(bells_[1]->count(), before + 1);
  }

  // The sender may wait for a slot.
  void SleepingSender_IsRungByAReader() {
    QVERIFY(Send(0).ok());
    const std::uint32_t before = bells_[0]->count();
    QVERIFY(links_[0]->AnnounceSleep(Soon()).ok());
    QVERIFY(links_[1]->Peek() != nullptr);
    QVERIFY(links_[1]->Read(3, Soon()).ok());
    QCOMPARE(bells_[0]->count(), before + 1);
  }

  void Slots_AreFreeOnceTheyAreRead() {
    QVERIFY(Send(0).ok() && links_[0]->CanSend());
    QVERIFY(Send(0).ok());
    QVERIFY(!links_[0]->CanSend());
    QVERIFY(links_[1]->Peek() != nullptr);
    QVERIFY(!links_[0]->CanSend());
    QVERIFY(links_[1]->Read(3, Soon()).ok());
    QVERIFY(links_[0]->CanSend());
    QCOMPARE(links_[0]->peer_epoch(), std::uint64_t{3});
  }

  void PeerThatClaimsToHaveReadMore_IsNotBelieved() {
    QVERIFY(Send(0).ok() && Send(0).ok());
    fabric::StoreWord(regions_[0]->bytes().data() + kLayout.ReadLine(1), 1000);
    QVERIFY(!links_[0]->CanSend());
  }

  void HalfAHeader_IsNone() {
    const Memory bytes = BytesOf(1, 0, 64);
    QVERIFY(Send(0, bytes).ok());
    const std::uint64_t right = fabric::LoadWord(HeaderAtOne(1) + 8);
    fabric::StoreWord(HeaderAtOne(1) + 8, right + 1);
    QVERIFY(links_[1]->Peek() == nullptr);
    fabric::StoreWord(HeaderAtOne(1) + 8, right);
    const ChunkHeader* header = links_[1]->Peek();
    QVERIFY(header != nullptr && header->group == kGroup);
    QVERIFY(std::ranges::equal(links_[1]->payload(), bytes));
  }

  void ChunkOfAFormerLap_IsNotTheNext() {
    for (int lap = 0; lap < 3; ++lap) {
      for (int slot = 0; slot < 2; ++slot) {
        QVERIFY(links_[1]->Peek() == nullptr);
        QVERIFY(Send(0).ok());
        QVERIFY(links_[1]->Peek() != nullptr);
        QVERIFY(links_[1]->Read(3, Soon()).ok());
      }
    }
  }

  void Notices_ArriveAndRing() {
    const std::uint32_t before = bells_[1]->count();
    QVERIFY(!links_[1]->notice().has_value());
    QVERIFY(
        links_[0]->Tell({.group = kGroup, .why = Notice::Why::kSilent, .rank = 7}, Soon()).ok());
    const auto notice = links_[1]->notice();
    QVERIFY(notice.has_value() && notice->group == kGroup);
    QVERIFY(notice->why == Notice::Why::kSilent && notice->rank == 7);
    QCOMPARE(bells_[1]->count(), before + 1);
  }

  void SignsOfLife_AreNapsAndChunks() {
    const base::MonotonicTime start{};
    const auto at = [&](int second) {
      return links_[1]->LastSign(start + std::chrono::seconds(second));
    };
    (void)at(1);
    QVERIFY(links_[0]->AnnounceSleep(Soon()).ok());
    QVERIFY(at(2) == start + std::chrono::seconds(2));
    QVERIFY(at(3) == start + std::chrono::seconds(2));
    QVERIFY(Send(0).ok());
    QVERIFY(at(4) == start + std::chrono::seconds(4));
    QVERIFY(at(5) == start + std::chrono::seconds(4));
  }
};

}  // namespace onepiece::collectives

ONEPIECE_TEST(onepiece::collectives::LinkTest)
#include "link_test.moc"
