// Tests of the whole window with all pages: names for people who cannot see or point, hostile
// texts, clusters that report little, clocks that go back.
#include "tests/gui/app/window.h"

#include <QAbstractItemView>
#include <QAccessible>
#include <QApplication>
#include <QComboBox>
#include <QHeaderView>
#include <QLabel>
#include <QPushButton>
#include <QRegularExpression>
#include <QStandardItemModel>
#include <QTableView>
#include <QtTest>

#include "gui/app/command_palette.h"
#include "gui/app/dialogs.h"
#include "gui/views/prompts.h"
#include "tests/gui/app/accessibility.h"
#include "tests/gui/models/scene.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using testing::AccessibilityFaults;
using testing::LiveLink;
using testing::Scene;
using testing::SceneOptions;
using testing::TestWindow;
using testing::WindowOptions;

struct Shown {
  QString text, where;
  bool may_be_rich = false;  ///< The widget that shows it interprets markup.
};

QString Where(const QObject& object) {
  const QObject* parent = object.parent();
  return QStringLiteral("%1 %2 in %3")
      .arg(object.metaObject()->className(), object.objectName(),
           parent == nullptr ? QString() : parent->metaObject()->className());
}

void CollectModel(const QAbstractItemView& view, std::vector<Shown>& all) {
  std::vector<QModelIndex> parents = {QModelIndex()};
  const QAbstractItemModel& model = *view.model();
  while (!parents.empty()) {
    const QModelIndex parent = parents.back();
    parents.pop_back();
    for (int row = 0; row < std::min(model.rowCount(parent), 200); ++row) {
      for (int column = 0; column < model.columnCount(parent); ++column) {
        const QModelIndex cell = model.index(row, column, parent);
        all.push_back({cell.data().toString(), Where(view)});
        all.push_back({cell.data(Qt::ToolTipRole).toString(), Where(view) + " tip", true});
        all.push_back({cell.data(Qt::AccessibleTextRole).toString(), Where(view) + " name"});
        if (column == 0) parents.push_back(cell);
      }
    }
  }
}

/// All texts in the window now, including tips and accessible names.
std::vector<Shown> Texts(QWidget& window) {
  std::vector<Shown> all;
  for (QWidget* widget : window.findChildren<QWidget*>()) {
    if (!widget->isVisible()) continue;
    all.push_back({widget->toolTip(), Where(*widget) + " tip", true});
    all.push_back({widget->accessibleName(), Where(*widget) + " name"});
    all.push_back({widget->accessibleDescription(), Where(*widget) + " description"});
    if (const auto* label = qobject_cast<QLabel*>(widget)) {
      all.push_back({label->text(), Where(*widget), label->textFormat() != Qt::PlainText});
    } else if (const auto* button = qobject_cast<QAbstractButton*>(widget)) {
      all.push_back({button->text(), Where(*widget)});
    } else if (const auto* box = qobject_cast<QComboBox*>(widget)) {
      for (int i = 0; i < box->count(); ++i) all.push_back({box->itemText(i), Where(*widget)});
    } else if (const auto* view = qobject_cast<QAbstractItemView*>(widget)) {
      if (view->model() != nullptr) CollectModel(*view, all);
    }
  }
  return all;
}

/// A line for each hostile text that reaches people.
QStringList HostileTexts(QWidget& window) {
  static const QRegularExpression treacherous(
      QStringLiteral("[\\x{00}-\\x{08}\\x{0b}-\\x{1f}\\x{7f}\\x{202a}-\\x{202e}\\x{2066}-\\x{2069}"
                     "\\x{200b}]"));
  QStringList found;
  for (const Shown& shown : Texts(window)) {
    const QString start = shown.text.left(60);
    if (shown.text.contains(treacherous)) found << shown.where + ": raw: " + start;
    if (shown.text.size() > 4000) found << shown.where + ": too long: " + start;
    if (shown.may_be_rich && shown.text.contains(u"<b>") && Qt::mightBeRichText(shown.text)) {
      found << shown.where + ": markup: " + start;
    }
  }
  return found;
}

