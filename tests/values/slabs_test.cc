// Compares Slabs with a model: nothing overlaps, nothing is lost, limits hold, and peers see what
// is written.
#include "cluster/values/slabs.h"

#include <QtTest>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/values/scarce_fabric.h"
#include "tests/values/slow_fabric.h"

namespace onepiece::values {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

void Fill(const Slabs::Slab& slab, std::uint8_t value) {
  std::memset(slab.bytes.data(), value, slab.bytes.size());
}
bool HoldsOnly(const Slabs::Slab& slab, std::uint8_t value) {
  return std::ranges::all_of(
      slab.bytes, [value](std::byte byte) { return std::to_integer<int>(byte) == value; });
}

// The model: the slabs that exist, kept in the simplest way.
class Model {
 public:
  void Add(Slabs::Slab slab, std::uint8_t fill) {
    const auto at = reinterpret_cast<std::uintptr_t>(slab.bytes.data());
    auto next = slabs_.lower_bound(at);
    if (next != slabs_.end()) QVERIFY(at + slab.bytes.size() <= next->first);
    if (next != slabs_.begin()) {
      --next;
      QVERIFY(next->first + next->second.first.bytes.size() <= at);
    }
    used_ += slab.bytes.size();
    slabs_.emplace(at, std::pair(std::move(slab), fill));
  }
  // Gives the n-th slab back. Returns false when its bytes were overwritten.
  bool Remove(std::size_t n) {
    const auto found = std::next(slabs_.begin(), static_cast<std::ptrdiff_t>(n));
    const bool intact = HoldsOnly(found->second.first, found->second.second);
    used_ -= found->second.first.bytes.size();
    slabs_.erase(found);
    return intact;
  }
  std::size_t count() const { return slabs_.size(); }
  std::uint64_t used() const { return used_; }
  const auto& slabs() const { return slabs_; }

 private:
  std::map<std::uintptr_t, std::pair<Slabs::Slab, std::uint8_t>> slabs_;
  std::uint64_t used_ = 0;
};

}  // namespace

class SlabsTest : public QObject {
  Q_OBJECT

  std::unique_ptr<fabric::Fabric> fabric_;

  std::shared_ptr<Slabs> Make(std::uint64_t segment, std::uint64_t limit, std::uint64_t keep) {
    return Slabs::Create(*fabric_, {.segment_bytes = segment,
                                    .limit_bytes = limit,
                                    .keep_bytes = keep,
                                    .keep_time = base::Duration::zero()});
  }

 private Q_SLOTS:
  void init() {
    auto fabric = fabric::Fabric::Open("shm://slabs-" + base::Uid::GenerateRandom().ToString());
    QVERIFY(fabric.ok());
    fabric_ = *std::move(fabric);
  }

  void SetLimit_RaisesAndLowers() {
    const auto slabs = Make(kMiB, 2 * kMiB, 0);
    const auto first = slabs->Take(kMiB), second = slabs->Take(kMiB);
    QVERIFY(first.ok() && second.ok());
    QVERIFY(!slabs->Take(kMiB).ok());
    slabs->SetLimit(4 * kMiB);
    QVERIFY(slabs->max_bytes() > 3 * kMiB);
    const auto third = slabs->Take(kMiB);
    QVERIFY(third.ok());
    Fill(*third, 7);
    // What is there stays, and there is no room below it.
    slabs->SetLimit(kMiB);
    QVERIFY(HoldsOnly(*third, 7));
    QCOMPARE(Reason(slabs->Take(kKiB).status()), std::string("VALUE_MEMORY_FULL"));
  }

  // Somebody may still write into it.
  void Discard_TakesASegmentOutOfUse_data() {
    QTest::addColumn<quint64>("bytes");
    QTest::newRow("of many slabs") << quint64{kKiB};
    QTest::newRow("of one slab") << quint64{40 * kKiB};
  }
  void Discard_TakesASegmentOutOfUse() {
    QFETCH(quint64, bytes);
    const auto slabs = Make(64 * kKiB, kMiB, kMiB);
    auto slab = *slabs->Take(bytes);
    const Place place = slab.place;
    slabs->Discard(place.segment);
    slabs->Discard(place.segment);
    QCOMPARE(slabs->stats().segments, 1u);
    // What lies in it is as it was.
    Fill(slab, 7);
    QVERIFY(slabs->PlaceOf(slab.bytes) == place);
    QVERIFY(slabs->Take(bytes)->place.segment != place.segment);
    QCOMPARE(slabs->stats().segments, 2u);
    slab = {};
    QCOMPARE(slabs->stats().segments, 1u);
    QVERIFY(!slabs->PlaceOf(slab.bytes).has_value());
    for (int i = 0; i < 10; ++i) QVERIFY(slabs->Take(bytes)->place.segment != place.segment);
    // One without slabs goes at once.
    slabs->Discard(slabs->Take(bytes)->place.segment);
    QCOMPARE(slabs->stats().segments, 0u);
    QCOMPARE(slabs->stats().registered_bytes, std::uint64_t{0});
    slabs->Discard(place.segment);
  }

