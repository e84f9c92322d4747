// Tests of the page "Rebalance", on a real session with a fake cluster, and on snapshots that the
// test makes.
#include "gui/views/rebalance.h"

#include <QAbstractItemModelTester>
#include <QAction>
#include <QApplication>
#include <QComboBox>
#include <QDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListView>
#include <QMenu>
#include <QMessageBox>
#include <QMimeData>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTableView>
#include <QToolButton>
#include <QtTest>

#include "cluster/base/status.h"
#include "gui/models/keyed_table.h"
#include "gui/views/prompts.h"
#include "tests/gui/models/predictions.h"
#include "tests/gui/models/scene.h"
#include "tests/session/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

const std::string kEncode = "encode/wan/tiny", kDit = "dit/wan/tiny";

v1::Node PoolInstance(const std::string& id, const std::string& pool,
                      std::uint64_t incarnation = 1) {
  v1::Node node;
  node.set_node_id(id);
  node.set_role(v1::INSTANCE);
  node.set_state(v1::Node::READY);
  node.set_incarnation(incarnation);
  node.set_workflow_set("default");
  node.mutable_placement()->set_pool(pool);
  node.mutable_placement()->set_workflow_set("default");
  return node;
}

void Fill(testing::FakeCluster& fake) {
  fake.SetUp(0);
  // Instances 1 and 2 are in encode, 3 and 4 in dit, 5 is idle.
  for (const char* id : {"instance-1", "instance-2"}) fake.SetNode(PoolInstance(id, kEncode));
  for (const char* id : {"instance-3", "instance-4"}) fake.SetNode(PoolInstance(id, kDit));
  fake.SetNode(PoolInstance("instance-5", ""));
  v1::Elasticity elasticity;
  elasticity.set_plan_revision(7);
  elasticity.set_policy("utilization");
  elasticity.set_window_s(300);
  for (const std::string& id : {kEncode, kDit}) {
    v1::PoolStatus& pool = *elasticity.add_pools();
    pool.set_workflow_set("default");
    pool.set_pool(id);
    pool.set_min_instances(1);
    pool.add_app_ids("wan-t2v");
  }
  fake.SetElasticity(elasticity);
  fake.SetPrediction(testing::MakePrediction(kDit, 2));
}

/// A page that follows a fake cluster, unlocked.
struct RebalancePage {
  testing::FakeCluster fake;
  ShownCluster shown_cluster;
  std::unique_ptr<RebalanceView> view;

