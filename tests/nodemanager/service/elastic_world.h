// A NodeManager in this process with a clock that the test moves. Its nodes serve, drain and report
// as the test says, and their work is arithmetic.
#pragma once

#include <QtTest>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nodemanager/assignment/pools.h"
#include "nodemanager/service/elasticity_service.h"
#include "tests/nodemanager/service/leader_world.h"
#include "tests/nodemanager/state/builders.h"

namespace onepiece::nodemanager {

/// The pools of two applications with the same model.
inline const std::string kPoolA = "a/wan/tiny", kPoolB = "b/wan/tiny";

/// A leader with scripted nodes.
///
/// Threading: thread-confined.
class ElasticWorld : public LeaderWorld {
 public:
  static constexpr base::Duration kStep = std::chrono::milliseconds(500);

  /// How a node behaves. What it does at a time follows from its assignment.
  struct Behaviour {
    v1::Node node;
    bool silent = false;       ///< It does not report.
    bool keeps_work = false;   ///< It never says that it is drained.
    bool cannot_load = false;  ///< It cannot load the model of any assignment.
    double busy = 0;           ///< Its utilisation while it serves.
    double jobs_per_s = 0;     ///< What it ends while it serves, or what a proxy is asked for.
    double jobs = 0;           ///< How many jobs a proxy was asked for so far.
    base::Duration skew{};     ///< How far its clock is ahead.
    std::map<std::string, std::pair<double, double>> work;  ///< By stage: jobs and seconds so far.
  };

  explicit ElasticWorld(const v1::ElasticityConfig& config) : config_(config) { Open(); }
  ~ElasticWorld() { Close(); }

  /// Puts another leader over the same log. It knows what is replicated, and has no telemetry.
  void FailOver() {
    Close();
    Open();
  }

  /// What the answer to the node's next report says that it admits by.
  std::optional<v1::Capacity> CapacityFor(const std::string& node_id) const {
    const v1::ReportNodeResponse response = AnswerTo(node_id);
    return response.has_capacity() ? std::optional(response.capacity()) : std::nullopt;
  }
  ElasticityService& service() { return *service_; }
  Behaviour& node(const std::string& id) { return nodes_.at(id); }

  void Apply(const v1::Workflow& workflow) {
    v1::Command command;
    *command.mutable_apply_workflow() = workflow;
    if (!controller().Propose(command).ok()) qFatal("ApplyWorkflow failed");
  }
  void Register(const v1::Node& node) {
    nodes_[node.node_id()].node = node;
    if (!controller().Propose(RegisterCommand(node)).ok()) qFatal("RegisterNode failed");
  }

  /// Lets time pass. The nodes work and report, and the leader does its duties.
  void Pass(base::Duration time) {
    for (base::Duration passed{}; passed < time; passed += kStep) {
      clock().Advance(kStep);
      for (auto& [id, behaviour] : nodes_) {
        if (!behaviour.silent) Report(behaviour);
      }
      controller().CheckLiveness();
      controller().StepPlans();
    }
  }
  /// Lets time pass until `wanted` holds. Returns false when it does not hold within `limit`.
  template <typename Wanted>
  bool PassUntil(base::Duration limit, Wanted wanted) {
    for (base::Duration passed{}; !wanted(); passed += kStep) {
      if (passed >= limit) return false;
      Pass(kStep);
    }
    return true;
  }

  v1::Node Known(const std::string& id) {
    v1::Node node;
    controller().Read([&](const StateMachine& state) {
      node = state.nodes().at(id).node();
      controller().AddTelemetry(state, node);
    });
    return node;
  }
  std::string PoolOfNode(const std::string& id) { return AssignedPool(Known(id)); }
  int Count(const std::string& pool) {
    int count = 0;
    for (const auto& [id, behaviour] : nodes_) count += PoolOfNode(id) == pool ? 1 : 0;
    return count;
  }
  v1::Plan Plan(const std::string& plan_id) {
    v1::GetPlanRequest request;
    request.set_plan_id(plan_id);
    v1::Plan plan;
    if (!service_->GetPlan(nullptr, &request, &plan).ok()) qFatal("GetPlan failed");
    return plan;
  }

 private:
  void Open() {
    Lead({.elasticity = config_});
    service_ = std::make_unique<ElasticityService>(controller());
  }
  void Close() {
    StopLog();
    service_.reset();
    Leave();
  }

  void Report(Behaviour& behaviour) {
    const double seconds = std::chrono::duration<double>(kStep).count();
    const v1::Assignment does = Known(behaviour.node.node_id()).assignment();
    const bool instance = behaviour.node.role() == v1::INSTANCE;
    const bool serves = does.has_stage() && !does.draining() && !behaviour.cannot_load;
    v1::ReportNodeRequest report;
    report.set_node_id(behaviour.node.node_id());
    report.set_incarnation(behaviour.node.incarnation());
    report.set_state(!instance || does.has_stage() ? v1::Node::READY : v1::Node::STARTING);
    report.set_assignment_epoch(does.epoch());
    report.set_drained(does.draining() && !behaviour.keeps_work);
    report.set_load_failed(behaviour.cannot_load && does.has_stage());
    if (report.load_failed()) report.set_detail("loading failed: no such model");
    controller().Read([&](const StateMachine& state) { report.set_routing_epoch(state.epoch()); });
    v1::NodeLoad& load = *report.mutable_load();
    load.set_workers(1);
    load.set_sample_unix_ms(base::ToUnixMs(clock().WallNow() + behaviour.skew));
    load.set_clock_skew_ms(behaviour.skew / std::chrono::milliseconds(1));
    if (instance && serves) {
      load.set_utilization(behaviour.busy);
      auto& [jobs, busy_s] = behaviour.work[does.stage().stage()];
      jobs += behaviour.jobs_per_s * seconds;
      busy_s += behaviour.busy * seconds;
    }
    for (const auto& [stage, work] : behaviour.work) {
      v1::StageLoad& entry = *load.add_stages();
      entry.set_app_id("app");
      entry.set_stage(stage);
      const auto whole = static_cast<std::uint64_t>(work.first);
      const double each = work.first > 0 ? work.second / work.first : 0;
      entry.set_jobs(whole);
      entry.set_units(static_cast<double>(whole));
      entry.set_compute_s(each * static_cast<double>(whole));
      entry.set_compute_squares_s2(each * each * static_cast<double>(whole));
    }
    if (behaviour.node.role() == v1::PROXY) {
      behaviour.jobs += behaviour.jobs_per_s * seconds;
      v1::Demand& demand = *load.add_demands();
      demand.set_app_id("app");
      demand.set_admitted(static_cast<std::uint64_t>(behaviour.jobs));
      demand.set_units(static_cast<double>(demand.admitted()));
    }
    const absl::Status status = Send(report);
    if (!status.ok()) qFatal("Report failed: %s", status.ToString().c_str());
  }

  v1::ElasticityConfig config_;
  std::map<std::string, Behaviour> nodes_;
  std::unique_ptr<ElasticityService> service_;
};

}  // namespace onepiece::nodemanager
