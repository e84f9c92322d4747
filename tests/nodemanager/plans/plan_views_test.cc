// Tests what the leader makes of its state and of what was measured: what policies look at, what
// proxies admit by, and what a plan would do.
#include <QElapsedTimer>
#include <QtTest>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "nodemanager/assignment/assigner.h"
#include "nodemanager/plans/plans.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;

const std::string kEncode = "encode/wan/tiny", kDecode = "decode/wan/tiny";

bool Near(double actual, double expected, double relative = 0.05) {
  const bool near = std::abs(actual - expected) <= relative * std::abs(expected) + 1e-9;
  if (!near) qWarning("%g is not near %g", actual, expected);
  return near;
}

v1::ElasticityConfig Config() {
  v1::ElasticityConfig config;
  config.set_window_s(60);
  return *CompleteElasticity(config);
}

// Two proxies and four instances, two for each stage. Clients ask for 5 jobs/s, four of them at
// proxy-1. A job takes 0.1 s of encoding and 0.3 s of decoding.
struct Cluster {
  StateMachine state;
  LoadWindow window{seconds(60)};
  StampAges ages;
  base::ManualClock clock;
  std::uint64_t index = 0, jobs = 0;
  bool ends_jobs = true, ends_decoding = true;
  bool has_terms = false;  // Decoding costs 0.1 s and 0.02 s for each unit.
  double units_asked = 0;  // The units of each job, as the proxies say.
  double size_asked = 0;   // The second term of each job's decoding, as the proxies say.