  explicit RebalancePage(bool production = false,
                         base::Duration poll_interval = std::chrono::milliseconds(100)) {
    Fill(fake);
    Open(production, poll_interval);
  }
  void Open(bool production, base::Duration poll_interval) {
    session::SessionOptions options;
    options.poll_interval = poll_interval;
    options.telemetry_interval = std::chrono::milliseconds(200);
    shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"test-a", {fake.address()}, production}, options));
    shown_cluster.SetMode(ControlMode::kControl);
    view = std::make_unique<RebalanceView>(shown_cluster);
    view->resize(1200, 800);
    view->show();
  }
  [[nodiscard]] bool ready() const {
    return cards("dit/wan/tiny") != nullptr && cards("dit/wan/tiny")->model()->rowCount() > 0 &&
           cards("idle") != nullptr && cards("idle")->model()->rowCount() > 0 &&
           shown_cluster.WhyNoChange().isEmpty();
  }
  [[nodiscard]] QListView* cards(const char* pool) const {
    return view->findChild<QListView*>(QStringLiteral("cards.") + QLatin1String(pool));
  }
  /// "instance-3 instance-4"
  [[nodiscard]] QString names(const char* pool) const {
    QStringList names;
    for (int row = 0; row < cards(pool)->model()->rowCount(); ++row)
      names << cards(pool)->model()->index(row, 0).data().toString();
    return names.join(u' ');
  }
  [[nodiscard]] QPushButton* button(const char* name) const {
    return view->findChild<QPushButton*>(QLatin1String(name));
  }
  [[nodiscard]] QString note() const {
    return view->findChild<QLabel*>(QStringLiteral("draft.note"))->text();
  }
  /// Column `column` of the row of `table` whose first cell is `first`.
  [[nodiscard]] QString cell(const char* table, const char* first, int column) const {
    const auto* view_of =
        view->findChild<QTableView*>(QStringLiteral("table.") + QLatin1String(table));
    for (int row = 0; row < view_of->model()->rowCount(); ++row) {
      const QModelIndex index = view_of->model()->index(row, 0);
      if (index.data().toString() == QString::fromUtf8(first))
        return index.siblingAtColumn(column).data().toString();
    }
    return {};
  }
  [[nodiscard]] QString strip(const QString& plan_id) const {
    const auto* frame = view->findChild<QFrame*>(QStringLiteral("strip.") + plan_id);
    return frame == nullptr ? QString() : frame->findChild<QLabel*>()->text();
  }
  [[nodiscard]] QPushButton* of_strip(const QString& plan_id, const char* name) const {
    return view->findChild<QFrame*>(QStringLiteral("strip.") + plan_id)
        ->findChild<QPushButton*>(QLatin1String(name));
  }
  /// Moves an instance by keys alone: focus on its card, M, the entry of the menu.
  void MoveByKeys(const char* from, int row, const char* entry) const {
    cards(from)->setFocus();
    cards(from)->setCurrentIndex(cards(from)->model()->index(row, 0));
    QTest::keyClick(cards(from), Qt::Key_M);
    auto* menu = view->findChild<QMenu*>(QStringLiteral("card.menu"));
    QVERIFY(menu != nullptr);
    for (QAction* action : menu->actions()) {
      if (action->text() == QLatin1String(entry)) action->trigger();
    }
    menu->close();
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
  }
  void Drop(const char* node_id, const char* pool) const {
    QMimeData mime;
    mime.setData(QLatin1String(PoolColumns::kMimeType), node_id);
    QWidget* to = cards(pool)->viewport();
    QDragEnterEvent enter(QPoint(5, 5), Qt::MoveAction, &mime, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(to, &enter);
    QDropEvent drop(QPointF(5, 5), Qt::MoveAction, &mime, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(to, &drop);
    QVERIFY(drop.isAccepted());
  }
  [[nodiscard]] QDialog* dialog() const {
    return view->findChild<QDialog*>(QStringLiteral("confirm"));
  }
  /// Answers the dialog that asks.
  void Yes(const QString& reason, const QString& name = {}) const {
    QTRY_VERIFY(dialog() != nullptr);
    const auto fields = dialog()->findChildren<QLineEdit*>();
    if (!fields.isEmpty()) fields[0]->setText(reason);
    if (fields.size() > 1) fields[1]->setText(name);
    auto* yes = dialog()->findChild<QPushButton*>(QStringLiteral("confirm.yes"));
    QVERIFY2(yes->isEnabled(), qPrintable(yes->text()));
    yes->click();
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
    QTRY_VERIFY(dialog() == nullptr);
  }
  /// Moves instance-1 by keys and instance-5 by a drop, both to dit, and asks the server what that
  /// would do.
  void ComposeAndAsk() const {
    MoveByKeys("encode/wan/tiny", 0, "Move to dit/wan/tiny");
    Drop("instance-5", "dit/wan/tiny");
    QCOMPARE(names("dit/wan/tiny"), QStringLiteral("instance-1 instance-3 instance-4 instance-5"));
    button("draft.ask")->click();
    QTRY_VERIFY(!cell("Predicted effect", "Throughput of wan-t2v", 2).isEmpty());
  }
  void Apply(const QString& reason) const {
    QVERIFY2(button("draft.apply")->isEnabled(), qPrintable(button("draft.apply")->toolTip()));
    button("draft.apply")->click();
    Yes(reason, QStringLiteral("test-a"));
  }
};

#define READY(page) QTRY_VERIFY_WITH_TIMEOUT((page).ready(), 20'000)

// The page shows what the RPC answers.
void VerifyThroughputIsTheRpcs(RebalancePage& page) {
  client::ClientOptions options;
  options.nodemanagers = {page.fake.address()};
  v1::ProposePlanRequest same;
  for (const char* id : {"instance-1", "instance-5"}) same.add_moves()->set_node_id(id);
  const auto said = client::Client(options).ProposePlan(same);
  QVERIFY(said.ok());
  const v1::Estimate& after = said->prediction().apps(0).throughput_after();
  QCOMPARE(page.cell("Predicted effect", "Throughput of wan-t2v", 2),
           QStringLiteral("%1 (%2 to %3)")
               .arg(FormatRate(after.value()), FormatRate(after.low()).chopped(2),
                    FormatRate(after.high()).chopped(2)));
}

// The plan that RebalancePage::ComposeAndAsk() drafts, as the cluster gets it.
void VerifySent(const v1::ApplyPlanRequest& sent) {
  QCOMPARE(sent.moves_size(), 2);
  QCOMPARE(sent.moves(0).node_id(), std::string("instance-1"));
  QCOMPARE(sent.moves(0).to().pool(), kDit);
  QCOMPARE(sent.moves(1).node_id(), std::string("instance-5"));
  QCOMPARE(sent.moves(1).to().pool(), kDit);
  QCOMPARE(sent.base_revision(), std::uint64_t{7});
  QCOMPARE(sent.actor(), Actor());
  QCOMPARE(sent.reason(), std::string("dit is too busy"));
  QCOMPARE(sent.confirm_within_s(), 300);
  QCOMPARE(sent.request_id().size(), std::size_t{36});
}

}  // namespace

class GuiRebalanceViewTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Plan_FromDraftToUndo() {
    RebalancePage page;
    READY(page);
    QSignalSpy drafts(page.view.get(), &RebalanceView::DraftChanged);
    QCOMPARE(page.names("encode/wan/tiny"), QStringLiteral("instance-1 instance-2"));
    QVERIFY(!page.button("draft.apply")->isEnabled());
    page.ComposeAndAsk();
    QVERIFY(drafts.count() >= 3);
    QCOMPARE(page.view->draft()->moves_size(), 2);
    // The card that leaves is still visible where it was.
    QCOMPARE(page.names("encode/wan/tiny"), QStringLiteral("instance-1 instance-2"));
    VerifyThroughputIsTheRpcs(page);
    QCOMPARE(page.cell("Predicted effect", "ρ of dit/wan/tiny", 1),
             QStringLiteral("120 % (110 to 130)"));
    QCOMPARE(page.cell("Draft", "instance-1", 1), QStringLiteral("encode/wan/tiny → dit/wan/tiny"));
    QCOMPARE(page.cell("Draft", "instance-1", 2), QStringLiteral("tiny, for wan-t2v"));
    QCOMPARE(page.fake.calls("ApplyPlan"), 0);

    // Half of a pool stops serving, so the cluster's name and a reason must be typed.
    page.button("draft.apply")->click();
    QTRY_VERIFY(page.dialog() != nullptr);
    auto* yes = page.dialog()->findChild<QPushButton*>(QStringLiteral("confirm.yes"));
    QCOMPARE(yes->text(), QStringLiteral("Apply 2 moves"));
    QVERIFY(!yes->isEnabled());
    QCOMPARE(page.dialog()->findChildren<QLineEdit*>().size(), 2);
    page.dialog()->findChildren<QLineEdit*>()[0]->setText(QStringLiteral("dit is too busy"));
    QVERIFY(!yes->isEnabled());
    page.Yes(QStringLiteral("dit is too busy"), QStringLiteral("test-a"));

    QTRY_COMPARE(page.fake.plans().applied.size(), std::size_t{1});
    VerifySent(page.fake.plans().applied[0]);

    const QString id = QStringLiteral("plan-1");
    QTRY_VERIFY(page.strip(id).contains(QStringLiteral("0 of 2 moves done, instance-1 pending")));
    QTRY_VERIFY(page.view->draft() == nullptr);
    page.fake.FinishPlan("plan-1");
    QTRY_VERIFY(page.strip(id).contains(QStringLiteral("goes back by itself in 4 m 5")));
    QTRY_COMPARE(page.names("encode/wan/tiny"), QStringLiteral("instance-2"));
    page.of_strip(id, "keep")->click();
    page.Yes({});
    QTRY_COMPARE(page.fake.plans().decided.size(), std::size_t{1});
    QCOMPARE(page.fake.plans().decided[0].plan_id(), std::string("plan-1"));
    QTRY_VERIFY(page.strip(id).isEmpty());