std::unique_ptr<TestWindow> Open(const WindowOptions& options, const session::Snapshot& snapshot) {
  auto window = std::make_unique<TestWindow>(options);
  (*window)->shown_cluster().Show(std::make_shared<session::Snapshot>(snapshot), LiveLink());
  TestWindow::Settle();
  return window;
}

/// Shows each page in turn, and fails with what `check` says is wrong.
void ForEachPage(TestWindow& window, const std::function<QStringList()>& check) {
  for (const View* page : window.pages()) {
    QVERIFY(window->ShowPage(page->id()));
    TestWindow::Settle();
    const QStringList faults = check();
    QVERIFY2(faults.isEmpty(), qPrintable(page->id() + ":\n" + faults.join(u'\n')));
  }
}

SceneOptions Hostile() {
  SceneOptions options;
  options.hostile = true;
  options.odd_devices = true;
  return options;
}

}  // namespace

class GuiAppWindowTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Accessibility_EveryPage_data() {
    QTest::addColumn<int>("percent");
    QTest::addColumn<bool>("control");
    QTest::newRow("100 %") << 100 << false;
    QTest::newRow("100 %, control") << 100 << true;
    QTest::newRow("200 %") << 200 << false;
  }
  void Accessibility_EveryPage() {
    QFETCH(int, percent);
    QFETCH(bool, control);
    WindowOptions options;
    options.font_percent = percent;
    TestWindow window(options);
    QCOMPARE(AccessibilityFaults(*window), QStringList());  // The first page that people see.
    window->shown_cluster().Show(Scene().snapshot(), LiveLink());
    if (control) window->shown_cluster().SetMode(ControlMode::kControl);
    window->findChild<Inspector*>()->Inspect(QStringLiteral("node/instance-2"));
    ForEachPage(window, [&] { return AccessibilityFaults(*window); });
  }

  void Accessibility_Dialogs_data() {
    QTest::addColumn<int>("percent");
    QTest::newRow("100 %") << 100;
    QTest::newRow("200 %") << 200;
  }
  void Accessibility_Dialogs() {
    QFETCH(int, percent);
    WindowOptions options;
    options.font_percent = percent;
    const auto window = Open(options, *Scene().snapshot());
    MainWindow& main = **window;
    LocalCluster local(QStringLiteral("/nonexistent"));
    SettingsDialog settings({}, main.commands(), nullptr);
    ConnectionsDialog connections({{.cluster = {"prod", {"a:1"}, true}}}, {}, local, nullptr);
    CommandPalette palette(main.PaletteEntries(), nullptr);
    HelpDialog help(QStringLiteral("Overview"), main.page()->Help(), main.commands(), nullptr);
    QList<QDialog*> dialogs = {&settings, &connections, &palette, &help};
    main.shown_cluster().SetMode(ControlMode::kControl);
    Confirm(&main, main.shown_cluster(),
            {QStringLiteral("Cancel 2 jobs"),
             QStringLiteral("Cancel 2 jobs"),
             QStringLiteral("They end."),
             {QStringLiteral("a"), QStringLiteral("b")},
             true,
             true},
            [](const QString&) {});
    TellFailure(&main, QStringLiteral("The plan was not applied"), absl::AbortedError("changed"));
    dialogs += main.findChildren<QDialog*>();
    QVERIFY(dialogs.size() >= 6);
    for (QDialog* dialog : dialogs) {
      dialog->show();
      TestWindow::Settle();
      const QStringList faults = AccessibilityFaults(*dialog);
      QVERIFY2(faults.isEmpty(), qPrintable(dialog->windowTitle() + u'\n' + faults.join(u'\n')));
      dialog->hide();
    }
  }

  void Accessibility_FaultsAreFound() {
    QWidget window;
    QPushButton blank(&window);
    QPushButton one(QStringLiteral("Go"), &window), two(QStringLiteral("Go"), &window);
    QTableView table(&window);
    QStandardItemModel model(2, 2);
    table.setModel(&model);
    table.setAccessibleName(QStringLiteral("rows"));
    table.horizontalHeader()->hide();
    window.show();
    const QString all = AccessibilityFaults(window).join(u'\n');
    QVERIFY2(all.contains(u"no name"), qPrintable(all));
    QVERIFY2(all.contains(u"same role and name"), qPrintable(all));
    QVERIFY2(all.contains(u"a table without header"), qPrintable(all));
    QVERIFY2(all.contains(u"Tab does not"), qPrintable(all));  // The table keeps Tab for itself.
  }

  void HostileTexts_AreShownHarmless() {
    Scene scene(Hostile());
    const auto window = Open({}, *scene.snapshot());
    MainWindow& main = **window;
    main.findChild<Inspector*>()->Inspect(
        QStringLiteral("node/") +
        QString::fromStdString(scene.snapshot()->cluster.value->nodes(2).node_id()));
    ForEachPage(*window, [&] {
      main.shown_cluster().Show(scene.Step(3), LiveLink());
      TestWindow::Settle();
      return HostileTexts(main);
    });
    QCOMPARE(main.size(), WindowOptions().size);
    QVERIFY(main.minimumSizeHint().width() <= WindowOptions().size.width());
    QStringList titles;
    for (const PaletteEntry& entry : main.PaletteEntries()) titles << entry.title;
    QVERIFY(!titles.join(u'\n').contains(QChar(0x202e)));
    // The check itself must find hostile texts.
    QWidget holder;
    QLabel label(QStringLiteral("<b>x</b>\u202e"), &holder);
    holder.show();
    QCOMPARE(HostileTexts(holder).size(), 2);
  }

  void HostileTexts_InEveryFilterAndExport() {
    Scene scene(Hostile());
    const auto window = Open({}, *scene.snapshot());
    for (View* page : window->pages()) {
      QVERIFY((*window)->ShowPage(page->id()));
      for (int kind = 0; kind < 7; ++kind) {
        page->SetFilter(QString::fromStdString(testing::HostileText(kind)));
        TestWindow::Settle();
      }
      page->SetFilter({});
      page->Focus(QStringLiteral("job/") + QString::fromStdString(testing::HostileText(1)));
      page->Focus(QStringLiteral("nonsense"));
      QVERIFY(!page->Help().isEmpty());
    }
  }

  void LittleIsKnown_EveryPageStands_data() {
    QTest::addColumn<int>("kind");
    QTest::newRow("nothing at all") << 0;
    QTest::newRow("no part, all in error") << 1;
    QTest::newRow("no devices") << 2;
    QTest::newRow("devices that say little") << 3;
    QTest::newRow("empty parts") << 4;
    QTest::newRow("all parts old and in error") << 5;
    QTest::newRow("one job, one node") << 6;
  }
  void LittleIsKnown_EveryPageStands() {
    QFETCH(int, kind);
    SceneOptions options;
    if (kind == 2) options.devices = 0;
    if (kind == 3) options.odd_devices = true;
    if (kind == 6) options.nodes = options.jobs = options.rings = options.databases = 1;
    if (kind == 4) {
      options.nodes = options.jobs = options.rings = options.databases = options.replicas = 0;
      options.plans = options.audit = options.alerts = 0;
    }
    session::Snapshot snapshot = *Scene(options).snapshot();
    const auto fail = [&](auto& part, bool forget) {
      if (forget) part = {};
      part.as_of_ms -= forget ? 0 : 3'600'000;
      part.error = "UNAVAILABLE: connection refused";
    };
    if (kind == 0) snapshot = session::Snapshot{.at_ms = SceneOptions().at_ms};
    if (kind == 1 || kind == 5) {
      const bool forget = kind == 1;
      fail(snapshot.cluster, forget), fail(snapshot.elasticity, forget);
      fail(snapshot.rings, forget), fail(snapshot.jobs, forget), fail(snapshot.plans, forget);
      fail(snapshot.databases, forget), fail(snapshot.replicas, forget);
      fail(snapshot.audit, forget), fail(snapshot.alerts, forget);
    }
    const auto window = Open({}, snapshot);
    ForEachPage(*window, [&] {
      QStringList faults;
      bool says = false;
      for (const Shown& shown : Texts(**window)) {
        says = says || shown.text.size() > 3;
        // A number that was never reported must not be shown.
        if (shown.text.contains(u"nan", Qt::CaseSensitive) || shown.text.contains(u"inf ")) {
          faults << shown.where + ": " + shown.text;
        }
      }
      if (!says) faults << QStringLiteral("says nothing");
      return faults;
    });
    // After a good snapshot nothing stays broken.
    (*window)->shown_cluster().Show(Scene().snapshot(), LiveLink());
    ForEachPage(*window, [&] { return HostileTexts(**window); });
  }

  void ClockSetBack_NothingIsInTheFuture() {
    Scene scene;
    const auto window = Open({}, *scene.snapshot());
    // All that is known is from an hour ahead.
    session::Snapshot back = *scene.Step();
    back.at_ms -= 3'600'000;
    (*window)->shown_cluster().Show(std::make_shared<session::Snapshot>(back),
                                    LiveLink(back.at_ms));
    static const QRegularExpression negative(QStringLiteral("(^|[ (])[-−]\\d"));
    ForEachPage(*window, [&] {
      QStringList faults;
      for (const Shown& shown : Texts(**window)) {
        if (shown.text.contains(negative)) faults << shown.where + ": " + shown.text.left(100);
      }
      return faults;
    });
    // Time goes on from there.
    for (int i = 0; i < 3; ++i) {
      session::Snapshot next = *scene.Step();
      next.at_ms -= 3'600'000;
      (*window)->shown_cluster().Show(std::make_shared<session::Snapshot>(next),
                                      LiveLink(next.at_ms));
      QCOMPARE((*window)->shown_cluster().snapshot()->at_ms, next.at_ms);
    }
  }

  void Questions_NameTheEffect() {
    const auto window = Open({}, *Scene().snapshot());
    (*window)->shown_cluster().SetMode(ControlMode::kControl);
    Confirm(&**window, (*window)->shown_cluster(),
            {.title = QStringLiteral("Cancel 14 queued jobs"),
             .verb = QStringLiteral("Cancel 14 jobs"),
             .text = QStringLiteral("They do not come back."),
             .targets = {QStringLiteral("job-1")}},
            [](const QString&) {});
    const auto* dialog = (*window)->findChild<QDialog*>(QStringLiteral("confirm"));
    QVERIFY(dialog != nullptr);
    QStringList buttons;
    for (const auto* button : dialog->findChildren<QPushButton*>()) buttons << button->text();
    buttons.sort();
    QCOMPARE(buttons, QStringList({QStringLiteral("Cancel 14 jobs"),
                                   QStringLiteral("Cancel, change nothing")}));
  }

  void States_HaveWordsAndGlyphs() {
    // Rule C16 of docs/console.md: what has a colour has a glyph.
    Scene scene(Hostile());
    const auto window = Open({}, *scene.snapshot());
    const auto* link = (*window)->findChild<QLabel*>(QStringLiteral("link"));
    QStringList seen;
    for (int i = 0; i <= static_cast<int>(session::Link::kOffline); ++i) {
      session::LinkStatus status = LiveLink();
      status.link = static_cast<session::Link>(i);
      (*window)->shown_cluster().Show(scene.Step(), status);
      QVERIFY(!link->text().isEmpty());
      QVERIFY2(!seen.contains(link->text()), qPrintable(link->text()));
      seen << link->text();
      QVERIFY(link->text().size() > 4 && link->text()[1] == u' ');
    }
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiAppWindowTest)
#include "window_test.moc"