  void TakeAndGive_AgreeWithAModel_data() {
    QTest::addColumn<int>("seed");
    for (int seed = 1; seed <= 4; ++seed) QTest::addRow("seed %d", seed) << seed;
  }
  void TakeAndGive_AgreeWithAModel() {
    QFETCH(int, seed);
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto slabs = Make(64 * kKiB, kMiB, 128 * kKiB);
    Model model;
    int refused = 0;
    for (int step = 0; step < 3000; ++step) {
      // Sizes that are small, near the quarter of a segment, and larger than a segment.
      const std::uint64_t largest = std::array{200, 20'000, 200'000}[random() % 3];
      const bool take = model.count() == 0 || random() % 100 < 52;
      if (take) {
        const std::uint64_t bytes = 1 + random() % largest;
        auto slab = slabs->Take(bytes);
        if (!slab.ok()) {
          QCOMPARE(Reason(slab.status()), std::string("VALUE_MEMORY_FULL"));
          ++refused;
          if (model.count() > 0) QVERIFY(model.Remove(random() % model.count()));
          continue;
        }
        QCOMPARE(slab->bytes.size(), bytes);
        QCOMPARE(slab->place.length, bytes);
        QCOMPARE(slab->place.offset % 64, std::uint64_t{0});
        QVERIFY(slab->place.segment != 0);
        const auto place = slabs->PlaceOf(slab->bytes);
        QVERIFY(place.has_value() && *place == slab->place);
        const auto fill = static_cast<std::uint8_t>(random());
        Fill(*slab, fill);
        model.Add(*std::move(slab), fill);
      } else {
        QVERIFY(model.Remove(random() % model.count()));
      }
      const SlabsStats stats = slabs->stats();
      QCOMPARE(stats.slabs, model.count());
      QCOMPARE(stats.used_bytes, model.used());
      QVERIFY(stats.registered_bytes <= kMiB);
      QVERIFY(stats.taken_bytes <= stats.registered_bytes);
      QVERIFY(stats.taken_bytes <= model.used() + model.used() / 16 + 63 * model.count());
    }
    QVERIFY(refused > 0);
    while (model.count() > 0) QVERIFY(model.Remove(0));
    QCOMPARE(slabs->stats().taken_bytes, std::uint64_t{0});
    QVERIFY(slabs->stats().registered_bytes <= 128 * kKiB);
  }

  void GivenBackNeighbours_BecomeOneRoomAgain() {
    const auto slabs = Make(64 * kKiB, 64 * kKiB, 64 * kKiB);
    for (int round = 0; round < 3; ++round) {
      std::vector<Slabs::Slab> all;
      for (auto slab = slabs->Take(1024); slab.ok(); slab = slabs->Take(1024)) {
        all.push_back(*std::move(slab));
      }
      QCOMPARE(all.size(), std::size_t{64});
      // First the odd slabs go, then the even ones, each of which joins with both of its
      // neighbours.
      for (std::size_t i = 1; i < all.size(); i += 2) all[i] = {};
      QVERIFY(!slabs->Take(2048).ok());
      for (std::size_t i = 0; i < all.size(); i += 2) all[i] = {};
      QVERIFY(slabs->Take(16 * kKiB).ok());
    }
  }

  void Limit_CountsFreeRoomToo_AndKeptRoomGivesWay() {
    const auto slabs = Make(64 * kKiB, 256 * kKiB, 256 * kKiB);
    QCOMPARE(Reason(slabs->Take(0).status()), std::string("BAD_SIZE"));
    QCOMPARE(Reason(slabs->Take(257 * kKiB).status()), std::string("VALUE_MEMORY_FULL"));
    QCOMPARE(Reason(slabs->Take(~std::uint64_t{0}).status()), std::string("VALUE_MEMORY_FULL"));
    { QVERIFY(slabs->Take(100).ok()); }
    QCOMPARE(slabs->stats().registered_bytes, 64 * kKiB);
    auto large = slabs->Take(256 * kKiB);
    QVERIFY(large.ok());
    QCOMPARE(slabs->stats().registered_bytes, 256 * kKiB);
    QCOMPARE(slabs->stats().segments, 1u);
    QCOMPARE(Reason(slabs->Take(1).status()), std::string("VALUE_MEMORY_FULL"));
    large->owner.reset();
    QVERIFY(slabs->Take(1).ok());
  }

