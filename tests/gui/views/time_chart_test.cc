// Tests of charts: the numbers of a recording and those seen since, in lines and in words.
#include "gui/views/time_chart.h"

#include <QApplication>
#include <QTemporaryDir>
#include <QtTest>
#include <cmath>
#include <limits>

#include "cluster/history/recorder.h"
#include "gui/models/format.h"
#include "gui/models/series_feed.h"
#include "gui/models/shown_cluster.h"
#include "gui/views/tone.h"
#include "tests/gui/views/live.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using history::SeriesPoint;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
SeriesPoint PointAt(std::int64_t at_ms, double value) { return {at_ms, value, value, value}; }

std::shared_ptr<const session::Snapshot> UtilizationAt(std::int64_t at_ms, double utilization) {
  v1::Cluster cluster;
  cluster.set_cluster_id("pirates");
  v1::Node& node = *cluster.add_nodes();
  node.set_node_id("instance-1");
  node.set_role(v1::INSTANCE);
  node.mutable_load()->set_utilization(utilization);
  auto snapshot = std::make_shared<session::Snapshot>();
  snapshot->at_ms = at_ms;
  snapshot->cluster = {std::make_shared<const v1::Cluster>(cluster), at_ms, ""};
  return snapshot;
}

double UtilizationNow(const session::Snapshot& snapshot) {
  return snapshot.cluster.value->nodes(0).load().utilization();
}

SeriesFeed::Wanted Utilization() {
  return {"node/instance-1/utilization", "ratio", QStringLiteral("instance-1"), UtilizationNow};
}

std::vector<double> Known(const ChartSeries& series) {
  std::vector<double> values;
  for (const SeriesPoint& point : series.points) {
    if (!std::isnan(point.mean)) values.push_back(point.mean);
  }
  return values;
}

}  // namespace

class GuiTimeChartTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Format_ValuesInTheirUnit_data() {
    QTest::addColumn<double>("value");
    QTest::addColumn<QString>("unit");
    QTest::addColumn<QString>("text");
    const auto row = [](double value, const char* unit, const char* text) {
      QTest::newRow(qPrintable(QStringLiteral("%1 %2").arg(value).arg(unit)))
          << value << QString::fromLatin1(unit) << QString::fromUtf8(text);
    };
    row(0.87, "ratio", "87 %");
    row(0, "ratio", "0 %");
    row(kUnknown, "ratio", "N/A");
    row(1536, "bytes", "1.5 KiB");
    row(1536, "bytes/s", "1.5 KiB/s");
    row(12.5, "1/s", "12.5/s");
    row(2100, "ms", "2.1 s");
    row(0.0021, "s", "2.1 ms");
    row(42, "celsius", "42 °C");
    row(310.25, "watts", "310 W");
    row(17, "1", "17");
    row(kUnknown, "watts", "N/A");
  }
  void Format_ValuesInTheirUnit() {
    QFETCH(double, value);
    QFETCH(QString, unit);
    QTEST(FormatValue(value, unit.toStdString()), "text");
  }

  void Values_UnderTheCursorAndNow() {
    const ChartSeries series{
        QStringLiteral("cuda:0"),
        "ratio",
        {PointAt(kNow - 4000, 0.5), PointAt(kNow - 2000, kUnknown), PointAt(kNow, 0.25)}};
    QCOMPARE(ValueAt(series, kNow - 3500).mean, 0.5);
    QVERIFY(std::isnan(ValueAt(series, kNow - 1000).mean));  // The gap is neither 0.5 nor 0.
    QVERIFY(std::isnan(ValueAt(series, kNow - 4001).mean));  // Before the first.
    QCOMPARE(ValueAt(series, kNow + 5000).mean, 0.25);
    QVERIFY(std::isnan(ValueAt(series, kNow + 5001).mean));  // The last value is too old.
    QCOMPARE(ValueNow(series, kNow + 1000), 0.25);
    QVERIFY(std::isnan(ValueNow(series, kNow + 6000)));
    QCOMPARE(LastKnown({series}), kNow);
    QCOMPARE(ReadOut({kNow, 0.1, 0.2, 0.4}, "ratio"), QStringLiteral("20 % (10 % to 40 %)"));
    QCOMPARE(ReadOut({kNow, 0, 0, 0}, "ratio"), QStringLiteral("0 %"));
    QCOMPARE(ReadOut(PointAt(kNow, kUnknown), "ratio"), QStringLiteral("N/A"));
  }

  void Tail_GoesOnWhereTheRecordingEnds() {
    const std::vector<SeriesPoint> recorded = {PointAt(1000, 1), PointAt(3000, 2),
                                               PointAt(5000, kUnknown)};
    const auto points = WithTail(
        recorded, 2000, {PointAt(4000, 9), PointAt(5000, 3), PointAt(6000, 4), PointAt(20000, 5)});
    QCOMPARE(points.size(), std::size_t{6});
    QCOMPARE(points[1].mean, 2.0);  // The last bucket's mean contains it already.
    QCOMPARE(points[2].mean, 3.0);
    QVERIFY(std::isnan(points[4].mean));  // 14 s without a value are a gap.
    QCOMPARE(points[5].mean, 5.0);
    QCOMPARE(WithTail({}, 2000, {PointAt(4000, 9)}).size(), std::size_t{1});
    QVERIFY(WithTail({PointAt(1000, kUnknown)}, 2000, {}).empty());
  }

  void Summary_SaysTheValuesInWords() {
    std::vector<ChartSeries> series;
    for (const double value : {0.87, 0.12, kUnknown, 0.4}) {
      series.push_back(
          {QStringLiteral("cuda:%1").arg(series.size()), "ratio", {PointAt(kNow, value)}});
    }
    QCOMPARE(ChartSummary(QStringLiteral("SM active"), series, {kNow - 900'000, kNow}, kNow),
             QStringLiteral("SM active, 4 lines, last 15 m 00 s; now cuda:0 87 %, cuda:1 12 %, "
                            "cuda:2 N/A, cuda:3 40 %"));
    QCOMPARE(ChartSummary(QStringLiteral("Power"), {}, {kNow - 60'000, kNow}, kNow),
             QStringLiteral("Power, last 1 m 00 s: nothing to show"));
  }

  void Feed_SaysNotRecorded_AndKeepsWhatItSees() {
    ShownCluster shown_cluster;
    SeriesFeed feed(shown_cluster, {});
    feed.Want({Utilization(), {"node/instance-2/utilization", "ratio", {}, nullptr}});
    feed.Refresh();  // Nothing is known yet.
    QCOMPARE(feed.now_ms(), std::int64_t{0});
    for (int second = 0; second < 1000; ++second) {
      const std::int64_t at_ms = kNow + second * 1000;
      shown_cluster.Show(UtilizationAt(at_ms, second * 0.001), Live());
      feed.Refresh();
      // The feed keeps one value for each second.
      shown_cluster.Show(UtilizationAt(at_ms + 100, 7), Live());
      feed.Refresh();
    }
    QCOMPARE(feed.now_ms(), kNow + 999'100);
    QCOMPARE(feed.interval().from_ms, feed.now_ms() - 900'000 - 100);
    const auto values = Known(feed.series()[0]);
    QCOMPARE(values.back(), 0.999);
    QCOMPARE(values.front(), 0.099);  // 15 minutes are kept.
    QCOMPARE(values.size(), std::size_t{901});
    QVERIFY(feed.series()[1].points.empty());
    QVERIFY2(feed.note().startsWith(QStringLiteral("Not recorded")), qPrintable(feed.note()));
  }

  void Feed_ReadsTheRecording_BucketsOfLeastMeanLargest() {
    QTemporaryDir folder;
    const std::string path = folder.filePath(QStringLiteral("a.opr")).toStdString();
    auto recorder = history::Recorder::Open(path);
    QVERIFY2(recorder.ok(), recorder.status().ToString().c_str());
    for (int second = 0; second < 60; ++second) {
      if (second >= 20 && second < 40) continue;  // The console was closed.
      const auto snapshot = UtilizationAt(kNow + second * 1000, second % 2 == 0 ? 0.2 : 0.6);
      QVERIFY((*recorder)->Record(*snapshot, Live()).ok());
    }
    recorder->reset();
    auto recording = history::Recording::Open(path);
    QVERIFY(recording.ok());
    ShownCluster shown_cluster;
    shown_cluster.Show(UtilizationAt(kNow + 59'000, 0.6), Live());
    shown_cluster.SetRecording(std::shared_ptr<history::Recording>(*std::move(recording)));
    SeriesFeed feed(shown_cluster, {.span_ms = 60'000, .max_points = 30});
    feed.Want({Utilization()});
    feed.Refresh();
    QTRY_COMPARE_WITH_TIMEOUT(feed.note(), QString(), 20'000);
    const auto& points = feed.series()[0].points;
    std::size_t full = 0, gaps = 0;
    for (const SeriesPoint& point : points) {
      if (std::isnan(point.mean)) {
        ++gaps;
        continue;
      }
      QCOMPARE(point.min, 0.2);
      QCOMPARE(point.max, 0.6);
      QCOMPARE(point.mean, 0.4);
      ++full;
    }
    QCOMPARE(full, std::size_t{20});
    QCOMPARE(gaps, std::size_t{10});
    feed.Want({{"node/nobody/utilization", "ratio", QStringLiteral("nobody"), nullptr}});
    feed.Refresh();
    QTRY_COMPARE_WITH_TIMEOUT(feed.note(), QStringLiteral("The recording has no such numbers."),
                              20'000);
    QVERIFY(feed.series()[0].points.empty());
  }

  void Chart_LeavesOutAndSaysSo() {
    TimeChart chart(QStringLiteral("SM active"));
    std::vector<ChartSeries> series;
    for (int i = 0; i < 10; ++i) {
      series.push_back({QStringLiteral("cuda:%1").arg(i), "ratio", {PointAt(kNow, 0.1 * i)}});
    }
    series.push_back({QStringLiteral("power"), "watts", {PointAt(kNow, 100)}});
    chart.SetSeries(series);
    QCOMPARE(chart.series().size(), TimeChart::kMaxSeries);
    QCOMPARE(chart.note(), QStringLiteral("8 of 11 lines are shown."));
    chart.SetNote(QStringLiteral("Not recorded."));
    QCOMPARE(chart.note(), QStringLiteral("Not recorded. 8 of 11 lines are shown."));
    chart.SetSeries({});
    QCOMPARE(chart.note(), QStringLiteral("Not recorded."));
  }

  void Chart_CursorByKeys_AndWords() {
    TimeChart chart(QStringLiteral("SM active"));
    chart.SetSeries(
        {{QStringLiteral("cuda:0"),
          "ratio",
          {PointAt(kNow - 4000, 0.5), PointAt(kNow - 2000, kUnknown), PointAt(kNow, 0.25)}}});
    chart.SetInterval({kNow - 60'000, kNow});
    chart.SetNow(kNow);
    chart.SetThresholds({{QStringLiteral("limit"), 0.9}});
    chart.resize(600, 240);
    chart.show();
    QVERIFY(QTest::qWaitForWindowExposed(&chart));
    QTRY_COMPARE_WITH_TIMEOUT(chart.accessibleDescription(),
                              QStringLiteral("SM active, one line, last 1 m 00 s; now cuda:0 25 %"),
                              5000);
    QVERIFY(!chart.cursor_ms().has_value());
    QTest::keyClick(&chart, Qt::Key_End);
    QTest::keyClick(&chart, Qt::Key_Left);
    QCOMPARE(chart.cursor_ms(), std::optional<std::int64_t>(kNow - 2000));
    QVERIFY2(chart.accessibleDescription().contains(QStringLiteral("cuda:0  N/A")),
             qPrintable(chart.accessibleDescription()));
    QTest::keyClick(&chart, Qt::Key_Left);
    QVERIFY(chart.accessibleDescription().contains(QStringLiteral("cuda:0  50 %")));
    QTest::keyClick(&chart, Qt::Key_Home);
    QTest::keyClick(&chart, Qt::Key_Left);
    QCOMPARE(chart.cursor_ms(), std::optional<std::int64_t>(kNow - 60'000));
    QTest::keyClick(&chart, Qt::Key_Escape);
    QVERIFY(!chart.cursor_ms().has_value());
  }

  void Chart_DrawsStaleAndGaps_InEveryPalette() {
    for (const bool dark : {false, true}) {
      QPalette palette;
      palette.setColor(QPalette::Base, dark ? QColor(0x15181c) : QColor(Qt::white));
      palette.setColor(QPalette::Window, dark ? QColor(0x1f2328) : QColor(0xeff1f3));
      palette.setColor(QPalette::Text, dark ? QColor(Qt::white) : QColor(Qt::black));
      palette.setColor(QPalette::WindowText, dark ? QColor(Qt::white) : QColor(Qt::black));
      palette.setColor(QPalette::PlaceholderText, QColor(0x7f7f80));
      QSet<QRgb> colors;
      for (int i = 0; i < 8; ++i) {
        const QColor color = SeriesColor(i, palette);
        QVERIFY(ContrastRatio(color, palette.color(QPalette::Base)) >= 3);
        colors.insert(color.rgb());
      }
      QCOMPARE(colors.size(), 8);
      TimeChart chart(QStringLiteral("SM active"));
      chart.setPalette(palette);
      chart.resize(500, 250);
      chart.SetInterval({kNow - 60'000, kNow});
      chart.SetNow(kNow);
      const auto draw = [&](std::vector<SeriesPoint> points) {
        chart.SetSeries({{QStringLiteral("cuda:0"), "ratio", std::move(points)}});
        chart.show();
        chart.hide();
        chart.show();
        QCoreApplication::processEvents();
        return chart.grab().toImage();
      };
      std::vector<SeriesPoint> all, gap, old;
      for (std::int64_t at = kNow - 60'000; at <= kNow; at += 2000) {
        all.push_back(PointAt(at, 0.5));
        gap.push_back(PointAt(at, at > kNow - 40'000 && at < kNow - 20'000 ? kUnknown : 0.5));
        if (at < kNow - 30'000) old.push_back(PointAt(at, 0.5));
      }
      const QRgb line = SeriesColor(0, palette).rgb();
      const auto count = [](const QImage& image, QRgb rgb) {
        int found = 0;
        for (int y = 0; y < image.height(); ++y) {
          for (int x = 0; x < image.width(); ++x) found += image.pixel(x, y) == rgb ? 1 : 0;
        }
        return found;
      };
      const int whole = count(draw(all), line), broken = count(draw(gap), line);
      QVERIFY2(whole > 300, qPrintable(QString::number(whole)));
      QVERIFY2(broken < whole * 3 / 4, qPrintable(QString::number(broken)));
      const QRgb hatch = palette.color(QPalette::PlaceholderText).rgb();
      QCOMPARE(count(draw(all), hatch), 0);
      QVERIFY(count(draw(old), hatch) > 500);
    }
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiTimeChartTest)
#include "time_chart_test.moc"
