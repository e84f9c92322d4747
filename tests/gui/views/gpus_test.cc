// Tests of the page "GPUs": each number is shown as it was reported, and what is not known is shown
// as not known.
#include "gui/views/gpus.h"

#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QApplication>
#include <QElapsedTimer>
#include <QSignalSpy>
#include <QtTest>

#include "gui/models/device_table.h"
#include "gui/models/shown_cluster.h"
#include "tests/gui/models/scene.h"
#include "tests/gui/views/live.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using onepiece::testing::LiveLink;
using onepiece::testing::Scene;
using onepiece::testing::SceneOptions;

v1::Node GpuInstance(const std::string& id, const std::string& machine) {
  v1::Node node;
  node.set_node_id(id);
  node.set_role(v1::INSTANCE);
  node.set_state(v1::Node::READY);
  node.set_activity(v1::SERVING);
  node.set_address(machine + ":5001");
  node.mutable_last_report_time()->set_seconds(kNow / 1000);
  v1::NodeLoad& load = *node.mutable_load();
  load.set_sample_unix_ms(kNow);
  load.set_running_jobs(1);
  load.set_held_jobs(1);
  load.set_utilization_source(v1::SM_ACTIVE);
  v1::DeviceLoad& device = *load.add_devices();
  device.set_device("cuda:0");
  device.set_product("NVIDIA A100");
  device.set_sm_active(0.5);
  device.set_kernel_active(1);
  return node;
}

session::Snapshot SnapshotOf(std::vector<v1::Node> nodes, std::int64_t at_ms = kNow) {
  v1::Cluster cluster;
  for (v1::Node& node : nodes) *cluster.add_nodes() = std::move(node);
  session::Snapshot snapshot;
  snapshot.at_ms = at_ms;
  snapshot.cluster = {std::make_shared<const v1::Cluster>(std::move(cluster)), at_ms, ""};
  return snapshot;
}

const HeatCell& CellOf(const DeviceTable::Picture& picture, const QString& key) {
  static const HeatCell kNothing;
  const auto at = std::ranges::find(picture.grid.cells, key, &HeatCell::key);
  return at == picture.grid.cells.end() ? kNothing : *at;
}

QVariant Exported(DeviceTable& devices, const QString& key, const QString& column) {
  auto& table = devices.table();
  for (int i = 0; i < table.columnCount(); ++i) {
    if (table.headerData(i, Qt::Horizontal, Qt::DisplayRole).toString() != column) continue;
    return table.index(table.RowOf(key), i).data(kSortRole);
  }
  return QStringLiteral("no such column");
}

}  // namespace

class GuiGpusTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void FiveStates_LookAndExportDifferently() {
    v1::Node zero = GpuInstance("zero", "a"), none = GpuInstance("none", "a"),
             warming = GpuInstance("warming", "a"), stale = GpuInstance("stale", "a");
    zero.mutable_load()->mutable_devices(0)->set_sm_active(0);
    none.mutable_load()->mutable_devices(0)->clear_sm_active();
    warming.set_activity(v1::LOADING);
    warming.mutable_load()->mutable_devices(0)->clear_sm_active();
    warming.mutable_load()->mutable_devices(0)->clear_kernel_active();
    stale.mutable_last_report_time()->set_seconds(kNow / 1000 - 6);
    DeviceTable devices;
    const QAbstractItemModelTester tester(&devices.table());
    devices.Show(SnapshotOf({zero, none, warming, stale, GpuInstance("fine", "a")}), LiveLink());
    const auto picture = devices.Draw(DeviceMetric::kSmActive, {});
    HeatModel cells;
    const QAbstractItemModelTester cell_tester(&cells);
    cells.Show(picture.grid);
    struct Want {
      const char* node;
      CellState state;
      const char* text;
      QVariant exported;
    };
    const std::vector<Want> all = {{"zero", CellState::kValue, "0 %", 0.0},
                                   {"none", CellState::kNotAvailable, "N/A", QVariant()},
                                   {"warming", CellState::kWarmingUp, "…", QVariant()},
                                   {"stale", CellState::kStale, "50 %", QVariant()},
                                   {"fine", CellState::kValue, "50 %", 0.5}};
    QSet<QString> spoken;
    for (const Want& want : all) {
      const QString key = QStringLiteral("device/%1/0").arg(QLatin1String(want.node));
      QVERIFY2(CellOf(picture, key).state == want.state, want.node);
      const QModelIndex index = cells.Find(key);
      QCOMPARE(index.data().toString(), QString::fromUtf8(want.text));
      QCOMPARE(index.data(kSortRole), want.exported);
      spoken.insert(index.data(Qt::AccessibleTextRole).toString().remove(want.node));
    }
    QCOMPARE(spoken.size(), 5);
    // The exported table keeps the last number of a stale device, and says so.
    const QString kState = QStringLiteral("State"), kFine = QStringLiteral("SM active");
    QCOMPARE(Exported(devices, QStringLiteral("device/stale/0"), kFine), QVariant(0.5));
    QCOMPARE(Exported(devices, QStringLiteral("device/stale/0"), kState).toString(),
             QStringLiteral("stale"));
    QCOMPARE(Exported(devices, QStringLiteral("device/stale/0"), QStringLiteral("Age")),
             QVariant(6.0));
    QVERIFY(Exported(devices, QStringLiteral("device/none/0"), kFine).isNull());
    QVERIFY(!Exported(devices, QStringLiteral("device/zero/0"), kFine).isNull());
    QCOMPARE(Exported(devices, QStringLiteral("device/zero/0"), kFine), QVariant(0.0));
    QCOMPARE(picture.headline, QStringLiteral("SM active: median 50 %, least 0 % (zero cuda:0), "
                                              "most 50 % (fine cuda:0). 2 of 5 say it."));
  }

  void NoFineNumber_SaysSoAndShowsTheCoarseOne() {
    v1::Node node = GpuInstance("instance-1", "a");
    node.mutable_load()->mutable_devices(0)->clear_sm_active();
    node.mutable_load()->mutable_devices(0)->set_kernel_active(0.75);
    DeviceTable devices;
    devices.Show(SnapshotOf({node}), LiveLink());
    const auto picture = devices.Draw(DeviceMetric::kSmActive, {});
    QVERIFY(picture.shown == DeviceMetric::kCoarse);
    QVERIFY2(picture.headline.startsWith(
                 QStringLiteral("SM active unavailable (NVIDIA A100 does not say it). Showing "
                                "coarse utilisation.")),
             qPrintable(picture.headline));
    QCOMPARE(picture.grid.cells[0].text, QStringLiteral("75 %"));
  }

  void NoGpu_ShowsTheWorkersAndNamesThem() {
    v1::Node node = GpuInstance("instance-1", "127.0.0.1"),
             bare = GpuInstance("instance-2", "127.0.0.1");
    for (v1::Node* one : {&node, &bare}) {
      one->mutable_load()->set_utilization_source(v1::WORKERS);
      one->mutable_load()->set_utilization(0.4);
      one->mutable_load()->clear_devices();
    }
    v1::DeviceLoad& cpu = *node.mutable_load()->add_devices();
    cpu.set_device("cpu");
    cpu.set_memory_used_bytes(std::int64_t{3} << 30);
    cpu.set_memory_bytes(std::int64_t{8} << 30);
    DeviceTable devices;
    devices.Show(SnapshotOf({node, bare}), LiveLink());
    const auto picture = devices.Draw(DeviceMetric::kSmActive, {});
    QVERIFY(picture.shown == DeviceMetric::kWorkers);
    QVERIFY2(picture.headline.startsWith(QStringLiteral("No node reports a GPU. Shown is ")),
             qPrintable(picture.headline));
    QCOMPARE(CellOf(picture, QStringLiteral("device/instance-1/0")).text, QStringLiteral("40 %"));
    QCOMPARE(CellOf(picture, QStringLiteral("node/instance-2")).text, QStringLiteral("40 %"));
    const auto memory = devices.Draw(DeviceMetric::kMemory, {});
    QCOMPARE(CellOf(memory, QStringLiteral("device/instance-1/0")).text, QStringLiteral("3.0 GiB"));
    QCOMPARE(CellOf(memory, QStringLiteral("device/instance-1/0")).share, 0.375);
    QVERIFY(CellOf(memory, QStringLiteral("node/instance-2")).state == CellState::kNotAvailable);
    devices.Show(session::Snapshot(), LiveLink());
    QCOMPARE(devices.Draw(DeviceMetric::kSmActive, {}).headline,
             QStringLiteral("Nothing is known of the cluster yet."));
    devices.Show(SnapshotOf({}), LiveLink());
    QCOMPARE(devices.Draw(DeviceMetric::kSmActive, {}).headline,
             QStringLiteral("No instance has joined the cluster."));
  }

  void BusyWithoutProgress_IsMarked_data() {
    QTest::addColumn<double>("busy");
    QTest::addColumn<int>("no_progress_ms");
    QTest::addColumn<int>("jobs");
    QTest::addColumn<bool>("stuck");
    QTest::addColumn<QString>("warning");
    QTest::newRow("works") << 0.9 << 2000 << 1 << false << QString();
    QTest::newRow("idle") << 0.1 << 0 << 0 << false << QString();
    QTest::newRow("hangs") << 0.9 << 31'000 << 1 << false
                           << QStringLiteral("busy but no progress: no step for 31.0 s");
    QTest::newRow("waits, and is not busy") << 0.1 << 31'000 << 1 << false << QString();
    QTest::newRow("the NodeManager says so")
        << 0.1 << 90'000 << 1 << true
        << QStringLiteral("busy but no progress: no step for 1 m 30 s");
    QTest::newRow("another program")
        << 0.9 << 0 << 0 << false
        << QStringLiteral("busy but this instance computes nothing: another program?");
  }
  void BusyWithoutProgress_IsMarked() {
    QFETCH(double, busy);
    QFETCH(int, no_progress_ms);
    QFETCH(int, jobs);
    QFETCH(bool, stuck);
    v1::Node node = GpuInstance("instance-1", "a");
    node.mutable_load()->mutable_devices(0)->set_sm_active(busy);
    node.mutable_load()->set_no_progress_ms(no_progress_ms);
    node.mutable_load()->set_running_jobs(jobs);
    node.mutable_load()->set_held_jobs(jobs);
    if (stuck) node.set_activity(v1::STUCK);
    DeviceTable devices;
    devices.Show(SnapshotOf({node}), LiveLink());
    QTEST(devices.Find(QStringLiteral("device/instance-1/0"))->warning, "warning");
  }

  void Grid_MachinesAreLines() {
    std::vector<v1::Node> nodes;
    for (int i = 0; i < 6; ++i) {
      nodes.push_back(GpuInstance("instance-" + std::to_string(i), i < 4 ? "left" : "right"));
    }
    DeviceTable devices;
    devices.Show(SnapshotOf(nodes), LiveLink());
    auto picture = devices.Draw(DeviceMetric::kSmActive, {});
    QCOMPARE(picture.grid.rows, (QStringList{QStringLiteral("left"), QStringLiteral("right")}));
    QCOMPARE(picture.grid.columns.size(), 4);
    QVERIFY(picture.grid.cells[6].state == CellState::kNone);
    picture = devices.Draw(DeviceMetric::kSmActive, QStringLiteral("RIGHT"));
    QCOMPARE(picture.grid.cells.size(), std::size_t{2});
    QCOMPARE(picture.hidden, 4);
    Scene scene({.nodes = 20, .device_nodes = 20});  // Each is on a machine of its own.
    devices.Show(*scene.snapshot(), LiveLink());
    picture = devices.Draw(DeviceMetric::kSmActive, {});
    QCOMPARE(picture.grid.columns.size(), 8);
    QCOMPARE(picture.grid.rows.size(), 3);
  }

  void Page_OddHostileAndEmptyClusters_10ASecond() {
    for (const bool hostile : {false, true}) {
      ShownCluster shown_cluster;
      Scene scene(
          {.nodes = 16, .device_nodes = 12, .devices = 4, .odd_devices = true, .hostile = hostile});
      GpusView view(shown_cluster);
      const QAbstractItemModelTester tester(view.ExportModel());
      view.resize(1280, 800);
      view.show();
      shown_cluster.Show(scene.snapshot(), LiveLink());
      auto* map = view.findChild<Heatmap*>();
      const QAbstractItemModelTester cell_tester(map->model());
      QElapsedTimer timer;
      timer.start();
      for (int i = 0; i < 50; ++i) shown_cluster.Show(scene.Step(), LiveLink());
      QVERIFY2(timer.elapsed() < 5000, qPrintable(QString::number(timer.elapsed())));
      QVERIFY(!view.grab().isNull());
      for (const QLabel* label : view.findChildren<QLabel*>()) {
        QVERIFY(!label->text().contains(QChar(0x202e)));
        QVERIFY(!label->text().contains(QChar(0x07)));
      }
      shown_cluster.Show(std::make_shared<session::Snapshot>(), LiveLink());
      QVERIFY(!map->isVisible());
    }
  }

  void Page_ShowsWhatTheClusterReports_KeysAndFocus() {
    onepiece::testing::FakeCluster cluster;
    cluster.SetUp(2);
    v1::NodeLoad load = GpuInstance("", "").load();
    load.mutable_devices(0)->set_sm_active(0.37);
    load.mutable_devices(0)->set_temperature_c(61);
    *load.add_devices() = load.devices(0);
    load.mutable_devices(1)->set_device("cuda:1");
    load.mutable_devices(1)->set_sm_active(0.81);
    load.mutable_devices(1)->clear_temperature_c();
    cluster.SetLoad("instance-1", load, v1::SERVING);
    cluster.SetLoad("instance-2", load, v1::SERVING);
    ShownCluster shown_cluster;
    GpusView view(shown_cluster);
    view.resize(1000, 700);
    view.show();
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"fake", {cluster.address()}, false}));
    auto* map = view.findChild<Heatmap*>();
    const auto text = [&](const char* key) {
      return static_cast<HeatModel*>(map->model())->Find(QLatin1String(key)).data().toString();
    };
    QTRY_COMPARE_WITH_TIMEOUT(text("device/instance-1/0"), QStringLiteral("37 %"), 20'000);
    QCOMPARE(text("device/instance-2/1"), QStringLiteral("81 %"));
    auto* metric = view.findChild<QComboBox*>();
    metric->setCurrentIndex(metric->findData(static_cast<int>(DeviceMetric::kTemperature)));
    QCOMPARE(text("device/instance-1/0"), QStringLiteral("61 °C"));
    QCOMPARE(text("device/instance-1/1"), QStringLiteral("N/A"));
    view.Focus(QStringLiteral("device/instance-2/1"));
    QCOMPARE(map->currentIndex().data(kKeyRole).toString(), QStringLiteral("device/instance-2/1"));
    view.Focus(QStringLiteral("node/instance-1"));
    QCOMPARE(map->currentIndex().data(kKeyRole).toString(), QStringLiteral("device/instance-1/0"));
    QSignalSpy picked(map, &Heatmap::Picked);
    QTest::keyClick(map, Qt::Key_Right);
    QTest::keyClick(map, Qt::Key_Return);
    QCOMPARE(picked.size(), 1);
    const QString second = picked[0][0].toString();
    QVERIFY(second != QStringLiteral("device/instance-1/0"));
    auto* chart = view.findChild<TimeChart*>();
    QTRY_VERIFY_WITH_TIMEOUT(!chart->series().empty() && !chart->series()[0].points.empty(),
                             20'000);
    const auto shown = second.endsWith(u'1') ? 0.81 : 0.37;
    QCOMPARE(chart->series()[0].points.back().mean, shown);
    // A screen reader must find a table.
    QAccessibleInterface* accessible = QAccessible::queryAccessibleInterface(map);
    QVERIFY(accessible != nullptr && accessible->tableInterface() != nullptr);
    QCOMPARE(accessible->tableInterface()->columnCount(), map->model()->columnCount());
    QVERIFY(accessible->tableInterface()
                ->cellAt(0, 1)
                ->text(QAccessible::Name)
                .contains(QStringLiteral("N/A")));
    view.SetFilter(QStringLiteral("cuda:1"));
    QVERIFY(text("device/instance-1/0").isEmpty());
    view.SetFilter(QString());
    QVERIFY(view.Help().contains(QStringLiteral("coarse")));
    shown_cluster.Follow(nullptr);
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiGpusTest)
#include "gpus_test.moc"
