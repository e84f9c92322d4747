#include "stages/instance/stage_metrics.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::instance {

class StageMetricsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Export_NamesTheStage() {
    telemetry::Metrics metrics("instance", "i");
    StageMetrics exporter;
    exporter.Export("echo",
                    {{.name = "hits_total", .help = "Hits", .counter = true, .value = 3},
                     {.name = "cache_bytes", .help = "Bytes", .value = 7}},
                    metrics);
    const telemetry::Labels labels = {{"stage", "echo"}};
    QCOMPARE(metrics.Counter("onepiece_stage_hits_total", "Hits", labels).Value(), 3.0);
    QCOMPARE(metrics.Gauge("onepiece_stage_cache_bytes", "Bytes", labels).Value(), 7.0);
    exporter.Export("other", {}, metrics);
    QCOMPARE(metrics.Gauge("onepiece_stage_cache_bytes", "Bytes", labels).Value(), 0.0);
    QCOMPARE(metrics.Counter("onepiece_stage_hits_total", "Hits", labels).Value(), 3.0);
  }

  void Export_LeavesOutWhatIsNoMetric_data() {
    QTest::addColumn<QString>("name");
    QTest::addColumn<bool>("counter");
    QTest::addColumn<double>("value");
    QTest::newRow("letters") << "Hits of cache_total" << true << 1.0;
    QTest::newRow("empty") << "" << false << 1.0;
    QTest::newRow("counter without _total") << "hits" << true << 1.0;
    QTest::newRow("gauge with _total") << "hits_total" << false << 1.0;
    QTest::newRow("a histogram of the instance") << "compute_seconds" << false << 1.0;
    QTest::newRow("not finite") << "share" << false << qQNaN();
  }
  void Export_LeavesOutWhatIsNoMetric() {
    QFETCH(QString, name);
    QFETCH(bool, counter);
    QFETCH(double, value);
    telemetry::Metrics metrics("instance", "i");
    metrics.Histogram("onepiece_stage_compute_seconds", "Time", telemetry::DurationBuckets(),
                      {{"stage", "echo"}});
    StageMetrics exporter;
    exporter.Export("echo",
                    {{.name = name.toStdString(), .help = "", .counter = counter, .value = value},
                     {.name = "good", .help = "Good", .value = 1}},
                    metrics);
    QCOMPARE(metrics.Gauge("onepiece_stage_good", "Good", {{"stage", "echo"}}).Value(), 1.0);
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::StageMetricsTest)
#include "stage_metrics_test.moc"
