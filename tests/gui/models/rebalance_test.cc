// Tests of the models of the page "Rebalance", without any window: drafts of moves, the effect of a
// plan, and plans in words.
#include <QAbstractItemModelTester>
#include <QtTest>

#include "gui/models/plan_draft.h"
#include "gui/models/plan_effect.h"
#include "gui/models/plan_words.h"
#include "gui/models/pool_board.h"
#include "tests/gui/models/predictions.h"
#include "tests/test_main.h"

namespace onepiece::gui {
namespace {

const PoolKey kEncode{"default", "encode/wan/tiny"}, kDit{"default", "dit/wan/tiny"},
    kIdle{"default", ""};

v1::Node* AddInstance(v1::Cluster& cluster, const std::string& id, const PoolKey& place) {
  v1::Node* node = cluster.add_nodes();
  node->set_node_id(id);
  node->set_role(v1::INSTANCE);
  node->set_state(v1::Node::READY);
  node->set_incarnation(1);
  node->set_workflow_set(place.workflow_set);
  node->set_activity(place.pool.empty() ? v1::IDLE : v1::SERVING);
  node->mutable_placement()->set_pool(place.pool);
  node->mutable_load()->set_held_jobs(place.pool.empty() ? 0 : 2);
  return node;
}

/// A cluster with instances 1 and 2 in encode, 3, 4 and 10 in dit, and 5 idle.
struct Scene {
  v1::Cluster cluster;
  v1::Elasticity elasticity;

  Scene() {
    AddInstance(cluster, "instance-10", kDit);
    for (const char* id : {"instance-1", "instance-2"}) AddInstance(cluster, id, kEncode);
    for (const char* id : {"instance-3", "instance-4"}) AddInstance(cluster, id, kDit);
    AddInstance(cluster, "instance-5", kIdle);
    elasticity.set_plan_revision(7);
    for (const PoolKey& key : {kEncode, kDit}) {
      v1::PoolStatus& pool = *elasticity.add_pools();
      pool.set_workflow_set(key.workflow_set);
      pool.set_pool(key.pool);
      pool.set_min_instances(1);
      pool.add_app_ids("wan-t2v");
    }
  }
  v1::Node& node(const std::string& id) {
    return *std::ranges::find(*cluster.mutable_nodes(), id, &v1::Node::node_id);
  }
  [[nodiscard]] PoolBoard board() const {
    session::Snapshot snapshot;
    snapshot.cluster.value = std::make_shared<v1::Cluster>(cluster);
    snapshot.elasticity.value = std::make_shared<v1::Elasticity>(elasticity);
    return MakePoolBoard(snapshot);
  }
  [[nodiscard]] PlanDraft draft() const {
    PlanDraft draft;
    draft.See(board());
    return draft;
  }
  /// Another operator begins a plan.
  void Begin(const std::string& plan_id, const std::string& node_id) {
    v1::Plan& plan = *elasticity.add_plans();
    plan.set_plan_id(plan_id);
    plan.set_state(v1::Plan::RUNNING);
    plan.add_moves()->set_node_id(node_id);
  }
};

/// "instance-2=idle instance-5=dit/wan/tiny"
QString Text(const PlanDraft& draft) {
  QStringList parts;
  for (const DraftMove& move : draft.moves())
    parts << QString::fromStdString(move.node_id) + u'=' + PlaceName(move.to);
  return parts.join(u' ');
}

const EffectRow& EffectOf(const std::vector<EffectRow>& rows, const QString& key) {
  const auto found = std::ranges::find(rows, key, &EffectRow::key);
  Q_ASSERT(found != rows.end());
  return *found;
}

}  // namespace

class GuiRebalanceModelsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Board_HasEveryInstanceOnce() {
    Scene scene;
    // Without a placement, the assignment says where it is.
    scene.node("instance-2").clear_placement();
    v1::StageSpec& stage = *scene.node("instance-2").mutable_assignment()->mutable_stage();
    stage.set_stage("encode");
    stage.set_plugin("wan");
    stage.set_model("tiny");
    AddInstance(scene.cluster, "instance-6", {"default", "vae/wan/unheard-of"});
    AddInstance(scene.cluster, "instance-7", kDit)->set_state(v1::Node::DEAD);
    const PoolBoard board = scene.board();
    QCOMPARE(board.cards.size(), std::size_t{7});
    QCOMPARE(board.cards[1].node_id, std::string("instance-2"));
    QCOMPARE(board.cards.back().node_id, std::string("instance-10"));
    QVERIFY(board.Find("instance-2")->key() == kEncode);
    QCOMPARE(board.columns.size(), std::size_t{4});
    QCOMPARE(board.columns.back().key.pool, std::string());  // The idle column comes last.
  }

