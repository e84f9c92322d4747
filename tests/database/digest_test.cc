#include "cluster/database/digest.h"

#include <QtTest>
#include <algorithm>
#include <random>

#include "cluster/base/clock.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

v1::JobRecord RecordOf(const base::Uid& uid, const std::string& app = "app") {
  v1::JobRecord record;
  record.mutable_job()->set_uid(uid.ToString());
  record.mutable_job()->set_app_id(app);
  record.set_fingerprint("f");
  return record;
}

std::vector<base::Uid> SomeUids(int count) {
  std::vector<base::Uid> uids;
  for (int i = 0; i < count; ++i) uids.push_back(base::Uid::Generate(1'700'000'000'000));
  return uids;
}

Digests DigestsOf(const std::vector<base::Uid>& uids) {
  Digests digests;
  for (const base::Uid& uid : uids) digests.Add(uid, DigestOf(RecordOf(uid), true));
  return digests;
}

}  // namespace

class DigestTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Buckets_AreFilledEvenlyByUidsOfOneMoment() {
    std::array<int, kBuckets> counts{};
    constexpr int kUids = 64'000;
    for (const base::Uid& uid : SomeUids(kUids)) {
      const int bucket = BucketOf(uid);
      QVERIFY(bucket >= 0 && bucket < kBuckets);
      ++counts[static_cast<std::size_t>(bucket)];
    }
    // 250 are expected in each; 8 standard deviations are 126.
    const auto [least, most] = std::ranges::minmax(counts);
    QVERIFY2(least > 250 - 126 && most < 250 + 126,
             qPrintable(QString("%1 to %2").arg(least).arg(most)));
  }

  void Bucket_IsPartOfTheProtocol() {
    // Every build must compute the same buckets. These were computed without this code, by the
    // rule: SplitMix64's finisher over the length, then over each 8 bytes, little-endian, then once
    // more; the bucket is the top 8 bits.
    const auto bucket = [](const char* uid) { return BucketOf(*base::Uid::Parse(uid)); };
    QCOMPARE(bucket("00000000-0000-0000-0000-000000000000"), 224);
    QCOMPARE(bucket("018f2b1c-0001-7000-8000-000000000001"), 198);
    QCOMPARE(bucket("ffffffff-ffff-ffff-ffff-ffffffffffff"), 139);
  }

  void Digest_TellsRecordsAndBytesApart() {
    const base::Uid uid = base::Uid::GenerateRandom();
    const v1::JobRecord record = RecordOf(uid);
    QCOMPARE(DigestOf(record, true), DigestOf(record, true));
    QVERIFY(DigestOf(record, true) != DigestOf(record, false));
    QVERIFY(DigestOf(record, true) != DigestOf(RecordOf(uid, "other"), true));
    // Fields that describe a single instance do not count.
    v1::JobRecord here = record;
    here.set_has_bytes(true);
    QCOMPARE(DigestOf(here, false), DigestOf(record, false));
  }

  void Values_DoNotDependOnTheOrder() {
    std::vector<base::Uid> uids = SomeUids(1000);
    const Digests first = DigestsOf(uids);
    std::mt19937 random(7);
    std::ranges::shuffle(uids, random);
    const Digests second = DigestsOf(uids);
    QVERIFY(first.values() == second.values());
    QVERIFY(first.Differing(second.values()).empty());
  }

  void Remove_UndoesAdd() {
    const std::vector<base::Uid> uids = SomeUids(500);
    Digests digests = DigestsOf(uids);
    for (const base::Uid& uid : uids) digests.Remove(uid, DigestOf(RecordOf(uid), true));
    QVERIFY(digests.values() == Digests().values());
  }

  void Differing_NamesTheBucketsOfWhatChanged() {
    const std::vector<base::Uid> uids = SomeUids(500);
    const Digests ours = DigestsOf(uids);
    Digests theirs = ours;
    const base::Uid changed = uids[17];
    theirs.Remove(changed, DigestOf(RecordOf(changed), true));
    QCOMPARE(ours.Differing(theirs.values()), std::vector{BucketOf(changed)});
    theirs.Add(changed, DigestOf(RecordOf(changed), false));
    QCOMPARE(ours.Differing(theirs.values()), std::vector{BucketOf(changed)});
    theirs.Remove(changed, DigestOf(RecordOf(changed), false));
    theirs.Add(changed, DigestOf(RecordOf(changed), true));
    QVERIFY(ours.Differing(theirs.values()).empty());
  }

  void Digests_OfTwoJobsDoNotCancelOut() {
    // Two jobs with equal record hashes must not look like two other jobs.
    Digests ours;
    Digests theirs;
    for (const base::Uid& uid : SomeUids(200)) ours.Add(uid, 42);
    for (const base::Uid& uid : SomeUids(200)) theirs.Add(uid, 42);
    QVERIFY(ours.Differing(theirs.values()).size() > 100);
  }

  void Differing_TakesNothingOfAnotherSizeForEqual() {
    const Digests digests = DigestsOf(SomeUids(10));
    const auto& values = digests.values();
    QCOMPARE(digests.Differing({}).size(), std::size_t{kBuckets});
    QCOMPARE(digests.Differing(std::span(values).first(255)).size(), std::size_t{kBuckets});
    const std::vector<std::uint64_t> longer(257, 0);
    QCOMPARE(digests.Differing(longer).size(), std::size_t{kBuckets});
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::DigestTest)
#include "digest_test.moc"