  Cluster() {
    Apply(WorkflowCommand(MakeWorkflow("app", {"encode", "decode"})));
    for (const char* id : {"instance-1", "instance-2", "instance-3", "instance-4"})
      Apply(RegisterCommand(MakeNode(id, v1::INSTANCE)));
    for (const char* id : {"proxy-1", "proxy-2"}) {
      Apply(RegisterCommand(MakeNode(id, v1::PROXY)));
      Apply(StateCommand(id, v1::Node::READY));
    }
    v1::Command assign;
    *assign.mutable_assign() = Assigner().Plan(state);
    Apply(assign);
    for (const auto& [id, record] : std::map(state.nodes())) {
      if (record.node().role() == v1::INSTANCE)
        Apply(StateCommand(id, v1::Node::READY, record.node().assignment().epoch()));
    }
  }
  void Apply(v1::Command command) {
    command.set_time_unix_ms(base::ToUnixMs(clock.WallNow()));
    const v1::CommandResult result = state.Apply(++index, command);
    if (result.code() != 0) qFatal("%s", result.message().c_str());
    ages.Note(state, clock.Now());
  }
  [[nodiscard]] Telemetry telemetry() const {
    return {.window = &window,
            .routing_epoch = [](const std::string&) { return 0; },
            .now = clock.Now(),
            .wall_now = clock.WallNow(),
            .ages = &ages};
  }
  void Run(int count) {
    for (int i = 0; i < count; ++i) {
      clock.Advance(seconds(1));
      ++jobs;
      for (const auto& [id, record] : state.nodes()) Report(record.node());
    }
  }
  void Report(const v1::Node& node) {
    v1::NodeLoad load;
    std::string pool;
    const auto done = static_cast<double>(jobs);
    if (node.role() == v1::PROXY) {
      v1::Demand& demand = *load.add_demands();
      demand.set_app_id("app");
      demand.set_admitted(node.node_id() == "proxy-1" ? 4 * jobs : jobs / 2);
      demand.set_rejected(node.node_id() == "proxy-1" ? 0 : jobs - jobs / 2);
      const auto asked = static_cast<double>(demand.admitted() + demand.rejected());
      demand.set_units(units_asked * asked);
      if (size_asked > 0) {
        v1::StageTerms& terms = *demand.add_stage_terms();
        terms.set_stage("decode");
        terms.add_sums(asked);
        terms.add_sums(size_asked * asked);
      }
    } else if (node.assignment().has_stage()) {
      const bool encodes = node.assignment().stage().stage() == "encode";
      pool = encodes ? kEncode : kDecode;
      const double each = encodes ? 0.1 : 0.3;
      load.set_workers(1);
      if (!ends_jobs || (!encodes && !ends_decoding)) return Add(node, pool, load);
      v1::StageLoad& stage = *load.add_stages();
      stage.set_app_id("app");
      stage.set_stage(node.assignment().stage().stage());
      stage.set_jobs(2 * jobs);
      stage.set_units(20 * done);
      stage.set_compute_s(2 * done * each);
      stage.set_compute_squares_s2(2 * done * each * each);
      stage.set_transfer_s(2 * done * 0.01);
      stage.set_load_s(7);
      if (has_terms && !encodes) AddTerms(stage);
      load.set_workers(1);
      load.set_queued_jobs(1);
      load.set_ring_slots_used(3);
      load.set_utilization(2.5 * each);
    }
    Add(node, pool, load);
  }
  // Half of the jobs have 5 units and take 0.2 s. The others have 15 and take 0.4 s.
  static void AddTerms(v1::StageLoad& stage) {
    v1::CostSums& sums = *stage.mutable_cost_sums();
    const auto half = static_cast<double>(stage.jobs()) / 2;
    sums.set_jobs(stage.jobs());
    for (const double xx : {2.0, 20.0, 250.0}) sums.add_xx(half * xx);
    for (const double xy : {0.6, 7.0}) sums.add_xy(half * xy);
    sums.set_yy(half * 0.2);
  }
  void Add(const v1::Node& node, const std::string& pool, const v1::NodeLoad& load) {
    const std::string wrong =
        window.Add(node.node_id(), node.incarnation(), pool, load, clock.Now());
    if (!wrong.empty()) qFatal("%s", wrong.c_str());
  }
  // Grows the cluster to 5 sets with 10 proxies, 68 instances and three applications, and fills the
  // window.
  void Enlarge() {
    for (const char* app : {"second", "third"})
      Apply(WorkflowCommand(MakeWorkflow(app, {"encode", "decode"})));
    for (int set = 0; set < 4; ++set) {
      for (int i = 0; i < 18; ++i) {
        v1::Node node = MakeNode(absl::StrCat("n-", set, "-", i), i < 2 ? v1::PROXY : v1::INSTANCE);
        node.set_workflow_set(absl::StrCat("set-", set));
        Apply(RegisterCommand(node));
      }
    }
    v1::Command assign;
    *assign.mutable_assign() = Assigner().Plan(state);
    Apply(assign);
    for (const auto& [id, record] : std::map(state.nodes()))
      Apply(StateCommand(id, v1::Node::READY, record.node().assignment().epoch()));
    window = LoadWindow(seconds(300));
    Run(320);
  }
  // Makes as many plans as the state keeps, and reverts them all.
  void FillWithPlans() {
    for (std::size_t i = 0; i < StateMachine::kMaxPlans; ++i) {
      v1::Command start, revert;
      v1::Plan& plan = *start.mutable_start_plan()->mutable_plan();
      plan = MovePlan();
      plan.set_plan_id(absl::StrCat("plan-", i));
      *plan.mutable_prediction() = Predict(state, telemetry(), plan);
      Apply(start);
      revert.mutable_decide_plan()->set_plan_id(plan.plan_id());
      revert.mutable_decide_plan()->set_decision(v1::DecidePlan::REVERT);
      Apply(revert);
    }
  }
  [[nodiscard]] std::string InstanceOf(const std::string& pool) const {
    for (const InstanceView& view : MakePolicyView(state, telemetry(), Config()).instances) {
      if (view.pool == pool) return view.node_id;
    }
    return "";
  }
  // A plan that takes one encoder to the decoders.
  [[nodiscard]] v1::Plan MovePlan() const {
    v1::Plan plan;
    plan.set_plan_id("plan-1");
    plan.set_actor("policy:utilization");
    plan.set_reason("test");
    v1::Move& move = *plan.add_moves();
    move.set_node_id(InstanceOf(kEncode));
    move.mutable_to()->set_pool(kDecode);
    return *CompletePlan(state, plan);
  }
};

const PoolView& PoolOf(const PolicyView& view, const std::string& id) {
  return *std::ranges::find(view.pools, id, &PoolView::id);
}

}  // namespace

class PlanViewsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void policiesSeeWhatIsMeasured() {
    Cluster cluster;
    PolicyView view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    QCOMPARE(view.instances.size(), 4u);
    QVERIFY(!view.instances[0].utilization.has_value());
    cluster.Run(60);
    view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    QCOMPARE(view.pools.size(), 2u);
    QCOMPARE(view.sets.size(), 1u);
    QVERIFY(Near(capacity::Utilization(view.sets[0].model, kEncode), 0.25));
    QVERIFY(Near(capacity::Utilization(view.sets[0].model, kDecode), 0.75));
    QCOMPARE(view.sets[0].model.apps[0].stages[1].after, std::vector<std::string>{"encode"});
    QVERIFY(Near(PoolOf(view, kDecode).load_s, 7));
    QVERIFY(PoolOf(view, kDecode).changes.empty());
    QCOMPARE(view.moves_under_way, 0);
    for (const InstanceView& instance : view.instances) {
      QVERIFY(instance.movable);
      QVERIFY(Near(instance.utilization.value(), instance.pool == kEncode ? 0.25 : 0.75));
    }
  }

  // The measured jobs have ten units each. The jobs that are asked for have thirty.
  void heavierJobsCountMore() {
    Cluster cluster;
    cluster.units_asked = 30;
    cluster.Run(60);
    const PolicyView view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    QVERIFY(Near(capacity::Utilization(view.sets[0].model, kDecode), 3 * 0.75));
  }

  // Nobody knows yet in which stage the proxies count the units.
  void whileAStageIsUnmeasuredJobsCountAsJobs() {
    Cluster cluster;
    cluster.units_asked = 1e6;
    cluster.ends_decoding = false;
    cluster.Run(60);
    const PolicyView view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    QVERIFY(Near(capacity::Utilization(view.sets[0].model, kEncode), 0.25));
    const v1::Capacity capacity =
        MakeCapacity(cluster.state, cluster.telemetry(), "default", "proxy-1");
    QVERIFY(Near(capacity.sets(0).headroom(), 0.75, 0.1));
  }

  void aPoolThatNobodyCanServeSaysWhy() {
    Cluster cluster;
    QCOMPARE(MakeElasticity(cluster.state, cluster.telemetry(), Config()).policy_detail(),
             std::string());
    v1::Workflow gpu = MakeWorkflow("gpu", {"g"});
    gpu.mutable_stages(0)->set_device("cuda");
    cluster.Apply(WorkflowCommand(gpu));
    QCOMPARE(MakeElasticity(cluster.state, cluster.telemetry(), Config()).policy_detail(),
             std::string("g/wan/tiny;cuda: no instance of default has a cuda device"));
    v1::Node able = MakeNode("able", v1::INSTANCE);
    able.add_devices()->set_kind("cuda");
    cluster.Apply(RegisterCommand(able));
    QCOMPARE(MakeElasticity(cluster.state, cluster.telemetry(), Config()).policy_detail(),
             std::string());
    const PolicyView view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    for (const InstanceView& instance : view.instances)
      QCOMPARE(instance.unfit_pools.size(), std::size_t{instance.node_id == "able" ? 0U : 1U});
  }

  void whatMovesCountsWhereItGoes() {
    Cluster cluster;
    cluster.Run(60);
    v1::Command start;
    *start.mutable_start_plan()->mutable_plan() = cluster.MovePlan();
    const std::string mover = start.start_plan().plan().moves(0).node_id();
    cluster.Apply(start);
    v1::Command drain;
    drain.mutable_advance_move()->set_plan_id("plan-1");
    drain.mutable_advance_move()->set_node_id(mover);
    drain.mutable_advance_move()->set_from(v1::Move::PENDING);
    drain.mutable_advance_move()->set_to(v1::Move::DRAINING);
    cluster.Apply(drain);
    cluster.clock.Advance(seconds(3));
    const PolicyView view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    const auto instance = std::ranges::find(view.instances, mover, &InstanceView::node_id);
    QCOMPARE(instance->pool, kDecode);
    QVERIFY(!instance->movable);
    QCOMPARE(view.moves_under_way, 1);
    QCOMPARE(view.now - PoolOf(view, kEncode).changes.at(0), base::Duration(seconds(3)));
    QCOMPARE(view.past.size(), 1u);
    QCOMPARE(view.past[0].from_pool, kEncode);
    QCOMPARE(view.past[0].to_pool, kDecode);
    QCOMPARE(view.past[0].to_set, std::string("default"));
    // Setting the leader's clock changes no age.
    for (const base::Duration step : {-std::chrono::hours(24), std::chrono::hours(48)}) {
      cluster.clock.StepWall(step);
      const PolicyView later = MakePolicyView(cluster.state, cluster.telemetry(), Config());
      QCOMPARE(later.now - PoolOf(later, kEncode).changes.at(0), base::Duration(seconds(3)));
      QVERIFY(later.past.at(0).at == view.past.at(0).at);
      QVERIFY(std::ranges::find(later.instances, mover, &InstanceView::node_id)->since ==
              instance->since);
    }
    // Its utilisation as an encoder says nothing about the decoders.
    QVERIFY(!instance->utilization.has_value());
    const v1::Elasticity elasticity = MakeElasticity(cluster.state, cluster.telemetry(), Config());
    QCOMPARE(elasticity.pools(1).instances(), 3);
    QVERIFY(Near(elasticity.pools(1).utilization(), 0.75));
    QVERIFY(Near(elasticity.pools(0).utilization(), 0.25));
    QCOMPARE(elasticity.plans_size(), 1);
    // The instance serves nobody while it drains.
    const v1::Capacity capacity =
        MakeCapacity(cluster.state, cluster.telemetry(), "default", "proxy-1");
    QCOMPARE(capacity.pools(0).workers() + capacity.pools(1).workers(), 3);
  }

  void proxiesShareTheCapacityByDemand() {
    Cluster cluster;
    const auto of = [&](const std::string& proxy) {
      return MakeCapacity(cluster.state, cluster.telemetry(), "default", proxy);
    };
    QVERIFY(Near(of("proxy-1").share(), 0.5));  // Nobody has asked yet.
    QCOMPARE(of("proxy-1").costs(0).samples(), 0u);
    cluster.Run(60);
    const v1::Capacity capacity = of("proxy-1");
    // Decoding is asked for 0.75 of what it can do, and a quarter more is shared by demand.
    const double busy = 1.25 * 0.75;
    QVERIFY(Near(capacity.share(), busy * 4 / 5 + (1 - busy) / 2, 1e-9));
    QVERIFY(Near(capacity.share() + of("proxy-2").share(), 1, 1e-9));
    QCOMPARE(capacity.pools_size(), 2);
    QCOMPARE(capacity.pools(1).pool(), kDecode);
    QCOMPARE(capacity.pools(1).workers(), 2);
    QCOMPARE(capacity.pools(1).queued_jobs(), 8);  // Jobs in the rings count too.
    QVERIFY(Near(capacity.pools(1).utilization(), 0.75));
    QCOMPARE(capacity.costs(1).stage(), std::string("decode"));
    QVERIFY(Near(capacity.costs(1).seconds_per_unit(), 0.03));
    QVERIFY(Near(capacity.costs(1).units_per_job(), 10));
    QVERIFY(Near(capacity.costs(1).transfer_s(), 0.01));
    QCOMPARE(capacity.sets_size(), 1);
    QVERIFY(Near(capacity.sets(0).headroom(), 0.25, 0.1));
    // A proxy that is gone gives its share back.
    cluster.Apply(EndCommand("proxy-2"));
    QVERIFY(Near(of("proxy-1").share(), 1, 1e-9));
    // A node of no set sees the sets too.
    const v1::Capacity outside = MakeCapacity(cluster.state, cluster.telemetry(), "", "database-1");
    QCOMPARE(outside.pools_size(), 0);
    QCOMPARE(outside.sets_size(), 1);
  }

  // Decoding was measured with sizes of 10 on average, which is 0.3 s. The jobs that are asked for
  // have 40, which is 0.9 s: three times as much, and not four times as their units say.
  void jobsOfCostTermsCountByAllOfThem() {
    Cluster cluster;
    cluster.has_terms = true;
    cluster.units_asked = 40;
    cluster.size_asked = 40;
    v1::Workflow workflow = MakeWorkflow("app", {"encode", "decode"});
    v1::ParameterSpec& size = *workflow.add_parameters();
    size.set_name("size");
    size.set_type(v1::ParameterSpec::INTEGER);
    workflow.mutable_stages(1)->add_cost_terms();
    workflow.mutable_stages(1)->add_cost_terms()->add_factors("size");
    cluster.Apply(WorkflowCommand(workflow));
    v1::Command assign;
    *assign.mutable_assign() = Assigner().Plan(cluster.state);
    if (!assign.assign().assignments().empty()) cluster.Apply(assign);
    for (const auto& [id, record] : std::map(cluster.state.nodes())) {
      if (record.node().role() == v1::INSTANCE)
        cluster.Apply(StateCommand(id, v1::Node::READY, record.node().assignment().epoch()));
    }
    cluster.Run(60);
    const PolicyView view = MakePolicyView(cluster.state, cluster.telemetry(), Config());
    QVERIFY(Near(capacity::Utilization(view.sets[0].model, kDecode), 3 * 0.75));
    // Stages without terms count by the units.
    QVERIFY(Near(capacity::Utilization(view.sets[0].model, kEncode), 4 * 0.25));
  }

  void costsThatAreASumAreFittedForTheProxies() {
    Cluster cluster;
    cluster.has_terms = true;
    const auto cost = [&] {
      return MakeCapacity(cluster.state, cluster.telemetry(), "default", "proxy-1").costs(1);
    };
    cluster.Run(60);
    QVERIFY(cost().seconds_per_term().empty());  // The workflow has no terms.
    v1::Workflow workflow = MakeWorkflow("app", {"encode", "decode"});
    v1::ParameterSpec& size = *workflow.add_parameters();
    size.set_name("size");
    size.set_type(v1::ParameterSpec::INTEGER);
    workflow.mutable_stages(1)->add_cost_terms();
    workflow.mutable_stages(1)->add_cost_terms()->add_factors("size");
    cluster.Apply(WorkflowCommand(workflow));
    QCOMPARE(cost().seconds_per_term_size(), 2);
    QVERIFY(Near(cost().seconds_per_term(0), 0.1, 1e-3));
    QVERIFY(Near(cost().seconds_per_term(1), 0.02, 1e-3));
    QVERIFY(cost().relative_error() < 1e-3);
    QVERIFY(cost().samples() > 0);
    QVERIFY(Near(cost().seconds_per_unit() * cost().units_per_job(), 0.3));  // The mean job.
    const v1::Elasticity shown = MakeElasticity(cluster.state, cluster.telemetry(), Config());
    QCOMPARE(shown.costs_size(), 2);
    QCOMPARE(shown.costs(1).SerializeAsString(), cost().SerializeAsString());
  }

  void aNewLeaderKnowsTheCostsFromTheFirstReports() {
    Cluster cluster;
    cluster.jobs = 1000;  // They ended before this leader led.
    cluster.Run(1);
    const v1::Capacity capacity =
        MakeCapacity(cluster.state, cluster.telemetry(), "default", "proxy-1");
    QVERIFY(capacity.costs(0).samples() > 0 && capacity.costs(1).samples() > 0);
    QVERIFY(Near(capacity.costs(1).seconds_per_unit(), 0.03));
  }

  void policiesSeePlansThatFailed() {
    Cluster cluster;
    cluster.Run(60);
    v1::Command start;
    *start.mutable_start_plan()->mutable_plan() = cluster.MovePlan();
    cluster.Apply(start);
    v1::Command revert;
    revert.mutable_decide_plan()->set_plan_id("plan-1");
    revert.mutable_decide_plan()->set_decision(v1::DecidePlan::REVERT);
    cluster.Apply(revert);
    const auto failed = [&](const std::string& pool) {
      return PoolOf(MakePolicyView(cluster.state, cluster.telemetry(), Config()), pool)
          .failed_plans;
    };
    QCOMPARE(failed(kDecode), 1);
    QCOMPARE(failed(kEncode), 0);
    cluster.clock.Advance(seconds(241));  // Four windows later.
    QCOMPARE(failed(kDecode), 0);
  }

  void aPoolThatNobodyServesLeavesNoHeadroom() {
    Cluster cluster;
    cluster.Run(60);
    const std::string first = cluster.InstanceOf(kDecode);
    cluster.Apply(EndCommand(first));
    cluster.Apply(EndCommand(cluster.InstanceOf(kDecode)));
    const v1::Capacity capacity =
        MakeCapacity(cluster.state, cluster.telemetry(), "default", "proxy-1");
    QCOMPARE(capacity.pools(1).workers(), 0);
    QCOMPARE(capacity.sets(0).headroom(), 0.0);
  }

  void activitiesSayWhatAnInstanceIsAbout() {
    v1::NodeRecord record;
    v1::Node& node = *record.mutable_node();
    node = MakeNode("i", v1::INSTANCE);
    node.set_state(v1::Node::READY);
    v1::NodeLoad load;
    const auto is = [&](v1::Activity activity) {
      const v1::Activity now = ActivityOf(record, &load);
      if (now != activity) qWarning("is %s", v1::Activity_Name(now).c_str());
      return now == activity;
    };
    QVERIFY(is(v1::IDLE));
    node.mutable_assignment()->mutable_stage()->set_stage("encode");
    node.mutable_assignment()->add_app_ids("app");
    node.mutable_assignment()->set_epoch(3);
    QVERIFY(is(v1::LOADING));
    record.set_served_epoch(3);
    QVERIFY(is(v1::SERVING));
    // It is stuck when it makes no progress for longer than a minute and than three whole jobs
    // take.
    load.add_stages()->set_jobs(4);
    load.mutable_stages(0)->set_compute_s(4);
    load.set_no_progress_ms(60'000);
    QVERIFY(is(v1::SERVING));
    load.set_no_progress_ms(60'001);
    QVERIFY(is(v1::STUCK));
    QCOMPARE(ActivityOf(record, nullptr), v1::SERVING);
    load.mutable_stages(0)->set_compute_s(4 * 100);
    QVERIFY(is(v1::SERVING));
    load.set_no_progress_ms(300'001);
    QVERIFY(is(v1::STUCK));
    record.set_load_failed(true);
    QVERIFY(is(v1::QUARANTINED));
    record.clear_load_failed();
    node.mutable_assignment()->set_draining(true);
    QVERIFY(is(v1::DRAINING));
    record.set_drained(true);
    QVERIFY(is(v1::DRAINED));
    // An instance that is removed is drained as soon as it holds nothing.
    node.mutable_assignment()->Clear();
    node.mutable_assignment()->set_removed(true);
    load.set_held_jobs(1);
    QVERIFY(is(v1::DRAINING));
    load.set_held_jobs(0);
    QVERIFY(is(v1::DRAINED));
    node.set_state(v1::Node::DEAD);
    QVERIFY(is(v1::ACTIVITY_UNSPECIFIED));
    node = MakeNode("p", v1::PROXY);
    QVERIFY(is(v1::ACTIVITY_UNSPECIFIED));
  }

  // The leader computes the capacity for every report of every proxy, while its state is locked.
  void capacityOfALargeClusterCostsLittle() {
    Cluster cluster;
    cluster.Enlarge();
    constexpr int kTimes = 20;
    QElapsedTimer timer;
    timer.start();
    for (int i = 0; i < kTimes; ++i) {
      const v1::Capacity capacity =
          MakeCapacity(cluster.state, cluster.telemetry(), "set-1", "n-1-0");
      QCOMPARE(capacity.sets_size(), 5);
      QCOMPARE(capacity.pools_size(), 2);
    }
    const double ms = static_cast<double>(timer.nsecsElapsed()) / 1e6 / kTimes;
    qInfo("MakeCapacity with 5 sets, 68 instances and 10 proxies: %.2f ms", ms);
    QVERIFY(ms < 20);  // Any machine needs far less.
  }

  // The log waits for the copy, not for what is computed from the copy.
  void theCopyForPlansOfALargeClusterCostsLittleAndSaysTheSame() {
    Cluster cluster;
    cluster.Enlarge();
    cluster.FillWithPlans();
    QCOMPARE(cluster.state.plans().size(), StateMachine::kMaxPlans);
    constexpr int kTimes = 20;
    QElapsedTimer timer;
    const auto ms = [&](const auto& does) {
      timer.start();
      for (int i = 0; i < kTimes; ++i) does();
      return static_cast<double>(timer.nsecsElapsed()) / 1e6 / kTimes;
    };
    std::size_t seen = 0;
    const double state_ms = ms([&] { seen += cluster.state.CopyForPlans().nodes().size(); });
    const double window_ms =
        ms([&] { seen += LoadWindow(cluster.window).Last("proxy-1") != nullptr; });
    const double view_ms = ms([&] {
      seen += MakePolicyView(cluster.state, cluster.telemetry(), Config()).instances.size();
    });
    const double status_ms = ms([&] {
      seen += MakeElasticity(cluster.state, cluster.telemetry(), Config()).ByteSizeLong();
    });
    QVERIFY(seen > 0);
    qInfo(
        "68 instances, 200 plans: copies of state %.2f ms, window %.2f ms; view %.2f ms, status "
        "%.2f ms",
        state_ms, window_ms, view_ms, status_ms);
    QVERIFY(state_ms + window_ms < 20);  // Any machine needs far less.
    const StateMachine copy = cluster.state.CopyForPlans();
    QCOMPARE(MakeElasticity(copy, cluster.telemetry(), Config()).SerializeAsString(),
             MakeElasticity(cluster.state, cluster.telemetry(), Config()).SerializeAsString());
    QCOMPARE(MakePolicyView(copy, cluster.telemetry(), Config()).past.size(),
             MakePolicyView(cluster.state, cluster.telemetry(), Config()).past.size());
  }

  void predictionsNeedData() {
    Cluster cluster;
    v1::Prediction prediction = Predict(cluster.state, cluster.telemetry(), cluster.MovePlan());
    QVERIFY(!prediction.insufficient_data().empty());
    QCOMPARE(prediction.pools_size(), 0);
    cluster.ends_jobs = false;
    cluster.Run(2);
    prediction = Predict(cluster.state, cluster.telemetry(), cluster.MovePlan());
    QVERIFY(QString::fromStdString(prediction.insufficient_data()).contains(kDecode.c_str()));
    QVERIFY(Predict(cluster.state, cluster.telemetry(), v1::Plan()).insufficient_data() != "");
  }

  void predictionsFollowTheModel() {
    Cluster cluster;
    cluster.Run(60);
    const v1::Prediction prediction =
        Predict(cluster.state, cluster.telemetry(), cluster.MovePlan());
    QCOMPARE(prediction.insufficient_data(), std::string());
    QVERIFY(QString::fromStdString(prediction.basis()).startsWith("60 s window, "));
    QCOMPARE(prediction.bottleneck_before(), kDecode);
    QCOMPARE(prediction.pools_size(), 2);
    const v1::PoolPrediction& decode = prediction.pools(1);
    QCOMPARE(decode.instances_before(), 2);
    QCOMPARE(decode.instances_after(), 3);
    QVERIFY(Near(decode.utilization_before().value(), 0.75));
    QVERIFY(Near(decode.utilization_after().value(), 0.5));
    QVERIFY(decode.wait_after().value() > 0);
    QVERIFY(decode.wait_after().value() < decode.wait_before().value() / 3);
    QVERIFY(decode.utilization_after().low() <= decode.utilization_after().value());
    QCOMPARE(prediction.apps_size(), 1);
    QVERIFY(Near(prediction.apps(0).throughput_before().value(), 2 / 0.3));
    QVERIFY(Near(prediction.apps(0).throughput_after().value(), 10));
    QVERIFY(Near(prediction.transient_loss_s(), 0.1 + 7));
  }

  void whatIsNotMeasuredHasNoSustainableRate() {
    Cluster cluster;
    cluster.ends_jobs = false;
    cluster.Run(60);
    const v1::Elasticity elasticity = MakeElasticity(cluster.state, cluster.telemetry(), Config());
    QVERIFY(Near(elasticity.apps(0).asked_per_s(), 5));
    QVERIFY(!elasticity.apps(0).has_sustainable_per_s());
  }

  void peopleSeePools() {
    Cluster cluster;
    cluster.Run(60);
    const v1::Elasticity elasticity = MakeElasticity(cluster.state, cluster.telemetry(), Config());
    QCOMPARE(elasticity.plan_revision(), cluster.state.plan_revision());
    QCOMPARE(elasticity.policy(), std::string("utilization"));
    QCOMPARE(elasticity.pools_size(), 2);
    QVERIFY(Near(elasticity.pools(1).utilization(), 0.75));
    QVERIFY(Near(elasticity.pools(1).shares(0).utilization(), 0.75));
    QCOMPARE(elasticity.pools(1).shares(0).app_id(), std::string("app"));
    // 0.5 of 5 jobs a second are refused. Decoding takes 0.3 s on each of two instances.
    QCOMPARE(elasticity.apps_size(), 1);
    QCOMPARE(elasticity.apps(0).workflow_set(), std::string("default"));
    QCOMPARE(elasticity.apps(0).app_id(), std::string("app"));
    QVERIFY(Near(elasticity.apps(0).asked_per_s(), 5));
    QVERIFY(Near(elasticity.apps(0).rejected_per_s(), 0.5));
    QVERIFY(Near(elasticity.apps(0).sustainable_per_s(), 2 / 0.3));
    // Silence is not zero.
    cluster.clock.Advance(seconds(35));
    QVERIFY(
        !MakeElasticity(cluster.state, cluster.telemetry(), Config()).pools(0).has_utilization());
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::PlanViewsTest)
#include "plan_views_test.moc"