  void Plus_TakesIdleOnesAndBringsBackFirst() {
    PlanDraft draft = Scene().draft();
    QCOMPARE(draft.Add(kDit), QString());
    QCOMPARE(Text(draft), QStringLiteral("instance-5=dit/wan/tiny"));
    QVERIFY(draft.Add(kDit).contains(QStringLiteral("No instance is idle")));
    QCOMPARE(draft.Remove(kEncode), QString());
    QCOMPARE(Text(draft), QStringLiteral("instance-2=idle instance-5=dit/wan/tiny"));
    QCOMPARE(draft.Add(kDit), QString());  // In the draft, the instance that was taken out is idle.
    QCOMPARE(Text(draft), QStringLiteral("instance-2=dit/wan/tiny instance-5=dit/wan/tiny"));
    QCOMPARE(draft.CountAfter(kDit), 5);
    QCOMPARE(draft.CountNow(kDit), 3);
    QCOMPARE(draft.Add(kEncode), QString());  // It comes back.
    QCOMPARE(Text(draft), QStringLiteral("instance-5=dit/wan/tiny"));
    QCOMPARE(draft.Remove(kDit), QString());
    QVERIFY(draft.empty());
  }

  void Plus_PrefersTheOwnWorkflowSet() {
    Scene scene;
    AddInstance(scene.cluster, "instance-0", {"set-2", ""});
    PlanDraft draft = scene.draft();
    QCOMPARE(draft.Add(kDit), QString());
    QCOMPARE(draft.Add(kDit), QString());
    QCOMPARE(Text(draft), QStringLiteral("instance-0=dit/wan/tiny instance-5=dit/wan/tiny"));
    QCOMPARE(draft.moves()[0].to.workflow_set(), std::string("default"));
    draft.Undo();
    QCOMPARE(Text(draft), QStringLiteral("instance-5=dit/wan/tiny"));
  }

  void Minus_TakesWhoHoldsNoWorkThenTheLast() {
    Scene scene;
    scene.node("instance-4").mutable_load()->set_held_jobs(0);
    PlanDraft draft = scene.draft();
    QCOMPARE(draft.Remove(kDit), QString());
    QCOMPARE(Text(draft), QStringLiteral("instance-4=idle"));
    QCOMPARE(draft.Remove(kDit), QString());
    QCOMPARE(Text(draft), QStringLiteral("instance-4=idle instance-10=idle"));
    QCOMPARE(draft.Remove(kDit), QStringLiteral("At least 1 stay in dit/wan/tiny"));
  }

  void PlusAndMinus_LeavePinnedAndMovingOnes() {
    Scene scene;
    scene.node("instance-2").mutable_placement()->set_pinned(true);
    scene.Begin("plan-3", "instance-1");
    scene.elasticity.mutable_pools(0)->set_min_instances(0);
    scene.node("instance-5").mutable_placement()->set_removed(true);
    PlanDraft draft = scene.draft();
    QCOMPARE(draft.Remove(kEncode),
             QStringLiteral("instance-1 is part of plan plan-3, which has not ended"));
    QCOMPARE(draft.Add(kDit), QStringLiteral("instance-5 was drained to be removed"));
    QVERIFY(draft.empty());
    QVERIFY(!draft.CanUndo());
    // By hand a pinned instance can be moved. It stays pinned.
    QCOMPARE(draft.MoveTo("instance-2", kDit), QString());
    QVERIFY(draft.moves()[0].to.pinned());
    QCOMPARE(draft.Notes().size(), 1);
    QVERIFY(!draft.MoveTo("instance-1", kDit).isEmpty());
    QVERIFY(!draft.MoveTo("instance-99", kDit).isEmpty());
  }

  void Move_RespectsTheConfiguration() {
    Scene scene;
    scene.node("instance-1").set_pinned_stage("encode");
    PlanDraft draft = scene.draft();
    QCOMPARE(draft.MoveTo("instance-1", kDit),
             QStringLiteral("instance-1 serves encode alone: its configuration says so"));
    QCOMPARE(draft.MoveTo("instance-1", kIdle), QString());
    QCOMPARE(draft.MoveTo("instance-1", kEncode), QString());
    QVERIFY(draft.empty());
    QCOMPARE(draft.MoveTo("instance-1", kEncode), QStringLiteral("instance-1 is there already"));
  }

