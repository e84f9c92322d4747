// Tests of the window and its recordings: opening and exporting off the GUI thread, the keys of the
// time line, bookmarks, comparing, and the dock of operations.
#include <QAccessible>
#include <QApplication>
#include <QComboBox>
#include <QDialog>
#include <QDockWidget>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QScopeGuard>
#include <QSemaphore>
#include <QStackedWidget>
#include <QTabBar>
#include <QTableView>
#include <QTemporaryDir>
#include <QThreadPool>
#include <QtTest>
#include <memory>

#include "cluster/history/recorder.h"
#include "gui/app/history_dialogs.h"
#include "gui/app/main_window.h"
#include "gui/app/operations_panel.h"
#include "gui/app/recording_service.h"
#include "gui/app/theme.h"
#include "tests/gui/app/accessibility.h"
#include "tests/history/recordings.h"
#include "tests/history/snapshots.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using history::kLiveLink;
using history::kStart;
using history::SnapshotAt;

constexpr int kTicks = 120;
constexpr std::int64_t kEnd = kStart + (kTicks - 1) * 1000;
constexpr int kDeadlineMs = 20'000;

std::unique_ptr<MainWindow> MakeWindow(const QTemporaryDir& folder) {
  MainWindowOptions options;
  options.settings = SettingsFile::Load(folder.filePath(QStringLiteral("settings.json")));
  options.data_folder = folder.path();
  ApplyTheme(options.settings.values, false, 9);
  auto window = std::make_unique<MainWindow>(std::move(options), std::make_unique<ShownCluster>());
  window->show();
  return window;
}

/// A recording of two minutes, with bookmarks at 30 s and 60 s.
QString MakeRecording(const QTemporaryDir& folder) {
  const QString path = folder.filePath(QStringLiteral("a.onepiece-recording"));
  history::Limits limits;
  limits.keep_free_bytes = 0;
  auto recorder = history::Recorder::Open(path.toStdString(), limits);
  if (!recorder.ok()) return {};
  for (int tick = 0; tick < kTicks; ++tick) {
    if (!(*recorder)->Record(SnapshotAt(tick), kLiveLink).ok()) return {};
    if (tick != 30 && tick != 60) continue;
    if (!(*recorder)->Bookmark(kStart + tick * 1000, "mark").ok()) return {};
  }
  return path;
}

template <typename Widget>
Widget* Child(const QObject& parent, const char* name) {
  return parent.findChild<Widget*>(QLatin1String(name));
}

}  // namespace

class GuiAppHistoryTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QApplication::setStyle(new ConsoleStyle); }

  void Recording_IsOpenedElsewhere() {
    const QTemporaryDir folder;
    const QString path = MakeRecording(folder);
    QVERIFY(!path.isEmpty());
    auto window = MakeWindow(folder);
    window->OpenRecording(path);
    // The call itself has read nothing.
    QVERIFY(window->shown_cluster().recording() == nullptr);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    QCOMPARE(window->shown_cluster().viewing_ms(), kEnd);
    QVERIFY(window->windowTitle().startsWith(QStringLiteral("a.onepiece-recording")));
    // The file that was asked for last is shown.
    window->OpenRecording(folder.filePath(QStringLiteral("nothing.onepiece-recording")));
    window->OpenRecording(path);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    QVERIFY(window->shown_cluster().viewing_ms() == kEnd);
  }

  void TimeLine_EveryKey() {
    const QTemporaryDir folder;
    const QString path = MakeRecording(folder);
    auto window = MakeWindow(folder);
    window->OpenRecording(path);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    auto* line = window->findChild<TimeLine*>();
    QTRY_VERIFY_WITH_TIMEOUT(line->interval().to_ms == kEnd, kDeadlineMs);
    QTRY_VERIFY_WITH_TIMEOUT(line->marks().size() >= 2, kDeadlineMs);
    line->setFocus();
    const auto at = [&] { return (window->shown_cluster().viewing_ms() - kStart) / 1000; };
    const auto press = [&](Qt::Key key, Qt::KeyboardModifiers modifiers = Qt::NoModifier) {
      QTest::keyClick(line, key, modifiers);
    };
    press(Qt::Key_Home);
    QCOMPARE(at(), 0);
    press(Qt::Key_Right);
    QCOMPARE(at(), 1);
    press(Qt::Key_Right, Qt::ShiftModifier);
    QCOMPARE(at(), 11);
    press(Qt::Key_Left);
    QCOMPARE(at(), 10);
    press(Qt::Key_Left, Qt::ShiftModifier);
    QCOMPARE(at(), 0);
    std::vector<std::int64_t> marks;
    for (const history::Mark& mark : line->marks()) marks.push_back((mark.at_ms - kStart) / 1000);
    QVERIFY(std::ranges::find(marks, 30) != marks.end());
    const auto next = [&](std::int64_t from) {
      std::int64_t best = kTicks;
      for (const std::int64_t mark : marks) {
        if (mark > from) best = std::min(best, mark);
      }
      return best;
    };
    press(Qt::Key_Right, Qt::ControlModifier);
    QCOMPARE(at(), next(0));
    const std::int64_t first = at();
    press(Qt::Key_Right, Qt::ControlModifier);
    QCOMPARE(at(), next(first));
    press(Qt::Key_Left, Qt::ControlModifier);
    QCOMPARE(at(), first);
    press(Qt::Key_End);
    QCOMPARE(at(), kTicks - 1);
    // L and Space are shortcuts of the window.
    press(Qt::Key_Home);
    window->commands().Run(QStringLiteral("live.go"));
    QCOMPARE(at(), kTicks - 1);
    press(Qt::Key_Home);
    QTest::keyClick(line, Qt::Key_L);
    QTRY_COMPARE(at(), kTicks - 1);
    press(Qt::Key_Home);
    QTest::keyClick(line, Qt::Key_Space);
    QTRY_COMPARE(at(), kTicks - 1);
  }

  // A screen reader finds a slider whose value is the time.
  void TimeLine_IsASliderToScreenReaders() {
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    auto* line = window->findChild<TimeLine*>();
    QAccessibleInterface* slider = QAccessible::queryAccessibleInterface(line);
    QVERIFY(slider != nullptr && slider->valueInterface() != nullptr);
    QAccessibleValueInterface& value = *slider->valueInterface();
    value.setCurrentValue(kStart / 1000.0);  // Nothing is recorded.
    QCOMPARE(window->shown_cluster().live(), true);
    window->OpenRecording(MakeRecording(folder));
    QTRY_VERIFY_WITH_TIMEOUT(line->interval().to_ms == kEnd, kDeadlineMs);
    QCOMPARE(slider->role(), QAccessible::Slider);
    QCOMPARE(value.minimumValue().toDouble(), kStart / 1000.0);
    QCOMPARE(value.maximumValue().toDouble(), kEnd / 1000.0);
    QCOMPARE(value.minimumStepSize().toDouble(), 1.0);
    line->setFocus();
    QTest::keyClick(line, Qt::Key_Home);
    QTest::keyClick(line, Qt::Key_Right, Qt::ShiftModifier);
    QCOMPARE(value.currentValue().toDouble(), kStart / 1000.0 + 10);
    QVERIFY(!slider->text(QAccessible::Value).isEmpty());
    QCOMPARE(slider->text(QAccessible::Description),
             QStringLiteral("at ") + slider->text(QAccessible::Value));
    // Setting the value sets the instant, as the keys do. It never leaves the line.
    value.setCurrentValue(kStart / 1000.0 + 42);
    QCOMPARE(window->shown_cluster().viewing_ms(), kStart + 42'000);
    QCOMPARE(value.currentValue().toDouble(), kStart / 1000.0 + 42);
    value.setCurrentValue(0.0);
    QCOMPARE(window->shown_cluster().viewing_ms(), kStart);
    value.setCurrentValue(1e18);
    QCOMPARE(window->shown_cluster().viewing_ms(), kEnd);
    QCOMPARE(testing::AccessibilityFaults(*window), QStringList());
  }

  // The time line says that marks are lost, and still works.
  void TimeLine_OfADamagedRecording_StillWorks() {
    const QTemporaryDir folder;
    const QString path = MakeRecording(folder);
    history::Sql(path.toStdString(), "DELETE FROM mark WHERE t_ms > 1800000050000");
    auto window = MakeWindow(folder);
    window->OpenRecording(path);
    auto* line = window->findChild<TimeLine*>();
    QTRY_VERIFY_WITH_TIMEOUT(line->interval().to_ms == kEnd, kDeadlineMs);
    const auto* scrubber = window->findChild<Scrubber*>();
    QTRY_VERIFY_WITH_TIMEOUT(
        std::ranges::any_of(scrubber->findChildren<QLabel*>(),
                            [](const QLabel* label) {
                              return label->text().contains(QStringLiteral("bookmarks"));
                            }),
        kDeadlineMs);
    line->setFocus();
    QTest::keyClick(line, Qt::Key_Home);
    QCOMPARE(window->shown_cluster().viewing_ms(), kStart);
    // The instant is shown, but the marks are still lost. This is said until the file is closed.
    const auto* note = scrubber->findChild<QLabel*>();
    QVERIFY(note->text().contains(QStringLiteral("bookmarks")));
    window->shown_cluster().SetRecording(nullptr);
    QCOMPARE(note->text(), QStringLiteral("Nothing is being recorded"));
    QCOMPARE(note->toolTip(), QString());
  }

  // The note says why a picked instant is not shown, until another instant is.
  void TimeLine_OfAGap_IsSaidUntilTheNextPick() {
    const QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("gap.onepiece-recording"));
    {
      const auto recorder = history::OpenRecorder(path.toStdString());
      for (const int tick : {0, 1, 2, 60, 61}) {
        QVERIFY(recorder->Record(SnapshotAt(tick), kLiveLink).ok());
      }
    }
    auto window = MakeWindow(folder);
    window->OpenRecording(path);
    auto* line = window->findChild<TimeLine*>();
    QTRY_VERIFY_WITH_TIMEOUT(line->interval().to_ms == kStart + 61'000, kDeadlineMs);
    auto* scrubber = window->findChild<Scrubber*>();
    const auto* note = scrubber->findChild<QLabel*>();
    QCOMPARE(note->text(), QString());
    line->Pick(kStart + 30'000);
    const QString said = note->text();
    QVERIFY(!said.isEmpty() && !note->toolTip().isEmpty());
    QCOMPARE(window->shown_cluster().viewing_ms(), kStart + 61'000);
    // Reads come in order, so the line has been read anew when this one is answered. It says
    // nothing about the pick.
    scrubber->Refresh();
    bool read = false;
    window->shown_cluster().Read<bool>(
        window.get(), [](history::Recording&) -> absl::StatusOr<bool> { return true; },
        [&](const absl::StatusOr<bool>&) { read = true; });
    QTRY_VERIFY_WITH_TIMEOUT(read, kDeadlineMs);
    QCOMPARE(note->text(), said);
    line->Pick(kStart + 1'000);
    QCOMPARE(note->text(), QString());
    QCOMPARE(note->toolTip(), QString());
    line->Pick(kStart + 30'000);
    QCOMPARE(note->text(), said);
    window->commands().Run(QStringLiteral("live.go"));
    QCOMPARE(note->text(), QString());
    line->Pick(kStart + 30'000);
    scrubber->SetNotice(QStringLiteral("Not recorded"));
    QCOMPARE(note->text(), QStringLiteral("Not recorded"));
    QCOMPARE(note->toolTip(), QString());
  }

  void Compare_ListsWhatDiffers() {
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    window->OpenRecording(MakeRecording(folder));
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    window->commands().Run(QStringLiteral("pin"));
    QVERIFY(window->shown_cluster().pinned() != nullptr);
    QVERIFY(window->shown_cluster().ViewAt(kStart + 10'000).ok());
    const std::size_t differences =
        history::Compare(*window->shown_cluster().pinned(), *window->shown_cluster().snapshot())
            .size();
    QVERIFY(differences > 0);
    window->commands().Run(QStringLiteral("compare"));
    auto* dialog = window->findChild<CompareDialog*>();
    QTRY_COMPARE_WITH_TIMEOUT(dialog->panel()->rows()->rowCount(), static_cast<int>(differences),
                              kDeadlineMs);
    // The dialog follows the shown instant.
    QVERIFY(window->shown_cluster().ViewAt(kEnd).ok());
    QTRY_COMPARE_WITH_TIMEOUT(dialog->panel()->rows()->rowCount(), 0, kDeadlineMs);
  }

  void Export_WritesARangeAndSaysSo() {
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    window->OpenRecording(MakeRecording(folder));
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    window->commands().Run(QStringLiteral("recording.export"));
    QTRY_VERIFY_WITH_TIMEOUT(Child<QDialog>(*window, "export-range") != nullptr, kDeadlineMs);
    auto* dialog = Child<QDialog>(*window, "export-range");
    const QString path = folder.filePath(QStringLiteral("part.onepiece-recording"));
    Child<QLineEdit>(*dialog, "export-range.path")->setText(path);
    dialog->accept();
    const auto& operations = window->shown_cluster().operations().all();
    QCOMPARE(operations.size(), std::size_t{1});
    QTRY_VERIFY_WITH_TIMEOUT(operations[0].ended_ms != 0, kDeadlineMs);
    QVERIFY2(operations[0].outcome.ok(), operations[0].outcome.ToString().c_str());
    auto part = history::Recording::Open(path.toStdString());
    QVERIFY(part.ok());
    QCOMPARE((*part)->Info()->interval.to_ms, kEnd);
    // The export is listed among the operations.
    QVERIFY(Child<QDockWidget>(*window, "dock.operations")->isVisible());
    QCOMPARE(window->findChild<OperationsPanel*>()->panel()->rows()->rowCount(), 1);
  }

  void Live_IsRecordedBookmarkedAndPaused() {
    testing::FakeCluster cluster;
    cluster.SetUp(2);
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    window->Connect({"fake", {cluster.address()}, false});
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    QVERIFY(window->shown_cluster().live());
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().link().link == session::Link::kLive,
                             kDeadlineMs);
    auto* line = window->findChild<TimeLine*>();
    QTRY_VERIFY_WITH_TIMEOUT(line->interval().to_ms > line->interval().from_ms, kDeadlineMs);
    line->setFocus();
    QTest::keyClick(line, Qt::Key_Space);
    QTRY_VERIFY(!window->shown_cluster().live());
    QTest::keyClick(line, Qt::Key_L);
    QTRY_VERIFY(window->shown_cluster().live());
    window->commands().Run(QStringLiteral("bookmark"));
    auto* dialog = Child<QDialog>(*window, "bookmark");
    QVERIFY(dialog != nullptr);
    Child<QLineEdit>(*dialog, "bookmark.text")->setText(QStringLiteral("load test begins"));
    dialog->accept();
    const auto marked = [&] {
      return std::ranges::any_of(line->marks(), [](const history::Mark& mark) {
        return mark.kind == history::Mark::Kind::kBookmark && mark.text == "load test begins";
      });
    };
    QTRY_VERIFY_WITH_TIMEOUT(marked(), kDeadlineMs);
    // Alerts can be acknowledged and silenced.
    QVERIFY(window->shown_cluster().desk() != nullptr);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().snapshot()->alerts.value != nullptr,
                             kDeadlineMs);
  }

  // A recording that cannot be opened leaves the cluster connected, so its own recording must still
  // be shown, though it was being opened at that moment.
  void Live_IsAdoptedThoughAnotherFileFails() {
    testing::FakeCluster cluster;
    cluster.SetUp(1);
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    QThreadPool& pool = *QThreadPool::globalInstance();
    pool.waitForDone();
    const int threads = pool.maxThreadCount();
    QSemaphore go;
    pool.setMaxThreadCount(1);
    const auto restore = qScopeGuard([&] {
      go.release();
      pool.setMaxThreadCount(threads);
    });
    pool.start([&go] { go.acquire(); });
    window->Connect({"fake", {cluster.address()}, false});
    const auto desk = std::dynamic_pointer_cast<RecordingService>(window->shown_cluster().desk());
    QVERIFY(desk != nullptr);
    QTRY_VERIFY_WITH_TIMEOUT(!desk->WantedPath().empty(), kDeadlineMs);
    // The window looks every 500 ms, so it has asked when a longer timer that begins now fires. Its
    // question waits in line.
    QTimer longer;
    QSignalSpy fired(&longer, &QTimer::timeout);
    longer.start(600);
    QVERIFY(fired.wait(kDeadlineMs));
    window->OpenRecording(folder.filePath(QStringLiteral("nothing.onepiece-recording")));
    go.release();
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kDeadlineMs);
    QTRY_VERIFY_WITH_TIMEOUT(desk->state().recording, kDeadlineMs);
    QVERIFY(window->shown_cluster().session() != nullptr);
  }

  void Operations_AreToggled() {
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    auto* dock = Child<QDockWidget>(*window, "dock.operations");
    QVERIFY(!dock->isVisible());
    window->commands().Run(QStringLiteral("operations"));
    QVERIFY(dock->isVisible());
    window->commands().Run(QStringLiteral("operations"));
    QVERIFY(!dock->isVisible());
    window->SetPreset(MainWindow::Preset::kInvestigate);
    QVERIFY(dock->isVisible());
    window->SetPreset(MainWindow::Preset::kWall);
    QVERIFY(!dock->isVisible());
  }

  void Tour_BeginsAtItsBeginning() {
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    auto* tour = Child<QFrame>(*window, "tour");
    const auto text = [&] { return tour->findChild<QLabel*>()->text(); };
    QPushButton* next = nullptr;
    for (auto* button : tour->findChildren<QPushButton*>()) {
      if (button->text() == QStringLiteral("Next")) next = button;
    }
    for (int step = 0; step < 3; ++step) next->click();
    QVERIFY(text().startsWith(QStringLiteral("4 of 4")));
    QVERIFY(next->isHidden());
    window->commands().Run(QStringLiteral("tour"));
    QVERIFY(text().startsWith(QStringLiteral("1 of 4")));
    QVERIFY(!next->isHidden());
  }

  void Tabs_SayHowManyAlertsFire() {
    const QTemporaryDir folder;
    auto window = MakeWindow(folder);
    auto snapshot = std::make_shared<session::Snapshot>(SnapshotAt(0));
    session::Alerts alerts(2);
    alerts[0].id = "a";
    alerts[1].id = "b";
    alerts[0].state = alerts[1].state = session::Alert::State::kFiring;
    snapshot->alerts = {std::make_shared<const session::Alerts>(alerts), snapshot->at_ms, {}};
    window->shown_cluster().Show(snapshot, kLiveLink);
    const auto titles = [&] {
      QStringList all;
      const auto* tabs = Child<QTabBar>(*window, "pages");
      for (int i = 0; i < tabs->count(); ++i) all << tabs->tabText(i);
      return all;
    };
    QVERIFY2(titles().contains(QStringLiteral("Alerts (2)")), qPrintable(titles().join(u' ')));
    auto well = std::make_shared<session::Snapshot>(*snapshot);
    well->alerts.value = std::make_shared<const session::Alerts>();
    window->shown_cluster().Show(well, kLiveLink);
    QVERIFY(titles().contains(QStringLiteral("Alerts")));
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiAppHistoryTest)
#include "history_test.moc"
