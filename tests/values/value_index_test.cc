// Its owner writes the index while a peer reads it one-sidedly.
#include "cluster/values/value_index.h"

#include <QtTest>
#include <array>
#include <atomic>
#include <thread>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/values/slow_fabric.h"

namespace onepiece::values {
namespace {

ValueKey MakeKey(std::uint32_t n) {
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(n >> (8 * i));
  return {base::Uid(bytes), n % 3};
}
// `n` determines every field, so that the test notices a mixture of two entries.
ValueEntry MakeEntry(std::uint32_t n) {
  return {.place = {.segment = n, .offset = std::uint64_t{n} * 64, .length = std::uint64_t{n} + 7},
          .crc32c = ~n};
}
bool Same(const ValueEntry& a, const ValueEntry& b) {
  return a.place == b.place && a.crc32c == b.crc32c;
}

class Reader {
 public:
  Reader(fabric::Fabric& fabric, ValueIndex& index) {
    auto dialer = *fabric.Dial();
    channel_ = *dialer->Connect(*index.Enroll("reader", dialer->offer()));
  }
  std::optional<ValueEntry> Find(const ValueKey& key) {
    std::array<std::uint64_t, kBucketBytes / 8> bucket;
    const std::uint64_t offset = BucketOffset(key, channel_->length_bytes());
    const std::array chain = {fabric::Op::ReadWords("bucket", offset, bucket)};
    const auto soon = base::SystemClock().Now() + std::chrono::seconds(10);
    if (!channel_->Execute(chain, soon).ok()) qFatal("the index could not be read");
    return FindInBucket(key, bucket);
  }

 private:
  std::unique_ptr<fabric::Channel> channel_;
};

}  // namespace

class ValueIndexTest : public QObject {
  Q_OBJECT

  std::unique_ptr<fabric::Fabric> fabric_;

 private Q_SLOTS:
  void init() {
    auto fabric = fabric::Fabric::Open("shm://index-" + base::Uid::GenerateRandom().ToString());
    QVERIFY(fabric.ok());
    fabric_ = *std::move(fabric);
  }

  void Values_AreFoundByAPeer_UntilTheyAreRemoved() {
    const auto index = *ValueIndex::Create(*fabric_, 1000);
    Reader reader(*fabric_, *index);
    int full = 0;
    for (std::uint32_t n = 1; n <= 1000; ++n) full += index->Put(MakeKey(n), MakeEntry(n)) ? 0 : 1;
    QVERIFY2(full <= 5, qPrintable(QString::number(full)));
    int found = 0;
    for (std::uint32_t n = 1; n <= 1000; ++n) {
      const auto entry = reader.Find(MakeKey(n));
      if (!entry.has_value()) continue;
      ++found;
      QVERIFY(Same(*entry, MakeEntry(n)));
    }
    QCOMPARE(found, 1000 - full);
    for (std::uint32_t n = 1; n <= 1000; n += 2) index->Remove(MakeKey(n));
    for (std::uint32_t n = 1; n <= 1000; n += 2) QVERIFY(!reader.Find(MakeKey(n)).has_value());
    QVERIFY(reader.Find(MakeKey(2)).has_value());
    ValueKey other = MakeKey(2);
    ++other.ordinal;
    QVERIFY(!reader.Find(other).has_value());
  }

  void SecondPut_ReplacesTheFirst() {
    const auto index = *ValueIndex::Create(*fabric_, 8);
    Reader reader(*fabric_, *index);
    QVERIFY(index->Put(MakeKey(1), MakeEntry(1)));
    QVERIFY(index->Put(MakeKey(1), MakeEntry(2)));
    QVERIFY(Same(*reader.Find(MakeKey(1)), MakeEntry(2)));
    index->Remove(MakeKey(1));
    QVERIFY(!reader.Find(MakeKey(1)).has_value());
  }

  void FullBucket_SaysSo_AndHasRoomAfterARemoval() {
    const auto index = *ValueIndex::Create(*fabric_, 1);  // One bucket.
    for (std::uint32_t n = 1; n <= 8; ++n) QVERIFY(index->Put(MakeKey(n), MakeEntry(n)));
    QVERIFY(!index->Put(MakeKey(9), MakeEntry(9)));
    QVERIFY(index->Put(MakeKey(8), MakeEntry(80)));
    index->Remove(MakeKey(9));
    index->Remove(MakeKey(3));
    QVERIFY(index->Put(MakeKey(9), MakeEntry(9)));
    Reader reader(*fabric_, *index);
    QVERIFY(Same(*reader.Find(MakeKey(9)), MakeEntry(9)));
    QVERIFY(!reader.Find(MakeKey(3)).has_value());
  }