  void LargeValue_HasASegmentOfItsSize_ThatTheNextOneTakesOver() {
    const auto slabs = Make(kMiB, 64 * kMiB, 8 * kMiB);
    auto first = slabs->Take(5 * kMiB);
    QVERIFY(first.ok());
    QVERIFY(slabs->stats().registered_bytes < 5 * kMiB + 5 * kMiB / 16 + 1);
    const std::uint32_t segment = first->place.segment;
    first->owner.reset();
    auto next = slabs->Take(5 * kMiB - 1000);
    QVERIFY(next.ok());
    QCOMPARE(next->place.segment, segment);
    auto other = slabs->Take(7 * kMiB);
    QVERIFY(other.ok() && other->place.segment != segment);
  }

  void EmptySegments_AreGivenBackBeyondWhatIsKept() {
    const auto slabs = Make(kMiB, 64 * kMiB, 2 * kMiB);
    std::vector<Slabs::Slab> all;
    for (int i = 0; i < 64; ++i) all.push_back(*slabs->Take(256 * kKiB));
    QCOMPARE(slabs->stats().segments, 16u);
    all.clear();
    QCOMPARE(slabs->stats().segments, 2u);
    QCOMPARE(slabs->stats().registered_bytes, 2 * kMiB);
  }

  void EmptySegments_StayForAWhile_AndTheLongestEmptyGoFirst() {
    base::ManualClock clock;
    const auto slabs = Slabs::Create(*fabric_,
                                     {.segment_bytes = kMiB,
                                      .limit_bytes = 64 * kMiB,
                                      .keep_bytes = kMiB,
                                      .keep_time = std::chrono::seconds(60)},
                                     clock);
    std::vector<Slabs::Slab> all;
    for (int i = 0; i < 16; ++i) all.push_back(*slabs->Take(256 * kKiB));
    const std::uint32_t last = all.back().place.segment;
    all.resize(12);
    clock.Advance(std::chrono::seconds(59));
    all.clear();
    QCOMPARE(slabs->stats().segments, 4u);
    clock.Advance(std::chrono::seconds(1));
    slabs->Trim();
    QCOMPARE(slabs->stats().segments, 3u);
    for (int i = 0; i < 12; ++i) {
      all.push_back(*slabs->Take(256 * kKiB));
      QVERIFY(all.back().place.segment != last);
    }
    QCOMPARE(slabs->stats().segments, 3u);  // The kept segment is used again.
    all.clear();
    clock.Advance(std::chrono::seconds(60));
    slabs->Trim();
    QCOMPARE(slabs->stats().segments, 1u);
    QCOMPARE(slabs->stats().registered_bytes, kMiB);
  }

  // What pins memory for a device: it lasts as long as the segment, and no longer.
  void Hook_SeesEachSegment_AndItsObjectGoesFirst() {
    std::vector<std::size_t> seen;
    std::atomic<int> living = 0;
    SlabsOptions options{.segment_bytes = 0, .limit_bytes = kMiB, .keep_bytes = 0};
    options.keep_time = base::Duration::zero();
    options.hook = [&](std::span<std::byte> memory) {
      seen.push_back(memory.size());
      ++living;
      return std::shared_ptr<const void>(memory.data(), [&](const void*) { --living; });
    };
    const auto slabs = Slabs::Create(*fabric_, options);
    auto first = slabs->Take(100), second = slabs->Take(200 * kKiB);
    QVERIFY(first.ok() && second.ok());
    // Without segments for many slabs, each one has its own.
    QVERIFY(first->place.segment != second->place.segment);
    QCOMPARE(seen.size(), std::size_t{2});
    QVERIFY(seen[0] >= 100 && seen[1] >= 200 * kKiB);
    QCOMPARE(living.load(), 2);
    first = absl::CancelledError();
    QCOMPARE(living.load(), 1);
    second = absl::CancelledError();
    QCOMPARE(living.load(), 0);
    QCOMPARE(slabs->stats().registered_bytes, std::uint64_t{0});
  }

