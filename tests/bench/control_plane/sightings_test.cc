#include "tests/bench/control_plane/sightings.h"

#include "tests/test_main.h"

namespace onepiece::bench {
namespace {

using namespace std::chrono_literals;

base::MonotonicTime At(int second) { return base::MonotonicTime(std::chrono::seconds(second)); }

}  // namespace

class SightingsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void AllSaw_TellsTheLast() {
    Sightings sightings(3);
    sightings.Saw(0, 1, At(4));
    sightings.Saw(2, 1, At(9));
    sightings.Saw(1, 1, At(5));
    const Sightings::Outcome outcome = sightings.WaitForAll(1, 0s);
    QVERIFY(outcome.missing.empty());
    QCOMPARE(outcome.last, At(9));
  }
  void LaterVersion_CountsForTheEarlier() {
    Sightings sightings(2);
    sightings.Saw(0, 1, At(1));
    sightings.Saw(0, 2, At(2));
    sightings.Saw(0, 3, At(30));
    sightings.Saw(1, 3, At(4));  // It has skipped version 2.
    QCOMPARE(sightings.WaitForAll(2, 0s).last, At(4));
    QCOMPARE(sightings.WaitForAll(3, 0s).last, At(30));
  }
  void SameOrOlderVersion_IsNoSighting() {
    Sightings sightings(1);
    sightings.Saw(0, 2, At(2));
    sightings.Saw(0, 2, At(7));
    sightings.Saw(0, 1, At(8));
    QCOMPARE(sightings.WaitForAll(2, 0s).last, At(2));
  }
  void WhoMisses_IsNamed() {
    Sightings sightings(3);
    sightings.Saw(1, 5, At(1));
    sightings.Saw(2, 4, At(1));
    const Sightings::Outcome outcome = sightings.WaitForAll(5, 0s);
    QCOMPARE(outcome.missing, (std::vector<std::size_t>{0, 2}));
  }
  void Memory_IsBounded() {
    Sightings sightings(1);
    const auto versions = static_cast<int>(Sightings::kRemembered) + 10;
    for (int version = 1; version <= versions; ++version) sightings.Saw(0, version, At(version));
    // The first versions are forgotten, so the first one that is known counts for them.
    QCOMPARE(sightings.WaitForAll(1, 0s).last, At(11));
    QCOMPARE(sightings.WaitForAll(versions, 0s).last, At(versions));
  }
};

}  // namespace onepiece::bench

ONEPIECE_TEST(onepiece::bench::SightingsTest)
#include "sightings_test.moc"
