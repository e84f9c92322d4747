// Tests ElasticityService over a real state machine, log and controller, with scripted nodes.
#include <QtTest>
#include <set>

#include "cluster/rpc/status.h"
#include "tests/nodemanager/service/elastic_world.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;

v1::ElasticityConfig StaticPolicyConfig() {
  v1::ElasticityConfig config;
  config.set_policy("static");
  config.set_move_timeout_s(30);
  return config;
}

std::string ReasonOf(const grpc::Status& status) {
  return base::GetReason(rpc::FromGrpc(status)).reason;
}

v1::ApplyPlanRequest MoveRequest(const std::string& node, const std::string& pool) {
  v1::ApplyPlanRequest request;
  v1::Move& move = *request.add_moves();
  move.set_node_id(node);
  move.mutable_to()->set_pool(pool);
  request.set_actor("operator:ann");
  request.set_reason("a test");
  return request;
}

}  // namespace

class ElasticityServiceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    world_ = std::make_unique<ElasticWorld>(StaticPolicyConfig());
    world_->Apply(MakeWorkflow("app", {"a", "b"}));
    world_->Register(MakeNode("proxy", v1::PROXY));
    // The assigner gives the instances to the stages in turn.
    for (const char* id : {"i1", "i2", "i3", "i4"}) world_->Register(MakeNode(id, v1::INSTANCE));
    world_->Pass(seconds(2));
    QCOMPARE(world_->Count(kPoolA), 2);
    QCOMPARE(world_->Count(kPoolB), 2);
    for (const char* id : {"i1", "i2", "i3", "i4"}) {
      if (world_->PoolOfNode(id) == kPoolA) in_a_ = id;
      if (world_->PoolOfNode(id) == kPoolB) in_b_ = id;
    }
  }
  void cleanup() { world_.reset(); }

  void ProposePlan_CompletesAndChangesNothing() {
    const std::uint64_t revision = Elasticity().plan_revision();
    v1::ProposePlanRequest request;
    request.add_moves()->set_node_id(in_b_);
    request.mutable_moves(0)->mutable_to()->set_pool("a");
    v1::Plan plan;
    QVERIFY(world_->service().ProposePlan(nullptr, &request, &plan).ok());
    QCOMPARE(plan.state(), v1::Plan::PROPOSED);
    QCOMPARE(plan.base_revision(), revision);
    QCOMPARE(plan.moves(0).from().pool(), kPoolB);
    QCOMPARE(plan.moves(0).to().pool(), kPoolA);
    // No job was measured, so there is no prediction.
    QVERIFY(!plan.prediction().insufficient_data().empty());
    world_->Pass(seconds(2));
    QCOMPARE(Elasticity().plan_revision(), revision);
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolB);
    QCOMPARE(Plans().plans_size(), 0);
  }

  void ProposePlan_OfTheStaticPolicy_SaysWhyNothingMoves() {
    v1::Plan plan;
    const v1::ProposePlanRequest request;
    QVERIFY(world_->service().ProposePlan(nullptr, &request, &plan).ok());
    QCOMPARE(plan.moves_size(), 0);
    QVERIFY(plan.reason().find("static") != std::string::npos);
  }

  void ApplyPlan_RefusesWithAReason_data() {
    QTest::addColumn<QString>("wrong");
    for (const char* wrong :
         {"NO_ACTOR", "NO_MOVES", "NODE_UNKNOWN", "POOL_UNKNOWN", "NOTHING_TO_DO",
          "BAD_CONFIRM_WITHIN", "STALE_REVISION", "NODE_TWICE", "NOT_AN_INSTANCE"}) {
      QTest::newRow(wrong) << wrong;
    }
  }
  void ApplyPlan_RefusesWithAReason() {
    QFETCH(QString, wrong);
    v1::ApplyPlanRequest request = MoveRequest(in_b_, kPoolA);
    if (wrong == "NO_ACTOR") request.clear_actor();
    if (wrong == "NO_MOVES") request.clear_moves();
    if (wrong == "NODE_UNKNOWN") request.mutable_moves(0)->set_node_id("nobody");
    if (wrong == "POOL_UNKNOWN") request.mutable_moves(0)->mutable_to()->set_pool("c");
    if (wrong == "NOTHING_TO_DO") request.mutable_moves(0)->mutable_to()->set_pool(kPoolB);
    if (wrong == "BAD_CONFIRM_WITHIN") request.set_confirm_within_s(-1);
    if (wrong == "STALE_REVISION") request.set_base_revision(Elasticity().plan_revision() + 1);
    if (wrong == "NODE_TWICE") *request.add_moves() = v1::Move(request.moves(0));
    if (wrong == "NOT_AN_INSTANCE") request.mutable_moves(0)->set_node_id("proxy");
    v1::Plan plan;
    const grpc::Status status = world_->service().ApplyPlan(nullptr, &request, &plan);
    QCOMPARE(QString::fromStdString(ReasonOf(status)), wrong);
    QCOMPARE(Plans().plans_size(), 0);
  }

  void ApplyPlan_Moves_AndTheSameRequestDoesItOnce() {
    v1::ApplyPlanRequest request = MoveRequest(in_b_, "a");
    request.set_request_id("once");
    request.set_base_revision(Elasticity().plan_revision());
    const v1::Plan first = Apply(request);
    // The retry has one effect although its base_revision is old by now.
    QCOMPARE(Apply(request).plan_id(), first.plan_id());
    QVERIFY(Until(first.plan_id(), v1::Plan::DONE));
    QCOMPARE(Apply(request).state(), v1::Plan::DONE);
    QCOMPARE(Plans().plans_size(), 1);
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolA);
    QCOMPARE(world_->Known(in_b_).activity(), v1::SERVING);
    QCOMPARE(world_->Count(kPoolB), 1);
    QCOMPARE(world_->controller().counters().moves_done, std::uint64_t{1});
  }

  void RequestId_OfAnotherChange_IsToldFromTheSame() {
    v1::ApplyPlanRequest request = MoveRequest(in_b_, "a");
    request.set_request_id("once");
    const v1::Plan first = Apply(request);
    QVERIFY(Until(first.plan_id(), v1::Plan::DONE));
    v1::Plan plan;
    for (const auto& [node, pool] : {std::pair(in_b_, "b"), std::pair(in_a_, "a")}) {
      v1::ApplyPlanRequest other = MoveRequest(node, pool);
      other.set_request_id("once");
      QCOMPARE(ReasonOf(world_->service().ApplyPlan(nullptr, &other, &plan)),
               std::string("REQUEST_ID_REUSED"));
    }
    v1::DecidePlanRequest undo = Decision(first.plan_id());
    undo.set_request_id("once");
    QCOMPARE(ReasonOf(world_->service().UndoPlan(nullptr, &undo, &plan)),
             std::string("REQUEST_ID_REUSED"));
    undo.set_request_id("undo");
    QVERIFY(world_->service().UndoPlan(nullptr, &undo, &plan).ok());
    QVERIFY(Until(plan.plan_id(), v1::Plan::DONE));
    undo.set_plan_id(plan.plan_id());
    QCOMPARE(ReasonOf(world_->service().UndoPlan(nullptr, &undo, &plan)),
             std::string("REQUEST_ID_REUSED"));
    QCOMPARE(Plans().plans_size(), 2);
  }

  void Limits_CanBeTakenBackWhenTheirPoolIsGone() {
    v1::SetPoolLimitsRequest limits;
    limits.set_actor("operator:ann");
    limits.mutable_limits()->set_pool(kPoolB);
    limits.mutable_limits()->set_max_instances(3);
    QVERIFY(SetLimits(limits).ok());
    v1::Workflow workflow = MakeWorkflow("app", {"a", "c"});
    workflow.mutable_stages(0)->set_min_instances(2);
    world_->Apply(workflow);
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("POOL_UNKNOWN"));
    limits.mutable_limits()->clear_max_instances();
    QVERIFY(SetLimits(limits).ok());
    world_->controller().Read(
        [](const StateMachine& state) { QVERIFY(state.pool_limits().empty()); });
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("POOL_UNKNOWN"));
    // A maximum below the workflow's minimum would mean nothing.
    limits.mutable_limits()->set_pool(kPoolA);
    limits.mutable_limits()->set_max_instances(1);
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("BAD_LIMITS"));
    limits.mutable_limits()->set_max_instances(2);
    QVERIFY(SetLimits(limits).ok());
  }

  void ApplyPlan_NeverBelowTheMinimum_ThatLimitsSay() {
    v1::SetPoolLimitsRequest limits;
    limits.mutable_limits()->set_pool("b");
    limits.mutable_limits()->set_min_instances(2);
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("NO_ACTOR"));
    limits.set_actor("operator:ann");
    QVERIFY(SetLimits(limits).ok());
    v1::Plan plan;
    const v1::ApplyPlanRequest request = MoveRequest(in_b_, kPoolA);
    QCOMPARE(ReasonOf(world_->service().ApplyPlan(nullptr, &request, &plan)),
             std::string("BELOW_MINIMUM"));
    limits.mutable_limits()->set_max_instances(1);
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("BAD_LIMITS"));
    limits.mutable_limits()->set_pool("c");
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("POOL_UNKNOWN"));
    limits.mutable_limits()->set_workflow_set("nowhere");
    QCOMPARE(ReasonOf(SetLimits(limits)), std::string("WORKFLOW_SET_UNKNOWN"));
    const v1::Elasticity now = Elasticity();
    for (const v1::PoolStatus& pool : now.pools())
      QCOMPARE(pool.min_instances(), pool.pool() == kPoolB ? 2 : 1);
  }

  void Unconfirmed_GoesBackByItself_AConfirmedOneStays() {
    v1::ApplyPlanRequest request = MoveRequest(in_b_, kPoolA);
    request.set_confirm_within_s(5);
    const std::string reverted = Apply(request).plan_id();
    QVERIFY(Until(reverted, v1::Plan::UNCONFIRMED));
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolA);
    world_->Pass(seconds(3));
    QCOMPARE(world_->Plan(reverted).state(), v1::Plan::UNCONFIRMED);
    QVERIFY(Until(reverted, v1::Plan::REVERTED));
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolB);
    QCOMPARE(world_->Known(in_b_).activity(), v1::SERVING);

    const std::string kept = Apply(request).plan_id();
    QVERIFY(Until(kept, v1::Plan::UNCONFIRMED));
    v1::DecidePlanRequest confirm = Decision(kept);
    confirm.set_request_id("confirm");
    v1::Plan plan;
    QVERIFY(world_->service().ConfirmPlan(nullptr, &confirm, &plan).ok());
    // A retry under the same request id succeeds too.
    QVERIFY(world_->service().ConfirmPlan(nullptr, &confirm, &plan).ok());
    QCOMPARE(plan.state(), v1::Plan::DONE);
    world_->Pass(seconds(10));
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolA);
    confirm.set_request_id("again");
    QCOMPARE(ReasonOf(world_->service().ConfirmPlan(nullptr, &confirm, &plan)),
             std::string("PLAN_STATE"));
  }

  void Undo_BringsBack_Once_AndNotAfterLaterMoves() {
    const std::string moved = Apply(MoveRequest(in_b_, kPoolA)).plan_id();
    QVERIFY(Until(moved, v1::Plan::DONE));
    v1::DecidePlanRequest undo = Decision(moved);
    undo.set_request_id("undo");
    v1::Plan inverse, again;
    QVERIFY(world_->service().UndoPlan(nullptr, &undo, &inverse).ok());
    QVERIFY(world_->service().UndoPlan(nullptr, &undo, &again).ok());
    QCOMPARE(again.plan_id(), inverse.plan_id());
    QCOMPARE(inverse.undo_of(), moved);
    QCOMPARE(world_->Plan(moved).undone_by(), inverse.plan_id());
    QVERIFY(Until(inverse.plan_id(), v1::Plan::DONE));
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolB);
    undo.set_request_id("another");
    QCOMPARE(ReasonOf(world_->service().UndoPlan(nullptr, &undo, &again)),
             std::string("ALREADY_UNDONE"));

    const std::string first = Apply(MoveRequest(in_b_, kPoolA)).plan_id();
    QVERIFY(Until(first, v1::Plan::DONE));
    QVERIFY(Until(Apply(MoveRequest(in_b_, "")).plan_id(), v1::Plan::DONE));
    const v1::DecidePlanRequest late = Decision(first);
    QCOMPARE(ReasonOf(world_->service().UndoPlan(nullptr, &late, &again)),
             std::string("CHANGED_SINCE"));
  }

  void Undo_OfAPlanUnderWay_RevertsIt() {
    world_->node(in_b_).keeps_work = true;
    const std::string id = Apply(MoveRequest(in_b_, kPoolA)).plan_id();
    world_->Pass(seconds(3));
    QCOMPARE(world_->Plan(id).moves(0).phase(), v1::Move::DRAINING);
    QCOMPARE(world_->Known(in_b_).activity(), v1::DRAINING);
    v1::Plan plan;
    const v1::ApplyPlanRequest more = MoveRequest(in_b_, "");
    QCOMPARE(ReasonOf(world_->service().ApplyPlan(nullptr, &more, &plan)),
             std::string("NODE_MOVING"));
    const v1::DecidePlanRequest undo = Decision(id);
    QVERIFY(world_->service().UndoPlan(nullptr, &undo, &plan).ok());
    QCOMPARE(plan.plan_id(), id);
    QVERIFY(Until(id, v1::Plan::REVERTED));
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolB);
    // The plan is undone already, so this succeeds.
    QVERIFY(world_->service().UndoPlan(nullptr, &undo, &plan).ok());
  }

  void Pin_NeverLeavesTheRoutes() {
    v1::ApplyPlanRequest pin = MoveRequest(in_b_, kPoolB);
    pin.mutable_moves(0)->mutable_to()->set_pinned(true);
    const std::string id = Apply(pin).plan_id();
    for (int i = 0; i < 6; ++i) {
      QVERIFY(world_->Plan(id).moves(0).phase() != v1::Move::DRAINING);
      QCOMPARE(world_->Known(in_b_).activity(), v1::SERVING);
      world_->Pass(ElasticWorld::kStep);
    }
    QCOMPARE(world_->Plan(id).state(), v1::Plan::DONE);
    QVERIFY(world_->Known(in_b_).placement().pinned());
    QCOMPARE(world_->PoolOfNode(in_b_), kPoolB);
  }

  void Drain_EndsWithNothingToDo() {
    v1::ApplyPlanRequest drain = MoveRequest(in_b_, "");
    drain.mutable_moves(0)->mutable_to()->set_removed(true);
    const std::string id = Apply(drain).plan_id();
    QVERIFY(Until(id, v1::Plan::DONE));
    QCOMPARE(world_->Known(in_b_).activity(), v1::DRAINED);
    world_->Pass(seconds(5));
    QCOMPARE(world_->PoolOfNode(in_b_), std::string());
  }

  void Hold_IsShownUntilItRunsOut() {
    v1::SetHoldRequest request;
    request.set_active(true);
    request.set_for_s(10);
    v1::Hold hold;
    QCOMPARE(ReasonOf(world_->service().SetHold(nullptr, &request, &hold)),
             std::string("NO_ACTOR"));
    request.set_actor("operator:ann");
    QVERIFY(world_->service().SetHold(nullptr, &request, &hold).ok());
    QVERIFY(hold.active() && hold.until_unix_ms() > 0);
    QVERIFY(Elasticity().hold().active());
    world_->Pass(seconds(12));
    QVERIFY(!Elasticity().hold().active());
    request.set_for_s(-1);
    QCOMPARE(ReasonOf(world_->service().SetHold(nullptr, &request, &hold)),
             std::string("BAD_HOLD"));
  }

  void Lists_GoThroughAllPages_NewestFirst() {
    std::vector<std::string> ids;
    for (const char* pool : {"a", "b", "a"}) {
      ids.push_back(Apply(MoveRequest(in_b_, pool)).plan_id());
      QVERIFY(Until(ids.back(), v1::Plan::DONE));
    }
    v1::ListPlansRequest plans;
    plans.set_page_size(2);
    std::vector<std::string> seen;
    for (int page = 0; page < 2; ++page) {
      v1::ListPlansResponse response;
      QVERIFY(world_->service().ListPlans(nullptr, &plans, &response).ok());
      for (const v1::Plan& plan : response.plans()) seen.push_back(plan.plan_id());
      QCOMPARE(response.next_page_token().empty(), page == 1);
      plans.set_page_token(response.next_page_token());
    }
    QCOMPARE(seen, (std::vector<std::string>{ids[2], ids[1], ids[0]}));

    std::size_t known = 0;
    world_->controller().Read([&](const StateMachine& state) { known = state.audit().size(); });
    v1::ListAuditRequest audit;
    audit.set_page_size(3);
    std::vector<std::string> told;
    for (;;) {
      v1::ListAuditResponse response;
      QVERIFY(world_->service().ListAudit(nullptr, &audit, &response).ok());
      for (const v1::AuditEntry& entry : response.entries())
        told.push_back(entry.action() + " " + entry.subject() + " " + entry.detail());
      if (response.next_page_token().empty()) break;
      audit.set_page_token(response.next_page_token());
    }
    QCOMPARE(told.size(), known);
    std::size_t at = known;
    world_->controller().Read([&](const StateMachine& state) {
      for (const v1::AuditEntry& entry : state.audit())
        at -= told[--known] == entry.action() + " " + entry.subject() + " " + entry.detail();
    });
    QCOMPARE(at, std::size_t{0});
    QVERIFY(std::any_of(told.begin(), told.end(), [](const std::string& line) {
      return line.find("operator:ann") != std::string::npos &&
             line.find("a test") != std::string::npos;
    }));
    audit.set_page_token("made up");
    v1::ListAuditResponse response;
    QCOMPARE(ReasonOf(world_->service().ListAudit(nullptr, &audit, &response)),
             std::string("BAD_PAGE_TOKEN"));
    plans.set_page_size(-1);
    v1::ListPlansResponse page;
    QCOMPARE(ReasonOf(world_->service().ListPlans(nullptr, &plans, &page)),
             std::string("BAD_PAGE_SIZE"));
  }

  void UnknownPlan_IsNotFound() {
    v1::Plan plan;
    const v1::DecidePlanRequest decision = Decision("plan-nobody");
    v1::GetPlanRequest get;
    get.set_plan_id("plan-nobody");
    for (const grpc::Status& status : {world_->service().GetPlan(nullptr, &get, &plan),
                                       world_->service().UndoPlan(nullptr, &decision, &plan),
                                       world_->service().ConfirmPlan(nullptr, &decision, &plan)})
      QCOMPARE(ReasonOf(status), std::string("PLAN_UNKNOWN"));
  }

 private:
  static v1::DecidePlanRequest Decision(const std::string& plan_id) {
    v1::DecidePlanRequest request;
    request.set_plan_id(plan_id);
    request.set_actor("operator:ann");
    request.set_reason("a test");
    return request;
  }
  v1::Plan Apply(const v1::ApplyPlanRequest& request) {
    v1::Plan plan;
    const grpc::Status status = world_->service().ApplyPlan(nullptr, &request, &plan);
    if (!status.ok()) qFatal("ApplyPlan: %s", status.error_message().c_str());
    return plan;
  }
  bool Until(const std::string& plan_id, v1::Plan::State state) {
    return world_->PassUntil(seconds(20), [&] { return world_->Plan(plan_id).state() == state; });
  }
  v1::Elasticity Elasticity() {
    v1::Elasticity elasticity;
    const v1::GetElasticityRequest request;
    if (!world_->service().GetElasticity(nullptr, &request, &elasticity).ok())
      qFatal("GetElasticity failed");
    return elasticity;
  }
  v1::ListPlansResponse Plans() {
    v1::ListPlansResponse response;
    const v1::ListPlansRequest request;
    if (!world_->service().ListPlans(nullptr, &request, &response).ok()) qFatal("ListPlans failed");
    return response;
  }
  grpc::Status SetLimits(const v1::SetPoolLimitsRequest& request) {
    v1::PoolLimits limits;
    return world_->service().SetPoolLimits(nullptr, &request, &limits);
  }

  std::unique_ptr<ElasticWorld> world_;
  std::string in_a_, in_b_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ElasticityServiceTest)
#include "elasticity_service_test.moc"
