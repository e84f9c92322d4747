// Tests of the page "Rings": verdicts case by case, and each number as the ring answered it.
#include "gui/views/rings.h"

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QElapsedTimer>
#include <QSignalSpy>
#include <QTableView>
#include <QtTest>
#include <cmath>
#include <functional>

#include "gui/models/ring_table.h"
#include "gui/models/shown_cluster.h"
#include "tests/gui/models/scene.h"
#include "tests/gui/views/live.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using onepiece::testing::LiveLink;
using onepiece::testing::Scene;

/// A ring that flows: 10 messages a second, 4 of 100 slots used.
session::RingEntry Ring(const std::string& node = "instance-1") {
  session::RingEntry ring;
  ring.node_id = node;
  ring.incarnation = 1;
  ring.as_of_ms = kNow;
  ring.rates = session::RingRates{10, 1000, 0, 0, 0};
  ring.health.set_slots(100);
  ring.health.set_used_slots(4);
  ring.health.set_capacity_bytes(1000);
  ring.health.set_used_bytes(40);
  ring.health.set_oldest_age_ms(20);
  ring.health.add_producers()->set_connected(true);
  return ring;
}

session::Snapshot SnapshotOfRings(session::Rings rings, std::int64_t at_ms = kNow) {
  session::Snapshot snapshot;
  snapshot.at_ms = at_ms;
  snapshot.rings = {std::make_shared<const session::Rings>(std::move(rings)), at_ms, ""};
  return snapshot;
}

QVariant Cell(const QAbstractItemModel& model, int row, const QString& column, int role) {
  for (int i = 0; i < model.columnCount(); ++i) {
    if (model.headerData(i, Qt::Horizontal).toString() == column) {
      return model.index(row, i).data(role);
    }
  }
  return QStringLiteral("no such column");
}

struct Case {
  const char* name;
  std::function<void(session::RingEntry& ring)> change;
  RingState state;
  const char* text;
};

using S = RingState;
using R = session::RingEntry;