  void Problems_NameTheLimit() {
    Scene scene;
    scene.elasticity.mutable_pools(0)->set_min_instances(2);
    scene.elasticity.mutable_pools(1)->set_max_instances(3);
    PlanDraft draft = scene.draft();
    QCOMPARE(draft.Add(kDit), QStringLiteral("dit/wan/tiny takes at most 3"));
    QVERIFY(draft.Problems().isEmpty());
    QCOMPARE(draft.MoveTo("instance-1", kDit), QString());
    QCOMPARE(draft.Problems(),
             QStringList({QStringLiteral("encode/wan/tiny would have 1, at least 2 stay"),
                          QStringLiteral("dit/wan/tiny would have 4, it takes at most 3")}));
    // A swap keeps all counts.
    QCOMPARE(draft.MoveTo("instance-3", kEncode), QString());
    QVERIFY(draft.Problems().isEmpty());
  }

  void UndoRedo_GoThroughAllEdits() {
    PlanDraft draft = Scene().draft();
    draft.MoveTo("instance-1", kDit);
    draft.MoveTo("instance-1", kIdle);
    draft.Clear();
    draft.Clear();  // Changes nothing.
    QVERIFY(draft.empty());
    draft.Undo();
    QCOMPARE(Text(draft), QStringLiteral("instance-1=idle"));
    draft.Undo();
    QCOMPARE(Text(draft), QStringLiteral("instance-1=dit/wan/tiny"));
    draft.Redo();
    QCOMPARE(Text(draft), QStringLiteral("instance-1=idle"));
    draft.MoveTo("instance-2", kIdle);
    QVERIFY(!draft.CanRedo());
    for (int i = 0; i < 300; ++i) draft.MoveTo("instance-3", i % 2 == 0 ? kIdle : kEncode);
    int undone = 0;
    for (; draft.CanUndo(); ++undone) draft.Undo();
    QCOMPARE(undone, int(PlanDraft::kMaxUndo));
  }

  void Stale_SaysWhichInstance() {
    Scene scene;
    PlanDraft draft = scene.draft();
    draft.MoveTo("instance-1", kDit);
    draft.MoveTo("instance-2", kDit);
    draft.MoveTo("instance-3", kIdle);
    QVERIFY(draft.Stale().isEmpty());
    scene.node("instance-1").mutable_placement()->set_pool("");
    scene.node("instance-2").mutable_placement()->set_pool(kDit.pool);
    scene.node("instance-3").set_state(v1::Node::DEAD);
    draft.See(scene.board());
    QCOMPARE(
        draft.Stale(),
        QStringList({QStringLiteral("instance-1 was in encode/wan/tiny and is in idle now"),
                     QStringLiteral("instance-2 was in encode/wan/tiny and is in dit/wan/tiny now"),
                     QStringLiteral("instance-3 has left the cluster")}));
    draft.Renew();
    QVERIFY(draft.Stale().isEmpty());
    QCOMPARE(Text(draft), QStringLiteral("instance-1=dit/wan/tiny"));
    QVERIFY(draft.moves()[0].from.pool().empty());
  }

  void Request_HasExactlyTheMoves() {
    PlanDraft draft = Scene().draft();
    draft.MoveTo("instance-5", kDit);
    draft.MoveTo("instance-1", kIdle);
    const v1::ProposePlanRequest request = draft.ToRequest();
    QCOMPARE(request.moves_size(), 2);
    QCOMPARE(request.moves(0).node_id(), std::string("instance-1"));
    QVERIFY(request.moves(0).to().pool().empty());
    QCOMPARE(request.moves(1).to().pool(), kDit.pool);
    QVERIFY(!request.moves(0).has_from());
    QCOMPARE(draft.ToCommandLine(),
             QStringLiteral("onepiece rebalance plan 'instance-1=default:idle' "
                            "'instance-5=default:dit/wan/tiny'"));
    v1::Plan policy;
    policy.add_moves()->set_node_id("instance-4");
    draft.Replace(policy);
    QCOMPARE(Text(draft), QStringLiteral("instance-4=idle"));
    QCOMPARE(draft.moves()[0].to.workflow_set(), std::string("default"));
    draft.Undo();
    QCOMPARE(draft.moves().size(), std::size_t{2});
  }

