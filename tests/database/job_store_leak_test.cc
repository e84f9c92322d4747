// Measures how much memory a store keeps after many jobs have come and gone. It runs in a process
// of its own.
//
// ONEPIECE_LONG=1 runs 100,000 jobs instead of 20,000.

#include <QtTest>

#include "cluster/telemetry/metrics.h"
#include "tests/database/job_store_fixture.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

}  // namespace

class JobStoreLeakTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Jobs_ThatAreForgottenLeaveNoMemory() {
    const int jobs = qEnvironmentVariableIsSet("ONEPIECE_LONG") ? 100'000 : 20'000;
    constexpr int kAtOnce = 1000;
    StoreFixture f({.tombstone_ttl = 20s});
    // Jobs that end in every possible way, until their last tombstone is forgotten.
    const auto churn = [&] {
      for (int i = 0; i < kAtOnce; ++i) {
        const std::string uid = f.Create();
        (void)f.store.Update(f.Progress(uid, "a", 1, 1));
        if (i % 4 == 0) continue;  // Fails at its deadline.
        f.Store(uid, std::string(static_cast<std::size_t>(i) * 8, 'x'));
        if (i % 4 == 1) (void)f.store.Acknowledge(uid);
        if (i % 4 == 2) (void)f.store.Delete(uid);
      }
      for (int i = 0; i < 4; ++i) {
        f.clock.Advance(100s);
        f.store.Sweep(EveryoneAlive);
      }
      f.changes = {};
      f.life = {};
    };
    churn();
    QCOMPARE(f.store.stats().records, 0);
    const double before = telemetry::ResidentBytes();
    for (int done = kAtOnce; done < jobs; done += kAtOnce) churn();
    const double after = telemetry::ResidentBytes();
    const JobStoreStats stats = f.store.stats();
    QCOMPARE(stats.records, 0);
    QCOMPARE(stats.result_bytes, 0);
    QCOMPARE(stats.results, 0);
    qInfo("resident: %.2f MiB after %d jobs, %.2f MiB after %d", before / 1048576, kAtOnce,
          after / 1048576, jobs);
#ifndef ONEPIECE_SANITIZED  // AddressSanitizer holds freed memory back for a while.
    QVERIFY(after <= before + before / 20);
#endif
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::JobStoreLeakTest)
#include "job_store_leak_test.moc"
