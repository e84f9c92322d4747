// Tests of the pages "Databases", "NodeManager", "Alerts" and "Audit", and of the operations: their
// numbers are those of the snapshot and of the RPC.
#include <QAbstractItemModelTester>
#include <QApplication>
#include <QComboBox>
#include <QDateTimeEdit>
#include <QDialog>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QTableView>
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/history/alerts.h"
#include "cluster/history/recording.h"
#include "gui/models/alert_rows.h"
#include "gui/models/audit_rows.h"
#include "gui/models/database_rows.h"
#include "gui/models/operation_rows.h"
#include "gui/views/alerts.h"
#include "gui/views/audit.h"
#include "gui/views/databases.h"
#include "tests/gui/models/scene.h"
#include "tests/history/recordings.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

using testing::FakeCluster;
using testing::LiveLink;
using testing::Scene;
using testing::SceneOptions;

constexpr std::int64_t kListsMs = SceneOptions().at_ms;

/// The column with this header. -1 if there is none.
int ColumnOf(const QAbstractItemModel& model, const QString& title) {
  for (int column = 0; column < model.columnCount(); ++column) {
    if (model.headerData(column, Qt::Horizontal).toString() == title) return column;
  }
  return -1;
}

QString Text(const QAbstractItemModel& model, int row, const QString& title) {
  return model.index(row, ColumnOf(model, title)).data().toString();
}

QVariant Number(const QAbstractItemModel& model, int row, const QString& title) {
  return model.index(row, ColumnOf(model, title)).data(kSortRole);
}

QString HeadlineOf(const View& view) {
  return view.findChild<QLabel*>(view.id() + QStringLiteral(".headline"))->text();
}

QString NoteOf(const View& view) {
  return view.findChild<QLabel*>(view.id() + QStringLiteral(".note"))->text();
}

template <typename T>
session::Part<T> Now(T value) {
  return {std::make_shared<const T>(std::move(value)), kListsMs, {}};
}

std::shared_ptr<session::Snapshot> Copy(const Scene& scene) {
  return std::make_shared<session::Snapshot>(*scene.snapshot());
}

session::ReplicaEntry Replica(int number, v1::ReplicaStatus::Role role, std::uint64_t applied) {
  session::ReplicaEntry entry;
  entry.name = "r" + std::to_string(number);
  entry.address = "10.0.0.1:" + std::to_string(7000 + number);
  v1::ReplicaStatus& status = entry.status.emplace();
  status.set_cluster_id("pirates");
  status.set_name(entry.name);
  status.set_replica(static_cast<std::uint64_t>(number));
  status.set_role(role);
  status.set_health(v1::ReplicaStatus::OK);
  status.set_round(4);
  status.set_chosen(100);
  status.set_applied(applied);
  // Replicas with the same entries have the same state.
  status.set_state_hash(static_cast<std::uint32_t>(applied));
  for (int seat = 1; seat <= 3; ++seat) {
    auto& added = *status.mutable_members()->add_seats();
    added.set_name("r" + std::to_string(seat));
    added.set_replica(static_cast<std::uint64_t>(seat));
  }
  return entry;
}

session::Replicas Group() {
  return {Replica(1, v1::ReplicaStatus::FOLLOWER, 100), Replica(2, v1::ReplicaStatus::LEADER, 100),
          Replica(3, v1::ReplicaStatus::FOLLOWER, 88)};
}

session::Snapshot ReplicasAt(std::int64_t at_ms, session::Replicas replicas) {
  session::Snapshot snapshot;
  snapshot.at_ms = at_ms;
  snapshot.replicas = Now(std::move(replicas));
  return snapshot;
}

/// Stands in for the recorder's thread, which owns the rules' engine.
class Desk : public AlertDesk {
 public:
  explicit Desk(history::AlertEngine& engine) : engine_(engine) {}
  absl::Status Acknowledge(const std::string& id, const std::string& who) override {
    const base::MutexLock lock(mutex_);
    return engine_.Acknowledge(id, who);
  }
  absl::Status Silence(const std::string& id, std::int64_t until_ms,
                       const std::string& reason) override {
    const base::MutexLock lock(mutex_);
    return engine_.Silence(id, until_ms, reason);
  }
  session::Alerts alerts() {
    const base::MutexLock lock(mutex_);
    return engine_.alerts();
  }

