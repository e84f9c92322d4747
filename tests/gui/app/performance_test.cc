// The program that measures the console shows all pages. docs/benchmarks.md says how fast it is.
#include <QApplication>
#include <QtTest>

#include "tests/bench/console/load.h"
#include "tests/gui/app/window.h"
#include "tests/test_main.h"

namespace onepiece::gui {

class GuiAppPerformanceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Measure_ShowsEveryPage() {
    bench::ConsoleLoad load;
    load.scene.jobs = 500;
    load.ticks = 3;
    load.paced = false;
    load.log_lines = 100;
    const std::vector<bench::PageTimes> times = bench::MeasurePages(load);
    testing::TestWindow window;
    const auto pages = window.pages();
    QVERIFY(times.size() >= pages.size());
    for (std::size_t i = 0; i < pages.size(); ++i) {
      QCOMPARE(times[i].page, pages[i]->id());
      QCOMPARE(times[i].frames, load.ticks);
      QVERIFY(times[i].wall.p50_ms > 0);
      QVERIFY(times[i].wall.p50_ms <= times[i].wall.p95_ms);
      QVERIFY(times[i].wall.p95_ms <= times[i].wall.max_ms);
      QVERIFY(times[i].cpu.max_ms > 0);
    }
    QVERIFY(times.back().page.startsWith(u"logs, "));
    QVERIFY(times.back().wall.max_ms > 0);
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiAppPerformanceTest)
#include "performance_test.moc"
