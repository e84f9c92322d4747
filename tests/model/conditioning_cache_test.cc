#include "stages/model/conditioning_cache.h"

#include <QtTest>
#include <thread>

#include "cluster/base/status.h"
#include "stages/model/byte_budget.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

std::vector<message::Artifact> Bytes(std::size_t count, char fill = 'x') {
  return {message::BytesArtifact("embeds", "", std::string(count, fill))};
}

}  // namespace

class ConditioningCacheTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Find_GivesWhatWasPut() {
    ConditioningCache cache(1 << 20);
    QVERIFY(!cache.Find("a"));
    std::string memory(1000, 'a');
    {
      // Somebody else writes to this memory afterwards.
      message::Artifact artifact = Bytes(0)[0];
      artifact.shape = {1000};
      artifact.data = message::Buffer(nullptr, std::as_bytes(std::span(memory)));
      cache.Put("a", {artifact});
    }
    memory.assign(1000, 'b');
    const auto found = cache.Find("a");
    QVERIFY(found.has_value());
    QCOMPARE(std::string(found->at(0).data.text()), std::string(1000, 'a'));
    QCOMPARE(found->at(0).shape, std::vector<std::int64_t>{1000});
    QVERIFY(!cache.Find("b"));
    QCOMPARE(cache.stats().hits, 1);
    QCOMPARE(cache.stats().misses, 2);
    QVERIFY(cache.stats().bytes >= 1000);
  }

  void Put_DropsTheLeastRecentlyUsed() {
    ConditioningCache cache(10'000);
    cache.Put("a", Bytes(3000));
    cache.Put("b", Bytes(3000));
    QVERIFY(cache.Find("a"));
    const auto held = cache.Find("b");
    QVERIFY(cache.Find("a"));
    cache.Put("c", Bytes(3000));  // Three do not fit with their overhead.
    QVERIFY(!cache.Find("b"));
    QVERIFY(cache.Find("a"));
    QVERIFY(cache.Find("c"));
    QCOMPARE(cache.stats().evictions, 1);
    QCOMPARE(cache.stats().entries, 2);
    QVERIFY(cache.stats().bytes <= 10'000);
    QCOMPARE(held->at(0).data.size(), std::size_t{3000});  // The holder keeps it.
  }

  void Put_StaysInItsBudgetWhateverComes() {
    ConditioningCache cache(50'000);
    for (int i = 0; i < 500; ++i) {
      cache.Put("key" + std::to_string(i % 90), Bytes(static_cast<std::size_t>(i) * 37 % 9000));
      QVERIFY(cache.stats().bytes <= 50'000);
    }
    cache.Put("huge", Bytes(50'000));
    QVERIFY(!cache.Find("huge"));
    QVERIFY(cache.stats().entries > 1);  // It evicted no other entry.
    ConditioningCache none(0);
    none.Put("a", Bytes(0));
    QVERIFY(!none.Find("a"));
  }

  void Put_FromManyThreads() {
    ConditioningCache cache(20'000);
    std::vector<std::jthread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          const int key = i % 26;
          const auto found = cache.Find(std::to_string(key));
          if (found && found->at(0).data.text()[999] != 'a' + key) ++wrong;
          if (!found) cache.Put(std::to_string(key), Bytes(1000, static_cast<char>('a' + key)));
        }
      });
    }
    threads.clear();
    QCOMPARE(wrong.load(), 0);
    QCOMPARE(cache.stats().hits + cache.stats().misses, 8000);
  }

  void ParseByteBudget_TakesBytes_data() {
    QTest::addColumn<QByteArray>("text");
    QTest::addColumn<qint64>("budget");
    QTest::newRow("bytes") << QByteArray("1000000") << qint64{1000000};
    QTest::newRow("off") << QByteArray("0") << qint64{0};
    for (const char* bad : {"", "-1", "256M", "1e6", " 5", "99999999999999999999"})
      QTest::newRow(bad) << QByteArray(bad) << qint64{-1};
  }
  void ParseByteBudget_TakesBytes() {
    QFETCH(QByteArray, text);
    QFETCH(qint64, budget);
    const auto parsed = ParseByteBudget("BUDGET", text.constData(), 7);
    QCOMPARE(parsed.ok() ? qint64{*parsed} : qint64{-1}, budget);
    if (!parsed.ok()) QCOMPARE(base::GetReason(parsed.status()).reason, std::string("BAD_SETTING"));
    QCOMPARE(*ParseByteBudget("BUDGET", nullptr, 7), std::int64_t{7});
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::ConditioningCacheTest)
#include "conditioning_cache_test.moc"