    page.view->Focus(QStringLiteral("plan/plan-1"));
    QTRY_VERIFY(page.button("plan.undo")->isEnabled());
    QVERIFY(page.button("plan.undo")
                ->text()
                .startsWith(QStringLiteral("Revert to the assignment of ")));
    page.button("plan.undo")->click();
    page.Yes(QStringLiteral("it did not help"), QStringLiteral("test-a"));
    QTRY_COMPARE(page.fake.plans().decided.size(), std::size_t{2});
    QCOMPARE(page.fake.plans().decided[1].reason(), std::string("it did not help"));
    QTRY_VERIFY(!page.strip(QStringLiteral("plan-2")).isEmpty());
    page.fake.FinishPlan("plan-2");
    QTRY_COMPARE(page.names("encode/wan/tiny"), QStringLiteral("instance-1 instance-2"));
    QTRY_VERIFY(
        page.button("plan.undo")->toolTip().contains(QStringLiteral("plan-2 has undone it")));
    QTRY_COMPARE(page.cell("Plans", "plan-1", 6), QStringLiteral("undone by plan-2"));
  }

  void Apply_RefusedWhenTheClusterHasChanged() {
    // The session polls only once, so it does not see in time what another client does.
    RebalancePage page(false, std::chrono::hours(1));
    READY(page);
    page.ComposeAndAsk();
    v1::Plan other;
    other.set_plan_id("plan-policy");
    other.set_state(v1::Plan::DONE);
    other.set_actor("policy:utilization");
    page.fake.StartPlan(other);
    page.fake.SetNode(PoolInstance("instance-4", ""));
    QTRY_VERIFY(page.names("idle").contains(QStringLiteral("instance-4")));
    page.Apply(QStringLiteral("dit is too busy"));
    QTRY_VERIFY(page.note().contains(QStringLiteral("STALE_REVISION")));
    QVERIFY(page.note().contains(QStringLiteral("instance-4: dit/wan/tiny → idle")));
    QTRY_COMPARE(page.fake.calls("ProposePlan"), 2);
    QTRY_VERIFY(page.note().contains(QStringLiteral("This is a new dry run")));
    // The console does not send it again by itself.
    QCOMPARE(page.fake.plans().applied.size(), std::size_t{1});
    QCOMPARE(page.fake.plans().plans.plans_size(), 1);
    page.shown_cluster.session()->Resync();
    QTRY_VERIFY(page.button("draft.apply")->isEnabled());
    page.Apply(QStringLiteral("still too busy"));
    QTRY_COMPARE(page.fake.plans().applied.size(), std::size_t{2});
    QCOMPARE(page.fake.plans().applied[1].base_revision(), std::uint64_t{8});
    QVERIFY(page.fake.plans().applied[1].request_id() != page.fake.plans().applied[0].request_id());
  }

  void Draft_SaysWhatMovedUnderIt() {
    RebalancePage page;
    READY(page);
    page.ComposeAndAsk();
    page.fake.SetNode(PoolInstance("instance-1", ""));
    QTRY_VERIFY(page.note().contains(
        QStringLiteral("instance-1 was in encode/wan/tiny and is in idle now")));
    v1::Plan other;
    other.set_plan_id("plan-other");
    other.set_state(v1::Plan::DONE);
    page.fake.StartPlan(other);
    QTRY_VERIFY(
        page.button("draft.apply")->toolTip().contains(QStringLiteral("revision 7, now 8")));
    page.button("draft.renew")->click();
    QVERIFY(page.note().isEmpty());
    QCOMPARE(page.cell("Draft", "instance-1", 1), QStringLiteral("idle → dit/wan/tiny"));
  }

  void ObserveMode_AsksButDoesNotApply() {
    RebalancePage page;
    READY(page);
    page.shown_cluster.SetMode(ControlMode::kObserve);
    page.ComposeAndAsk();
    QVERIFY(!page.button("draft.apply")->isEnabled());
    QVERIFY(page.button("draft.apply")->toolTip().contains(QStringLiteral("Observe mode")));
    QVERIFY(!page.button("hold")->isEnabled());
    for (const Command& command : page.view->Commands()) {
      if (command.id == QStringLiteral("rebalance.apply")) command.run();
    }
    QVERIFY(page.dialog() == nullptr);
    page.shown_cluster.SetMode(ControlMode::kControl);
    QVERIFY(page.button("draft.apply")->isEnabled());
    page.shown_cluster.Pause();
    QVERIFY(!page.button("draft.apply")->isEnabled());
    QVERIFY(!page.button("draft.ask")->isEnabled());
  }

  void PlanOfAnotherConsole_IsSeenAtOnceAndAfterARestart() {
    RebalancePage page;
    READY(page);
    v1::Plan other;
    other.set_plan_id("plan-b");
    other.set_state(v1::Plan::UNCONFIRMED);
    other.set_actor("operator:somebody");
    other.set_confirm_by_unix_ms(base::ToUnixMs(base::SystemClock().WallNow()) + 200'000);
    v1::Move& move = *other.add_moves();
    move.set_node_id("instance-3");
    move.set_phase(v1::Move::DONE);
    move.mutable_to()->set_pool(kEncode);
    page.fake.StartPlan(other);
    const QString id = QStringLiteral("plan-b");
    QTRY_VERIFY(page.strip(id).contains(QStringLiteral("operator:somebody")));
    QVERIFY(page.of_strip(id, "keep")->isEnabled());
    page.view.reset();
    page.Open(false, std::chrono::milliseconds(100));
    READY(page);
    QTRY_VERIFY(page.strip(id).contains(QStringLiteral("goes back by itself in 3 m")));
    page.of_strip(id, "revert")->click();
    page.Yes(QStringLiteral("not now"));
    QTRY_VERIFY(page.strip(id).contains(QStringLiteral("reverting")));
    QVERIFY(page.of_strip(id, "revert")->isHidden());
  }

  void LostAnswer_IsAskedForWithTheSameId() {
    RebalancePage page;
    READY(page);
    page.ComposeAndAsk();
    page.fake.LoseAnswers(true);
    page.Apply(QStringLiteral("dit is too busy"));
    QTRY_VERIFY(page.strip({}).contains(QStringLiteral("whether it was done is not known")));
    page.fake.LoseAnswers(false);
    page.of_strip({}, "again")->click();
    QTRY_COMPARE(page.fake.plans().applied.size(), std::size_t{2});
    QTRY_VERIFY(page.strip({}).isEmpty());
    const testing::FakePlans plans = page.fake.plans();
    QCOMPARE(plans.applied[0].request_id(), plans.applied[1].request_id());
    QCOMPARE(plans.plans.plans_size(), 1);
    QTRY_VERIFY(page.view->draft() == nullptr);
  }

  void ReadOnlyServer_RefusesAndIsSaid() {
    RebalancePage page(true);
    READY(page);
    page.ComposeAndAsk();
    page.fake.SetReadOnly(true);
    page.Apply(QStringLiteral("dit is too busy"));
    QMessageBox* box = nullptr;
    QTRY_VERIFY((box = page.view->findChild<QMessageBox*>(QStringLiteral("failure"))) != nullptr);
    QVERIFY(box->informativeText().contains(QStringLiteral("READ_ONLY")));
    QTRY_VERIFY(page.button("draft.apply")->toolTip().contains(QStringLiteral("read-only")));
    QCOMPARE(page.fake.plans().plans.plans_size(), 0);
    QVERIFY(page.view->draft() != nullptr);  // The draft stays.
  }

  void AnotherCluster_GetsNothingOfTheDraft() {
    RebalancePage page;
    READY(page);
    page.ComposeAndAsk();
    page.button("draft.apply")->click();
    QTRY_VERIFY(page.dialog() != nullptr);
    testing::FakeCluster other;
    Fill(other);
    page.shown_cluster.Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"test-b", {other.address()}, false}));
    page.shown_cluster.SetMode(ControlMode::kControl);
    QTRY_VERIFY(page.dialog() == nullptr);
    QVERIFY(page.view->draft() == nullptr);
    QVERIFY(!page.button("draft.apply")->isEnabled());
    QCOMPARE(other.calls("ApplyPlan"), 0);
  }

  void Refusal_OfADryRunIsShown() {
    RebalancePage page;
    READY(page);
    page.fake.SetNode(PoolInstance("instance-6", ""));
    QTRY_VERIFY(page.names("idle").contains(QStringLiteral("instance-6")));
    page.Drop("instance-6", "dit/wan/tiny");
    v1::Plan other;
    other.set_plan_id("plan-c");
    other.set_state(v1::Plan::RUNNING);
    other.add_moves()->set_node_id("instance-6");
    page.fake.StartPlan(other);
    page.button("draft.ask")->click();
    QTRY_VERIFY(page.note().contains(QStringLiteral("NODE_MOVING")));
    QTRY_VERIFY(page.note().contains(QStringLiteral("instance-6 is part of plan plan-c")));
    QVERIFY(!page.button("draft.apply")->isEnabled());
  }

  void Policy_IsAskedAndItsMovesAreDrafted() {
    RebalancePage page;
    READY(page);
    QSignalSpy told(page.view.get(), &View::Told);
    v1::Plan policy;
    policy.set_reason("all pools below the threshold");
    page.fake.SetPolicyPlan(policy);
    page.button("draft.policy")->click();
    QTRY_VERIFY(told.count() > 0);
    QVERIFY(told.last()[0].toString().contains(QStringLiteral("all pools below the threshold")));
    page.Drop("instance-5", "encode/wan/tiny");
    policy.add_moves()->set_node_id("instance-2");
    policy.mutable_moves(0)->mutable_to()->set_pool(kDit);
    page.fake.SetPolicyPlan(policy);
    page.button("draft.policy")->click();
    QTRY_COMPARE(page.cell("Draft", "instance-2", 1),
                 QStringLiteral("encode/wan/tiny → dit/wan/tiny"));
    QVERIFY(page.button("draft.apply")->isEnabled());  // The policy's answer is its dry run.
    QCOMPARE(page.shown_cluster.operations().all().front().what,
             QStringLiteral("Ask what the policy would move"));
    QTest::keyClick(page.cards("dit/wan/tiny"), Qt::Key_Z, Qt::ControlModifier);
    QTRY_COMPARE(page.cell("Draft", "instance-5", 1), QStringLiteral("idle → encode/wan/tiny"));
    QVERIFY(page.view->findChild<QToolButton*>(QStringLiteral("draft.undo"))
                ->toolTip()
                .contains(QStringLiteral("never changes the cluster")));
  }

  void SmallActions_AreSentAsAsked() {
    RebalancePage page;
    READY(page);
    const auto run = [&](const char* id) {
      for (const Command& command : page.view->Commands()) {
        if (command.id == QLatin1String(id)) command.run();
      }
    };
    page.view->Focus(QStringLiteral("node/instance-3"));
    run("node.pin");
    page.Yes(QStringLiteral("it has the big disk"));
    QTRY_COMPARE(page.fake.plans().applied.size(), std::size_t{1});
    v1::ApplyPlanRequest sent = page.fake.plans().applied[0];
    QVERIFY(sent.moves(0).to().pinned());
    QCOMPARE(sent.moves(0).to().pool(), kDit);
    QCOMPARE(sent.base_revision(), std::uint64_t{7});
    page.fake.FinishPlan("plan-1");
    QTRY_VERIFY(page.cards("dit/wan/tiny")
                    ->model()
                    ->index(0, 0)
                    .data(Qt::ToolTipRole)
                    .toString()
                    .contains(QStringLiteral("pinned")));
    page.view->Focus(QStringLiteral("node/instance-4"));
    run("node.drain");
    page.Yes(QStringLiteral("it is replaced"), QStringLiteral("test-a"));
    QTRY_COMPARE(page.fake.plans().applied.size(), std::size_t{2});
    sent = page.fake.plans().applied[1];
    QCOMPARE(sent.moves(0).node_id(), std::string("instance-4"));
    QVERIFY(sent.moves(0).to().removed());
    QVERIFY(sent.moves(0).to().pool().empty());
    run("rebalance.hold");
    page.Yes(QStringLiteral("by hand now"));
    QTRY_VERIFY(page.fake.plans().elasticity.hold().active());
    QTRY_VERIFY(!page.button("release")->isHidden());
    run("rebalance.release");
    page.Yes(QStringLiteral("done by hand"));
    QTRY_VERIFY(!page.fake.plans().elasticity.hold().active());
    page.view->Focus(QStringLiteral("pool/default/encode/wan/tiny"));
    run("pool.limits");
    auto* limits = page.view->findChild<QDialog*>(QStringLiteral("limits"));
    QVERIFY(limits != nullptr);
    limits->findChildren<QSpinBox*>()[1]->setValue(5);
    for (auto* button : limits->findChildren<QPushButton*>()) {
      if (button->text() == QStringLiteral("Set limits…")) button->click();
    }
    page.Yes(QStringLiteral("it eats the cluster"));
    QTRY_COMPARE(page.fake.plans().elasticity.pools(0).max_instances(), 5);
    // All of these are listed as operations.
    const auto& operations = page.shown_cluster.operations().all();
    QTRY_VERIFY(std::ranges::all_of(
        operations, [](const Operation& one) { return one.ended_ms != 0 && one.outcome.ok(); }));
    QStringList asked;
    for (const Operation& one : operations) asked.prepend(one.what);
    QVERIFY(asked.value(3).startsWith(QStringLiteral("Hold automatic moves for 30 m")));
    asked.removeAt(3);
    QCOMPARE(asked, (QStringList{QStringLiteral("Pin instance-3"),
                                 QStringLiteral("Ask what draining instance-4 would do"),
                                 QStringLiteral("Drain instance-4"),
                                 QStringLiteral("Release automatic moves"),
                                 QStringLiteral("Limits of encode/wan/tiny")}));
  }

  void Counts_SayWhyTheyCannot() {
    RebalancePage page;
    READY(page);
    QSignalSpy told(page.view.get(), &View::Told);
    auto* box = page.view->findChild<QFrame*>(QStringLiteral("pool.dit/wan/tiny"));
    auto* more = box->findChild<QToolButton*>(QStringLiteral("more"));
    more->click();
    QCOMPARE(page.cell("Draft", "instance-5", 1), QStringLiteral("idle → dit/wan/tiny"));
    QVERIFY(told.isEmpty());
    more->click();
    QVERIFY(told.last()[0].toString().contains(QStringLiteral("No instance is idle")));
    // Arrows go from pool to pool.
    page.cards("encode/wan/tiny")->setFocus();
    QTest::keyClick(page.cards("encode/wan/tiny"), Qt::Key_Right);
    QVERIFY(page.cards("dit/wan/tiny")->hasFocus());
    QTest::keyClick(page.cards("dit/wan/tiny"), Qt::Key_Minus);
    QVERIFY(page.view->draft() == nullptr);
    for (const char* pool : {"dit/wan/tiny", "encode/wan/tiny", "idle"}) {
      new QAbstractItemModelTester(page.cards(pool)->model(),
                                   QAbstractItemModelTester::FailureReportingMode::QtTest, box);
    }
    page.Drop("instance-1", "idle");
    page.Drop("instance-1", "dit/wan/tiny");
    page.Drop("instance-1", "encode/wan/tiny");
    QVERIFY(page.view->draft() == nullptr);
  }

  void Snapshot_OfAnyKindIsShown() {
    ShownCluster shown_cluster;
    RebalanceView view(shown_cluster);
    view.resize(900, 700);
    view.show();
    testing::SceneOptions options;
    options.hostile = true;
    options.nodes = 40;
    options.plans = 20;
    const testing::Scene scene(options);
    session::LinkStatus link = testing::LiveLink();
    shown_cluster.Show(scene.snapshot(), link);
    view.Focus(QStringLiteral("plan/") +
               QString::fromStdString(scene.snapshot()->plans.value->plans(3).plan_id()));
    for (auto* table : view.findChildren<QTableView*>()) {
      new QAbstractItemModelTester(table->model(),
                                   QAbstractItemModelTester::FailureReportingMode::QtTest, &view);
    }
    view.SetFilter(QStringLiteral("nothing has this name"));
    view.SetFilter({});
    // A part with an error keeps its last value, so the page does not go blank.
    auto old = std::make_shared<session::Snapshot>(*scene.snapshot());
    old->elasticity.error = "NO_LEADER: nobody leads";
    shown_cluster.Show(old, link);
    bool said = false;
    for (const auto* label : view.findChildren<QLabel*>())
      said = said || label->text().contains(QStringLiteral("NO_LEADER"));
    QVERIFY(said);
    QCOMPARE(view.ExportModel()->rowCount(), int(PlansOf(*old).size()));
    shown_cluster.Show(std::make_shared<session::Snapshot>(), link);
  }
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::GuiRebalanceViewTest)
#include "rebalance_test.moc"