  void Changes_AreListed() {
    Scene scene;
    const PoolBoard before = scene.board();
    QVERIFY(ChangesBetween(before, scene.board()).isEmpty());
    scene.node("instance-1").mutable_load()->set_held_jobs(9);  // Its load is not a change.
    scene.node("instance-3").mutable_placement()->set_pool(kEncode.pool);
    scene.Begin("plan-4", "instance-4");
    AddInstance(scene.cluster, "instance-11", kIdle);
    scene.elasticity.mutable_pools(1)->set_max_instances(6);
    QCOMPARE(ChangesBetween(before, scene.board()),
             QStringList({QStringLiteral("instance-3: dit/wan/tiny → encode/wan/tiny"),
                          QStringLiteral("instance-4 is part of plan plan-4 now"),
                          QStringLiteral("instance-11 has come: idle"),
                          QStringLiteral("dit/wan/tiny: limits 1 to 6, were 1 to any")}));
  }

  void Effect_RowsAreTheServersNumbers() {
    const std::vector<EffectRow> rows = EffectRows(testing::MakePrediction(kDit.pool, 3));
    const EffectRow& throughput = EffectOf(rows, QStringLiteral("throughput/default/wan-t2v"));
    QCOMPARE(throughput.before, QStringLiteral("0.42/s (0.38 to 0.47)"));
    QCOMPARE(throughput.after, QStringLiteral("0.63/s (0.57 to 0.70)"));
    QCOMPARE(throughput.change, QStringLiteral("+0.21/s (+0.19 to +0.23)"));
    QCOMPARE(throughput.tone, StatusTone::kGood);
    const EffectRow& rho = EffectOf(rows, QStringLiteral("utilization/default/dit/wan/tiny"));
    QCOMPARE(rho.before, QStringLiteral("120 % (110 to 130)"));
    QCOMPARE(rho.change, QStringLiteral("−30 % (−33 to −28)"));
    QCOMPARE(rho.tone, StatusTone::kGood);
    const EffectRow& wait = EffectOf(rows, QStringLiteral("wait/default/dit/wan/tiny"));
    QCOMPARE(wait.before, QStringLiteral("grows"));
    QCOMPARE(wait.after, QStringLiteral("4.0 s (3.0 to 6.0)"));
    QCOMPARE(wait.change, QStringLiteral("ends growing"));
    QCOMPARE(EffectOf(rows, QStringLiteral("instances/default/dit/wan/tiny")).change,
             QStringLiteral("+1"));
    QCOMPARE(EffectOf(rows, QStringLiteral("bottleneck")).after,
             QStringLiteral("dit/wan/tiny, ρ 90 %"));
    QCOMPARE(EffectOf(rows, QStringLiteral("transient")).after,
             QStringLiteral("1 m 24 s of worker time"));
    QCOMPARE(EffectHead(testing::MakePrediction(kDit.pool, 3)),
             QStringLiteral("Predicted by the server from 12 min window, 341 jobs"));
    const auto table = MakeEffectTable(nullptr);
    QAbstractItemModelTester tester(table.get(),
                                    QAbstractItemModelTester::FailureReportingMode::QtTest);
    table->Update(rows, SameEffect);
    QCOMPARE(table->rowCount(), int(rows.size()));
    table->Update({}, SameEffect);
  }

  void Effect_InsufficientDataIsNoNumber() {
    v1::Prediction prediction = testing::MakePrediction(kDit.pool, 3);
    prediction.set_insufficient_data("fewer than 5 jobs measured: dit/wan/tiny");
    QVERIFY(EffectRows(prediction).empty());
    QCOMPARE(EffectHead(prediction),
             QStringLiteral("Insufficient data: fewer than 5 jobs measured: dit/wan/tiny"));
    QVERIFY(EffectRows({}).empty());
  }