  void MaxBytes_IsTheMostThatTakeGives_data() {
    QTest::addColumn<quint64>("limit");
    QTest::newRow("round") << quint64{kMiB};
    QTest::newRow("odd") << quint64{kMiB - 1};
    QTest::newRow("small") << quint64{1000};
  }
  void MaxBytes_IsTheMostThatTakeGives() {
    QFETCH(quint64, limit);
    const auto slabs = Make(0, limit, 0);
    QVERIFY(slabs->max_bytes() <= limit && slabs->max_bytes() > limit - limit / 8 - 64);
    QVERIFY(slabs->Take(slabs->max_bytes()).ok());
    QVERIFY(!slabs->Take(slabs->max_bytes() + 1).ok());
  }

  void SharedMemoryThatIsFull_IsAskedAgainAfterAPause_NotWithEveryValue() {
    ScarceFabric scarce(*fabric_);
    base::ManualClock clock;
    const auto slabs = Slabs::Create(
        scarce, {.segment_bytes = 64 * kKiB, .limit_bytes = kMiB, .keep_bytes = 0}, clock);
    const auto held = slabs->Take(1000);
    QVERIFY(held.ok());
    scarce.SetFull(true);
    for (int i = 0; i < 100; ++i) {
      QCOMPARE(Reason(slabs->Take(100 * kKiB).status()), std::string("SHARED_MEMORY_FULL"));
      QVERIFY(slabs->Take(1000).ok());  // The room that is there is given.
    }
    QCOMPARE(scarce.refused(), 1);
    clock.Advance(Slabs::kRegisterPause - base::Duration(1));
    QVERIFY(!slabs->Take(100 * kKiB).ok());
    QCOMPARE(scarce.refused(), 1);
    clock.Advance(base::Duration(1));
    QVERIFY(!slabs->Take(100 * kKiB).ok());
    QCOMPARE(scarce.refused(), 2);
    QCOMPARE(slabs->stats().registered_bytes, 64 * kKiB);
    scarce.SetFull(false);
    QCOMPARE(Reason(slabs->Take(100 * kKiB).status()), std::string("SHARED_MEMORY_FULL"));
    clock.Advance(Slabs::kRegisterPause);
    QVERIFY(slabs->Take(100 * kKiB).ok());
    QVERIFY(slabs->Take(200 * kKiB).ok());  // Without a pause while there is memory.
  }

  void Slab_OutlivesItsMaker() {
    auto slabs = Make(kMiB, kMiB, 0);
    auto slab = slabs->Take(1000);
    QVERIFY(slab.ok());
    slabs.reset();
    Fill(*slab, 7);
    QVERIFY(HoldsOnly(*slab, 7));
  }

  void PlaceOf_KnowsPartsOfSlabs_AndNothingElse() {
    const auto slabs = Make(kMiB, 4 * kMiB, kMiB);
    const auto slab = *slabs->Take(1000);
    const auto part = slabs->PlaceOf(slab.bytes.subspan(100, 50));
    QVERIFY(part.has_value());
    QCOMPARE(part->offset, slab.place.offset + 100);
    QCOMPARE(part->length, std::uint64_t{50});
    const std::array<std::byte, 8> elsewhere{};
    QVERIFY(!slabs->PlaceOf(elsewhere).has_value());
    QVERIFY(!slabs->PlaceOf({slab.bytes.data(), 1001}).has_value());
    auto gone = slabs->Take(1000);
    const std::span<std::byte> bytes = gone->bytes;
    gone->owner.reset();
    QVERIFY(!slabs->PlaceOf(bytes).has_value());
  }