 private:
  base::Mutex mutex_;
  history::AlertEngine& engine_ ABSL_GUARDED_BY(mutex_);
};

// A database with a number in every field, and three peers.
v1::Database BusyDatabase() {
  v1::Database database;
  database.set_node_id("database-1");
  database.set_records(1234);
  database.set_results(77);
  database.set_result_bytes(5 << 20);
  database.set_budget_bytes(20 << 20);
  database.set_memory_bytes(64 << 20);
  database.set_spilled_results(9);
  database.set_spilled_bytes(3 << 20);
  database.set_spill_budget_bytes(12 << 20);
  database.set_fetched(12);
  database.set_expired(3);
  database.set_deleted(1);
  database.set_evicted(2);
  database.set_refused(4);
  database.set_lost_on_restart(6);
  database.set_copies(2);
  for (const char* id : {"database-2", "database-3", "database-4"})
    database.add_peers()->set_node_id(id);
  for (int i = 0; i < 2; ++i) database.mutable_peers(i)->set_alive(true);
  database.mutable_peers(0)->mutable_compared_time()->set_seconds(1'700'000'000);
  database.mutable_peers(2)->set_waiting_records(30);
  database.mutable_peers(2)->set_waiting_results(5);
  return database;
}

}  // namespace

class GuiViewsListsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Databases_SayWhatIsKnownOfEach() {
    Scene scene;
    auto snapshot = Copy(scene);
    auto cluster = *snapshot->cluster.value;
    v1::Node& silent = *cluster.add_nodes();
    silent.set_node_id("database-9");
    silent.set_role(v1::DATABASE);
    silent.set_state(v1::Node::DEAD);
    silent.set_workflow_set("default");
    snapshot->cluster = Now(std::move(cluster));
    session::Databases databases = *snapshot->databases.value;
    databases[1].database.set_records(databases[0].database.records() - 5);
    databases[1].error = "UNAVAILABLE: connection reset";
    snapshot->databases = Now(databases);
    const auto rows = DatabaseRows(*snapshot);
    KeyedTable<DatabaseRow> table(DatabaseColumns(), [](const DatabaseRow& row) {
      return QString::fromStdString(row.node_id);
    });
    const QAbstractItemModelTester tester(&table);
    table.Update(rows, std::equal_to<DatabaseRow>());
    QCOMPARE(table.rowCount(), 3);
    QCOMPARE(Number(table, 0, QStringLiteral("Used")).toDouble(),
             static_cast<double>(databases[0].database.result_bytes()));
    QCOMPARE(table.index(0, ColumnOf(table, QStringLiteral("Used"))).data(kShareRole).toDouble(),
             0.3);
    QCOMPARE(Number(table, 1, QStringLiteral("Behind")).toDouble(), 5.0);
    QVERIFY(Text(table, 1, QStringLiteral("State")).contains(QStringLiteral("does not answer")));
    QVERIFY(Text(table, 1, QStringLiteral("Why not newer")).contains(QStringLiteral("reset")));
    // It has never answered, which is not 0.
    QCOMPARE(Text(table, 2, QStringLiteral("Records")), QStringLiteral("N/A"));
    QVERIFY(std::isnan(Number(table, 2, QStringLiteral("Records")).toDouble()));
    QVERIFY(Text(table, 2, QStringLiteral("State")).contains(QStringLiteral("lost")));
    const auto words = DatabasesInWords(rows);
    QVERIFY2(words.text.startsWith(QStringLiteral("1 of 3 answer")), qPrintable(words.text));
    QCOMPARE(words.tone, StatusTone::kWarning);
  }

  void Databases_NearlyFullIsSaid() {
    Scene scene;
    auto snapshot = Copy(scene);
    session::Databases databases = *snapshot->databases.value;
    databases[1].database.set_result_bytes(std::int64_t{19} << 29);
    snapshot->databases = Now(databases);
    const auto words = DatabasesInWords(DatabaseRows(*snapshot));
    QVERIFY2(words.text.contains(QStringLiteral("1 nearly full")), qPrintable(words.text));
    QCOMPARE(words.tone, StatusTone::kWarning);
  }

  void Databases_ShowTheRpcsNumbers() {
    FakeCluster cluster;
    cluster.SetUp(1);
    const v1::Database database = BusyDatabase();
    cluster.SetDatabase(database);
    ShownCluster shown_cluster;
    DatabasesView view(shown_cluster);
    view.show();
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"fake", {cluster.address()}, false}));
    QAbstractItemModel* rows = view.ExportModel();
    const QAbstractItemModelTester tester(rows);
    QTRY_COMPARE_WITH_TIMEOUT(Text(*rows, 0, QStringLiteral("Records")), QStringLiteral("1234"),
                              20'000);
    QCOMPARE(Text(*rows, 0, QStringLiteral("Results")), QStringLiteral("77"));
    QCOMPARE(Text(*rows, 0, QStringLiteral("Used")), QStringLiteral("5.0 MiB of 20.0 MiB"));
    QCOMPARE(rows->index(0, ColumnOf(*rows, QStringLiteral("Used"))).data(kShareRole).toDouble(),
             0.25);
    const auto tip = [&](const char* column) {
      return rows->index(0, ColumnOf(*rows, QString::fromUtf8(column)))
          .data(Qt::ToolTipRole)
          .toString();
    };
    QVERIFY(tip("Used").contains(QStringLiteral("64.0 MiB")));
    QCOMPARE(Text(*rows, 0, QStringLiteral("On disk")), QStringLiteral("3.0 MiB of 12.0 MiB"));
    QVERIFY(tip("On disk").contains(QStringLiteral("9 results")));
    QCOMPARE(Text(*rows, 0, QStringLiteral("Gone")), QStringLiteral("12 / 3 / 1"));
    QCOMPARE(Text(*rows, 0, QStringLiteral("Losses")),
             QStringLiteral("2 evicted, 4 refused, 6 lost"));
    QCOMPARE(Text(*rows, 0, QStringLiteral("Peers")),
             QStringLiteral("1 alike, 1 not compared, 1 away, 35 wait"));
    QVERIFY(tip("Peers").contains(QStringLiteral("2 copies")));
    QVERIFY(tip("Peers").contains(QStringLiteral("database-2 alike at")));
    QVERIFY(tip("Peers").contains(QStringLiteral("database-3 not compared yet")));
    QVERIFY(tip("Peers").contains(
        QStringLiteral("database-4 is away; 30 records and 5 results wait for it")));
    // A database without losses says so.
    v1::Database calm;
    calm.set_node_id("database-1");
    cluster.SetDatabase(calm);
    QTRY_COMPARE_WITH_TIMEOUT(Text(*rows, 0, QStringLiteral("Losses")), QStringLiteral("none"),
                              20'000);
    QCOMPARE(Text(*rows, 0, QStringLiteral("On disk")), QStringLiteral("off"));
    QCOMPARE(Text(*rows, 0, QStringLiteral("Peers")), QStringLiteral("none"));
    cluster.SetDatabase(database);
    QTRY_COMPARE_WITH_TIMEOUT(Text(*rows, 0, QStringLiteral("Records")), QStringLiteral("1234"),
                              20'000);
    // After the connection is lost, the numbers stay and the reason is shown.
    cluster.Stop();
    QTRY_VERIFY_WITH_TIMEOUT(
        !Text(*rows, 0, QStringLiteral("Why not newer")).isEmpty() || !NoteOf(view).isEmpty(),
        20'000);
    QCOMPARE(Text(*rows, 0, QStringLiteral("Records")), QStringLiteral("1234"));
    shown_cluster.Follow(nullptr);
  }

  void Replicas_InWords() {
    ReplicaWatch watch;
    auto news = watch.See(ReplicasAt(kListsMs, Group()));
    QVERIFY2(news.headline.text.contains(QStringLiteral("3 of 3 answer; r2 leads since")),
             qPrintable(news.headline.text));
    QVERIFY2(news.headline.text.contains(QStringLiteral("or before")),
             qPrintable(news.headline.text));
    QVERIFY2(news.headline.text.contains(QStringLiteral("the slowest is 12 entries behind")),
             qPrintable(news.headline.text));
    QCOMPARE(news.leader_address, std::string("10.0.0.1:7002"));
    QCOMPARE(news.headline.tone, StatusTone::kGood);
    // Another replica leads now. That counts as an election, and the time since when it leads is
    // known.
    session::Replicas next = Group();
    next[0].status->set_role(v1::ReplicaStatus::LEADER);
    next[1].status->set_role(v1::ReplicaStatus::FOLLOWER);
    for (auto& replica : next) replica.status->set_round(5);
    news = watch.See(ReplicasAt(kListsMs + 60'000, next));
    QVERIFY2(news.headline.text.contains(QStringLiteral("r1 leads since ") +
                                         FormatTime(kListsMs + 60'000, kListsMs)),
             qPrintable(news.headline.text));
    QVERIFY2(news.headline.text.contains(QStringLiteral("1 elections seen")),
             qPrintable(news.headline.text));
    QVERIFY(!news.headline.text.contains(QStringLiteral("or before")));
  }

  void Replicas_ALostQuorumIsLoud() {
    session::Replicas replicas = Group();
    for (const int i : {0, 1}) {
      replicas[static_cast<std::size_t>(i)].status.reset();
      replicas[static_cast<std::size_t>(i)].error = "UNAVAILABLE: connect failed";
    }
    ReplicaWatch watch;
    const auto news = watch.See(ReplicasAt(kListsMs, replicas));
    QVERIFY2(news.headline.text.startsWith(QStringLiteral("QUORUM LOST: 1 of 3 answer, 2 are")),
             qPrintable(news.headline.text));
    QCOMPARE(news.headline.tone, StatusTone::kBad);
    QVERIFY(!news.advice.isEmpty());
    const auto rows = ReplicaRows(replicas);
    QCOMPARE(rows[0].role, QStringLiteral("unreachable"));
    QVERIFY(rows[0].detail.contains(QStringLiteral("connect failed")));
    QVERIFY(!rows[0].behind.has_value());
    QCOMPARE(*rows[2].behind, std::uint64_t{12});
  }

  void Replicas_CommandsAskFirst() {
    FakeCluster cluster;
    cluster.SetUp(0);
    v1::ReplicaStatus status = *Replica(1, v1::ReplicaStatus::LEADER, 100).status;
    status.set_name("nodemanager-1");
    status.mutable_members()->clear_seats();
    auto& seat = *status.mutable_members()->add_seats();
    seat.set_name("nodemanager-1");
    seat.set_address(cluster.address());
    seat.set_replica(1);
    cluster.SetReplica(status);
    ShownCluster shown_cluster;
    ReplicasView view(shown_cluster);
    QSignalSpy told(&view, &View::Told);
    view.show();
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"fake", {cluster.address()}, false}));
    QTRY_VERIFY_WITH_TIMEOUT(
        HeadlineOf(view).contains(QStringLiteral("1 of 1 answer; nodemanager-1 leads")), 20'000);
    QTRY_COMPARE_WITH_TIMEOUT(shown_cluster.link().link, session::Link::kLive, 20'000);
    shown_cluster.SetMode(ControlMode::kControl);
    for (Command& command : view.Commands()) {
      QVERIFY(command.changes_cluster);
      QVERIFY(command.cli.startsWith(QStringLiteral("onepiece cluster ")));
      command.run();
      auto* dialog = view.findChild<QDialog*>(QStringLiteral("confirm"));
      QVERIFY(dialog != nullptr);
      dialog->findChild<QPushButton*>(QStringLiteral("confirm.yes"))->click();
      const int before = static_cast<int>(told.count());
      QTRY_VERIFY_WITH_TIMEOUT(told.count() > before || told.count() == 2, 20'000);
      QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
    }
    QCOMPARE(cluster.calls("StepDown"), 1);
    QCOMPARE(cluster.calls("TakeSnapshot"), 1);
    QCOMPARE(shown_cluster.operations().all().size(), std::size_t{2});
    QVERIFY(shown_cluster.operations().all()[0].outcome.ok());
    QVERIFY(shown_cluster.operations().all()[1].what.contains(QStringLiteral("nodemanager-1")));
    shown_cluster.Follow(nullptr);
  }

  void Alerts_StatesAreToldApart() {
    Scene scene;
    const auto rows = AlertRows(*scene.snapshot()->alerts.value, kListsMs);
    const AlertCounts counts = CountAlerts(rows);
    QCOMPARE(counts.firing, 2);
    QCOMPARE(counts.critical, 1);
    QCOMPARE(counts.pending, 1);
    QCOMPARE(counts.no_data, 1);
    QCOMPARE(counts.resolved, 1);
    QCOMPARE(ToneOf(counts), StatusTone::kBad);
    QSet<QString> words;
    for (const AlertRow& row : rows) words.insert(row.state);
    QCOMPARE(words.size(), 4);
    KeyedTable<AlertRow> table(
        AlertColumns(), [](const AlertRow& row) { return QString::fromStdString(row.alert.id); });
    const QAbstractItemModelTester tester(&table);
    table.Update(rows, std::equal_to<AlertRow>());
    QCOMPARE(Number(table, 0, QStringLiteral("Value")).toDouble(), 12.0);
    QCOMPARE(Number(table, 0, QStringLiteral("Threshold")).toDouble(), 5.0);
    QCOMPARE(Text(table, 1, QStringLiteral("Seen by")), QStringLiteral("ada"));
  }

  void Alerts_SilencedOnesAreNotCountedUntilTheEnd() {
    Scene scene;
    session::Alerts alerts = *scene.snapshot()->alerts.value;
    alerts[0].silenced_until_ms = kListsMs + 60'000;
    alerts[0].silence_reason = "known";
    auto rows = AlertRows(alerts, kListsMs);
    QCOMPARE(CountAlerts(rows).firing, 1);
    QCOMPARE(CountAlerts(rows).silenced, 1);
    QVERIFY(!rows[0].silenced);
    QVERIFY(rows[1].silence.contains(QStringLiteral("known")));
    rows = AlertRows(alerts, kListsMs + 60'001);
    QCOMPARE(CountAlerts(rows).firing, 2);
  }

  void Alerts_BadgeFollowsWhileHidden() {
    Scene scene;
    ShownCluster shown_cluster;
    AlertsView view(shown_cluster);  // Never shown.
    QSignalSpy badge(&view, &View::Badge);
    shown_cluster.Show(scene.snapshot(), LiveLink());
    QCOMPARE(badge.count(), 1);
    QCOMPARE(badge.last()[0].toString(), QStringLiteral("2"));
    auto next = Copy(scene);
    next->alerts = Now(session::Alerts{});
    shown_cluster.Show(next, LiveLink());
    QCOMPARE(badge.last()[0].toString(), QString());
  }

  void Alerts_AcknowledgeAndSilenceReachTheEngine() {
    // The dialog offers times by the clock, so the scene must be at the present time.
    const std::int64_t now_ms = QDateTime::currentMSecsSinceEpoch();
    Scene scene({.at_ms = now_ms});
    auto snapshot = Copy(scene);
    auto cluster = *snapshot->cluster.value;
    cluster.mutable_nodes(0)->set_state(v1::Node::DEAD);
    snapshot->cluster = {std::make_shared<const v1::Cluster>(std::move(cluster)), now_ms, {}};
    history::Rule rule;
    rule.name = rule.watches = "node-dead";
    rule.text = "{entity} is dead";
    history::AlertEngine engine({rule});
    engine.Evaluate(*snapshot, LiveLink(now_ms));
    QCOMPARE(engine.alerts().size(), std::size_t{1});
    const auto desk = std::make_shared<Desk>(engine);
    snapshot->alerts = Now(desk->alerts());
    ShownCluster shown_cluster;
    AlertsView view(shown_cluster);
    view.show();
    shown_cluster.Show(snapshot, LiveLink());
    const auto button = [&](const QString& text) {
      for (auto* one : view.findChildren<QPushButton*>()) {
        if (one->text() == text) return one;
      }
      return static_cast<QPushButton*>(nullptr);
    };
    auto* acknowledge = button(QStringLiteral("Acknowledge"));
    // Without a desk, as in a recording, nothing can be acknowledged.
    QVERIFY(!acknowledge->isEnabled());
    QVERIFY(acknowledge->toolTip().contains(QStringLiteral("recording")));
    shown_cluster.SetDesk(desk);
    view.Focus(QStringLiteral("alert/") + QString::fromStdString(engine.alerts()[0].id));
    QTRY_VERIFY(acknowledge->isEnabled());
    acknowledge->click();
    QTRY_VERIFY(!desk->alerts()[0].acknowledged_by.empty());
    QVERIFY(desk->alerts()[0].acknowledged_by.starts_with("operator:"));
    // A silence needs a reason and an end.
    button(QStringLiteral("Silence…"))->click();
    auto* dialog = view.findChild<QDialog*>(QStringLiteral("silence"));
    QVERIFY(dialog != nullptr);
    auto* yes = dialog->findChild<QPushButton*>(QStringLiteral("silence.yes"));
    QVERIFY(!yes->isEnabled());
    dialog->findChild<QLineEdit*>(QStringLiteral("silence.reason"))
        ->setText(QStringLiteral("being repaired"));
    QVERIFY(yes->isEnabled());
    auto* length = dialog->findChild<QComboBox*>();
    length->setCurrentIndex(length->count() - 1);
    dialog->findChild<QDateTimeEdit*>()->setDateTime(QDateTime::currentDateTime().addSecs(-5));
    QVERIFY(!yes->isEnabled());
    length->setCurrentIndex(0);
    QVERIFY(yes->isEnabled());
    yes->click();
    QTRY_VERIFY(desk->alerts()[0].silenced_until_ms > now_ms);
    QCOMPARE(desk->alerts()[0].silence_reason, std::string("being repaired"));
    // In the past an alert can only be looked at.
    shown_cluster.Pause();
    QVERIFY(!acknowledge->isEnabled());
  }

  void Alerts_EnterOpensWhatItIsAbout() {
    Scene scene;
    ShownCluster shown_cluster;
    AlertsView view(shown_cluster);
    QSignalSpy wanted(&view, &View::Wanted);
    view.show();
    shown_cluster.Show(scene.snapshot(), LiveLink());
    const session::Alert& alert = scene.snapshot()->alerts.value->front();
    view.Focus(QStringLiteral("alert/") + QString::fromStdString(alert.id));
    QTest::keyClick(view.findChild<QTableView*>(), Qt::Key_Return);
    QCOMPARE(wanted.count(), 1);
    QCOMPARE(wanted[0][1].toString(), QString::fromStdString(alert.entity));
  }

  // "Show when it began" takes all pages to half a minute before the alert, and opens its entity.
  void Alerts_ShowWhenItBegan() {
    constexpr std::int64_t kStart = history::kStart;
    session::Alerts alerts;
    for (const auto& [id, entity, second] :
         {std::tuple("a", "node/instance-1", 70), {"b", "cluster", 10}, {"c", "node/x", -100}}) {
      session::Alert alert;
      alert.id = id;
      alert.entity = entity;
      alert.state = session::Alert::State::kFiring;
      alert.since_ms = kStart + 1000 * second;
      alerts.push_back(alert);
    }
    const QTemporaryDir folder;
    const std::string path = folder.filePath(QStringLiteral("a.onepiece-recording")).toStdString();
    session::Snapshot snapshot;
    {
      auto recorder = history::OpenRecorder(path);
      for (int tick = 0; tick < 100; ++tick) {
        snapshot = history::SnapshotAt(tick);
        snapshot.alerts = history::PartOf(alerts, snapshot.at_ms);
        QVERIFY(recorder->Record(snapshot, history::kLiveLink).ok());
      }
    }
    ShownCluster shown_cluster;
    AlertsView view(shown_cluster);
    QSignalSpy wanted(&view, &View::Wanted);
    view.show();
    QPushButton* began = nullptr;
    for (auto* one : view.findChildren<QPushButton*>()) {
      if (one->text() == QStringLiteral("Show when it began")) began = one;
    }
    QVERIFY(began != nullptr);
    shown_cluster.Show(std::make_shared<const session::Snapshot>(snapshot),
                       LiveLink(snapshot.at_ms));
    view.Focus(QStringLiteral("alert/a"));
    // Without a recording there is no past to show.
    QTRY_COMPARE(began->toolTip(), QStringLiteral("Nothing is being recorded."));
    QVERIFY(!began->isEnabled());
    shown_cluster.SetRecording(*history::Recording::Open(path));
    const auto show = [&](const char* entity) {
      shown_cluster.GoLive();  // To the end of the recording.
      QCOMPARE(shown_cluster.viewing_ms(), snapshot.at_ms);
      view.Focus(QLatin1String(entity));
      QTRY_VERIFY(began->isEnabled());
      wanted.clear();
      began->click();
    };
    show("alert/a");
    QCOMPARE(shown_cluster.viewing_ms(), kStart + 40'000);
    QCOMPARE(shown_cluster.snapshot()->at_ms, kStart + 40'000);
    QCOMPARE(wanted.count(), 1);
    QCOMPARE(wanted[0][1].toString(), QStringLiteral("node/instance-1"));
    // The recording begins less than half a minute before the alert, so the alert's own beginning
    // is shown. An alert of the cluster opens the page of the replicas.
    show("alert/b");
    QCOMPARE(shown_cluster.viewing_ms(), kStart + 10'000);
    QCOMPARE(wanted[0][0].toString(), QStringLiteral("replicas"));
    QCOMPARE(wanted[0][1].toString(), QString());
    // The alert began before the recording. The page says so, and the shown instant stays.
    show("alert/c");
    QCOMPARE(shown_cluster.viewing_ms(), snapshot.at_ms);
    QCOMPARE(wanted.count(), 0);
    auto* failure = view.findChild<QDialog*>(QStringLiteral("failure"));
    QVERIFY(failure != nullptr);
    failure->reject();
  }

  void Audit_SaysWhoWhatAndWhy_data() {
    QTest::addColumn<QString>("action");
    QTest::addColumn<QString>("subject");
    QTest::addColumn<QString>("detail");
    QTest::addColumn<QString>("who");
    QTest::addColumn<QString>("rest");
    QTest::addColumn<QString>("entity");
    const auto row = [](const char* name, const char* action, const char* subject,
                        const char* detail, const char* who, const char* rest, const char* entity) {
      QTest::newRow(name) << action << subject << detail << who << rest << entity;
    };
    row("a reason", "start_plan", "7f", "operator:ada: more: diffusion", "operator:ada",
        "more: diffusion", "plan/7f");
    row("no reason", "confirm_plan", "7f", "operator:ada", "operator:ada", "", "plan/7f");
    row("limits", "set_pool_limits", "default diffusion/wan", "2 to 6, operator:ada: night",
        "operator:ada", "2 to 6: night", "pool/default/diffusion/wan");
    row("by itself", "register_node", "instance-8", "INSTANCE incarnation 3", "",
        "INSTANCE incarnation 3", "node/instance-8");
    row("a move", "advance_move", "7f", "instance-1 DONE", "", "instance-1 DONE", "plan/7f");
    row("of nothing", "set_hold", "off", "policy:x: y", "policy:x", "y", "");
  }
  void Audit_SaysWhoWhatAndWhy() {
    QFETCH(QString, action);
    QFETCH(QString, subject);
    QFETCH(QString, detail);
    v1::AuditEntry entry;
    entry.set_action(action.toStdString());
    entry.set_subject(subject.toStdString());
    entry.set_detail(detail.toStdString());
    const auto rows = AuditRows({entry});
    QTEST(rows[0].who, "who");
    QTEST(rows[0].detail, "rest");
    QTEST(rows[0].entity, "entity");
  }

  void Columns_ShowEverythingWhereThereIsRoom() {
    Scene scene;
    ShownCluster shown_cluster;
    AuditView view(shown_cluster);
    shown_cluster.Show(scene.snapshot(), LiveLink());
    const auto* table = view.findChild<QTableView*>();
    const QHeaderView* header = table->horizontalHeader();
    const int last = header->count() - 1;
    const int text =
        table->fontMetrics().horizontalAdvance(QStringLiteral("diffusion is the bottleneck"));
    // In a small window the list scrolls, and the last column stays wide enough to read.
    view.resize(500, 400);
    view.show();
    QTRY_VERIFY(header->length() > table->viewport()->width());
    QVERIFY(header->sectionSize(last) > text);
    view.resize(2400, 400);
    QTRY_COMPARE(header->length(), table->viewport()->width());
    QVERIFY(header->sectionSize(last) > text);
    view.resize(500, 400);
    QTRY_VERIFY(header->length() > table->viewport()->width());
    QVERIFY(header->sectionSize(last) > text);
  }

  void Audit_NewestFirstFilteredAndBounded() {
    Scene scene({.audit = 1000});
    ShownCluster shown_cluster;
    AuditView view(shown_cluster);
    QSignalSpy wanted(&view, &View::Wanted);
    view.show();
    shown_cluster.Show(scene.snapshot(), LiveLink());
    QAbstractItemModel* rows = view.ExportModel();
    const QAbstractItemModelTester tester(rows);
    QCOMPARE(rows->rowCount(), 1000);
    QVERIFY(HeadlineOf(view).contains(QStringLiteral("The last 1000")));
    QVERIFY(Number(*rows, 0, QStringLiteral("When")).toLongLong() >
            Number(*rows, 999, QStringLiteral("When")).toLongLong());
    view.SetFilter(QStringLiteral("set_pool_limits"));
    QCOMPARE(rows->rowCount(), 200);
    QTest::keyClick(view.findChild<QTableView*>(), Qt::Key_Down);
    QTest::keyClick(view.findChild<QTableView*>(), Qt::Key_Return);
    QCOMPARE(wanted.last()[1].toString(), QStringLiteral("pool/default/diffusion/wan/wan-14b"));
  }

  void Operations_PlansAndWhatWasAsked() {
    session::Snapshot snapshot;
    snapshot.at_ms = kListsMs;
    v1::Elasticity elasticity;
    v1::Plan& plan = *elasticity.add_plans();
    plan.set_plan_id("7f01");
    plan.set_state(v1::Plan::RUNNING);
    plan.set_actor("operator:ada");
    for (const auto phase : {v1::Move::DONE, v1::Move::DRAINING, v1::Move::PENDING}) {
      v1::Move& move = *plan.add_moves();
      move.set_node_id("instance-" + std::to_string(plan.moves_size()));
      move.set_phase(phase);
    }
    snapshot.elasticity = Now(std::move(elasticity));
    OperationLog log;
    const int first = log.Begin(QStringLiteral("Cancel 3 jobs"));
    const int second = log.Begin(QStringLiteral("Export x"));
    log.Note(second, QStringLiteral("42 %"));
    log.End(first, absl::NotFoundError("gone"));
    const auto rows = OperationRows(snapshot, log.all());
    QCOMPARE(rows.size(), std::size_t{3});
    QVERIFY2(rows[0].progress.startsWith(QStringLiteral("1 of 3 moves done, instance-2 draining")),
             qPrintable(rows[0].progress));
    QCOMPARE(*rows[0].share, 1.0 / 3);
    QCOMPARE(rows[0].who, QStringLiteral("operator:ada"));
    QCOMPARE(rows[1].progress, QStringLiteral("42 %"));
    QCOMPARE(rows[2].state, QStringLiteral("failed"));
    QVERIFY(rows[2].progress.contains(QStringLiteral("gone")));
    // The list is bounded, but an operation under way stays.
    for (std::size_t i = 0; i < OperationLog::kMax + 10; ++i) {
      log.End(log.Begin(QString::number(i)), absl::OkStatus());
    }
    QCOMPARE(log.all().size(), OperationLog::kMax);
    QVERIFY(
        std::ranges::any_of(log.all(), [&](const Operation& one) { return one.number == second; }));
  }

  void Pages_TakeHostileTexts() {
    Scene scene({.audit = 40, .alerts = 40, .hostile = true});
    ShownCluster shown_cluster;
    DatabasesView databases(shown_cluster);
    ReplicasView replicas(shown_cluster);
    AlertsView alerts(shown_cluster);
    AuditView audit(shown_cluster);
    for (View* view : std::initializer_list<View*>{&databases, &replicas, &alerts, &audit}) {
      view->show();
      shown_cluster.Show(scene.snapshot(), LiveLink());
      const QAbstractItemModel& rows = *view->ExportModel();
      QVERIFY(rows.rowCount() > 0);
      for (int row = 0; row < rows.rowCount(); ++row) {
        for (int column = 0; column < rows.columnCount(); ++column) {
          const QString text = rows.index(row, column).data().toString();
          QVERIFY(!text.contains(QChar(0x202e)) && !text.contains(u'\n'));
          QVERIFY(text.size() < 1000);
        }
      }
    }
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiViewsListsTest)
#include "lists_test.moc"
