// Tests of the window without any cluster: commands, settings, themes, and names for people who
// cannot see.
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QFile>
#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QStandardItemModel>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTimer>
#include <QtTest>
#include <memory>
#include <optional>

#include "gui/app/command_palette.h"
#include "gui/app/dialogs.h"
#include "gui/app/export.h"
#include "gui/app/main_window.h"
#include "gui/app/theme.h"
#include "gui/models/keyed_table.h"
#include "gui/views/tone.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

void AddInstance(v1::Cluster& cluster, const std::string& id, const std::string& stage,
                 v1::Activity activity, double utilization) {
  v1::Node& node = *cluster.add_nodes();
  node.set_node_id(id);
  node.set_role(v1::INSTANCE);
  node.set_state(v1::Node::READY);
  node.set_activity(activity);
  node.set_workflow_set("default");
  node.set_address("10.0.0.7:5001");
  node.set_incarnation(3);
  node.set_pid(4711);
  if (!stage.empty()) node.mutable_assignment()->mutable_stage()->set_stage(stage);
  node.mutable_load()->set_utilization(utilization);
  node.mutable_load()->set_utilization_source(v1::WORKERS);
  node.mutable_load()->set_sample_unix_ms(1'000'000'000'000);
  node.mutable_load()->set_workers(2);
}

/// A small cluster with all that the window shows.
std::shared_ptr<session::Snapshot> MakeSnapshot() {
  auto snapshot = std::make_shared<session::Snapshot>();
  snapshot->at_ms = 1'000'000'001'000;
  auto cluster = std::make_shared<v1::Cluster>();
  cluster->set_cluster_id("test");
  cluster->set_revision(88123);
  AddInstance(*cluster, "instance-1", "text_encoder", v1::SERVING, 0.21);
  AddInstance(*cluster, "instance-2", "diffusion", v1::SERVING, 0.97);
  AddInstance(*cluster, "instance-3", "diffusion", v1::DRAINING, 0.88);
  AddInstance(*cluster, "instance-4", "", v1::IDLE, 0);
  AddInstance(*cluster, "a\u202Enasty\nname", "vae", v1::STUCK, 0.4);
  for (const auto& [id, role] : {std::pair("proxy-1", v1::PROXY), {"database-1", v1::DATABASE}}) {
    v1::Node& node = *cluster->add_nodes();
    node.set_node_id(id);
    node.set_role(role);
    node.set_state(v1::Node::READY);
  }
  snapshot->cluster = {cluster, snapshot->at_ms, {}};
  auto rings = std::make_shared<session::Rings>(1);
  rings->front().node_id = "instance-2";
  rings->front().health.set_capacity_bytes(1 << 20);
  rings->front().health.set_used_bytes(800'000);
  rings->front().health.set_oldest_age_ms(2100);
  snapshot->rings = {rings, snapshot->at_ms, {}};
  auto jobs = std::make_shared<session::JobList>();
  for (int i = 0; i < 30; ++i) {
    auto job = std::make_shared<v1::Job>();
    job->set_uid("job-" + std::to_string(i));
    job->set_state(i < 4 ? v1::Job::RUNNING : v1::Job::SUCCEEDED);
    job->mutable_create_time()->set_seconds(999'999'900);
    if (i >= 4) job->mutable_end_time()->set_seconds(999'999'900 + i);
    jobs->jobs.push_back({job, session::Certainty::kKnown});
  }
  snapshot->jobs = {jobs, snapshot->at_ms, {}};
  return snapshot;
}

session::LinkStatus Live() {
  session::LinkStatus link;
  link.link = session::Link::kLive;
  return link;
}

class Shell {
 public:
  explicit Shell(Theme theme = Theme::kLight, int font_percent = 100) {
    MainWindowOptions options;
    options.settings = SettingsFile::Load(folder_.filePath(QStringLiteral("settings.json")));
    options.settings.values.theme = theme;
    options.settings.values.font_percent = font_percent;
    options.settings.values.tour_done = true;
    options.data_folder = folder_.path();
    ApplyTheme(options.settings.values, false, 9);
    window = std::make_unique<MainWindow>(std::move(options), std::make_unique<ShownCluster>());
    window->show();
  }
  void ShowCluster() { window->shown_cluster().Show(MakeSnapshot(), Live()); }
  std::unique_ptr<MainWindow> window;

 private:
  QTemporaryDir folder_;
};

QString SaveFolder() { return qEnvironmentVariable("ONEPIECE_SCREENSHOTS"); }

}  // namespace

class GuiAppShellTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QApplication::setStyle(new ConsoleStyle); }

  void Window_ComesUpWithoutACluster() {
    Shell shell;
    QVERIFY(QTest::qWaitForWindowExposed(shell.window.get()));
    auto* welcome = shell.window->findChild<QWidget*>(QStringLiteral("welcome"));
    QVERIFY(welcome->isVisible());
    QVERIFY(!shell.window->page()->isVisible());
    QVERIFY(!shell.window->shown_cluster().WhyNoChange().isEmpty());
    shell.ShowCluster();
    QVERIFY(!welcome->isVisible());
    QVERIFY(shell.window->page()->isVisible());
  }

  void Band_SaysStateAgeAndRevision() {
    Shell shell;
    shell.ShowCluster();
    const auto text = [&](const char* name) {
      return shell.window->findChild<QLabel*>(QLatin1String(name))->text();
    };
    QVERIFY(text("link").contains(QStringLiteral("Live")));
    QVERIFY(text("link").startsWith(ToneGlyph(StatusTone::kGood)));
    bool revision = false;
    for (const QLabel* label : shell.window->findChildren<QLabel*>()) {
      revision = revision || label->text().contains(QStringLiteral("rev 88123"));
    }
    QVERIFY(revision);
    shell.window->shown_cluster().Pause();
    QVERIFY(shell.window->findChild<QLabel*>(QStringLiteral("past"))->isVisible());
    QVERIFY(text("past").contains(QStringLiteral("Nothing can be changed")));
  }

  void Tree_ShowsEntitiesOnceAndFollows() {
    Shell shell;
    shell.ShowCluster();
    auto* tree = shell.window->findChild<EntityTree*>();
    QVERIFY(tree->Entities().contains(QStringLiteral("node/instance-2")));
    const auto found =
        tree->findItems(QStringLiteral("instance-2"), Qt::MatchContains | Qt::MatchRecursive);
    QCOMPARE(found.size(), 1);
    tree->setCurrentItem(found.front());
    auto* inspector = shell.window->findChild<Inspector*>();
    QCOMPARE(inspector->entity(), QStringLiteral("node/instance-2"));
    // Hostile names are shown, but harmless.
    QVERIFY(tree->findItems(QStringLiteral("\u202E"), Qt::MatchContains | Qt::MatchRecursive)
                .isEmpty());
    // An instance that moves to another stage stays selected, under another group.
    auto next = std::make_shared<session::Snapshot>(*MakeSnapshot());
    auto cluster = std::make_shared<v1::Cluster>(*next->cluster.value);
    cluster->mutable_nodes(1)->mutable_assignment()->mutable_stage()->set_stage("vae");
    cluster->mutable_nodes()->DeleteSubrange(0, 1);
    next->cluster.value = cluster;
    shell.window->shown_cluster().Show(next, Live());
    QCOMPARE(inspector->entity(), QStringLiteral("node/instance-2"));
    QVERIFY(!tree->Entities().contains(QStringLiteral("node/instance-1")));
    QVERIFY(!tree->Entities().contains(QStringLiteral("group/stage/default/text_encoder")));
  }

  void Mode_UnlocksByShortcutOnly() {
    Shell shell;
    shell.ShowCluster();
    QCOMPARE(shell.window->shown_cluster().mode(), ControlMode::kObserve);
    shell.window->commands().Action(QStringLiteral("control.toggle"))->trigger();
    QCOMPARE(shell.window->shown_cluster().mode(), ControlMode::kControl);
    QVERIFY(shell.window->shown_cluster().WhyNoChange().isEmpty());
  }

  void Commands_ThatChangeTheClusterSayWhyNot() {
    Shell shell;
    shell.ShowCluster();
    int ran = 0;
    CommandList& commands = shell.window->commands();
    commands.Add({QStringLiteral("node.test"), QStringLiteral("Test"),
                  QStringLiteral("onepiece drain"), QStringLiteral("Ctrl+Alt+T"), true,
                  [&] { ++ran; }});
    commands.Refresh();
    commands.Run(QStringLiteral("node.test"));
    QCOMPARE(ran, 0);
    QVERIFY(!commands.Action(QStringLiteral("node.test"))->isEnabled());
    QVERIFY(commands.Action(QStringLiteral("node.test"))
                ->toolTip()
                .contains(QStringLiteral("Ctrl+Shift+U")));
    shell.window->shown_cluster().SetMode(ControlMode::kControl);
    commands.Run(QStringLiteral("node.test"));
    QCOMPARE(ran, 1);
  }

  void Shortcuts_HaveNoConflicts() {
    Shell shell;
    const QStringList conflicts = ShortcutConflicts(shell.window->commands().Commands());
    QVERIFY2(conflicts.isEmpty(), qPrintable(conflicts.join(u'\n')));
    QVERIFY(shell.window->commands().Commands().size() > 25);
  }

  void Shortcuts_ConflictsAreSeen() {
    const auto command = [](const char* id, const char* keys, bool changes) {
      return Command{QLatin1String(id), {}, {}, QLatin1String(keys), changes, {}};
    };
    QCOMPARE(
        ShortcutConflicts({command("a", "Ctrl+A", false), command("b", "Ctrl+A", false)}).size(),
        1);
    QCOMPARE(ShortcutConflicts({command("a", "K", true)}).size(), 1);
    QCOMPARE(ShortcutConflicts({command("a", "Shift+K", true)}).size(), 1);
    QCOMPARE(ShortcutConflicts(
                 {command("a", "K", false), command("b", "Ctrl+K", true), command("c", "", true)})
                 .size(),
             0);
  }

  void Shortcuts_PeoplesOwnHoldUnlessTheyConflict() {
    Shell shell;
    CommandList& commands = shell.window->commands();
    const QStringList refused =
        commands.SetShortcuts({{QStringLiteral("resync"), QStringLiteral("Ctrl+R")},
                               {QStringLiteral("export"), QStringLiteral("Ctrl+K")}});
    QCOMPARE(refused.size(), 1);
    QCOMPARE(commands.Action(QStringLiteral("resync"))->shortcut(),
             QKeySequence(QStringLiteral("Ctrl+R")));
    QCOMPARE(commands.Action(QStringLiteral("export"))->shortcut(),
             QKeySequence(QStringLiteral("Ctrl+E")));
  }

  void Shortcuts_AreTakenTogether_data() {
    // The keys of three commands. Their defaults are F5, Ctrl+E and Ctrl+K.
    QTest::addColumn<QStringList>("wanted");
    QTest::addColumn<QStringList>("held");
    QTest::addColumn<int>("refused");
    QTest::newRow("two swap") << QStringList{"Ctrl+E", "F5", "Ctrl+K"}
                              << QStringList{"Ctrl+E", "F5", "Ctrl+K"} << 0;
    QTest::newRow("three in a ring")
        << QStringList{"Ctrl+E", "Ctrl+K", "F5"} << QStringList{"Ctrl+E", "Ctrl+K", "F5"} << 0;
    QTest::newRow("three in a ring, the other way")
        << QStringList{"Ctrl+K", "F5", "Ctrl+E"} << QStringList{"Ctrl+K", "F5", "Ctrl+E"} << 0;
    QTest::newRow("a key that another gives up")
        << QStringList{"Ctrl+E", "", "Ctrl+K"} << QStringList{"Ctrl+E", "", "Ctrl+K"} << 0;
    // What a refused command gets back is taken from the one that was given it.
    QTest::newRow("a ring with a key that is taken")
        << QStringList{"Ctrl+E", "Ctrl+K", "Ctrl+Q"} << QStringList{"F5", "Ctrl+E", "Ctrl+K"} << 3;
    QTest::newRow("a ring with no key")
        << QStringList{"no key", "F5", "Ctrl+E"} << QStringList{"F5", "Ctrl+E", "Ctrl+K"} << 3;
    QTest::newRow("two want one key")
        << QStringList{"Ctrl+R", "Ctrl+R", "Ctrl+K"} << QStringList{"F5", "Ctrl+R", "Ctrl+K"} << 1;
  }
  void Shortcuts_AreTakenTogether() {
    QFETCH(QStringList, wanted);
    QFETCH(QStringList, held);
    QFETCH(int, refused);
    const QStringList ids = {QStringLiteral("resync"), QStringLiteral("export"),
                             QStringLiteral("palette")};
    Shell shell;
    CommandList& commands = shell.window->commands();
    QMap<QString, QString> shortcuts;
    for (int i = 0; i < 3; ++i) shortcuts.insert(ids[i], wanted[i]);
    const QStringList lines = commands.SetShortcuts(shortcuts);
    QVERIFY2(lines.size() == refused, qPrintable(lines.join(u'\n')));
    for (int i = 0; i < 3; ++i) {
      QCOMPARE(commands.Action(ids[i])->shortcut(), QKeySequence(held[i]));
    }
    QCOMPARE(ShortcutConflicts(commands.Commands()), QStringList());
  }

  void Fuzzy_FindsWhatIsMeant() {
    QVERIFY(FuzzyScore(QStringLiteral("xyz"), QStringLiteral("Export")) < 0);
    QVERIFY(FuzzyScore(QStringLiteral("pr"), QStringLiteral("Plan a rebalance")) >
            FuzzyScore(QStringLiteral("pr"), QStringLiteral("Export this page r")));
    QVERIFY(FuzzyScore(QStringLiteral("go live"), QStringLiteral("Go live")) >
            FuzzyScore(QStringLiteral("go live"),
                       QStringLiteral("Go to the list of various entities")));
  }

  void Palette_FindsRunsAndCopies() {
    int ran = 0;
    std::vector<PaletteEntry> entries = {{QStringLiteral("Drain node…"),
                                          {},
                                          QStringLiteral("onepiece drain"),
                                          QStringLiteral("Observe mode"),
                                          [&] { ran += 100; }},
                                         {QStringLiteral("Go live"),
                                          QStringLiteral("L"),
                                          QStringLiteral("onepiece status"),
                                          {},
                                          [&] { ++ran; }}};
    CommandPalette dialog(entries, nullptr);
    dialog.show();
    auto* input = dialog.findChild<QLineEdit*>();
    auto* list = dialog.findChild<QListWidget*>();
    QCOMPARE(list->count(), 2);
    QTest::keyClicks(input, QStringLiteral("drain"));
    QCOMPARE(list->count(), 1);
    QTest::keyClick(input, Qt::Key_Return);
    QVERIFY(dialog.isVisible());  // It cannot be done now, so the dialog only shows why.
    input->clear();
    QTest::keyClick(input, Qt::Key_Down);
    QTest::keyClick(input, Qt::Key_C, Qt::ControlModifier | Qt::ShiftModifier);
    QCOMPARE(QApplication::clipboard()->text(), QStringLiteral("onepiece status"));
    QTest::keyClick(input, Qt::Key_Return);
    QVERIFY(dialog.chosen());
    dialog.chosen()();
    QCOMPARE(ran, 1);
  }

  void Palette_OffersEverything() {
    Shell shell;
    shell.ShowCluster();
    QStringList titles;
    for (const PaletteEntry& entry : shell.window->PaletteEntries()) titles << entry.title;
    QVERIFY(titles.contains(QStringLiteral("Page: Overview")));
    QVERIFY(titles.contains(QStringLiteral("node/instance-3")));
    QVERIFY(titles.contains(QStringLiteral("Go live")));
  }

  void Settings_RoundTrip() {
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("a/b/settings.json"));
    SettingsFile file = SettingsFile::Load(path);
    file.values.theme = Theme::kHighContrast;
    file.values.font_percent = 150;
    file.values.connections = {{.cluster = {"prod", {"a:1", "b:2"}, true}}};
    file.values.shortcuts.insert(QStringLiteral("resync"), QStringLiteral("Ctrl+R"));
    file.values.recordings.insert(QStringLiteral("prod"), QStringLiteral("/a/b.recording"));
    file.values.layout = QByteArray("\x00\xff", 2);
    QVERIFY(file.Save().ok());
    const SettingsFile again = SettingsFile::Load(path);
    QVERIFY(again.notice.isEmpty());
    QCOMPARE(again.values.theme, Theme::kHighContrast);
    QCOMPARE(again.values.font_percent, 150);
    QCOMPARE(again.values.connections.size(), std::size_t{1});
    QCOMPARE(again.values.connections[0].cluster.nodemanagers[1], std::string("b:2"));
    QVERIFY(again.values.connections[0].cluster.production);
    QCOMPARE(again.values.shortcuts.value(QStringLiteral("resync")), QStringLiteral("Ctrl+R"));
    QCOMPARE(again.values.recordings, file.values.recordings);
    QCOMPARE(again.values.layout, file.values.layout);
    QCOMPARE(QFile(path).permissions() & (QFile::ReadGroup | QFile::ReadOther),
             QFile::Permissions());
  }

  void Settings_OlderNewerAndDamagedAreKept_data() {
    QTest::addColumn<QByteArray>("text");
    QTest::addColumn<QString>("copy");
    QTest::addColumn<bool>("saves");
    const QByteArray body = "\"theme\": \"dark\", \"mine\": 7}";
    QTest::newRow("older") << "{" + body << ".version-0" << true;
    QTest::newRow("newer") << "{\"version\": 99, " + body << "" << false;
    QTest::newRow("damaged") << QByteArray("{\"version\": 1, \"theme") << ".damaged" << true;
    QTest::newRow("not an object") << QByteArray("[1]") << ".damaged" << true;
    QTest::newRow("wrong types")
        << QByteArray("{\"version\": 1, \"theme\": 5, \"connections\": {}, \"font_percent\": 1e9}")
        << "" << true;
  }
  void Settings_OlderNewerAndDamagedAreKept() {
    QFETCH(QByteArray, text);
    QFETCH(QString, copy);
    QFETCH(bool, saves);
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("settings.json"));
    const auto read = [](const QString& name) {
      QFile file(name);
      return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
    };
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(text);
    file.close();
    SettingsFile settings = SettingsFile::Load(path);
    QCOMPARE(settings.Save().ok(), saves);
    if (!copy.isEmpty()) {
      QCOMPARE(read(path + copy), text);
      QVERIFY(settings.notice.contains(path + copy));
    }
    if (!saves) QCOMPARE(read(path), text);
    if (!text.contains("mine")) return;
    QCOMPARE(settings.values.theme, Theme::kDark);
    QCOMPARE(QJsonDocument::fromJson(read(path)).object()[u"mine"].toInt(), 7);
  }

  void Settings_ChosenThemeEndsThatOfTheRun() {
    QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("settings.json"));
    MainWindowOptions options;
    options.settings = SettingsFile::Load(path);
    options.settings.values.theme = Theme::kLight;
    options.theme = Theme::kDark;
    options.data_folder = folder.path();
    options.base_points = 9;
    options.ApplyLook();
    const auto looks = [](Theme theme) {
      return QApplication::palette().color(QPalette::Window) ==
             PaletteOf(theme, false).color(QPalette::Window);
    };
    QVERIFY(looks(Theme::kDark));
    MainWindow window(std::move(options), std::make_unique<ShownCluster>());
    window.show();
    const auto accept = [&](std::optional<Theme> chosen) {
      QTimer::singleShot(0, &window, [chosen] {
        auto* dialog = qobject_cast<SettingsDialog*>(QApplication::activeModalWidget());
        QVERIFY(dialog != nullptr);
        auto* themes = dialog->findChild<QComboBox*>();
        QCOMPARE(themes->currentIndex(), static_cast<int>(Theme::kLight));
        if (chosen) themes->setCurrentIndex(static_cast<int>(*chosen));
        dialog->accept();
      });
      window.commands().Run(QStringLiteral("settings"));
    };
    // The theme was not what the operator came for.
    accept({});
    QVERIFY(looks(Theme::kDark));
    QCOMPARE(SettingsFile::Load(path).values.theme, Theme::kLight);
    accept(Theme::kHighContrast);
    QVERIFY(looks(Theme::kHighContrast));
    QCOMPARE(SettingsFile::Load(path).values.theme, Theme::kHighContrast);
  }

  void Addresses_AreChecked() {
    QString why;
    QCOMPARE(ParseAddresses(QStringLiteral("a:1, [::1]:65535 b:2"), &why).size(), std::size_t{3});
    for (const char* bad : {"", "host", "host:0", "host:70000", ":5", "host:x"}) {
      why.clear();
      QVERIFY2(ParseAddresses(QLatin1String(bad), &why).empty() && !why.isEmpty(), bad);
    }
  }

  void Themes_TextHasContrast_data() {
    QTest::addColumn<int>("theme");
    for (const auto& [name, theme] : {std::pair("light", Theme::kLight),
                                      {"dark", Theme::kDark},
                                      {"high contrast", Theme::kHighContrast}}) {
      QTest::newRow(name) << static_cast<int>(theme);
    }
  }
  void Themes_TextHasContrast() {
    QFETCH(int, theme);
    const QPalette palette = PaletteOf(static_cast<Theme>(theme), false);
    const auto check = [&](QPalette::ColorGroup group, QPalette::ColorRole text,
                           QPalette::ColorRole ground) {
      const double ratio = ContrastRatio(palette.color(group, text), palette.color(group, ground));
      QVERIFY2(ratio >= 4.5, qPrintable(QStringLiteral("group %1: role %2 on %3: %4")
                                            .arg(group)
                                            .arg(text)
                                            .arg(ground)
                                            .arg(ratio)));
    };
    for (const auto group : {QPalette::Active, QPalette::Inactive, QPalette::Disabled}) {
      check(group, QPalette::Text, QPalette::Base);
      check(group, QPalette::Text, QPalette::AlternateBase);
      check(group, QPalette::WindowText, QPalette::Window);
      check(group, QPalette::ButtonText, QPalette::Button);
    }
    check(QPalette::Active, QPalette::HighlightedText, QPalette::Highlight);
    check(QPalette::Active, QPalette::PlaceholderText, QPalette::Base);
    check(QPalette::Active, QPalette::Link, QPalette::Base);
    check(QPalette::Active, QPalette::ToolTipText, QPalette::ToolTipBase);
    for (int tone = 0; tone <= static_cast<int>(StatusTone::kUnknown); ++tone) {
      const QColor color = ToneColor(static_cast<StatusTone>(tone), palette);
      QVERIFY(ContrastRatio(color, palette.color(QPalette::Base)) >= 4.5);
      QVERIFY(ContrastRatio(color, palette.color(QPalette::Window)) >= 4.5);
    }
    for (const BandColors& band : {PastBand(), ProductionBand()}) {
      QVERIFY(ContrastRatio(band.text, band.ground) >= 4.5);
    }
  }

  void Export_KeepsNumbersAndQuotes() {
    QStandardItemModel model(2, 2);
    model.setHorizontalHeaderLabels({QStringLiteral("name"), QStringLiteral("share")});
    model.setData(model.index(0, 0), QStringLiteral("a \"b\", c"));
    model.setData(model.index(0, 1), QStringLiteral("87 %"));
    model.setData(model.index(0, 1), 0.87, kSortRole);
    model.setData(model.index(1, 0), QStringLiteral("=SUM(A1)"));
    QCOMPARE(ToCsv(model), QByteArray("name,share\r\n\"a \"\"b\"\", c\",0.87\r\n'=SUM(A1),\r\n"));
    const QByteArray json = ToJson(model);
    QVERIFY(json.contains("0.87"));
    QVERIFY(json.contains("null"));
  }

  void Export_WritesEveryKind() {
    Shell shell;
    shell.ShowCluster();
    QTemporaryDir folder;
    for (const char* name : {"a.csv", "a.json", "a.png", "a.svg"}) {
      const QString path = folder.filePath(QLatin1String(name));
      const absl::Status status = ExportView(*shell.window->page(), path);
      QVERIFY2(status.ok(), status.ToString().c_str());
      QVERIFY(QFile(path).size() > 0);
    }
    QCOMPARE(ExportView(*shell.window->page(), folder.filePath(QStringLiteral("a.doc"))).code(),
             absl::StatusCode::kInvalidArgument);
  }

  void DesktopFiles_AreValid() {
    const QString folder = QStringLiteral(ONEPIECE_SOURCE_DIR "/resources/desktop/");
    const auto check = [](const QString& program, const QStringList& arguments) {
      if (QStandardPaths::findExecutable(program).isEmpty()) {
        qInfo("%s is not installed: not checked", qPrintable(program));
        return;
      }
      QProcess process;
      process.setProcessChannelMode(QProcess::MergedChannels);
      process.start(program, arguments);
      QVERIFY(process.waitForFinished(60'000));
      QVERIFY2(process.exitCode() == 0, process.readAll().constData());
    };
    check(QStringLiteral("desktop-file-validate"),
          {folder + QStringLiteral("onepiece-console.desktop")});
    check(QStringLiteral("appstreamcli"),
          {QStringLiteral("validate"), QStringLiteral("--no-net"),
           folder + QStringLiteral("onepiece-console.metainfo.xml")});
    QVERIFY(!QIcon(folder + QStringLiteral("onepiece-console.svg")).isNull());
  }

  void Layout_FitsAtEverySize_data() {
    QTest::addColumn<int>("theme");
    QTest::addColumn<QSize>("size");
    QTest::addColumn<int>("percent");
    QTest::newRow("light") << static_cast<int>(Theme::kLight) << QSize(1280, 800) << 100;
    QTest::newRow("dark") << static_cast<int>(Theme::kDark) << QSize(1280, 800) << 100;
    QTest::newRow("light-large") << static_cast<int>(Theme::kLight) << QSize(2560, 1440) << 100;
    QTest::newRow("dark-large") << static_cast<int>(Theme::kDark) << QSize(2560, 1440) << 100;
    QTest::newRow("contrast-200") << static_cast<int>(Theme::kHighContrast) << QSize(2560, 1440)
                                  << 200;
  }
  void Layout_FitsAtEverySize() {
    QFETCH(int, theme);
    QFETCH(QSize, size);
    QFETCH(int, percent);
    Shell shell(static_cast<Theme>(theme), percent);
    shell.window->resize(size);
    QVERIFY(QTest::qWaitForWindowExposed(shell.window.get()));
    const QString base = SaveFolder() + u'/' + QLatin1String(QTest::currentDataTag());
    if (!SaveFolder().isEmpty()) shell.window->grab().save(base + QStringLiteral("-welcome.png"));
    shell.ShowCluster();
    shell.window->findChild<Inspector*>()->Inspect(QStringLiteral("node/instance-2"));
    QCoreApplication::processEvents();
    if (!SaveFolder().isEmpty()) shell.window->grab().save(base + QStringLiteral(".png"));
    // The window has the size that it was given, because nothing in it needs more.
    QCOMPARE(shell.window->size(), size);
    for (const QPushButton* button : shell.window->findChildren<QPushButton*>()) {
      if (!button->isVisible()) continue;
      QVERIFY2(button->width() >= button->minimumSizeHint().width(), qPrintable(button->text()));
    }
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiAppShellTest)
#include "shell_test.moc"