  void Threads_NeverShareASlab() {
    const auto slabs = Make(256 * kKiB, 8 * kMiB, 256 * kKiB);
    std::atomic<int> wrong{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<std::uint64_t>(t));
        std::vector<std::pair<Slabs::Slab, std::uint8_t>> mine;
        for (int step = 0; step < 1500; ++step) {
          auto slab = slabs->Take(1 + random() % (random() % 8 == 0 ? 200'000 : 5000));
          if (slab.ok()) {
            const auto fill = static_cast<std::uint8_t>(random());
            Fill(*slab, fill);
            mine.emplace_back(*std::move(slab), fill);
          }
          if (mine.size() < 8 && slab.ok()) continue;
          std::swap(mine[random() % mine.size()], mine.back());
          if (!HoldsOnly(mine.back().first, mine.back().second)) ++wrong;
          mine.pop_back();
        }
      });
    }
    threads.clear();
    QCOMPARE(wrong.load(), 0);
    QCOMPARE(slabs->stats().slabs, std::uint64_t{0});
    QCOMPARE(slabs->stats().used_bytes, std::uint64_t{0});
    QVERIFY(slabs->stats().registered_bytes <= 256 * kKiB);
  }

  void Peer_ReadsASlab_UntilItsSegmentIsGone() {
    const auto slabs = Make(kMiB, 4 * kMiB, 0);
    auto slab = *slabs->Take(100'000);
    Fill(slab, 42);
    auto dialer = *fabric_->Dial();
    const auto remote =
        slabs->Enroll(slab.place.segment, "peer", dialer->offer(), fabric::Rights::kReadWrite);
    QVERIFY(remote.ok());
    const auto channel = *dialer->Connect(*remote);
    std::vector<std::byte> read(slab.bytes.size());
    const std::array chain = {fabric::Op::Read("value", slab.place.offset, read)};
    const auto soon = [] { return base::SystemClock().Now() + std::chrono::seconds(10); };
    QVERIFY(channel->Execute(chain, soon()).ok());
    QVERIFY(std::ranges::equal(read, slab.bytes));
    slab = {};
    QCOMPARE(Reason(channel->Execute(chain, soon())), std::string("REGION_RETIRED"));
    QCOMPARE(
        Reason(
            slabs->Enroll(slab.place.segment, "peer", dialer->offer(), fabric::Rights::kReadWrite)
                .status()),
        std::string("SEGMENT_UNKNOWN"));
  }

  void Admit_RefusesAForeignOffer_AndAnUnknownSegment() {
    const auto slabs = Make(kMiB, kMiB, 0);
    const auto slab = *slabs->Take(100);
    const auto offer = (*fabric_->Dial())->offer();
    QCOMPARE(Reason(slabs->Enroll(slab.place.segment + 1, "peer", offer, fabric::Rights::kReadWrite)
                        .status()),
             std::string("SEGMENT_UNKNOWN"));
    fabric::Offer foreign = offer;
    foreign.backend = "verbs";
    QCOMPARE(Reason(slabs->Enroll(slab.place.segment, "peer", foreign, fabric::Rights::kReadWrite)
                        .status()),
             std::string("WRONG_FABRIC"));
  }

  void PeerThatIsLetInSlowly_HoldsUpNobody() {
    SlowFabric slow(*fabric_);
    const auto slabs = Slabs::Create(slow, {.segment_bytes = kMiB, .limit_bytes = 8 * kMiB});
    const auto slab = *slabs->Take(1000);
    const auto enroll = [&](const std::string& peer) {
      return slabs
          ->Enroll(slab.place.segment, peer, (*slow.Dial())->offer(), fabric::Rights::kReadWrite)
          .ok();
    };
    slow.gate().HoldNext();
    std::atomic<bool> first{false};
    std::atomic<int> done{0};
    std::jthread waiting([&] { first = enroll("first"); });
    QVERIFY(slow.gate().WaitUntilHeld());
    std::jthread others([&] {
      done += slabs->Take(1000).ok() ? 1 : 0;
      done += slabs->PlaceOf(slab.bytes).has_value() ? 1 : 0;
      done += slabs->Fence(slab.place.segment, "another") ? 1 : 0;
      done += enroll("second") ? 1 : 0;
      slabs->Trim();
      ++done;
    });
    const bool went_on = testing::Eventually([&] { return done == 5; });
    slow.gate().Release();
    waiting.join();
    others.join();
    QVERIFY(went_on);
    QVERIFY(first);
  }

  void Fence_IsNotGiven_WhileAProcessOfSharedMemoryLives() {
    const auto slabs = Make(kMiB, kMiB, 0);
    const auto slab = *slabs->Take(100);
    QVERIFY(slabs->Fence(slab.place.segment, "peer"));
    QVERIFY(slabs
                ->Enroll(slab.place.segment, "peer", (*fabric_->Dial())->offer(),
                         fabric::Rights::kReadWrite)
                .ok());
    QVERIFY(!slabs->Fence(slab.place.segment, "peer"));
    QVERIFY(slabs->Fence(slab.place.segment, "other"));
  }
};

}  // namespace onepiece::values

ONEPIECE_TEST(onepiece::values::SlabsTest)
#include "slabs_test.moc"
