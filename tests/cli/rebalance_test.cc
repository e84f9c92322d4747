// Tests `onepiece rebalance`, `drain` and `pin` from outside, against a NodeManager with scripted
// answers.
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <QtTest>
#include <deque>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/cli/plan_output.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/elasticity.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using nlohmann::json;
using testing::Outcome;

grpc::Status Refusal(absl::StatusCode code, const std::string& reason) {
  return rpc::ToGrpc(base::MakeError(code, reason, "refused: " + reason));
}

/// Keeps the requests. Every GetPlan moves the plan to the next of `states_`.
class FakeElasticity final : public v1::ElasticityService::Service,
                             public v1::NodeManagerService::Service {
 public:
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    *response = cluster;
    return grpc::Status::OK;
  }
  grpc::Status GetElasticity(grpc::ServerContext*, const v1::GetElasticityRequest*,
                             v1::Elasticity* response) override {
    *response = elasticity;
    return grpc::Status::OK;
  }
  grpc::Status ProposePlan(grpc::ServerContext*, const v1::ProposePlanRequest* request,
                           v1::Plan* response) override {
    *response = plan;
    if (!request->moves().empty()) *response->mutable_moves() = request->moves();
    return grpc::Status::OK;
  }
  grpc::Status ApplyPlan(grpc::ServerContext*, const v1::ApplyPlanRequest* request,
                         v1::Plan* response) override {
    const base::MutexLock lock(mutex_);
    applied_.push_back(*request);
    if (!answer.ok()) return answer;
    response->set_plan_id("plan-1");
    response->set_state(v1::Plan::RUNNING);
    *response->mutable_moves() = request->moves();
    return grpc::Status::OK;
  }
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request,
                       v1::Plan* response) override {
    const base::MutexLock lock(mutex_);
    if (states_.empty()) return Refusal(absl::StatusCode::kNotFound, "PLAN_UNKNOWN");
    response->set_plan_id(request->plan_id());
    response->set_state(states_.front());
    if (states_.size() > 1) states_.pop_front();
    return grpc::Status::OK;
  }
  grpc::Status ListPlans(grpc::ServerContext*, const v1::ListPlansRequest*,
                         v1::ListPlansResponse* response) override {
    *response = plans;
    return grpc::Status::OK;
  }
  grpc::Status UndoPlan(grpc::ServerContext*, const v1::DecidePlanRequest* request,
                        v1::Plan* response) override {
    const base::MutexLock lock(mutex_);
    undone_.push_back(*request);
    response->set_plan_id("plan-2");
    response->set_state(v1::Plan::RUNNING);
    response->set_undo_of(request->plan_id());
    return answer;
  }
  grpc::Status SetHold(grpc::ServerContext*, const v1::SetHoldRequest* request,
                       v1::Hold* response) override {
    response->set_active(request->active());
    response->set_actor(request->actor());
    response->set_until_unix_ms(request->for_s() * 1000);
    return answer;
  }
  grpc::Status SetPoolLimits(grpc::ServerContext*, const v1::SetPoolLimitsRequest* request,
                             v1::PoolLimits* response) override {
    *response = request->limits();
    return answer;
  }

  // Set while no call is under way.
  v1::Cluster cluster;
  v1::Elasticity elasticity;
  v1::Plan plan;
  v1::ListPlansResponse plans;
  grpc::Status answer;

  void SetStates(std::deque<v1::Plan::State> states) {
    const base::MutexLock lock(mutex_);
    states_ = std::move(states);
  }
  std::vector<v1::ApplyPlanRequest> applied() {
    const base::MutexLock lock(mutex_);
    return applied_;
  }
  std::vector<v1::DecidePlanRequest> undone() {
    const base::MutexLock lock(mutex_);
    return undone_;
  }

 private:
  base::Mutex mutex_;
  std::deque<v1::Plan::State> states_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ApplyPlanRequest> applied_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::DecidePlanRequest> undone_ ABSL_GUARDED_BY(mutex_);
};

v1::Node Instance(const std::string& id, const std::string& stage) {
  v1::Node node;
  node.set_node_id(id);
  node.set_role(v1::INSTANCE);
  node.set_workflow_set("default");
  v1::StageSpec& spec = *node.mutable_assignment()->mutable_stage();
  spec.set_stage(stage);
  spec.set_plugin("wan");
  spec.set_model("tiny");
  return node;
}

}  // namespace

class RebalanceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    fake_ = std::make_unique<FakeElasticity>();
    *fake_->cluster.add_nodes() = Instance("one", "encode");
    v1::Node pinned = Instance("two", "decode");
    pinned.mutable_placement()->set_pool("decode/wan/tiny");
    pinned.mutable_placement()->set_pinned(true);
    *fake_->cluster.add_nodes() = pinned;
    v1::Node proxy;
    proxy.set_node_id("proxy");
    proxy.set_role(v1::PROXY);
    *fake_->cluster.add_nodes() = proxy;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<v1::ElasticityService::Service*>(fake_.get()));
    builder.RegisterService(static_cast<v1::NodeManagerService::Service*>(fake_.get()));
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + QString::number(port);
  }
  void cleanup() {
    server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC));
    server_.reset();
  }

  void ParsePlace_NamesSetsAndPools_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("set");
    QTest::addColumn<QString>("pool");
    QTest::newRow("stage") << "decode"
                           << ""
                           << "decode";
    QTest::newRow("id") << "decode/wan/tiny;2 threads"
                        << ""
                        << "decode/wan/tiny;2 threads";
    QTest::newRow("colon in an id") << "decode/wan/c:model"
                                    << ""
                                    << "decode/wan/c:model";
    QTest::newRow("idle") << "idle"
                          << ""
                          << "";
    QTest::newRow("other set") << "set-2:decode/wan/tiny"
                               << "set-2"
                               << "decode/wan/tiny";
    QTest::newRow("idle of another set") << "set-2:idle"
                                         << "set-2"
                                         << "";
  }
  void ParsePlace_NamesSetsAndPools() {
    QFETCH(QString, text);
    QFETCH(QString, set);
    QFETCH(QString, pool);
    const auto place = ParsePlace(text.toStdString());
    QVERIFY2(place.ok(), place.status().ToString().c_str());
    QCOMPARE(QString::fromStdString(place->workflow_set()), set);
    QCOMPARE(QString::fromStdString(place->pool()), pool);
    if (set.isEmpty()) QCOMPARE(QString::fromStdString(PlaceName(*place)), text);
  }

  void BadMoves_AreUsageErrors_data() {
    QTest::addColumn<QString>("move");
    for (const char* move : {"one", "=idle", "one=", "one=:decode", "one=set-2:"})
      QTest::newRow(move) << move;
  }
  void BadMoves_AreUsageErrors() {
    QFETCH(QString, move);
    const Outcome outcome = Run({"rebalance", "apply", move});
    QCOMPARE(outcome.exit_code, 2);
    QVERIFY(outcome.out.empty());
    QVERIFY(fake_->applied().empty());
  }

  void Plan_ShowsMovesAndEffectWithBands() {
    v1::Plan& plan = fake_->plan;
    plan.set_state(v1::Plan::PROPOSED);
    plan.set_base_revision(17);
    v1::Prediction& prediction = *plan.mutable_prediction();
    prediction.set_basis("5 min window, 42 jobs");
    v1::PoolPrediction& pool = *prediction.add_pools();
    pool.set_pool("decode/wan/tiny");
    pool.set_instances_before(1);
    pool.set_instances_after(2);
    pool.mutable_utilization_before()->set_value(1.2);
    pool.mutable_utilization_after()->set_value(0.6);
    pool.mutable_utilization_after()->set_low(0.55);
    pool.mutable_utilization_after()->set_high(0.65);
    pool.mutable_wait_before()->set_value(-1);
    pool.mutable_wait_after()->set_value(2.5);
    const Outcome outcome = Run({"rebalance", "plan", "one=decode"});
    QCOMPARE(outcome.exit_code, 0);
    for (const char* text : {"5 min window, 42 jobs", "1 → 2", "60 % (55 to 65)", "grows", "2.5 s",
                             "rebalance apply 'one=decode' --base-revision 17"}) {
      QVERIFY2(outcome.Says(text), (outcome.out + outcome.err).c_str());
    }
    const json document = Run({"rebalance", "plan", "one=decode", "--json"}).Document();
    QCOMPARE(document["state"], json("PROPOSED"));
    QCOMPARE(document["prediction"]["pools"][0]["utilization_after"]["high"], json(0.65));
  }

  void Plan_WithoutData_SaysSoAndGuessesNothing() {
    fake_->plan.set_state(v1::Plan::PROPOSED);
    fake_->plan.mutable_prediction()->set_insufficient_data("decode/wan/tiny has 2 jobs");
    const Outcome outcome = Run({"rebalance", "plan", "one=decode"});
    QVERIFY(outcome.Says("insufficient data: decode/wan/tiny has 2 jobs"));
    QVERIFY(!outcome.Says("UTILISATION"));
  }

  void Plan_PolicyWantsNothing_SaysWhy() {
    fake_->plan.set_state(v1::Plan::PROPOSED);
    fake_->plan.set_reason("no pool is above 85 %");
    const Outcome outcome = Run({"rebalance", "plan"});
    QCOMPARE(outcome.exit_code, 0);
    QVERIFY(outcome.Says("Nothing would move") && outcome.Says("no pool is above 85 %"));
  }

  void Apply_SaysWhoAndWhy_AndKeepsThePin() {
    const Outcome outcome =
        Run({"rebalance", "apply", "one=set-2:decode", "two=idle", "--reason", "night", "--actor",
             "operator:ann", "--confirm-within", "60", "--base-revision", "9", "--json"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QCOMPARE(outcome.Document()["plan_id"], json("plan-1"));
    const v1::ApplyPlanRequest request = fake_->applied().at(0);
    QCOMPARE(request.actor(), std::string("operator:ann"));
    QCOMPARE(request.reason(), std::string("night"));
    QCOMPARE(request.confirm_within_s(), 60);
    QCOMPARE(request.base_revision(), std::uint64_t{9});
    QVERIFY(!request.request_id().empty());
    QCOMPARE(request.moves(0).to().workflow_set(), std::string("set-2"));
    QVERIFY(!request.moves(0).to().pinned());
    QVERIFY(request.moves(1).to().pinned() && request.moves(1).to().pool().empty());
  }

  void Apply_Refused_HasItsExitCode_data() {
    QTest::addColumn<int>("code");
    QTest::addColumn<int>("exit_code");
    QTest::newRow("stale") << int(absl::StatusCode::kAborted) << 4;
    QTest::newRow("precondition") << int(absl::StatusCode::kFailedPrecondition) << 4;
    QTest::newRow("unknown pool") << int(absl::StatusCode::kNotFound) << 3;
    QTest::newRow("ambiguous pool") << int(absl::StatusCode::kInvalidArgument) << 2;
  }
  void Apply_Refused_HasItsExitCode() {
    QFETCH(int, code);
    QFETCH(int, exit_code);
    fake_->answer = Refusal(static_cast<absl::StatusCode>(code), "WHY");
    const Outcome outcome = Run({"rebalance", "apply", "one=decode", "--json"});
    QCOMPARE(outcome.exit_code, exit_code);
    QCOMPARE(outcome.Document()["error"]["reason"], json("WHY"));
  }

  void UnknownNode_Is3_AndAProxyIsNoInstance() {
    QCOMPARE(Run({"rebalance", "apply", "nobody=idle"}).exit_code, 3);
    QCOMPARE(Run({"drain", "proxy"}).exit_code, 2);
    QVERIFY(fake_->applied().empty());
  }

  void Wait_EndsWithThePlan_data() {
    QTest::addColumn<int>("end");
    QTest::addColumn<int>("exit_code");
    QTest::newRow("done") << int(v1::Plan::DONE) << 0;
    QTest::newRow("unconfirmed") << int(v1::Plan::UNCONFIRMED) << 0;
    QTest::newRow("reverted") << int(v1::Plan::REVERTED) << 1;
    QTest::newRow("failed") << int(v1::Plan::FAILED) << 1;
  }
  void Wait_EndsWithThePlan() {
    QFETCH(int, end);
    QFETCH(int, exit_code);
    fake_->SetStates({v1::Plan::RUNNING, v1::Plan::RUNNING, static_cast<v1::Plan::State>(end)});
    const Outcome outcome = Run({"rebalance", "apply", "one=decode", "--wait", "--json"});
    QCOMPARE(outcome.exit_code, exit_code);
    QCOMPARE(outcome.Document()["state"],
             json(v1::Plan::State_Name(static_cast<v1::Plan::State>(end))));
  }

  void Drain_TakesTheInstanceOut_AndSaysWhenItIsSafe() {
    fake_->SetStates({v1::Plan::DONE});
    const Outcome outcome = Run({"drain", "one", "--wait"});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    QVERIFY(outcome.Says("safe to remove") && outcome.Says("onepiece drain one --cancel"));
    const v1::Placement to = fake_->applied().at(0).moves(0).to();
    QVERIFY(to.removed() && to.pool().empty() && !to.pinned());
  }

  void DrainCancel_UndoesTheLastDrainThatStands() {
    const auto add = [&](const std::string& id, const std::string& node, bool removed,
                         const std::string& undone_by) {
      v1::Plan& plan = *fake_->plans.add_plans();
      plan.set_plan_id(id);
      plan.set_state(v1::Plan::DONE);
      plan.set_undone_by(undone_by);
      plan.add_moves()->set_node_id(node);
      plan.mutable_moves(0)->mutable_to()->set_removed(removed);
    };
    add("other-node", "two", true, "");
    add("a-move", "one", false, "");
    add("undone", "one", true, "x");
    add("it", "one", true, "");
    add("older", "one", true, "");
    QCOMPARE(Run({"drain", "one", "--cancel"}).exit_code, 0);
    QCOMPARE(fake_->undone().at(0).plan_id(), std::string("it"));
    fake_->plans.Clear();
    QCOMPARE(Run({"drain", "one", "--cancel"}).exit_code, 3);
  }

  void Pin_ChangesNothingButThePin() {
    fake_->SetStates({v1::Plan::DONE});
    QCOMPARE(Run({"pin", "one"}).exit_code, 0);
    const v1::Placement pinned = fake_->applied().at(0).moves(0).to();
    QCOMPARE(pinned.pool(), std::string("encode/wan/tiny"));  // The instance is there now.
    QVERIFY(pinned.pinned());
    QCOMPARE(Run({"unpin", "two"}).exit_code, 0);
    const v1::Placement unpinned = fake_->applied().at(1).moves(0).to();
    QCOMPARE(unpinned.pool(), std::string("decode/wan/tiny"));
    QVERIFY(!unpinned.pinned());
    QCOMPARE(Run({"pin", "two"}).exit_code, 0);  // It is pinned already, so no plan is made.
    QCOMPARE(fake_->applied().size(), std::size_t{2});
  }

  void StatusOfTheCluster_ShowsTheClocks() {
    v1::Node& wrong = *fake_->cluster.mutable_nodes(0);
    wrong.mutable_load()->set_clock_skew_ms(-86'400'000);
    wrong.set_detail("its clock is 86400.0 s behind the NodeManager's: check NTP");
    fake_->cluster.mutable_nodes(1)->mutable_load()->set_clock_skew_ms(0);
    QVERIFY(Run({"status"}).Says("86400.0 s behind"));
    const json processes = Run({"status", "--json"}).Document()["processes"];
    QCOMPARE(processes[0]["clock_skew_ms"], json(-86'400'000));
    QVERIFY(processes[1]["clock_skew_ms"].is_null());
    QCOMPARE(processes[2]["clock_skew_ms"], json(0));
  }

  void Status_TellsUnmeasuredFromIdle() {
    v1::Elasticity& elasticity = fake_->elasticity;
    elasticity.set_policy("utilization");
    elasticity.set_policy_detail("no pool is above 85 %");
    elasticity.set_window_s(300);
    v1::PoolStatus& idle = *elasticity.add_pools();
    idle.set_pool("encode/wan/tiny");
    idle.set_utilization(0);
    v1::PoolStatus& unknown = *elasticity.add_pools();
    unknown.set_workflow_set("set-2");
    unknown.set_pool("decode/wan/tiny");
    elasticity.mutable_hold()->set_active(true);
    elasticity.mutable_hold()->set_actor("operator:ann");
    elasticity.add_plans()->set_plan_id("plan-7");
    const Outcome outcome = Run({"rebalance", "status"});
    QCOMPARE(outcome.exit_code, 0);
    for (const char* text : {"0 %", "not measured yet", "set-2:decode/wan/tiny", "operator:ann",
                             "plan-7", "no pool is above 85 %"}) {
      QVERIFY2(outcome.Says(text), outcome.out.c_str());
    }
    const json document = Run({"rebalance", "status", "--json"}).Document();
    QCOMPARE(document["pools"][0]["utilization"], json(0.0));
    QVERIFY(document["pools"][1]["utilization"].is_null());
  }

  void Status_ShowsWhatApplicationsAreAskedForAndCouldHave() {
    v1::AppStatus& busy = *fake_->elasticity.add_apps();
    busy.set_workflow_set("default");
    busy.set_app_id("t2v");
    busy.set_asked_per_s(12.5);
    busy.set_rejected_per_s(2.25);
    busy.set_sustainable_per_s(10.25);
    v1::AppStatus& fresh = *fake_->elasticity.add_apps();
    fresh.set_workflow_set("set-2");
    fresh.set_app_id("i2v");
    const Outcome outcome = Run({"rebalance", "status"});
    QCOMPARE(outcome.exit_code, 0);
    for (const char* text : {"t2v", "12.5/s", "2.25/s", "10.2/s", "set-2:i2v", "not measured yet"})
      QVERIFY2(outcome.Says(text), outcome.out.c_str());
    const json apps = Run({"rebalance", "status", "--json"}).Document()["apps"];
    QCOMPARE(apps[0]["asked_per_s"], json(12.5));
    QCOMPARE(apps[0]["rejected_per_s"], json(2.25));
    QCOMPARE(apps[0]["sustainable_per_s"], json(10.25));
    QCOMPARE(apps[1]["app"], json("i2v"));
    QVERIFY(apps[1]["sustainable_per_s"].is_null());
  }

  void Status_ShowsCostsAndHowWellTheyFit() {
    v1::StageCost& product = *fake_->elasticity.add_costs();
    product.set_app_id("t2v");
    product.set_stage("decode");
    product.set_pool("decode/wan/tiny");
    product.set_samples(42);
    product.set_seconds_per_unit(0.0125);
    product.set_units_per_job(8);
    v1::StageCost& fitted = *fake_->elasticity.add_costs();
    fitted.set_app_id("t2v");
    fitted.set_stage("diffusion");
    fitted.set_samples(17);
    fitted.set_seconds_per_unit(0.5);
    fitted.add_seconds_per_term(2.5e-7);
    fitted.add_seconds_per_term(3.25e-12);
    fitted.set_relative_error(0.034);
    v1::StageCost& unknown = *fake_->elasticity.add_costs();
    unknown.set_app_id("t2v");
    unknown.set_stage("text_encode");
    const Outcome outcome = Run({"rebalance", "status"});
    const QString text = QString::fromStdString(outcome.out).simplified();
    for (const char* row : {"t2v decode 0.0125 s a unit 8 42",
                            "t2v diffusion 2.5e-07 + 3.25e-12 s by term 0 17 3.4 %",
                            "t2v text_encode not measured yet 0"})
      QVERIFY2(text.contains(row), outcome.out.c_str());
    const json costs = Run({"rebalance", "status", "--json"}).Document()["costs"];
    QCOMPARE(costs[0]["seconds_per_unit"], json(0.0125));
    QCOMPARE(costs[0]["pool"], json("decode/wan/tiny"));
    QVERIFY(costs[0]["relative_error"].is_null());
    QCOMPARE(costs[1]["seconds_per_term"], json::parse("[2.5e-7, 3.25e-12]"));
    QCOMPARE(costs[1]["relative_error"], json(0.034));
    QCOMPARE(costs[1]["samples"], json(17));
    QVERIFY(costs[2]["seconds_per_unit"].is_null());
  }

  void HoldAndLimits_GoThrough() {
    const json hold = Run({"rebalance", "hold", "--for", "60", "--json"}).Document();
    QCOMPARE(hold["until_unix_ms"], json(60000));
    QVERIFY(hold["actor"].get<std::string>().starts_with("operator:"));
    QCOMPARE(Run({"rebalance", "hold", "--release", "--json"}).Document()["active"], json(false));
    const json limits =
        Run({"rebalance", "limits", "set-2:decode", "--min", "2", "--max", "3", "--json"})
            .Document();
    QCOMPARE(limits["workflow_set"], json("set-2"));
    QCOMPARE(limits["max_instances"], json(3));
  }

  void UnknownPlan_Is3() { QCOMPARE(Run({"rebalance", "show", "plan-9"}).exit_code, 3); }

 private:
  Outcome Run(const QStringList& arguments) {
    return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece",
                               arguments + QStringList{"--nodemanager", address_});
  }

  std::unique_ptr<FakeElasticity> fake_;
  std::unique_ptr<grpc::Server> server_;
  QString address_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::RebalanceTest)
#include "rebalance_test.moc"