std::vector<Case> Cases() {
  return {
      {"flows", [](R&) {}, S::kFlowing,
       "10.0/s taken out; 4 of 100 slots used, the oldest message for 20.0 ms."},
      {"never answered", [](R& r) { r.as_of_ms = 0; }, S::kNotKnown, "It has not answered yet."},
      {"never answered, and why", [](R& r) { r.as_of_ms = 0, r.error = "UNAVAILABLE"; },
       S::kNotKnown, "It has never answered: UNAVAILABLE"},
      {"does not answer any more", [](R& r) { r.as_of_ms -= 1500, r.error = "UNAVAILABLE"; },
       S::kNotKnown, "It has not answered for 1.5 s: UNAVAILABLE"},
      {"5 s old is still new", [](R& r) { r.as_of_ms -= 5000; }, S::kFlowing, nullptr},
      {"older is not", [](R& r) { r.as_of_ms -= 5001; }, S::kNotKnown,
       "Its last answer is 5.0 s old."},
      {"its clock is ahead", [](R& r) { r.as_of_ms += 60'000; }, S::kFlowing, nullptr},
      {"corrupt",
       [](R& r) { r.rates->corrupted_per_s = 2, r.health.mutable_counters()->set_corrupted(12); },
       S::kCorrupt, "2.0/s dropped as corrupt, 12 since it began."},
      {"was corrupt once", [](R& r) { r.health.mutable_counters()->set_corrupted(12); },
       S::kFlowing, nullptr},
      {"stalls",
       [](R& r) { r.rates->stalls_per_s = 0.5, r.health.mutable_counters()->set_stalls(3); },
       S::kStuckProducer,
       "A live producer held it up beyond its time-out: 0.50/s, 3 times since it began."},
      {"corrupt comes before stalls",
       [](R& r) { r.rates->corrupted_per_s = 1, r.rates->stalls_per_s = 1; }, S::kCorrupt, nullptr},
      {"nobody takes out",
       [](R& r) { r.rates->messages_per_s = 0, r.health.set_oldest_age_ms(5000); },
       S::kStuckConsumer,
       "4 of 100 slots used, the oldest message for 5.0 s, and none is taken out."},
      {"not for long enough",
       [](R& r) { r.rates->messages_per_s = 0, r.health.set_oldest_age_ms(4999); }, S::kFlowing,
       nullptr},
      {"old, but others are taken out", [](R& r) { r.health.set_oldest_age_ms(9000); }, S::kFlowing,
       nullptr},
      {"stalls come before a stuck consumer",
       [](R& r) {
         r.rates->messages_per_s = 0, r.rates->stalls_per_s = 1, r.health.set_oldest_age_ms(9000);
       },
       S::kStuckProducer, nullptr},
      {"nearly full of messages", [](R& r) { r.health.set_used_slots(80); }, S::kBackpressured,
       "80 % full: 80 of 100 slots used, the oldest message for 20.0 ms, 40 B of 1000 B."},
      {"not nearly full", [](R& r) { r.health.set_used_slots(79); }, S::kFlowing, nullptr},
      {"nearly full of bytes", [](R& r) { r.health.set_used_bytes(800); }, S::kBackpressured,
       nullptr},
      {"full and stuck is stuck",
       [](R& r) {
         r.rates->messages_per_s = 0, r.health.set_used_slots(100),
         r.health.set_oldest_age_ms(9000);
       },
       S::kStuckConsumer, nullptr},
      {"first answer, full", [](R& r) { r.rates.reset(), r.health.set_used_slots(90); },
       S::kBackpressured, nullptr},
      {"first answer", [](R& r) { r.rates.reset(), r.health.set_oldest_age_ms(9000); },
       S::kNotKnown,
       "4 of 100 slots used, the oldest message for 9.0 s; how fast it flows is known from its "
       "second answer on."},
      {"starved", [](R& r) { r.rates->messages_per_s = 0, r.health.set_used_slots(0); },
       S::kStarved, "Empty, and nothing comes from 1 connected producers."},
      {"nobody connected",
       [](R& r) {
         r.rates->messages_per_s = 0, r.health.set_used_slots(0), r.health.clear_producers();
       },
       S::kStarved, "Empty, and no producer is connected."},
      {"empty, but flows", [](R& r) { r.health.set_used_slots(0); }, S::kFlowing, nullptr},
      {"says nothing of its size",
       [](R& r) {
         r.health.set_slots(0), r.health.set_capacity_bytes(0), r.health.set_used_slots(0);
       },
       S::kFlowing, nullptr},
  };
}

}  // namespace

class GuiRingsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Verdict_CaseByCase_data() {
    QTest::addColumn<int>("at");
    const auto cases = Cases();
    for (std::size_t i = 0; i < cases.size(); ++i) {
      QTest::newRow(cases[i].name) << static_cast<int>(i);
    }
  }
  void Verdict_CaseByCase() {
    QFETCH(int, at);
    const Case one = Cases()[static_cast<std::size_t>(at)];
    session::RingEntry ring = Ring();
    one.change(ring);
    const RingVerdict verdict = JudgeRing(ring, kNow);
    QCOMPARE(RingStateName(verdict.state), RingStateName(one.state));
    QVERIFY(!verdict.text.isEmpty());
    if (one.text != nullptr) QCOMPARE(verdict.text, QString::fromUtf8(one.text));
  }

  void Verdict_EveryCombinationHasOne() {
    // All combinations of numbers give one verdict with a sentence. With complete data it is never
    // "Not known".
    for (int bits = 0; bits < 1 << 7; ++bits) {
      session::RingEntry ring = Ring();
      if ((bits & 1) != 0) ring.rates->corrupted_per_s = 1;
      if ((bits & 2) != 0) ring.rates->stalls_per_s = 1;
      if ((bits & 4) != 0) ring.rates->messages_per_s = 0;
      if ((bits & 8) != 0) ring.health.set_oldest_age_ms(10'000);
      if ((bits & 16) != 0) ring.health.set_used_slots(100);
      if ((bits & 32) != 0) ring.health.set_used_slots(0);
      if ((bits & 64) != 0) ring.health.set_used_bytes(1000);
      const RingVerdict verdict = JudgeRing(ring, kNow);
      QVERIFY(verdict.state != RingState::kNotKnown);
      QVERIFY(!verdict.text.isEmpty());
      QCOMPARE(verdict.state == RingState::kCorrupt, (bits & 1) != 0);
      if ((bits & 1) == 0) QCOMPARE(verdict.state == RingState::kStuckProducer, (bits & 2) != 0);
    }
    for (const auto part : {5000, 80}) {
      QVERIFY(RingThresholdsText().contains(part == 80 ? QStringLiteral("80 %")
                                                       : QStringLiteral("5.0 s")));
    }
  }

  void Table_NumbersNullsAndPutRate() {
    RingTable rings;
    const QAbstractItemModelTester tester(&rings.table());
    const QAbstractItemModelTester producer_tester(&rings.producers());
    session::RingEntry silent = Ring("silent");
    silent.as_of_ms = 0;
    silent.error = "UNAVAILABLE";
    silent.health.Clear();
    silent.rates.reset();
    session::RingEntry ring = Ring();
    ring.rates.reset();
    rings.Show(SnapshotOfRings({ring, silent}));
    QVERIFY(Cell(rings.table(), 0, QStringLiteral("Get/s"), kSortRole).isNull());
    QCOMPARE(Cell(rings.table(), 0, QStringLiteral("Corrupt"), kSortRole), QVariant(0.0));
    QVERIFY(Cell(rings.table(), 1, QStringLiteral("Used"), kSortRole).isNull());
    QCOMPARE(Cell(rings.table(), 1, QStringLiteral("Used"), Qt::DisplayRole).toString(),
             QStringLiteral("N/A"));
    ring.rates = session::RingRates{10, 1000, 0, 0, 0};
    ring.as_of_ms += 2000;
    // The used slots grew by 3 a second while 10 a second went out.
    ring.health.set_used_slots(10);
    rings.Show(SnapshotOfRings({ring, silent}, kNow + 2000));
    QCOMPARE(Cell(rings.table(), 0, QStringLiteral("Put/s"), kSortRole), QVariant(13.0));
    rings.Show(SnapshotOfRings({ring, silent}, kNow + 2100));  // The same answer again.
    QCOMPARE(Cell(rings.table(), 0, QStringLiteral("Put/s"), kSortRole), QVariant(13.0));
    ring.as_of_ms += 60'000;  // The page was hidden meanwhile.
    rings.Show(SnapshotOfRings({ring, silent}, kNow + 62'000));
    QVERIFY(Cell(rings.table(), 0, QStringLiteral("Put/s"), kSortRole).isNull());
    QCOMPARE(rings.headline(), QStringLiteral("2 rings: 1 Flowing, 1 Not known."));
    rings.ShowProducers(QStringLiteral("ring/instance-1"));
    QCOMPARE(rings.producers().rowCount(), 1);
    rings.ShowProducers(QStringLiteral("ring/nobody"));
    QCOMPARE(rings.producers().rowCount(), 0);
    rings.Show(session::Snapshot());
    QCOMPARE(rings.headline(), QStringLiteral("No ring has answered yet."));
    rings.Show(SnapshotOfRings({}));
    QCOMPARE(rings.headline(), QStringLiteral("No instance and no database has a ring."));
  }

  void History_LargestShareOfEachSpan() {
    const double unknown = std::nan("");
    const std::vector<ChartSeries> used = {{QStringLiteral("a"),
                                            "1",
                                            {{kNow, 1, 2, 50},
                                             {kNow + 10'000, 0, 1, 2},
                                             {kNow + 20'000, unknown, unknown, unknown},
                                             {kNow + 40'000, 0, 0, 0}}},
                                           {QStringLiteral("b"), "1", {}}};
    const HeatGrid grid = RingHistory(used, {QStringLiteral("ring/a"), QStringLiteral("ring/b")},
                                      {100, 0}, {kNow, kNow + 60'000}, 3);
    QCOMPARE(grid.rows.size(), 2);
    QCOMPARE(grid.cells.size(), std::size_t{6});
    QCOMPARE(grid.cells[0].share, 0.5);
    QVERIFY(grid.cells[1].state == CellState::kNotAvailable);  // A gap is not 0.
    QVERIFY(grid.cells[2].state == CellState::kValue);
    QCOMPARE(grid.cells[2].value, 0.0);
    QVERIFY(grid.cells[3].state == CellState::kNotAvailable);
    QCOMPARE(grid.cells[0].key, QStringLiteral("ring/a@0"));
    // The number of slots is not known, which does not mean that the ring is empty.
    const HeatGrid of_what =
        RingHistory({used[0]}, {QStringLiteral("ring/a")}, {0}, {kNow, kNow + 60'000}, 3);
    for (const HeatCell& cell : of_what.cells) QVERIFY(cell.state == CellState::kNotAvailable);
    QVERIFY(of_what.cells[0].tip.contains(u"50 slots"));
  }

  void Page_RingThatLeft_HasNoEmptyLine() {
    ShownCluster shown_cluster;
    Scene scene({.nodes = 8, .rings = 8});
    RingsView view(shown_cluster);
    view.show();
    view.findChild<QTabWidget*>()->setCurrentIndex(2);
    const QAbstractItemModel* map =
        view.findChild<QTableView*>(QStringLiteral("heatmap.Used slots over time"))->model();
    const auto lines = [&] {
      QStringList names;
      for (int i = 0; i < map->rowCount(); ++i)
        names << map->headerData(i, Qt::Vertical).toString();
      return names;
    };
    shown_cluster.Show(scene.snapshot(), LiveLink());
    QTRY_VERIFY(lines().contains(u"instance-3"));
    // Another ring comes in its place, so the number of rings stays.
    auto next = std::make_shared<session::Snapshot>(*scene.Step());
    session::Rings rings = *next->rings.value;
    rings[2].node_id = "instance-9";
    next->rings.value = std::make_shared<const session::Rings>(std::move(rings));
    shown_cluster.Show(next, LiveLink());
    QTRY_VERIFY(lines().contains(u"instance-9"));
    QVERIFY(!lines().contains(u"instance-3"));
  }

  void Page_TwoHundredRings_TenASecond_Hostile() {
    for (const bool hostile : {false, true}) {
      ShownCluster shown_cluster;
      Scene scene({.nodes = 198, .device_nodes = 0, .rings = 200, .hostile = hostile});
      RingsView view(shown_cluster);
      view.resize(1280, 800);
      view.show();
      shown_cluster.Show(scene.snapshot(), LiveLink());
      QCOMPARE(view.ExportModel()->rowCount(), 200);
      view.findChild<QTabWidget*>()->setCurrentIndex(2);
      QElapsedTimer timer;
      qint64 spent = 0;
      for (int i = 0; i < 20; ++i) {
        const auto snapshot = scene.Step();
        timer.start();
        shown_cluster.Show(snapshot, LiveLink());
        QCoreApplication::processEvents();
        spent += timer.elapsed();
      }
      // An update may take a tenth of a second. The bound is on the sum of 20, because machines are
      // slow at times.
      QVERIFY2(spent < 20 * 100, qPrintable(QString::number(spent)));
      QVERIFY(!view.grab().isNull());
      auto* map = view.findChild<Heatmap*>();
      QCOMPARE(map->model()->rowCount(), static_cast<int>(RingsView::kHistoryRings));
      view.SetFilter(QStringLiteral("no such ring"));
      QCOMPARE(view.ExportModel()->rowCount(), 0);
      view.SetFilter(QString());
      shown_cluster.Show(std::make_shared<session::Snapshot>(), LiveLink());
      QCOMPARE(view.ExportModel()->rowCount(), 0);
    }
  }

  void Page_ShowsWhatTheRingAnswers() {
    onepiece::testing::FakeCluster cluster;
    cluster.SetUp(2);
    session::RingEntry ring = Ring();
    ring.health.set_used_slots(37);
    ring.health.set_generation(5);
    ring.health.mutable_counters()->set_corrupted(3);
    v1::RingProducer& producer = *ring.health.mutable_producers(0);
    producer.set_producer_id(0xab);
    producer.set_node_id("proxy-1");
    producer.set_delivered(4711);
    cluster.SetRing(ring.health);
    ShownCluster shown_cluster;
    RingsView view(shown_cluster);
    view.resize(1000, 700);
    view.show();
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"fake", {cluster.address()}, false}));
    const QAbstractItemModel& rows = *view.ExportModel();
    const auto used = [&] { return Cell(rows, 0, QStringLiteral("Used"), kSortRole); };
    QTRY_COMPARE_WITH_TIMEOUT(used(), QVariant(37.0), 20'000);
    QCOMPARE(Cell(rows, 0, QStringLiteral("Slots"), kSortRole), QVariant(100.0));
    QCOMPARE(Cell(rows, 0, QStringLiteral("Generation"), kSortRole), QVariant(5.0));
    QCOMPARE(Cell(rows, 0, QStringLiteral("Corrupt"), kSortRole), QVariant(3.0));
    QCOMPARE(Cell(rows, 0, QStringLiteral("Producers"), kSortRole), QVariant(1.0));
    const auto rate = [&] { return Cell(rows, 0, QStringLiteral("Get/s"), kSortRole); };
    QTRY_COMPARE_WITH_TIMEOUT(rate(), QVariant(0.0), 20'000);  // Known from the second answer on.
    view.Focus(QStringLiteral("ring/instance-2"));
    auto* verdict = view.findChild<QLabel*>(QStringLiteral("verdict"));
    QTRY_VERIFY2(verdict->text().startsWith(QStringLiteral("instance-2 · ")),
                 qPrintable(verdict->text()));
    QTRY_VERIFY(verdict->text().contains(QStringLiteral("37 of 100 slots used")));
    auto* producers = view.findChild<QTableView*>(QStringLiteral("table.Producers of the ring"));
    QCOMPARE(Cell(*producers->model(), 0, QStringLiteral("Delivered"), kSortRole),
             QVariant(4711.0));
    view.Focus(QStringLiteral("node/instance-1"));
    QTRY_VERIFY(verdict->text().startsWith(QStringLiteral("instance-1 · ")));
    auto* chart = view.findChild<TimeChart*>();
    QTRY_VERIFY_WITH_TIMEOUT(!chart->series().empty() && !chart->series()[0].points.empty(),
                             20'000);
    QCOMPARE(chart->series()[0].points.back().mean, 37.0);
    QSignalSpy wanted(&view, &View::Wanted);
    QTest::keyClick(view.findChild<QTableView*>(QStringLiteral("table.Rings")), Qt::Key_Return);
    QCOMPARE(wanted.size(), 1);
    QCOMPARE(wanted[0][1].toString(), QStringLiteral("node/instance-1"));
    shown_cluster.Follow(nullptr);
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiRingsTest)
#include "rings_test.moc"
