#include "cluster/telemetry/metrics.h"

#include <QProcess>
#include <QStandardPaths>
#include <QTcpSocket>
#include <QtTest>
#include <set>

#include "cluster/base/status.h"
#include "tests/scrape.h"
#include "tests/test_main.h"

namespace onepiece::telemetry {
namespace {

using testing::Scrape;

constexpr int kWaitMs = 20'000;

}  // namespace

class MetricsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Serve_ShowsEveryMetricOfTheProcess() {
    Metrics metrics("proxy", "proxy-1");
    metrics.Counter("onepiece_jobs_total", "Jobs", {{"outcome", "accepted"}}).Increment(3);
    metrics.Gauge("onepiece_ring_used_bytes", "Bytes in the ring").Set(64);
    metrics.Histogram("onepiece_hop_seconds", "Time of a hop", DurationBuckets()).Observe(0.2);
    const auto address = metrics.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    const QByteArray text = Scrape(*address);
    QVERIFY(text.contains("onepiece_jobs_total{outcome=\"accepted\"} 3"));
    QVERIFY(text.contains("onepiece_ring_used_bytes 64"));
    QVERIFY(text.contains("onepiece_hop_seconds_bucket{le=\"0.25\"} 1"));
    QVERIFY(text.contains("onepiece_build_info{"));
    QVERIFY(text.contains("role=\"proxy\""));
    for (const char* name :
         {"start_time_seconds", "cpu_seconds_total", "resident_memory_bytes", "open_fds"}) {
      const qsizetype at = text.indexOf(QByteArray("\nonepiece_process_") + name + ' ');
      QVERIFY2(at >= 0, name);
      const QByteArray line = text.mid(at + 1, text.indexOf('\n', at + 1) - at - 1);
      QVERIFY2(line.mid(line.lastIndexOf(' ')).toDouble() > 0, line.constData());
    }
  }

  // They say nothing, and would hold the endpoint's threads.
  void Serve_Answers_WhileOthersAreSilent() {
    Metrics metrics("proxy", "proxy-1");
    const auto address = metrics.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    QTcpSocket silent[3];
    for (QTcpSocket& socket : silent) {
      socket.connectToHost(
          "127.0.0.1", QString::fromStdString(address->substr(address->rfind(':') + 1)).toUShort());
      QVERIFY(socket.waitForConnected(kWaitMs));
    }
    QVERIFY(Scrape(*address).contains("onepiece_build_info{"));
  }

  void Serve_SatisfiesPromtool() {
    const QString promtool = QStandardPaths::findExecutable("promtool");
    if (promtool.isEmpty())
      QSKIP("promtool is missing: install the package prometheus to run this test");
    Metrics metrics("proxy", "proxy-1");
    metrics.Counter("onepiece_jobs_total", "Jobs", {{"outcome", "accepted"}}).Increment();
    metrics.Histogram("onepiece_hop_seconds", "Time of a hop", DurationBuckets()).Observe(0.2);
    const auto address = metrics.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    QProcess check;
    check.setProcessChannelMode(QProcess::MergedChannels);
    check.start(promtool, {"check", "metrics"});
    Scrape(*address);  // The endpoint's own count of this scrape shows in the next one.
    check.write(Scrape(*address));
    check.closeWriteChannel();
    QVERIFY(check.waitForFinished(kWaitMs));
    const QByteArray complaints = check.readAll();
    QVERIFY2(complaints.isEmpty() && check.exitCode() == 0, complaints.constData());
  }

  void OnScrape_RunsBeforeTheValuesAreRead() {
    Metrics metrics("proxy", "proxy-1");
    auto& gauge = metrics.Gauge("onepiece_queue_jobs", "Jobs that wait");
    metrics.OnScrape([&] { gauge.Increment(); });
    const auto address = metrics.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    QVERIFY(Scrape(*address).contains("onepiece_queue_jobs 1\n"));
    QVERIFY(Scrape(*address).contains("onepiece_queue_jobs 2\n"));
  }

  void Counter_IsTheSameForTheSameLabels() {
    Metrics metrics("proxy", "proxy-1");
    auto& one = metrics.Counter("onepiece_jobs_total", "Jobs", {{"app", "a"}});
    QCOMPARE(&metrics.Counter("onepiece_jobs_total", "Jobs", {{"app", "a"}}), &one);
    QVERIFY(&metrics.Counter("onepiece_jobs_total", "Jobs", {{"app", "b"}}) != &one);
  }

  void Counter_BoundsTheLabelSets() {
    Metrics metrics("proxy", "proxy-1");
    std::set<prometheus::Counter*> distinct;
    for (std::size_t i = 0; i < 10 * kMaxLabelSets; ++i) {
      distinct.insert(
          &metrics.Counter("onepiece_jobs_total", "Jobs", {{"app", std::to_string(i)}}));
    }
    QCOMPARE(distinct.size(), kMaxLabelSets + 1);
    QCOMPARE(distinct.count(&metrics.Counter("onepiece_jobs_total", "Jobs", {{"app", "other"}})),
             std::size_t{1});
  }

  void RaiseTo_NeverLowersACounter() {
    Metrics metrics("proxy", "proxy-1");
    auto& counter = metrics.Counter("onepiece_sends_total", "Sends");
    RaiseTo(counter, 7);
    RaiseTo(counter, 5);
    QCOMPARE(counter.Value(), 7.0);
  }

  void Serve_NamesTheAddress_WhenThePortIsTaken() {
    Metrics first("proxy", "proxy-1");
    const auto address = first.Serve("127.0.0.1:0");
    QVERIFY(address.ok());
    Metrics second("proxy", "proxy-2");
    const auto refused = second.Serve(*address).status();
    QVERIFY(absl::IsUnavailable(refused));
    QCOMPARE(base::GetReason(refused).reason, std::string("CANNOT_LISTEN"));
    QVERIFY(base::Message(refused).find(*address) != std::string::npos);
  }
};

}  // namespace onepiece::telemetry

ONEPIECE_TEST(onepiece::telemetry::MetricsTest)
#include "metrics_test.moc"
