// Tests of what the window shows when a server hangs, is gone, refuses or is another one, and when
// files are not good recordings. The cluster breaks as the test tells it.
#include <QApplication>
#include <QFile>
#include <QLabel>
#include <QMessageBox>
#include <QProcess>
#include <QProcessEnvironment>
#include <QTimer>
#include <QtTest>

#include "cluster/history/recorder.h"
#include "gui/app/dialogs.h"
#include "gui/app/side_panels.h"
#include "tests/gui/app/window.h"
#include "tests/gui/models/scene.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using testing::FakeCluster;
using testing::LiveLink;
using testing::Scene;
using testing::TestWindow;

// An upper bound: waits end long before, but the machine may be busy.
constexpr int kSoonMs = 60'000;

session::ClusterAddress To(const FakeCluster& cluster, const std::string& name = "grand-line") {
  return {.name = name, .nodemanagers = {cluster.address()}};
}

bool IsIn(MainWindow& window, session::Link link) {
  return window.shown_cluster().link().link == link;
}

QString TextOf(MainWindow& window, const char* label) {
  return window.findChild<QLabel*>(QLatin1String(label))->text();
}

/// The texts of all visible labels.
QString Said(QWidget& window) {
  QStringList all;
  for (const QLabel* label : window.findChildren<QLabel*>()) {
    if (label->isVisible()) all << label->text();
  }
  return all.join(u'\n');
}

QString PropertyOf(MainWindow& window, const QString& entity, const QString& name) {
  for (const auto& [property, value] : PropertiesOf(entity, *window.shown_cluster().snapshot())) {
    if (property == name) return value;
  }
  return {};
}

v1::Job RunningJob() {
  v1::Job job;
  job.set_uid("a");
  job.set_app_id("t2v");
  job.set_state(v1::Job::RUNNING);
  job.set_workflow_set("default");
  job.mutable_create_time()->set_seconds(1'700'000'000);
  return job;
}

/// Three seconds of a scene.
void WriteRecording(const QString& path) {
  auto recorder = history::Recorder::Open(path.toStdString());
  QVERIFY2(recorder.ok(), recorder.status().ToString().c_str());
  Scene scene;
  for (int i = 0; i < 3; ++i) {
    const auto snapshot = scene.Step(10);
    const absl::Status written = (*recorder)->Record(*snapshot, LiveLink(snapshot->at_ms));
    QVERIFY2(written.ok(), written.ToString().c_str());
  }
}

}  // namespace

class GuiAppConnectionTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Hung_TheWindowAnswersAndSwitches() {
    FakeCluster hung, well;
    hung.SetUp(2);
    well.SetUp(1);
    TestWindow window;
    window->Connect(To(hung));
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kLive), kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().snapshot()->cluster.value != nullptr, kSoonMs);
    hung.Hang(true);
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kStale), kSoonMs);
    // Nothing is blank, nothing can be changed, and the window says both.
    QCOMPARE(window->shown_cluster().snapshot()->cluster.value->nodes_size(), 5);
    window->shown_cluster().SetMode(ControlMode::kControl);
    QVERIFY(window->shown_cluster().WhyNoChange().contains(u"stale"));
    QVERIFY(Said(*window).contains(u"Showing the last data"));
    // The dialog of connections still opens.
    bool opened = false;
    QTimer::singleShot(0, &*window, [&] {
      auto* dialog = qobject_cast<ConnectionsDialog*>(QApplication::activeModalWidget());
      opened = dialog != nullptr;
      if (opened) dialog->reject();
    });
    window->commands().Run(QStringLiteral("connections"));
    QVERIFY(opened);
    window->Connect(To(well, "well"));
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kLive), kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(
        window->shown_cluster().snapshot()->cluster.value != nullptr &&
            window->shown_cluster().snapshot()->cluster.value->nodes_size() == 4,
        kSoonMs);
    QCOMPARE(window->shown_cluster().mode(), ControlMode::kObserve);
  }

  void HungFromTheStart_IsSaid() {
    FakeCluster hung;
    hung.SetUp(1);
    hung.Hang(true);
    TestWindow window;
    window->Connect(To(hung));
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().link().attempt > 1, kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(Said(*window).contains(u"has not been reached yet"), kSoonMs);
    for (const View* page : window.pages()) QVERIFY(window->ShowPage(page->id()));
  }

  void ClusterIsDown_ItsLastRecordingIsShown_UntilItAnswers() {
    FakeCluster cluster;
    cluster.SetUp(3);
    cluster.SetJob(RunningJob());
    const QTemporaryDir folder;
    testing::WindowOptions options;
    options.folder = folder.path();
    {
      TestWindow window(options);
      window->Connect(To(cluster));
      const auto recorded = [&] {
        const auto& recording = window->shown_cluster().recording();
        if (recording == nullptr) return false;
        const auto info = recording->Info();
        return info.ok() && info->ticks > 1;
      };
      QTRY_VERIFY_WITH_TIMEOUT(recorded(), kSoonMs);
    }
    cluster.Stop();
    TestWindow window(options);
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(!window->shown_cluster().live(), kSoonMs);
    QVERIFY(window->shown_cluster().snapshot()->recorded);
    QCOMPARE(window->shown_cluster().snapshot()->cluster.value->nodes_size(), 6);
    QVERIFY(TextOf(*window, "past").contains(u"Nothing can be changed"));
    cluster.Start();
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().live() && IsIn(*window, session::Link::kLive),
                             kSoonMs);
  }

  void LostJobs_AreInDoubtUntilToldOf() {
    FakeCluster cluster;
    cluster.SetUp(1);
    cluster.SetJob(RunningJob());
    TestWindow window;
    window->Connect(To(cluster));
    const auto state = [&] {
      return PropertyOf(*window, QStringLiteral("job/a"), QStringLiteral("State"));
    };
    QTRY_COMPARE_WITH_TIMEOUT(state(), QStringLiteral("running"), kSoonMs);
    cluster.Stop();
    QTRY_VERIFY_WITH_TIMEOUT(state().contains(u"reconciling"), kSoonMs);
    cluster.Start();
    QTRY_COMPARE_WITH_TIMEOUT(state(), QStringLiteral("running"), kSoonMs);
  }

  void Resync_AsksForEverythingAnew() {
    FakeCluster cluster;
    cluster.SetUp(1);
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kLive), kSoonMs);
    const int watched = cluster.calls("WatchCluster");
    QCOMPARE(window->commands().Action(QStringLiteral("resync"))->shortcut(), QKeySequence("F5"));
    window->commands().Run(QStringLiteral("resync"));
    QTRY_VERIFY_WITH_TIMEOUT(cluster.calls("WatchCluster") > watched, kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(Said(*window).contains(u"rev "), kSoonMs);
  }

  void ReadOnlyServer_IsSaid() {
    FakeCluster cluster;
    cluster.SetUp(1);
    cluster.SetReadOnly(true);
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kLive), kSoonMs);
    window->shown_cluster().SetMode(ControlMode::kControl);
    QCOMPARE(window->shown_cluster().WhyNoChange(), QString());
    absl::Status refused;
    window->shown_cluster().Ask<v1::Job>(
        &*window, [](client::Client& client) { return client.Cancel("a"); },
        [&](const absl::StatusOr<v1::Job>& answer) { refused = answer.status(); },
        QStringLiteral("Cancel a"));
    QTRY_VERIFY_WITH_TIMEOUT(!refused.ok(), kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().WhyNoChange().contains(u"read-only"), kSoonMs);
    window->findChild<Inspector*>()->Inspect(QStringLiteral("node/instance-1"));
    QTRY_VERIFY_WITH_TIMEOUT(Said(*window).contains(u"No changes: The server is read-only"),
                             kSoonMs);
  }

  void OtherVersion_IsSaidWithBothNumbers() {
    FakeCluster cluster;
    cluster.SetUp(1);
    cluster.SetApiVersion(99);
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kVersionMismatch), kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(Said(*window).contains(u"speaks version 99"), kSoonMs);
    QVERIFY(!window->shown_cluster().WhyNoChange().isEmpty());
  }

  void Production_IsMarked() {
    FakeCluster cluster;
    cluster.SetUp(1);
    TestWindow window;
    session::ClusterAddress target = To(cluster);
    window->Connect(target);
    QVERIFY(!TextOf(*window, "cluster").contains(u"PRODUCTION"));
    target.production = true;
    window->Connect(target);
    QCOMPARE(TextOf(*window, "cluster"), QStringLiteral("PRODUCTION grand-line"));
  }

  void Refused_IsSaid() {
    FakeCluster cluster;
    cluster.SetUp(1);
    cluster.Refuse({grpc::StatusCode::PERMISSION_DENIED, "no certificate"});
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(IsIn(*window, session::Link::kAuthFailed), kSoonMs);
    QTRY_VERIFY_WITH_TIMEOUT(Said(*window).contains(u"no certificate"), kSoonMs);
  }

  void Calls_TellWhoAsks() {
    FakeCluster cluster;
    cluster.SetUp(1);
    TestWindow window;
    window->Connect(To(cluster));
    for (const char* method : {"WatchCluster", "ListJobs", "GetRingHealth", "GetElasticity"}) {
      QTRY_VERIFY_WITH_TIMEOUT(cluster.calls(method) > 0, kSoonMs);
      const std::string agent = cluster.user_agent(method);
      QVERIFY2(agent.starts_with("onepiece-console"), agent.c_str());
    }
  }

  void FasterThanDrawn_IsMarked() {
    TestWindow window;
    auto* mark = window->findChild<QLabel*>(QStringLiteral("dropping"));
    QVERIFY(!mark->isVisible());
    Scene scene;
    session::LinkStatus link = LiveLink();
    // The band counts once a second, so each call must add many.
    const auto flood = [&] {
      link.dropped += 1000;
      window->shown_cluster().Show(scene.Step(), link);
      return mark->isVisible();
    };
    QTRY_VERIFY_WITH_TIMEOUT(flood(), kSoonMs);
    QVERIFY(mark->text().startsWith(ToneGlyph(StatusTone::kWarning)));
    QTRY_VERIFY_WITH_TIMEOUT(!mark->isVisible(), kSoonMs);
  }

  void Recording_OpensWithItsLastInstant() {
    TestWindow window;
    const QString path = window.folder() + QStringLiteral("/good.onepiece-recording");
    WriteRecording(path);
    window->OpenRecording(path);
    QTRY_VERIFY_WITH_TIMEOUT(window->shown_cluster().recording() != nullptr, kSoonMs);
    QVERIFY(!window->shown_cluster().live());
    QVERIFY(TextOf(*window, "past").contains(u"This is a recording."));
    QCOMPARE(window->shown_cluster().WhyNoChange(), QStringLiteral("Recording"));
    // Rule C17 of docs/console.md: nobody knows what became of the jobs that were running.
    bool unknown = false;
    for (const session::JobEntry& entry : window->shown_cluster().snapshot()->jobs.value->jobs) {
      if (entry.job->state() != v1::Job::RUNNING) continue;
      const QString job = QStringLiteral("job/") + QString::fromStdString(entry.job->uid());
      QVERIFY(PropertyOf(*window, job, QStringLiteral("State")).contains(u"unknown at the end"));
      unknown = true;
    }
    QVERIFY(unknown);
    for (const View* page : window.pages()) {
      QVERIFY(window->ShowPage(page->id()));
      TestWindow::Settle();
    }
  }

  void BadRecordings_AreRefusedWithReasons_data() {
    QTest::addColumn<QString>("kind");
    QTest::addColumn<QString>("says");
    QTest::newRow("not there") << "absent"
                               << "no such";
    QTest::newRow("a text") << "text"
                            << "recording";
    QTest::newRow("newer") << "newer"
                           << "newer";
    QTest::newRow("cut off") << "cut"
                             << "3 ticks can be read";
    QTest::newRow("empty") << "empty"
                           << "recording";
    QTest::newRow("a folder") << "folder"
                              << "";
  }
  void BadRecordings_AreRefusedWithReasons() {
    QFETCH(QString, kind);
    QFETCH(QString, says);
    TestWindow window;
    window->shown_cluster().Show(Scene().snapshot(), LiveLink());
    const auto before = window->shown_cluster().snapshot();
    const QString path = window.folder() + QStringLiteral("/bad.onepiece-recording");
    if (kind == u"newer" || kind == u"cut") WriteRecording(path);
    if (kind == u"folder") QVERIFY(QDir().mkpath(path));
    QFile file(path);
    if (kind == u"text" || kind == u"empty") {
      QVERIFY(file.open(QIODevice::WriteOnly));
      if (kind == u"text") file.write(QByteArray(5000, 'x'));
    } else if (kind == u"newer") {  // user_version of the SQLite header.
      QVERIFY(file.open(QIODevice::ReadWrite) && file.seek(60));
      file.write(QByteArray("\0\0\0\x63", 4));
    } else if (kind == u"cut") {
      QVERIFY(file.open(QIODevice::ReadWrite) && file.resize(file.size() / 2));
    }
    file.close();
    window->OpenRecording(path);
    const auto said = [&] { return window->findChild<QMessageBox*>(); };
    QTRY_VERIFY2_WITH_TIMEOUT(said() != nullptr, "nothing is said", kSoonMs);
    const auto* box = said();
    QVERIFY(box->text().contains(path));
    QVERIFY2(box->text().contains(says, Qt::CaseInsensitive), qPrintable(box->text()));
    QCOMPARE(box->textFormat(), Qt::PlainText);
    // The window still shows what it showed before.
    QCOMPARE(window->shown_cluster().snapshot(), before);
    QVERIFY(window->shown_cluster().recording() == nullptr);
  }

  void NoDisplay_IsSaid_data() {
    QTest::addColumn<QString>("platform");
    QTest::newRow("as it comes") << "";
    QTest::newRow("xcb") << "xcb";
    QTest::newRow("unknown") << "nonsense";
  }
  void NoDisplay_IsSaid() {
    QFETCH(QString, platform);
    QProcess process;
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) {
      environment.remove(QLatin1String(name));
    }
    if (!platform.isEmpty()) environment.insert(QStringLiteral("QT_QPA_PLATFORM"), platform);
    process.setProcessEnvironment(environment);
    process.start(qEnvironmentVariable("ONEPIECE_BIN_DIR") + QStringLiteral("/onepiece-console"),
                  {});
    QVERIFY(process.waitForFinished(kSoonMs));
    QCOMPARE(process.exitStatus(), QProcess::NormalExit);
    QCOMPARE(process.exitCode(), 1);
    const QByteArray said = process.readAllStandardError();
    QVERIFY2(said.contains("no display") && said.contains("onepiece status"), said.constData());
  }

  void ThemeOfOneRun_IsNotSaved() {
    const QTemporaryDir folder;
    const QString path = folder.filePath(QStringLiteral("settings.json"));
    SettingsFile settings = SettingsFile::Load(path);
    settings.values.theme = Theme::kLight;
    QVERIFY(settings.Save().ok());
    QProcess process;
    process.start(
        qEnvironmentVariable("ONEPIECE_BIN_DIR") + QStringLiteral("/onepiece-console"),
        {QStringLiteral("--settings"), path, QStringLiteral("--theme"), QStringLiteral("dark"),
         QStringLiteral("--data-dir"), folder.filePath(QStringLiteral("no-cluster"))});
    // It says that there is no cluster once the window is shown. From then on SIGTERM closes the
    // window, which saves the settings.
    QByteArray said;
    QTRY_VERIFY_WITH_TIMEOUT(
        (said += process.readAllStandardError()).contains("onepiece-console: "), kSoonMs);
    process.terminate();
    QVERIFY(process.waitForFinished(kSoonMs));
    QCOMPARE(process.exitStatus(), QProcess::NormalExit);
    const SettingsFile saved = SettingsFile::Load(path);
    QVERIFY(!saved.values.geometry.isEmpty());
    QCOMPARE(saved.values.theme, Theme::kLight);
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiAppConnectionTest)
#include "connection_test.moc"
