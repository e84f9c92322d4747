#include "nodemanager/service/export_metrics.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "cluster/base/generation.h"
#include "cluster/base/seconds.h"

namespace onepiece::nodemanager {
namespace {

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

void ExportNodes(const StateMachine& state, telemetry::Metrics& metrics) {
  std::map<std::pair<v1::Role, v1::Node::State>, int> counts;
  // Every role and state is set, so that a count that falls to 0 is exported too.
  for (const v1::Role role : {v1::NODE_MANAGER, v1::PROXY, v1::INSTANCE, v1::DATABASE}) {
    for (const v1::Node::State node_state : {v1::Node::STARTING, v1::Node::READY, v1::Node::DEAD}) {
      counts[{role, node_state}] = 0;
    }
  }
  for (const auto& [id, record] : state.nodes())
    ++counts[{record.node().role(), record.node().state()}];
  for (const auto& [key, count] : counts) {
    metrics
        .Gauge("onepiece_nodemanager_nodes", "Nodes that the NodeManager knows",
               {{"role", LowerCase(v1::Role_Name(key.first))},
                {"state", LowerCase(v1::Node::State_Name(key.second))}})
        .Set(count);
  }
}

// The gauges hold what the leader knows. On followers plans and hold are 0, and utilisations and
// the skew are NaN. A pool that is gone or not measured is NaN too.
class ElasticityGauges {
 public:
  explicit ElasticityGauges(telemetry::Metrics& metrics) : metrics_(metrics) {}

  void Set(const v1::Elasticity& elasticity, double skew_s) {
    for (prometheus::Gauge* gauge : pools_) gauge->Set(std::numeric_limits<double>::quiet_NaN());
    for (const v1::PoolStatus& pool : elasticity.pools()) {
      prometheus::Gauge& gauge = metrics_.Gauge(
          "onepiece_nodemanager_pool_utilization", "Mean busy share of a pool over the window",
          {{"workflow_set", pool.workflow_set()}, {"pool", pool.pool()}});
      pools_.insert(&gauge);
      if (pool.has_utilization()) gauge.Set(pool.utilization());
    }
    metrics_.Gauge("onepiece_nodemanager_plans", "Plans that have not ended")
        .Set(elasticity.plans_size());
    metrics_.Gauge("onepiece_nodemanager_hold", "1 while automatic moves are on hold")
        .Set(elasticity.hold().active() ? 1 : 0);
    metrics_
        .Gauge("onepiece_nodemanager_clock_skew_seconds",
               "Largest difference between a node's clock and the leader's, at its last report")
        .Set(skew_s);
  }

