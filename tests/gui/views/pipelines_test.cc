// Tests of the page "Pipelines": its numbers against what a cluster answers, the places of its
// items, the verdict, and what keys and screen readers find.
#include "gui/views/pipelines.h"

#include <QAbstractItemModelTester>
#include <QAccessible>
#include <QBuffer>
#include <QSignalSpy>
#include <QSvgGenerator>
#include <QtTest>
#include <QtWidgets>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include "gui/app/theme.h"
#include "gui/views/tone.h"
#include "tests/gui/models/pipeline_scenes.h"
#include "tests/gui/models/scene.h"
#include "tests/gui/views/live.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using Place = PipelineCanvas::Place;
// An upper bound: waits end long before, but the machine may be busy.
/// Handles posted events, and those that they post in turn.
void Settle() {
  for (int round = 0; round < 4; ++round) QCoreApplication::processEvents();
}

/// A page in its window. The test gives it snapshots.
struct PipelinesPage {
  ShownCluster shown_cluster;
  PipelinesView view{shown_cluster};

  explicit PipelinesPage(QSize size = {1280, 800}) {
    view.resize(size);
    view.show();
    if (!QTest::qWaitForWindowExposed(&view, kSoonMs)) qFatal("the window does not come");
  }
  void Show(const std::shared_ptr<const session::Snapshot>& snapshot) {
    shown_cluster.Show(snapshot, Live());
  }
  PipelineCanvas& canvas() { return view.canvas(); }
  const PipelineGraph& graph() { return view.canvas().graph(); }
  QString Label(const char* name) { return view.findChild<QLabel*>(QLatin1String(name))->text(); }
  Place At(const char* entity) { return canvas().Find(QLatin1String(entity)); }
  /// The text on the canvas at its zoom.
  QString Written() {
    QBuffer buffer;
    buffer.open(QIODevice::WriteOnly);
    QSvgGenerator svg;
    svg.setOutputDevice(&buffer);
    svg.setSize(canvas().viewport()->size());
    QPainter painter(&svg);
    canvas().scene()->render(&painter);
    painter.end();
    QString words;
    QXmlStreamReader reader(buffer.data());
    while (!reader.atEnd()) {
      if (reader.readNext() == QXmlStreamReader::Characters)
        words += reader.text().toString() + u'\n';
    }
    return words;
  }
};

class PaintCounter : public QObject {
 public:
  explicit PaintCounter(QWidget* widget) { widget->installEventFilter(this); }
  bool eventFilter(QObject* /*watched*/, QEvent* event) override {
    if (event->type() == QEvent::Paint) ++count;
    return false;
  }
  int count = 0;
};

}  // namespace

class GuiViewsPipelinesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    Settings settings;
    settings.reduced_motion = true;
    ApplyTheme(settings, false, 10);
  }

  void Numbers_AreThoseOfTheCluster() {
    testing::FakeCluster cluster;
    cluster.SetUp(0);
    cluster.SetWorkflow(SceneWorkflow("wan-t2v", 2));
    for (int i = 1; i <= 3; ++i) {
      const std::string id = "instance-" + std::to_string(i);
      cluster.SetNode(SceneInstance(id, i == 1 ? 0 : 1, 0.1 * i, i));
      v1::NodeLoad load = SceneLoad(0.25 * i, i, 50, kStages.at(i == 1 ? 0 : 1));
      load.set_queued_jobs(10 + i);
      cluster.SetLoad(id, load, i == 3 ? v1::STUCK : v1::SERVING);
    }
    v1::RingHealth ring;
    ring.set_slots(64);
    ring.set_used_slots(37);
    ring.set_oldest_age_ms(9000);
    cluster.SetRing(ring);
    v1::Elasticity elasticity;
    elasticity.set_window_s(300);
    for (int i = 0; i < 2; ++i) {
      v1::PoolStatus& pool = *elasticity.add_pools();
      pool.set_workflow_set("default");
      pool.set_pool(ScenePool(i));
      pool.set_utilization(i == 0 ? 0.31 : 0.93);
    }
    cluster.SetElasticity(elasticity);

    PipelinesPage page;
    session::SessionOptions options;
    options.telemetry_interval = std::chrono::milliseconds(200);
    options.poll_interval = std::chrono::milliseconds(100);
    page.shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{.name = "test", .nodemanagers = {cluster.address()}}, options));
    QTRY_VERIFY_WITH_TIMEOUT(page.Label("pipelines.verdict").contains(u"93 %"), kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(CardOf(page.graph(), "instance-2") != nullptr &&
                                 CardOf(page.graph(), "instance-2")->ring_used == 37,
                             kSoonMs);
    const PipelineGraph& graph = page.graph();
    const PipelineCard& card = *CardOf(graph, "instance-2");
    QCOMPARE(card.utilization.value(), 0.5);
    QCOMPARE(card.running.value(), 2);
    QCOMPARE(card.workers.value(), 4);
    QCOMPARE(card.queued.value(), 12);
    QCOMPARE(card.ring_slots.value(), 64);
    QCOMPARE(card.service_mean_s.value(), 3.0);
    QCOMPARE(card.sm_active.value(), 0.45);
    QCOMPARE(CardOf(graph, "instance-3")->state, QStringLiteral("stuck"));
    const PipelineStage& stage = *StageNamed(graph, QStringLiteral("diffusion"));
    QCOMPARE(stage.rho.value(), 0.93);
    QCOMPARE(stage.queued.value(), 25);
    QCOMPARE(stage.serving, 2);
    QTRY_VERIFY_WITH_TIMEOUT(
        EdgeBetween(page.graph(), QStringLiteral("text_encoder"), QStringLiteral("diffusion"))
            ->items_per_s.has_value(),
        kSoonMs);
    const PipelineEdge& edge =
        *EdgeBetween(page.graph(), QStringLiteral("text_encoder"), QStringLiteral("diffusion"));
    QCOMPARE(edge.ring_used.value(), 74);
    QCOMPARE(edge.ring_slots.value(), 128);
    QCOMPARE(edge.items_per_s.value(), 0.0);
    QVERIFY(edge.stalled);
    // What the items show.
    const CardLook& look = page.canvas().ItemOf("instance-2")->look();
    QCOMPARE(look.busy, QStringLiteral("50 %"));
    QCOMPARE(look.jobs, QStringLiteral("2/4"));
    QCOMPARE(look.ring, QStringLiteral("37/64"));
    QVERIFY(page.Label("pipelines.verdict").contains(u"diffusion"));
    page.shown_cluster.Follow(nullptr);
  }

  void Draft_IsShownUntilItIsTakenBack() {
    PipelinesPage page;
    PipelineScene scene(2, 2);
    page.Show(scene.At());
    v1::Plan draft;
    v1::Move& move = *draft.add_moves();
    move.set_node_id("instance-1");
    move.mutable_to()->set_pool(ScenePool(1));
    page.view.SetDraft(&draft);
    draft.Clear();  // The view has copied it.
    QVERIFY(CardOf(page.graph(), "+instance-1") != nullptr);
    QVERIFY(page.Written().contains(u"planned"));
    page.view.SetDraft(nullptr);
    QVERIFY(CardOf(page.graph(), "+instance-1") == nullptr);
    QVERIFY(!page.Written().contains(u"planned"));
  }

  void Items_AreKept_AndNothingNewPaintsNothing() {
    PipelinesPage page;
    PipelineScene scene(2, 3);
    page.Show(scene.At());
    const CardItem* item = page.canvas().ItemOf("instance-2");
    Settle();
    PaintCounter counter(page.canvas().viewport());
    page.Show(scene.At());
    page.Show(scene.At(kSceneMs + 100));
    Settle();
    QCOMPARE(counter.count, 0);
    scene.node("instance-2").mutable_load()->set_utilization(0.77);
    *scene.cluster.add_nodes() = SceneInstance("instance-20", 0, 0.5, 1);
    page.Show(scene.At(kSceneMs + 200));
    QTRY_VERIFY_WITH_TIMEOUT(counter.count > 0, kSoonMs);
    QCOMPARE(page.canvas().ItemOf("instance-2"), item);
    QCOMPARE(item->look().busy, QStringLiteral("77 %"));
  }

  void Detail_GoesWithTheZoom() {
    PipelinesPage page;
    PipelineScene scene(2, 3);
    page.Show(scene.At());
    const auto zoom_to = [&](double zoom) {
      page.canvas().ZoomBy(zoom / page.canvas().zoom());
      return page.Written();
    };
    QString words = zoom_to(0.61);
    QVERIFY(words.contains(u"instance-2"));
    QVERIFY(words.contains(u"q 93/192"));  // 30 + 31 + 32 of three rings of 64.
    QVERIFY(words.contains(u"1.2/s"));
    words = zoom_to(0.5);
    QVERIFY(!words.contains(u"instance-2"));
    QVERIFY(!words.contains(u"1.2/s"));
    QVERIFY(words.contains(u"●"));
    QVERIFY(words.contains(u"diffusion"));
    words = zoom_to(0.25);
    QVERIFY(!words.contains(u"●"));
    QVERIFY(words.contains(u"ρ 97 %"));
    for (int i = 0; i < 60; ++i) page.canvas().ZoomBy(0.5);
    QCOMPARE(page.canvas().zoom(), PipelineCanvas::kMinZoom);
    for (int i = 0; i < 60; ++i) page.canvas().ZoomBy(2);
    QCOMPARE(page.canvas().zoom(), PipelineCanvas::kMaxZoom);
    page.canvas().Fit();
    const QRectF seen = page.canvas().mapToScene(page.canvas().viewport()->rect()).boundingRect();
    QVERIFY(seen.contains(page.canvas().where().bounds));
  }

  void Zoom_WheelButtonsAndMap() {
    PipelinesPage page({700, 500});
    PipelineScene scene(4, 16);
    page.Show(scene.At());
    auto* map = page.view.findChild<QWidget*>(QStringLiteral("pipelines.map"));
    QVERIFY(!map->isVisible());  // All of it is visible.
    const double before = page.canvas().zoom();
    QWidget* viewport = page.canvas().viewport();
    const QPointF middle = viewport->rect().center();
    QWheelEvent wheel(middle, viewport->mapToGlobal(middle), {}, {0, 240}, Qt::NoButton,
                      Qt::ControlModifier, Qt::NoScrollPhase, false);
    QApplication::sendEvent(viewport, &wheel);
    QVERIFY(page.canvas().zoom() > before * 1.3);
    page.canvas().ZoomBy(3);
    QVERIFY(map->isVisible());
    const auto middle_of = [&] {
      return page.canvas().mapToScene(viewport->rect()).boundingRect().center();
    };
    QTest::mouseClick(map, Qt::LeftButton, {}, QPoint(12, map->height() / 2));
    const double left = middle_of().x();
    QTest::mouseClick(map, Qt::LeftButton, {}, QPoint(map->width() - 12, map->height() / 2));
    QVERIFY(middle_of().x() > left + 100);
  }

  void Keys_MoveBetweenCards() {
    PipelinesPage page;
    PipelineScene scene(3, 3);
    page.Show(scene.At());
    PipelineCanvas& canvas = page.canvas();
    const auto press = [&](Qt::Key key) {
      QTest::keyClick(&canvas, key);
      return canvas.EntityOf(canvas.current());
    };
    canvas.SetCurrent(page.At("node/instance-1"));
    QCOMPARE(press(Qt::Key_Down), QStringLiteral("node/instance-2"));
    QCOMPARE(press(Qt::Key_Right), QStringLiteral("node/instance-5"));
    QCOMPARE(press(Qt::Key_Up), QStringLiteral("node/instance-4"));
    QCOMPARE(press(Qt::Key_Up), QStringLiteral("pool/default/diffusion/wan/tiny"));
    QCOMPARE(press(Qt::Key_Right), QStringLiteral("pool/default/upscale/wan/tiny"));
    QCOMPARE(press(Qt::Key_Down), QStringLiteral("node/instance-7"));
    QCOMPARE(press(Qt::Key_End), QStringLiteral("node/instance-9"));
    QCOMPARE(press(Qt::Key_Down), QStringLiteral("node/instance-9"));
    QCOMPARE(press(Qt::Key_Left), QStringLiteral("node/instance-6"));

    QSignalSpy wanted(&page.view, &View::Wanted);
    press(Qt::Key_Return);
    QCOMPARE(wanted.count(), 1);
    QCOMPARE(wanted[0][0].toString(), QString());
    QCOMPARE(wanted[0][1].toString(), QStringLiteral("node/instance-6"));
    const QRect box = canvas.ScreenRectOf(page.At("node/instance-4"));
    QTest::mouseDClick(canvas.viewport(), Qt::LeftButton, {},
                       canvas.viewport()->mapFromGlobal(box.center()));
    QCOMPARE(wanted.count(), 2);
    QCOMPARE(wanted[1][1].toString(), QStringLiteral("node/instance-4"));

    // The current card stays current when others come. When it is gone for good, there is no
    // current card.
    scene.Erase("instance-1");
    page.Show(scene.At(kSceneMs + 70'000));
    QCOMPARE(canvas.EntityOf(canvas.current()), QStringLiteral("node/instance-4"));
    scene.Erase("instance-4");
    page.Show(scene.At(kSceneMs + 200'000));
    QCOMPARE(canvas.current().stage, -1);
    page.view.Focus(QStringLiteral("node/instance-9"));
    QCOMPARE(canvas.EntityOf(canvas.current()), QStringLiteral("node/instance-9"));
    page.view.Focus(QStringLiteral("node/nobody"));
    QCOMPARE(canvas.EntityOf(canvas.current()), QStringLiteral("node/instance-9"));
  }

  void Stage_InFocus_DimsTheOthers() {
    PipelinesPage page;
    PipelineScene scene(1, 1);
    // A chain beside the first one.
    v1::Workflow other;
    other.set_app_id("other");
    *other.add_stages() = SceneSpec(2);
    *other.add_stages() = SceneSpec(3);
    *scene.cluster.add_workflows() = other;
    *scene.cluster.add_nodes() = SceneInstance("u", 2, 0.5, 1);
    *scene.cluster.add_nodes() = SceneInstance("v", 3, 0.5, 1);
    page.Show(scene.At());
    page.canvas().SetCurrent(page.At("pool/default/upscale/wan/tiny"));
    QTest::keyClick(&page.canvas(), Qt::Key_Return);
    QVERIFY(!page.canvas().ItemOf("v")->dimmed());  // It comes after the stage.
    QVERIFY(page.canvas().ItemOf("instance-1")->dimmed());
    QVERIFY(page.Label("pipelines.note").contains(u"upscale"));
    QKeyEvent esc(QEvent::ShortcutOverride, Qt::Key_Escape, Qt::NoModifier);
    esc.ignore();
    QApplication::sendEvent(&page.canvas(), &esc);
    QVERIFY(esc.isAccepted());
    QTest::keyClick(&page.canvas(), Qt::Key_Escape);
    QVERIFY(!page.canvas().ItemOf("instance-1")->dimmed());
    esc.ignore();
    QApplication::sendEvent(&page.canvas(), &esc);
    QVERIFY(!esc.isAccepted());  // Now the key is for the window.
  }

  void Filter_DimsAndCounts() {
    PipelinesPage page;
    PipelineScene scene(2, 3);
    page.Show(scene.At());
    page.view.SetFilter(QStringLiteral("NCE-2"));
    QVERIFY(!page.canvas().ItemOf("instance-2")->dimmed());
    QVERIFY(page.canvas().ItemOf("instance-3")->dimmed());
    QCOMPARE(page.Label("pipelines.note"),
             QStringLiteral("1 of 6 match the filter, the others are dimmed."));
    page.view.SetFilter(QStringLiteral("diffusion"));
    QCOMPARE(page.canvas().matches(), 3);
    page.view.SetFilter(QStringLiteral("zzz"));
    QCOMPARE(page.Label("pipelines.note"),
             QStringLiteral("Nothing matches the filter. 6 are dimmed."));
    QSignalSpy cleared(&page.view, &View::ClearFilterWanted);
    for (auto* button : page.view.findChildren<QPushButton*>()) {
      if (button->text() == u"Clear filters") button->click();
    }
    QCOMPARE(cleared.count(), 1);
    page.view.SetFilter({});
    QVERIFY(!page.canvas().ItemOf("instance-3")->dimmed());
    QVERIFY(page.Label("pipelines.note").isEmpty());
  }

  void Commands_FitAndBottleneck() {
    PipelinesPage page;
    PipelineScene scene(3, 2);
    page.Show(scene.At());
    std::map<QString, Command> commands;
    for (Command& command : page.view.Commands()) commands[command.shortcut] = command;
    QCOMPARE(commands.size(), std::size_t{4});
    for (const auto& [key, command] : commands) QVERIFY(!command.changes_cluster);
    commands.at(QStringLiteral("B")).run();
    QCOMPARE(page.canvas().EntityOf(page.canvas().current()),
             QStringLiteral("pool/default/diffusion/wan/tiny"));
    const double fit = page.canvas().zoom();
    commands.at(QStringLiteral("+")).run();
    QCOMPARE(page.canvas().zoom(), fit * 1.25);
    commands.at(QStringLiteral(".")).run();
    QCOMPARE(page.canvas().zoom(), fit);
    // Without a bottleneck the key B says why there is none.
    scene.elasticity.clear_pools();
    page.Show(scene.At(kSceneMs + 100));
    QSignalSpy told(&page.view, &View::Told);
    commands.at(QStringLiteral("B")).run();
    QCOMPARE(told.count(), 1);
    QVERIFY(told[0][0].toString().contains(u"not known yet"));
  }

  void ScreenReader_FindsStagesAndInstances() {
    PipelinesPage page;
    PipelineScene scene(2, 3);
    scene.node("instance-5").mutable_load()->set_utilization(0.87);
    scene.node("instance-5").mutable_load()->set_running_jobs(2);
    page.Show(scene.At());
    QAccessibleInterface* canvas = QAccessible::queryAccessibleInterface(&page.canvas());
    QCOMPARE(canvas->text(QAccessible::Name), QStringLiteral("Pipelines"));
    QCOMPARE(canvas->childCount(), 4);
    QAccessibleInterface* stage = canvas->child(2);
    QVERIFY(stage->role() == QAccessible::List);
    QVERIFY(
        stage->text(QAccessible::Name).startsWith(QStringLiteral("diffusion, 3 serve, ρ 97 %")));
    QVERIFY(stage->text(QAccessible::Name).endsWith(QStringLiteral("bottleneck")));
    QCOMPARE(stage->parent(), canvas);
    QCOMPARE(canvas->indexOfChild(stage), 2);
    QCOMPARE(stage->childCount(), 3);
    QAccessibleInterface* card = stage->child(1);
    QVERIFY(card->role() == QAccessible::ListItem);
    QCOMPARE(card->text(QAccessible::Name),
             QStringLiteral("instance-5, diffusion, serving, 87 % busy, 2 of 4 in flight"));
    QCOMPARE(card->parent(), stage);
    QCOMPARE(stage->indexOfChild(card), 1);
    QCOMPARE(stage->child(1), card);  // The same object again.
    QVERIFY(card->isValid());
    QVERIFY(page.canvas().viewport()->rect().contains(
        page.canvas().viewport()->mapFromGlobal(card->rect().center())));
    QCOMPARE(canvas->childAt(card->rect().center().x(), card->rect().center().y()), stage);
    QCOMPARE(stage->childAt(card->rect().center().x(), card->rect().center().y()), card);

    QSignalSpy wanted(&page.view, &View::Wanted);
    card->actionInterface()->doAction(QAccessibleActionInterface::setFocusAction());
    QCOMPARE(page.canvas().EntityOf(page.canvas().current()), QStringLiteral("node/instance-5"));
    QVERIFY(card->state().selected);
    card->actionInterface()->doAction(QAccessibleActionInterface::pressAction());
    QCOMPARE(wanted.count(), 1);
    QCOMPARE(wanted[0][1].toString(), QStringLiteral("node/instance-5"));

    // The accessible object belongs to the instance, wherever that stands in the list, and is
    // invalid when the instance is gone.
    scene.Erase("instance-4");
    page.Show(scene.At(kSceneMs + 70'000));
    QCOMPARE(stage->indexOfChild(card), 0);
    scene.Erase("instance-5");
    page.Show(scene.At(kSceneMs + 200'000));
    QVERIFY(!card->isValid());
    QVERIFY(card->text(QAccessible::Name).isEmpty());
  }

  void Hostile_NamesAreShownSafely() {
    testing::SceneOptions options;
    options.nodes = 24;
    options.hostile = true;
    options.odd_devices = true;
    testing::Scene scene(options);
    PipelinesPage page;
    page.Show(scene.snapshot());
    QVERIFY(!page.graph().cards.empty());
    for (int i = 0; i < 5; ++i) page.Show(scene.Step());
    for (const double zoom : {1.0, 0.5, 0.2}) {
      page.canvas().ZoomBy(zoom / page.canvas().zoom());
      page.view.grab();
    }
    const auto safe = [](const QString& text) {
      return std::none_of(text.begin(), text.end(), [](QChar c) {
        return (c < QChar(0x20) && c != u'\n') || c == QChar(0x202e) || c == QChar(0x200b);
      });
    };
    for (const PipelineCard& card : page.graph().cards) {
      const PipelineStage& stage = page.graph().stages[static_cast<std::size_t>(card.stage)];
      const QString text = AccessibleName(card, stage, page.canvas().now_ms()) +
                           TipOf(card, stage, page.canvas().now_ms()) + TipOf(stage);
      QVERIFY(safe(text));
      QVERIFY(text.size() < 4000);
    }
    QVERIFY(safe(page.Label("pipelines.verdict")));
    QAbstractItemModel* table = page.view.ExportModel();
    for (int row = 0; row < table->rowCount(); ++row) {
      for (int column = 0; column < table->columnCount(); ++column) {
        QVERIFY(safe(table->index(row, column).data().toString()));
      }
    }
  }

  void Twice_TheSameNode_IsOneCard() {
    PipelineScene scene(1, 1);
    *scene.cluster.add_nodes() = SceneInstance("instance-1", 0, 0.5, 1);
    scene.elasticity.add_pools()->set_pool("?");
    PipelinesPage page;
    page.Show(scene.At());
    QCOMPARE(page.graph().cards.size(), std::size_t{1});
  }

  void Nothing_SaysWhatToDo() {
    PipelinesPage page;
    page.Show(std::make_shared<session::Snapshot>());
    QVERIFY(page.Label("pipelines.empty").contains(u"Ctrl+L"));
    QVERIFY(!page.canvas().isVisible());
    auto snapshot = std::make_shared<session::Snapshot>();
    snapshot->cluster.error = "UNAVAILABLE: refused";
    page.Show(snapshot);
    QVERIFY(page.Label("pipelines.empty").contains(u"UNAVAILABLE: refused"));
    PipelineScene scene(0, 0);
    scene.cluster.Clear();
    page.Show(scene.At());
    QVERIFY(page.Label("pipelines.empty").contains(u"onepiece workflow apply"));
    *scene.cluster.add_workflows() = SceneWorkflow("wan-t2v", 2);
    page.Show(scene.At());
    QVERIFY(page.Label("pipelines.empty").contains(u"onepiece status"));
    // Stages without instances are shown.
    *scene.cluster.add_nodes() = SceneService("proxy-1", v1::PROXY);
    page.Show(scene.At());
    QVERIFY(page.canvas().isVisible());
    QVERIFY(page.Label("pipelines.verdict").contains(u"No instance serves text_encoder"));
    // Now there is nothing to show again.
    page.Show(std::make_shared<session::Snapshot>());
    QVERIFY(!page.canvas().isVisible());
  }

  void Stale_IsSaid() {
    PipelinesPage page;
    PipelineScene scene(2, 2);
    auto snapshot = scene.At();
    snapshot->rings.error = "did not answer";
    snapshot->rings.as_of_ms = kSceneMs - 9000;
    scene.node("instance-1").mutable_last_report_time()->set_seconds(kSceneMs / 1000 - 11);
    snapshot->cluster = scene.At()->cluster;
    page.Show(snapshot);
    QCOMPARE(page.Label("pipelines.note"),
             QStringLiteral("Not newer: rings of 9 s ago: did not answer"));
    QCOMPARE(page.canvas().ItemOf("instance-1")->look().mark, QStringLiteral("stale"));
    QVERIFY(page.canvas().ItemOf("instance-2")->look().mark.isEmpty());
  }

  void Export_HasNumbersAndNulls() {
    PipelinesPage page;
    PipelineScene scene(2, 2);
    scene.node("instance-2").clear_load();
    page.Show(scene.At());
    QAbstractItemModel* table = page.view.ExportModel();
    QAbstractItemModelTester tester(table, QAbstractItemModelTester::FailureReportingMode::QtTest);
    QCOMPARE(table->rowCount(), 4);
    const auto column = [&](const char* title) {
      for (int i = 0; i < table->columnCount(); ++i) {
        if (table->headerData(i, Qt::Horizontal).toString() == QLatin1String(title)) return i;
      }
      return -1;
    };
    const auto cell = [&](int row, const char* title) {
      return table->index(row, column(title)).data(kSortRole);
    };
    QCOMPARE(cell(0, "Set").toString(), QStringLiteral("default"));
    QCOMPARE(cell(0, "Instance").toString(), QStringLiteral("instance-1"));
    QCOMPARE(cell(0, "Workers").toInt(), 4);
    QCOMPARE(cell(0, "Service mean (s)").toDouble(), 3.0);
    QCOMPARE(cell(0, "Ring slots").toInt(), 64);
    QVERIFY(cell(1, "Utilisation").isNull());
    QVERIFY(cell(1, "Workers").isNull());
    QVERIFY(cell(1, "Utilisation").isValid());  // It is null, not the text "N/A".
    *scene.cluster.add_nodes() = SceneInstance("instance-0", 0, 0.5, 1);
    page.Show(scene.At(kSceneMs + 100));
    QCOMPARE(page.view.ExportModel()->rowCount(), 5);
  }

  void Arrivals_AppearSlowly_UnlessMotionIsReduced() {
    PipelinesPage page;
    PipelineScene scene(1, 2);
    page.Show(scene.At());
    // It was there at the first snapshot.
    QCOMPARE(page.canvas().ItemOf("instance-1")->arrival(), 1.0);
    *scene.cluster.add_nodes() = SceneInstance("instance-3", 0, 0.5, 1);
    page.Show(scene.At(kSceneMs + 100));
    // Motion is reduced, so it does not fade in.
    QCOMPARE(page.canvas().ItemOf("instance-3")->arrival(), 1.0);
    SetMotionWanted(true);
    *scene.cluster.add_nodes() = SceneInstance("instance-4", 0, 0.5, 1);
    page.Show(scene.At(kSceneMs + 200));
    QVERIFY(page.canvas().ItemOf("instance-4")->arrival() < 0.5);
    QTRY_COMPARE_WITH_TIMEOUT(page.canvas().ItemOf("instance-4")->arrival(), 1.0, kSoonMs);
    SetMotionWanted(false);
  }

  void Words_CanBeReadInEveryTheme_data() {
    QTest::addColumn<int>("theme");
    QTest::newRow("light") << static_cast<int>(Theme::kLight);
    QTest::newRow("dark") << static_cast<int>(Theme::kDark);
    QTest::newRow("contrast") << static_cast<int>(Theme::kHighContrast);
  }
  void Words_CanBeReadInEveryTheme() {
    QFETCH(int, theme);
    PipelineStyle style;
    style.Set(PaletteOf(static_cast<Theme>(theme), false), QApplication::font());
    const QColor text = style.color(QPalette::Text);
    for (const QColor& tone : style.tones) {
      for (const double share : {0.11, 0.20, 0.24, 0.30}) {  // Backgrounds of cards and headers.
        QVERIFY(ContrastRatio(text, style.Tint(tone, share)) >= 4.5);
      }
      QVERIFY2(ContrastRatio(style.Muted(), style.Tint(tone, style.card_tint())) >= 4.5,
               qPrintable(tone.name()));
    }
  }

  void Speed_data() {
    QTest::addColumn<int>("replicas");
    QTest::newRow("64 nodes") << 16;
    QTest::newRow("1000 nodes") << 250;
  }
  void Speed() {
    QFETCH(int, replicas);
    PipelinesPage page({2560, 1440});
    PipelineScene scene(4, replicas);
    page.Show(scene.At());
    if (replicas == 16) QVERIFY(DetailAt(page.canvas().zoom()) == Detail::kFull);
    if (replicas == 250) page.canvas().ZoomBy(0.35 / page.canvas().zoom());
    PaintCounter counter(page.canvas().viewport());
    double least_s = std::numeric_limits<double>::max();
    for (int frame = 1; frame <= 10; ++frame) {
      for (v1::Node& node : *scene.cluster.mutable_nodes()) {  // Every number changes.
        if (node.role() == v1::INSTANCE) {
          node.mutable_load()->set_utilization(std::fmod(0.07 * frame, 1.0));
        }
      }
      const auto snapshot = scene.At(kSceneMs + 100 * frame);
      const std::clock_t begin = std::clock();  // Processor time, because the machine may be busy.
      page.Show(snapshot);
      page.canvas().viewport()->repaint();
      least_s = std::min(least_s, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    QVERIFY(counter.count >= 10);
    qInfo("%d nodes: %.1f ms a frame", 4 * replicas, least_s * 1e3);
    // Ten times the usual time, for sanitizers and busy machines.
    QVERIFY(least_s < (replicas == 16 ? 0.3 : 1.5));
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiViewsPipelinesTest)
#include "pipelines_test.moc"
