// Tests of who the console is to a cluster: contexts, logins, the lock in the band, and what is
// disabled because a scope is missing.
#include <sys/stat.h>

#include <QApplication>
#include <QComboBox>
#include <QDialogButtonBox>
#include <QFile>
#include <QMessageBox>
#include <QPushButton>
#include <QtTest>

#include "cluster/contexts/contexts.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "gui/app/command_palette.h"
#include "gui/app/dialogs.h"
#include "gui/app/side_panels.h"
#include "gui/views/tone.h"
#include "tests/fake_identity.h"
#include "tests/gui/app/window.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using testing::FakeCluster;
using testing::TestWindow;

// An upper bound: waits end long before, but the machine may be busy.
constexpr int kAnswerMs = 60'000;

v1::WhoAmIResponse Me(const std::string& name, const std::vector<std::string>& scopes) {
  v1::WhoAmIResponse me;
  me.set_cluster_id("pirates");
  me.set_name(name);
  me.set_tenant("films");
  me.set_shown("token");
  for (const std::string& scope : scopes) me.add_scopes(scope);
  return me;
}

/// A cluster that lets `ci` submit and read its own jobs, as a NodeManager does.
void SetUpForCi(FakeCluster& cluster) {
  cluster.SetUp(2);
  cluster.SetMe(Me("ci", {"submit", "read-own"}));
  cluster.Refuse("WatchCluster",
                 rpc::ToGrpc(base::MakeError(absl::StatusCode::kPermissionDenied, "MISSING_SCOPE",
                                             "principal/ci lacks scope read")));
}

QPushButton* Lock(TestWindow& window) {
  return window->findChild<QPushButton*>(QStringLiteral("identity"));
}

bool Enabled(TestWindow& window, const char* command) {
  return window->commands().Action(QLatin1String(command))->isEnabled();
}

/// What the dialog that is open says; closes it.
QString TakeMessage(TestWindow& window) {
  auto* box = window->findChild<QMessageBox*>();
  if (box == nullptr) return {};
  const QString text = box->text();
  delete box;
  return text;
}

QLineEdit* Field(ConnectionDialog& dialog, const char* name) {
  return dialog.findChild<QLineEdit*>(QLatin1String(name));
}

QString Why(const ConnectionDialog& dialog) {
  return dialog.findChild<QLabel*>(QStringLiteral("why"))->text();
}

}  // namespace

class GuiAppIdentityTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }
  void cleanup() {
    rpc::UseCredentials(nullptr);
    folder_.reset();
  }

  void Lock_SaysWhoWeAre() {
    FakeCluster cluster;
    SetUpForCi(cluster);
    TestWindow window;
    QVERIFY(!Lock(window)->isVisible());
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(Lock(window)->isVisible(), kAnswerMs);
    QCOMPARE(Lock(window)->text(), QStringLiteral("ci · films"));
    QVERIFY(!Lock(window)->icon().isNull());
    for (const QString& text : {Lock(window)->toolTip(), Lock(window)->accessibleName()})
      QVERIFY2(text.contains(u"submit, read-own") && text.contains(u"films"), qPrintable(text));
    // By the keyboard it is read in full.
    Lock(window)->click();
    QVERIFY(TakeMessage(window).contains(u"submit, read-own"));
  }

  void Lock_WarnsOfAnInsecureCluster_data() {
    QTest::addColumn<int>("theme");
    QTest::newRow("light") << static_cast<int>(Theme::kLight);
    QTest::newRow("dark") << static_cast<int>(Theme::kDark);
    QTest::newRow("high contrast") << static_cast<int>(Theme::kHighContrast);
  }
  void Lock_WarnsOfAnInsecureCluster() {
    QFETCH(int, theme);
    FakeCluster cluster;
    cluster.SetUp(1);
    v1::WhoAmIResponse me;
    me.set_name("insecure");
    me.set_tenant("default");
    me.set_shown("insecure");
    cluster.SetMe(me);
    testing::WindowOptions options;
    options.theme = static_cast<Theme>(theme);
    TestWindow window(options);
    window->Connect(To(cluster));
    QTRY_COMPARE_WITH_TIMEOUT(Lock(window)->text(), QStringLiteral("Not secure"), kAnswerMs);
    const QPalette colors = Lock(window)->palette();
    QCOMPARE(colors.color(QPalette::ButtonText),
             ToneColor(StatusTone::kWarning, QApplication::palette()));
    QVERIFY(ContrastRatio(colors.color(QPalette::ButtonText), colors.color(QPalette::Window)) >=
            4.5);
  }

  void Lock_AnOlderServerHasNone() {
    FakeCluster cluster;
    cluster.SetUp(1);
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(IsLive(window), kAnswerMs);
    QTRY_VERIFY_WITH_TIMEOUT(cluster.calls("WhoAmI") > 0, kAnswerMs);
    QVERIFY(!Lock(window)->isVisible());
    window->shown_cluster().SetMode(ControlMode::kControl);
    QVERIFY(Enabled(window, "rebalance.apply"));
  }

  void Reconnect_AsksAgain() {
    FakeCluster cluster;
    cluster.SetUp(1);
    cluster.SetMe(Me("ann", {"read", "read-own"}));
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_COMPARE_WITH_TIMEOUT(Lock(window)->text(), QStringLiteral("ann · films"), kAnswerMs);
    QTRY_VERIFY_WITH_TIMEOUT(IsLive(window), kAnswerMs);
    cluster.Stop();
    QTRY_VERIFY_WITH_TIMEOUT(!IsLive(window), kAnswerMs);
    cluster.SetMe(Me("ann", {"read", "read-own", "cancel-own", "operate"}));
    cluster.Start();
    QTRY_VERIFY_WITH_TIMEOUT(Lock(window)->toolTip().contains(u"operate"), kAnswerMs);
    window->shown_cluster().SetMode(ControlMode::kControl);
    QTRY_VERIFY_WITH_TIMEOUT(Enabled(window, "rebalance.apply"), kAnswerMs);
  }

  void NoAnswer_IsAskedForAgain() {
    FakeCluster cluster;
    cluster.SetUp(1);
    cluster.SetMe(Me("ann", {"read"}));
    // The client does not repeat this by itself.
    cluster.Refuse("WhoAmI", {grpc::StatusCode::FAILED_PRECONDITION, "not now"});
    TestWindow window;
    window->Connect(To(cluster));
    // It asks when following begins, perhaps when the connection is there, and then again.
    QTRY_VERIFY_WITH_TIMEOUT(cluster.calls("WhoAmI") >= 3, kAnswerMs);
    QVERIFY(!Lock(window)->isVisible());
    cluster.Refuse("WhoAmI", grpc::Status::OK);
    QTRY_VERIFY_WITH_TIMEOUT(Lock(window)->isVisible(), kAnswerMs);
  }

  void MissingScope_DisablesAndIsNamed() {
    FakeCluster cluster;
    SetUpForCi(cluster);
    TestWindow window;
    window->Connect(To(cluster));
    QTRY_VERIFY_WITH_TIMEOUT(Lock(window)->isVisible(), kAnswerMs);
    QTRY_VERIFY_WITH_TIMEOUT(IsLive(window), kAnswerMs);
    window->shown_cluster().SetMode(ControlMode::kControl);
    QVERIFY(Enabled(window, "jobs.submit"));
    QVERIFY(Enabled(window, "job.save"));
    const QString why = QStringLiteral("Needs the scope operate; ci has submit, read-own");
    for (const char* id : {"node.drain", "rebalance.apply", "rebalance.undo", "rebalance.hold",
                           "pool.limits", "replica.step-down", "replica.snapshot"}) {
      const QAction* action = window->commands().Action(QLatin1String(id));
      QVERIFY2(!action->isEnabled(), id);
      QVERIFY2(action->toolTip().contains(why), qPrintable(action->toolTip()));
      QCOMPARE(action->statusTip(), why);
    }
    // What changes nothing may need a scope, too.
    QVERIFY(!Enabled(window, "rebalance.plan"));
    QVERIFY(window->commands()
                .Action(QStringLiteral("job.cancel"))
                ->toolTip()
                .contains(u"Needs the scope cancel-own"));
    for (const PaletteEntry& entry : window->PaletteEntries()) {
      if (entry.title.startsWith(QStringLiteral("Drain"))) QCOMPARE(entry.why_not, why);
    }
    window->ShowPage(QStringLiteral("jobs"));
    auto* cancel = window->findChild<QPushButton*>(QStringLiteral("jobs.do.cancel"));
    QVERIFY(!cancel->isEnabled() && cancel->toolTip().contains(u"cancel-own"));
    QVERIFY(window->findChild<QPushButton*>(QStringLiteral("jobs.do.new job"))->isEnabled());
    window->ShowPage(QStringLiteral("rebalance"));
    auto* policy = window->findChild<QPushButton*>(QStringLiteral("draft.policy"));
    QVERIFY(!policy->isEnabled() && policy->toolTip().contains(u"Needs the scope read;"));
    auto* inspector = window->findChild<Inspector*>();
    inspector->Inspect(QStringLiteral("node/proxy-1"));
    bool said = false;
    for (const QLabel* label : inspector->findChildren<QLabel*>())
      said = said || label->text().contains(why);
    QVERIFY(said);
  }

  void Commands_ThatChangeTheClusterNameTheirMethod() {
    TestWindow window;
    int changes = 0;
    for (const Command& command : window->commands().Commands()) {
      if (!command.changes_cluster) continue;
      ++changes;
      QVERIFY2(!command.method.empty(), qPrintable(command.id));
    }
    QVERIFY(changes >= 15);
  }

  void Contexts_AreOfferedAndNotEdited() {
    MakeContexts();
    LocalCluster local(folder_->path());
    Connection own;
    own.cluster = {.name = "films", .nodemanagers = {"own:1"}, .production = true};
    ConnectionsDialog dialog({own}, ContextsPath(), local, nullptr);
    auto* list = dialog.findChild<QListWidget*>();
    QCOMPARE(list->count(), 2);  // The console's own cluster hides the context of its name.
    QVERIFY2(list->item(0)->text().contains(u"own:1"), qPrintable(list->item(0)->text()));
    const QString context = list->item(1)->text();
    for (const char* part : {"ci (context)", "nm-1:7000", "token"})
      QVERIFY2(context.contains(QLatin1String(part)), qPrintable(context));
    QVERIFY(Button(dialog, "&Edit…")->isEnabled());
    list->setCurrentRow(1);
    QVERIFY(!Button(dialog, "&Edit…")->isEnabled());
    QVERIFY(Button(dialog, "&Remove")->toolTip().contains(u"onepiece context"));
    Button(dialog, "&Connect")->click();
    QVERIFY(dialog.chosen().has_value());
    QCOMPARE(dialog.chosen()->credentials.token_file, Path("ci.token"));
    QCOMPARE(dialog.connections().size(), std::size_t{1});
  }

  void Contexts_AFileThatOthersMayWriteIsSaid() {
    MakeContexts();
    QCOMPARE(chmod(ContextsPath().c_str(), 0666), 0);
    LocalCluster local(folder_->path());
    ConnectionsDialog dialog({}, ContextsPath(), local, nullptr);
    QCOMPARE(dialog.findChild<QListWidget*>()->count(), 0);
    bool said = false;
    for (const QLabel* label : dialog.findChildren<QLabel*>())
      said = said || label->text().contains(u"chmod");
    QVERIFY(said);
  }

  void Context_ThatNamesNothingSaysWhatToDo() {
    MakeContexts();
    testing::WindowOptions options;
    options.folder = folder_->path();
    TestWindow window(options);
    window->ConnectContext("atlantis");
    const QString unknown = TakeMessage(window);
    for (const char* part : {"no context 'atlantis'", "ci, films", "Ctrl+L"})
      QVERIFY2(unknown.contains(QLatin1String(part)), qPrintable(unknown));
    QVERIFY(window->shown_cluster().session() == nullptr);
    // Its files are gone.
    window->ConnectContext("films");
    const QString gone = TakeMessage(window);
    for (const char* part : {"films was not asked", "certificate", "Ctrl+L"})
      QVERIFY2(gone.contains(QLatin1String(part)), qPrintable(gone));
    QVERIFY(window->shown_cluster().session() == nullptr);
  }

  void Token_IsKeptInAFileOfItsOwn() {
    testing::FakeIdentity fake(Path("node"));
    const std::string token = identity::BearerToken::Generate().Format();
    ConnectionDialog dialog({}, {"taken"}, ContextsPath(), nullptr);
    auto* ok = dialog.findChild<QDialogButtonBox*>()->button(QDialogButtonBox::Ok);
    QCOMPARE(Field(dialog, "token")->echoMode(), QLineEdit::Password);
    Field(dialog, "nodemanagers")->setText(QString::fromStdString(fake.address()));
    Field(dialog, "name")->setText(QStringLiteral("taken"));
    QVERIFY(!ok->isEnabled() && Why(dialog).contains(u"choose another"));
    Field(dialog, "name")->setText(QStringLiteral("pirates"));
    QVERIFY(!ok->isEnabled() && Why(dialog).contains(u"folder of your certificate"));
    dialog.findChild<QComboBox*>(QStringLiteral("login"))->setCurrentIndex(1);
    QVERIFY(!ok->isEnabled() && Why(dialog).contains(u"onepiece token create"));
    Field(dialog, "token")->setText(QStringLiteral("OPB1hunter2"));
    QVERIFY(!ok->isEnabled() && Why(dialog).contains(u"CA"));
    Field(dialog, "ca")->setText(QString::fromStdString(Path("nothing.pem")));
    QVERIFY(ok->isEnabled());
    dialog.accept();
    QVERIFY2(Why(dialog).contains(u"nothing.pem"), qPrintable(Why(dialog)));
    Field(dialog, "ca")->setText(QString::fromStdString(Path("node/ca.pem")));
    dialog.accept();
    QVERIFY(dialog.result() != QDialog::Accepted);
    QVERIFY(!Why(dialog).isEmpty() && !Why(dialog).contains(u"hunter2"));
    Field(dialog, "token")->setText(QString::fromStdString("  " + token + "\n"));
    dialog.accept();
    QCOMPARE(dialog.result(), static_cast<int>(QDialog::Accepted));
    const Connection made = dialog.connection();
    const std::string& file = made.credentials.token_file;
    QCOMPARE(contexts::ReadToken(file).value_or(""), token);
    // Neither the settings nor the dialog has it.
    QVERIFY(Field(dialog, "token")->text().isEmpty());
    SettingsFile settings = SettingsFile::Load(folder_->filePath(QStringLiteral("settings.json")));
    settings.values.connections = {made};
    QVERIFY(settings.Save().ok());
    QFile saved(settings.path());
    QVERIFY(saved.open(QIODevice::ReadOnly));
    const QByteArray text = saved.readAll();
    QVERIFY(text.contains("token_file") && !text.contains(token.c_str()));
    const SettingsFile again = SettingsFile::Load(settings.path());
    QCOMPARE(again.values.connections.front().credentials, made.credentials);
    // Another token replaces it, and who removes the cluster leaves none behind.
    ConnectionDialog edit(made, {}, ContextsPath(), nullptr);
    Field(edit, "token")->setText(QString::fromStdString(token));
    edit.accept();
    QVERIFY(!QFile::exists(QString::fromStdString(file)));
    const std::string other = edit.connection().credentials.token_file;
    QCOMPARE(contexts::ReadToken(other).value_or(""), token);
    LocalCluster local(folder_->path());
    ConnectionsDialog list({edit.connection()}, ContextsPath(), local, nullptr);
    Button(list, "&Remove")->click();
    QVERIFY(!QFile::exists(QString::fromStdString(other)));
  }

  void Token_LogsIn() {
    testing::FakeIdentity fake(Path("node"));
    const auto token = identity::BearerToken::Generate();
    v1::IdentityTable table;
    table.set_epoch(1);
    v1::BearerToken* known = table.add_bearer_tokens();
    known->set_secret_hash(identity::HashOfSecret(token.secret));
    known->set_name("ci");
    known->set_tenant("films");
    known->set_scopes("read-own");
    known->set_expires_unix_ms(4'000'000'000'000);
    fake.door().Take(table);
    QVERIFY(contexts::KeepToken(Path("ci.token"), token.Format()).ok());
    MakeContexts(fake.address());
    testing::WindowOptions options;
    options.folder = folder_->path();
    TestWindow window(options);
    window->ConnectContext("ci");
    QTRY_COMPARE_WITH_TIMEOUT(Lock(window)->text(), QStringLiteral("principal/ci · films"),
                              kAnswerMs);
    QVERIFY(Lock(window)->toolTip().contains(u"by token"));
  }

 private:
  static session::ClusterAddress To(const FakeCluster& cluster) {
    return {.name = "grand-line", .nodemanagers = {cluster.address()}};
  }
  static bool IsLive(TestWindow& window) {
    return window->shown_cluster().link().link == session::Link::kLive;
  }
  static QPushButton* Button(const QDialog& dialog, const char* text) {
    for (auto* button : dialog.findChildren<QPushButton*>()) {
      if (button->text() == QString::fromUtf8(text)) return button;
    }
    return nullptr;
  }
  [[nodiscard]] std::string Path(const char* name) const {
    return folder_->filePath(QLatin1String(name)).toStdString();
  }
  [[nodiscard]] std::string ContextsPath() const { return Path("contexts.yaml"); }
  /// Writes two contexts: `ci` with a token, and `films` with a certificate that is gone.
  void MakeContexts(const std::string& address = "nm-1:7000") const {
    contexts::Contexts all;
    QVERIFY(all.Add({.name = "ci",
                     .nodemanagers = {address},
                     .credentials = {.authorities = Path("node/ca.pem"),
                                     .token_file = Path("ci.token")}})
                .ok());
    QVERIFY(all.Add({.name = "films",
                     .nodemanagers = {"nm-2:7000"},
                     .credentials = {.folder = Path("gone")}})
                .ok());
    QVERIFY(contexts::Save(ContextsPath(), all).ok());
  }

  std::unique_ptr<QTemporaryDir> folder_;
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiAppIdentityTest)
#include "identity_test.moc"