 private:
  telemetry::Metrics& metrics_;
  std::set<prometheus::Gauge*> pools_;
};

double LargestSkewS(const ElasticInput& input) {
  std::int64_t most_ms = 0;
  for (const auto& [id, record] : input.state().nodes()) {
    const v1::NodeLoad* load = input.telemetry().window->Last(id);
    if (load != nullptr) most_ms = std::max(most_ms, std::abs(load->clock_skew_ms()));
  }
  return static_cast<double>(most_ms) / 1000;
}

void ExportElasticity(const Controller& controller, ElasticityGauges& gauges) {
  if (!controller.Term().ok()) return gauges.Set({}, std::numeric_limits<double>::quiet_NaN());
  const ElasticInput input = controller.Input();
  gauges.Set(controller.elastic().Describe(input), LargestSkewS(input));
}

void ExportConsensus(const ReplicatedLog& log, telemetry::Metrics& metrics) {
  const v1::ReplicaStatus status = log.Status();
  for (const v1::ReplicaStatus::Role role :
       {v1::ReplicaStatus::LEARNER, v1::ReplicaStatus::FOLLOWER, v1::ReplicaStatus::CANDIDATE,
        v1::ReplicaStatus::LEADER}) {
    metrics
        .Gauge("onepiece_nodemanager_consensus_role", "1 for the role that this replica has",
               {{"role", LowerCase(v1::ReplicaStatus::Role_Name(role))}})
        .Set(status.role() == role ? 1 : 0);
  }
  const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
    metrics.Gauge(name, help).Set(static_cast<double>(value));
  };
  gauge("onepiece_nodemanager_consensus_chosen_slot", "Last slot known to be chosen",
        status.chosen());
  gauge("onepiece_nodemanager_consensus_applied_slot", "Last slot that is part of the state",
        status.applied());
  gauge("onepiece_nodemanager_consensus_round", "Round of the ballot that was promised last",
        status.round());
  gauge("onepiece_nodemanager_consensus_log_slots", "Slots that are kept on disk",
        status.last_slot() + 1 - std::min(status.first_slot(), status.last_slot() + 1));
  gauge("onepiece_nodemanager_consensus_peers_drifting",
        "Replicas whose clock runs too differently to count for the lease",
        static_cast<std::uint64_t>(
            std::count_if(status.progress().begin(), status.progress().end(),
                          [](const v1::ReplicaProgress& peer) { return peer.drifts(); })));
  const ReplicatedLog::Counters counters = log.counters();
  telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_consensus_leader_changes_total",
                                     "New leaders that this replica has followed"),
                     static_cast<double>(counters.leader_changes));
  telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_consensus_disk_failures_total",
                                     "Writes that the disk refused"),
                     static_cast<double>(counters.disk_failures));
}

}  // namespace

prometheus::Histogram& CommitHistogram(telemetry::Metrics& metrics) {
  return metrics.Histogram("onepiece_nodemanager_consensus_commit_seconds",
                           "From a proposal to its result", telemetry::DurationBuckets());
}

void ExportMetrics(const Controller& controller, const NodeManagerService& service,
                   const ReplicatedLog& log, telemetry::Metrics& metrics) {
  const auto elasticity = std::make_shared<ElasticityGauges>(metrics);
  metrics.OnScrape([&controller, &service, &log, &metrics, elasticity] {
    ExportConsensus(log, metrics);
    ExportElasticity(controller, *elasticity);
    controller.Read([&](const StateMachine& state) {
      ExportNodes(state, metrics);
      metrics.Gauge("onepiece_nodemanager_epoch", "Routing epoch")
          .Set(static_cast<double>(state.epoch()));
      metrics.Gauge("onepiece_nodemanager_generation", "How often the state was put back")
          .Set(base::GenerationOf(state.epoch()));
      metrics.Gauge("onepiece_nodemanager_revision", "Revision of the cluster state")
          .Set(static_cast<double>(state.revision()));
      metrics.Gauge("onepiece_nodemanager_log_index", "Log entries applied since the cluster began")
          .Set(static_cast<double>(state.applied_index()));
      metrics.Gauge("onepiece_nodemanager_workflows", "Applications")
          .Set(static_cast<double>(state.workflows().size()));
    });
    metrics.Gauge("onepiece_nodemanager_streams", "Watch streams that are open")
        .Set(service.streams());
    const Controller::Counters counters = controller.counters();
    const std::pair<const char*, std::uint64_t> results[] = {
        {"applied", counters.applied}, {"refused", counters.refused}, {"failed", counters.failed}};
    for (const auto& [result, count] : results) {
      telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_proposals_total",
                                         "Commands proposed to the log", {{"result", result}}),
                         static_cast<double>(count));
    }
    const std::pair<const char*, std::uint64_t> moves[] = {{"done", counters.moves_done},
                                                           {"reverted", counters.moves_reverted},
                                                           {"failed", counters.moves_failed}};
    for (const auto& [result, count] : moves) {
      telemetry::RaiseTo(
          metrics.Counter("onepiece_nodemanager_moves_total",
                          "Moves that have ended while this replica led", {{"result", result}}),
          static_cast<double>(count));
    }
    telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_reports_total", "Heartbeats taken"),
                       static_cast<double>(counters.reports));
  });
}

}  // namespace onepiece::nodemanager