  void ReaderAgainstWriter_SeesAnEntryThatWasMade_OrNone() {
    const auto index = *ValueIndex::Create(*fabric_, 1);
    std::atomic<bool> stop{false};
    std::atomic<std::uint32_t> made{0};
    // One key comes, changes and goes; its neighbour stays.
    QVERIFY(index->Put(MakeKey(2), MakeEntry(2)));
    std::jthread writer([&] {
      for (std::uint32_t n = 1; !stop; ++n) {
        if (n % 5 == 0) {
          index->Remove(MakeKey(1));
        } else {
          made = n;
          index->Put(MakeKey(1), MakeEntry(n));
        }
      }
    });
    Reader reader(*fabric_, *index);
    int seen = 0;
    bool good = true;
    for (int i = 0; (i < 20'000 || seen < 1000) && good; ++i) {
      const auto neighbour = reader.Find(MakeKey(2));
      good = neighbour.has_value() && Same(*neighbour, MakeEntry(2));
      const auto entry = reader.Find(MakeKey(1));
      if (!entry.has_value()) continue;
      ++seen;
      const std::uint32_t n = entry->place.segment;
      good = good && Same(*entry, MakeEntry(n)) && n <= made && n % 5 != 0;
    }
    stop = true;
    writer.join();
    QVERIFY(good);
  }

  void Bucket_IsInsideAnyTable() {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{511}, std::uint64_t{512},
                                      std::uint64_t{1537}, std::uint64_t{1} << 40}) {
      for (std::uint32_t n = 0; n < 100; ++n) {
        const std::uint64_t offset = BucketOffset(MakeKey(n), bytes);
        QCOMPARE(offset % kBucketBytes, std::uint64_t{0});
        QVERIFY(offset == 0 || offset + kBucketBytes <= bytes);
      }
    }
    QVERIFY(!FindInBucket(MakeKey(0), {}).has_value());
    const std::array<std::uint64_t, 64> zeros{};
    QVERIFY(!FindInBucket({}, zeros).has_value());
    const std::array<std::uint64_t, 7> cut{};
    QVERIFY(!FindInBucket({}, cut).has_value());
  }

  void BadSizesAndForeignOffers_AreRefused() {
    QCOMPARE(Reason(ValueIndex::Create(*fabric_, 0).status()), std::string("BAD_SIZE"));
    QCOMPARE(Reason(ValueIndex::Create(*fabric_, ~std::uint64_t{0}).status()),
             std::string("BAD_SIZE"));
    const auto index = *ValueIndex::Create(*fabric_, 10);
    fabric::Offer foreign = (*fabric_->Dial())->offer();
    foreign.backend = "ucx";
    QCOMPARE(Reason(index->Enroll("peer", foreign).status()), std::string("WRONG_FABRIC"));
  }

  void PeerThatIsLetInSlowly_HoldsUpNobody() {
    SlowFabric slow(*fabric_);
    const auto index = *ValueIndex::Create(slow, 100);
    const auto enroll = [&](const std::string& peer) {
      return index->Enroll(peer, (*slow.Dial())->offer()).ok();
    };
    slow.gate().HoldNext();
    std::atomic<bool> first{false};
    std::atomic<int> done{0};
    std::jthread waiting([&] { first = enroll("first"); });
    QVERIFY(slow.gate().WaitUntilHeld());
    std::jthread others([&] {
      done += index->Put(MakeKey(1), MakeEntry(1)) ? 1 : 0;
      done += enroll("second") ? 1 : 0;
      index->Trim();
      ++done;
    });
    const bool went_on = testing::Eventually([&] { return done == 3; });
    slow.gate().Release();
    waiting.join();
    others.join();
    QVERIFY(went_on);
    QVERIFY(first);
  }
};

}  // namespace onepiece::values

ONEPIECE_TEST(onepiece::values::ValueIndexTest)
#include "value_index_test.moc"
