// Tests that the leader moves instances by itself, with scripted reports, a clock that the test
// moves, and leaders that change in the middle.
#include <QtTest>
#include <cmath>
#include <limits>
#include <set>

#include "nodemanager/state/plan_state.h"
#include "tests/nodemanager/service/elastic_world.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;

// kAsked is in jobs/s. The others are the worker seconds of a job in each pool.
constexpr double kAsked = 1.2, kSecondsA = 1.5, kSecondsB = 0.1;

v1::ElasticityConfig Quick() {
  v1::ElasticityConfig config;
  config.set_window_s(10);
  config.set_interval_s(1);
  config.set_cooldown_s(5);
  config.set_move_timeout_s(30);
  return config;
}

}  // namespace

class ElasticControllerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    world_ = std::make_unique<ElasticWorld>(Quick());
    world_->Apply(MakeWorkflow("app", {"a", "b"}));
    world_->Register(MakeNode("proxy", v1::PROXY));
    for (const std::string& id : kInstances) world_->Register(MakeNode(id, v1::INSTANCE));
    world_->Pass(seconds(1));
    QCOMPARE(world_->Count(kPoolA), 2);
    QCOMPARE(world_->Count(kPoolB), 2);
  }
  void cleanup() { world_.reset(); }

  void Overload_GetsAnInstanceFromThePoolThatCanSpareOne() {
    world_->node("proxy").jobs_per_s = kAsked;
    QVERIFY(PassUntil(
        [&] { return world_->Count(kPoolA) == 3 && LastPlan().state() == v1::Plan::DONE; }));
    QCOMPARE(world_->Count(kPoolB), 1);
    const v1::Plan plan = LastPlan();
    QCOMPARE(plan.actor(), std::string("policy:utilization"));
    QVERIFY2(plan.reason().find(kPoolA) != std::string::npos, plan.reason().c_str());
    QVERIFY(plan.base_revision() > 0);
    QVERIFY2(plan.prediction().insufficient_data().empty(),
             plan.prediction().insufficient_data().c_str());
    // The policy settles. Two windows later nothing has moved again.
    (void)PassUntil([] { return false; }, seconds(20));
    QCOMPARE(LastPlan().plan_id(), plan.plan_id());
  }

  void OneMoveThatIsRefused_DoesNotHoldUpTheOthers() {
    const std::string mover = InstanceOf(kPoolB);
    PolicyDecision decision;
    decision.moves.push_back({.node_id = "nobody", .to_set = "default", .to_pool = kPoolA});
    decision.moves.push_back({.node_id = mover, .to_set = "default", .to_pool = kPoolA});
    const v1::Plan plan = PlanOf(decision);
    QCOMPARE(plan.moves_size(), 1);
    QCOMPARE(plan.moves(0).node_id(), mover);
    decision.moves.pop_back();
    QCOMPARE(PlanOf(decision).moves_size(), 0);
    QVERIFY2(PlanOf(decision).reason().find("nobody") != std::string::npos,
             PlanOf(decision).reason().c_str());
  }

  void MoreMovesThanAPlanTakes_BecomeOneThatItTakes() {
    PolicyDecision decision;
    for (int i = 0; i < 40; ++i) {
      const std::string id = "more-" + std::to_string(i);
      world_->Register(MakeNode(id, v1::INSTANCE));
      decision.moves.push_back({.node_id = id, .to_set = "default", .to_pool = ""});
    }
    const v1::Plan plan = PlanOf(decision);
    QVERIFY2(plan.moves_size() > 30 && CheckPlan(plan).ok(), plan.reason().c_str());
    QCOMPARE(plan.moves(0).node_id(), decision.moves[0].node_id);
  }

  void Hold_KeepsThePolicyStill_UntilItRunsOut() {
    v1::SetHoldRequest request;
    request.set_active(true);
    request.set_for_s(40);
    request.set_actor("operator:ann");
    v1::Hold hold;
    QVERIFY(world_->service().SetHold(nullptr, &request, &hold).ok());
    world_->node("proxy").jobs_per_s = kAsked;
    QVERIFY(!PassUntil([&] { return world_->Count(kPoolA) == 3; }, seconds(35)));
    QVERIFY(Elasticity().hold().active());
    QCOMPARE(Elasticity().policy_detail(), std::string("on hold by operator:ann"));
    // A clock that is set ends no hold.
    for (const int hours : {24 * 365, -2 * 24 * 365}) {
      world_->clock().StepWall(std::chrono::hours(hours));
      QVERIFY(Elasticity().hold().active());
    }
    QVERIFY(PassUntil([&] { return world_->Count(kPoolA) == 3; }));
    QVERIFY(!Elasticity().hold().active());
  }

  void NewLeader_GoesOnWhereTheOldOneWas() {
    for (const std::string& id : kInstances) world_->node(id).keeps_work = true;
    world_->node("proxy").jobs_per_s = kAsked;
    QVERIFY(
        PassUntil([&] { return HasPlan() && LastPlan().moves(0).phase() == v1::Move::DRAINING; }));
    const v1::Plan plan = LastPlan();
    const std::string moved = plan.moves(0).node_id();
    world_->FailOver();
    QVERIFY(
        !PassUntil([&] { return LastPlan().moves(0).phase() != v1::Move::DRAINING; }, seconds(3)));
    world_->node(moved).keeps_work = false;
    QVERIFY(PassUntil([&] {
      return LastPlan().moves(0).phase() == v1::Move::SWITCHING ||
             LastPlan().state() == v1::Plan::DONE;
    }));
    world_->FailOver();
    QVERIFY(PassUntil([&] { return LastPlan().state() == v1::Plan::DONE; }));
    QCOMPARE(LastPlan().plan_id(), plan.plan_id());
    QCOMPARE(world_->PoolOfNode(moved), plan.moves(0).to().pool());
  }

  void NewLeader_DoesNotDecideOnWhatItHasNotMeasured() {
    world_->node("proxy").jobs_per_s = kAsked;
    (void)PassUntil([] { return false; }, seconds(3));
    world_->FailOver();
    (void)PassUntil([] { return false; }, seconds(2));
    QVERIFY(!HasPlan());
  }

  void ModelThatDoesNotLoad_BringsTheMoveBack() {
    const std::string id = InstanceOf(kPoolB);
    v1::ApplyPlanRequest request;
    request.add_moves()->set_node_id(id);
    request.mutable_moves(0)->mutable_to()->set_pool(kPoolA);
    request.set_actor("operator:ann");
    v1::Plan plan;
    QVERIFY(world_->service().ApplyPlan(nullptr, &request, &plan).ok());
    QVERIFY(PassUntil([&] {
      world_->node(id).cannot_load = world_->PoolOfNode(id) == kPoolA;
      return LastPlan().state() == v1::Plan::REVERTED;
    }));
    const std::string why = LastPlan().moves(0).detail();
    QVERIFY2(why.find("no such model") != std::string::npos, why.c_str());
    QCOMPARE(world_->PoolOfNode(id), kPoolB);
    QCOMPARE(world_->Known(id).activity(), v1::SERVING);
    QCOMPARE(world_->controller().counters().moves_reverted, std::uint64_t{1});
  }

  void ModelThatNeverLoads_EndsThePolicysAttempts() {
    std::set<std::string> serve_a;
    for (const std::string& id : kInstances) {
      if (world_->PoolOfNode(id) == kPoolA) serve_a.insert(id);
    }
    world_->node("proxy").jobs_per_s = kAsked;
    (void)PassUntil(
        [&] {
          for (const std::string& id : kInstances) {
            world_->node(id).cannot_load =
                !serve_a.contains(id) && world_->PoolOfNode(id) == kPoolA;
          }
          return false;
        },
        seconds(120));
    int plans = 0;
    world_->controller().Read(
        [&](const StateMachine& state) { plans = static_cast<int>(state.plans().size()); });
    // The policy may make two plans in four windows.
    QVERIFY2(plans >= 2 && plans <= 8, std::to_string(plans).c_str());
    QCOMPARE(world_->Count(kPoolA), 2);
  }

  void InstanceWhoseModelDoesNotLoad_IsShownAsQuarantined() {
    world_->Register(MakeNode("broken", v1::INSTANCE));
    world_->node("broken").cannot_load = true;
    world_->Pass(seconds(2));
    const v1::Node node = world_->Known("broken");
    QCOMPARE(node.activity(), v1::QUARANTINED);
    QVERIFY2(node.detail().find("no such model") != std::string::npos, node.detail().c_str());
  }

  void NodeThatDiesWhileItDrains_DoesNotHoldUpItsPlan() {
    const std::string id = InstanceOf(kPoolB);
    world_->node(id).keeps_work = true;
    v1::ApplyPlanRequest request;
    request.add_moves()->set_node_id(id);
    request.mutable_moves(0)->mutable_to()->set_pool("");
    request.set_actor("operator:ann");
    v1::Plan plan;
    QVERIFY(world_->service().ApplyPlan(nullptr, &request, &plan).ok());
    world_->Pass(seconds(2));
    world_->node(id).silent = true;
    QVERIFY(PassUntil([&] { return LastPlan().state() == v1::Plan::DONE; }));
    QCOMPARE(world_->Known(id).state(), v1::Node::DEAD);
  }

  void AbsurdReport_IsToldAndLeftOut() {
    const std::string id = InstanceOf(kPoolA);
    world_->node(id).busy = std::numeric_limits<double>::quiet_NaN();
    world_->Pass(seconds(1));
    const v1::Node node = world_->Known(id);
    QVERIFY2(node.detail().find("its report") != std::string::npos, node.detail().c_str());
    QVERIFY(!std::isnan(node.load().utilization()));
    world_->node(id).busy = 0;
    world_->Pass(seconds(1));
    QVERIFY(world_->Known(id).detail().find("its report") == std::string::npos);
  }

  void ClockThatIsWrong_IsShownWithTheNode() {
    const std::string id = InstanceOf(kPoolA);
    const auto says = [&](const char* text) {
      world_->Pass(seconds(1));
      const std::string detail = world_->Known(id).detail();
      if (detail.find(text) != std::string::npos) return true;
      qWarning("%s", detail.c_str());
      return false;
    };
    world_->node(id).skew = seconds(90);
    QVERIFY(says("its clock is 90.0 s ahead of"));
    world_->node(id).skew = -seconds(3);
    QVERIFY(says("its clock is 3.0 s behind"));
    world_->node("proxy").skew = std::chrono::hours(-2);
    world_->Pass(seconds(1));
    QVERIFY(world_->Known("proxy").detail().find("7200.0 s behind") != std::string::npos);
    world_->node(id).skew = std::chrono::milliseconds(1001);
    QVERIFY(says("its clock is 1.0 s ahead of the NodeManager's: check NTP or chrony"));
    world_->node(id).skew = -seconds(1);
    world_->Pass(seconds(1));
    QVERIFY(world_->Known(id).detail().find("clock") == std::string::npos);
  }

  void Input_IsOfItsMoment() {
    world_->node("proxy").jobs_per_s = kAsked;
    (void)PassUntil([] { return false; }, seconds(8));
    const ElasticController& elastic = world_->controller().elastic();
    const ElasticInput input = world_->controller().Input();
    const std::string before = elastic.Describe(input).SerializeAsString();
    world_->node(InstanceOf(kPoolA)).silent = true;
    world_->Pass(seconds(5));
    QVERIFY(world_->Count(kPoolA) + world_->Count(kPoolB) > 0);
    QVERIFY(elastic.Describe(world_->controller().Input()).SerializeAsString() != before);
    const v1::Elasticity then = elastic.Describe(input);
    QCOMPARE(then.pools(0).instances(), 2);
    QVERIFY(then.pools(0).has_utilization());
  }

  void Proxies_AreToldTheCapacity_BeforeAnythingIsMeasured() {
    const auto fresh = world_->CapacityFor("proxy");
    QVERIFY(fresh.has_value());  // The proxy's slow start needs the pools.
    QCOMPARE(fresh->pools_size(), 2);
    for (const v1::PoolCapacity& pool : fresh->pools()) QCOMPARE(pool.workers(), 2);
    QCOMPARE(fresh->costs_size(), 2);
    for (const v1::StageCost& cost : fresh->costs()) QCOMPARE(cost.samples(), std::uint64_t{0});
    world_->node("proxy").jobs_per_s = kAsked;
    (void)PassUntil([] { return false; }, seconds(8));
    const auto capacity = world_->CapacityFor("proxy");
    QVERIFY(capacity.has_value());
    QCOMPARE(capacity->share(), 1.0);
    for (const v1::StageCost& cost : capacity->costs()) {
      const double expected = cost.stage() == "a" ? kSecondsA : kSecondsB;
      QVERIFY2(std::abs(cost.seconds_per_unit() - expected) < 0.1 * expected,
               std::to_string(cost.seconds_per_unit()).c_str());
    }
    // A new leader knows the costs from the first reports.
    world_->FailOver();
    world_->Pass(ElasticWorld::kStep);
    const auto again = world_->CapacityFor("proxy");
    QVERIFY(again.has_value());
    for (const v1::StageCost& cost : again->costs()) QVERIFY(cost.samples() > 0);
    QVERIFY(!world_->CapacityFor(InstanceOf(kPoolA)).has_value());
    QVERIFY(!world_->CapacityFor("nobody").has_value());
    ElasticWorld empty(Quick());
    empty.Register(MakeNode("proxy", v1::PROXY));
    QVERIFY(!empty.CapacityFor("proxy").has_value());  // There are no workflows.
  }

 private:
  // Spreads the work of each pool over the instances that serve it.
  void Work() {
    const double asked = world_->node("proxy").jobs_per_s;
    for (const std::string& id : kInstances) {
      const std::string pool = world_->PoolOfNode(id);
      const double serve = std::max(1, world_->Count(pool));
      const double seconds_each = pool == kPoolA ? kSecondsA : kSecondsB;
      const double jobs = std::min(asked / serve, 1 / seconds_each);
      world_->node(id).jobs_per_s = jobs;
      world_->node(id).busy = jobs * seconds_each;
    }
  }
  template <typename Wanted>
  bool PassUntil(Wanted wanted, base::Duration limit = seconds(60)) {
    return world_->PassUntil(limit, [&] {
      Work();
      return wanted();
    });
  }
  v1::Elasticity Elasticity() {
    v1::Elasticity elasticity;
    if (!world_->service().GetElasticity(nullptr, {}, &elasticity).ok()) qFatal("no answer");
    return elasticity;
  }
  v1::Plan PlanOf(const PolicyDecision& decision) {
    return world_->controller().elastic().PlanOf(decision, world_->controller().Input());
  }
  bool HasPlan() {
    bool has = false;
    world_->controller().Read([&](const StateMachine& state) { has = !state.plans().empty(); });
    return has;
  }
  v1::Plan LastPlan() {
    v1::Plan plan;
    world_->controller().Read([&](const StateMachine& state) {
      if (!state.plans().empty()) plan = state.plans().back();
    });
    return plan;
  }
  std::string InstanceOf(const std::string& pool) {
    for (const std::string& id : kInstances) {
      if (world_->PoolOfNode(id) == pool) return id;
    }
    qFatal("no instance serves %s", pool.c_str());
  }

  const std::vector<std::string> kInstances = {"i1", "i2", "i3", "i4"};
  std::unique_ptr<ElasticWorld> world_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ElasticControllerTest)
#include "elastic_controller_test.moc"