  void Score_JudgesWhatIsMeasured() {
    v1::Plan plan;
    plan.set_state(v1::Plan::DONE);
    plan.set_create_unix_ms(1'000'000);
    *plan.mutable_prediction() = testing::MakePrediction(kDit.pool, 3);
    plan.add_moves()->set_phase_since_unix_ms(1'060'000);
    v1::Elasticity elasticity;
    elasticity.set_window_s(300);
    v1::AppStatus& app = *elasticity.add_apps();
    app.set_workflow_set("default");
    app.set_app_id("wan-t2v");
    app.set_asked_per_s(0.9);
    app.set_rejected_per_s(0.3);
    v1::PoolStatus& pool = *elasticity.add_pools();
    pool.set_workflow_set("default");
    pool.set_pool(kDit.pool);
    pool.set_utilization(0.85);
    std::vector<EffectRow> rows = EffectRows(plan.prediction());
    QCOMPARE(Score(plan, elasticity, 1'160'000, rows),
             QStringLiteral(
                 "Measured against it in 3 m 20 s, when the window lies behind the last move"));
    QCOMPARE(Score(plan, elasticity, 1'360'000, rows),
             QStringLiteral("Predicted against measured: 2 of 2 within their bands"));
    QCOMPARE(EffectOf(rows, QStringLiteral("throughput/default/wan-t2v")).actual,
             QStringLiteral("0.60/s, within the band"));
    pool.set_utilization(0.5);
    QCOMPARE(Score(plan, elasticity, 1'360'000, rows),
             QStringLiteral("Low confidence: ρ of dit/wan/tiny is 44 % off"));
    // If nobody asks for more, a lower throughput does not contradict the prediction.
    app.set_asked_per_s(0.2);
    app.set_rejected_per_s(0);
    pool.clear_utilization();
    QCOMPARE(Score(plan, elasticity, 1'360'000, rows),
             QStringLiteral("Nothing of it can be measured now"));
    plan.set_state(v1::Plan::REVERTED);
    QCOMPARE(Score(plan, elasticity, 1'360'000, rows), QString());
  }

  void Words_CountdownGoesByTheServersClock() {
    v1::Plan plan;
    plan.set_state(v1::Plan::UNCONFIRMED);
    plan.set_confirm_by_unix_ms(400'000);
    QCOMPARE(ConfirmText(plan, 100'000, 0), QStringLiteral("goes back by itself in 5 m 00 s"));
    QCOMPARE(ConfirmText(plan, 100'000, 30), QStringLiteral("goes back by itself in 4 m 30 s"));
    QCOMPARE(ConfirmText(plan, 400'000, 0),
             QStringLiteral("its time is over: the server takes it back"));
  }

  void Words_TransientCountsWhoStopsServing() {
    const PoolBoard board = Scene().board();
    v1::Plan plan;
    const auto move = [&](const char* id, const PoolKey& from, const PoolKey& to) {
      v1::Move& added = *plan.add_moves();
      added.set_node_id(id);
      added.mutable_from()->set_pool(from.pool);
      added.mutable_to()->set_pool(to.pool);
    };
    move("instance-5", kIdle, kDit);
    QCOMPARE(TransientOf(plan, board).share, 0.0);
    QCOMPARE(LoadsText(plan.moves(0), board), QStringLiteral("tiny, for wan-t2v"));
    move("instance-3", kDit, kEncode);
    move("instance-1", kEncode, kIdle);
    const Transient worst = TransientOf(plan, board);
    QCOMPARE(worst.share, 0.5);
    QCOMPARE(worst.text,
             QStringLiteral("encode/wan/tiny: 1 of 2 instances stop serving it (50 %)"));
    QCOMPARE(LoadsText(plan.moves(2), board), QString());
  }

  void Words_WhyNoUndo() {
    Scene scene;
    v1::Plan plan;
    plan.set_plan_id("plan-1");
    plan.set_state(v1::Plan::DONE);
    v1::Move& move = *plan.add_moves();
    move.set_node_id("instance-3");
    move.mutable_to()->set_pool(kDit.pool);
    QCOMPARE(WhyNoUndo(plan, scene.board(), nullptr), QString());
    scene.node("instance-3").mutable_placement()->set_pool("");
    QCOMPARE(WhyNoUndo(plan, scene.board(), nullptr),
             QStringLiteral("Changed since: instance-3 is in idle now"));
    scene.Begin("plan-2", "instance-3");
    QCOMPARE(WhyNoUndo(plan, scene.board(), nullptr),
             QStringLiteral("Changed since: instance-3 is part of plan plan-2"));
    plan.set_undone_by("plan-2");
    v1::ListPlansResponse plans;
    v1::Plan& undo = *plans.add_plans();
    undo.set_plan_id("plan-2");
    undo.set_state(v1::Plan::DONE);
    QCOMPARE(WhyNoUndo(plan, scene.board(), &plans), QStringLiteral("Plan plan-2 has undone it"));
    undo.set_state(v1::Plan::REVERTED);
    QVERIFY(WhyNoUndo(plan, scene.board(), &plans).startsWith(QStringLiteral("Changed since")));
    plan.set_state(v1::Plan::UNCONFIRMED);
    QVERIFY(WhyNoUndo(plan, scene.board(), &plans).contains(QStringLiteral("unconfirmed")));
  }
};

}  // namespace onepiece::gui

ONEPIECE_TEST(onepiece::gui::GuiRebalanceModelsTest)
#include "rebalance_test.moc"
