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
  gauge("onepiece_nodemanager_has_leader", "1 while this replica leads or knows who does",
        status.leader().empty() ? 0 : 1);
  gauge("onepiece_nodemanager_is_leader", "1 while this replica leads",
        status.role() == v1::ReplicaStatus::LEADER ? 1 : 0);
  gauge("onepiece_nodemanager_lease", "1 while this replica leads and its lease covers reads",
        status.lease() ? 1 : 0);
  gauge("onepiece_nodemanager_corrupt", "1 when the state differs from that of the majority",
        status.health() == v1::ReplicaStatus::CORRUPT ? 1 : 0);
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
  gauge("onepiece_nodemanager_proposals_pending", "Commands that wait to be chosen",
        counters.pending);
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    telemetry::RaiseTo(metrics.Counter(name, help), static_cast<double>(value));
  };
  counter("onepiece_nodemanager_proposals_committed_total", "Slots of the log known to be chosen",
          status.chosen());
  counter("onepiece_nodemanager_proposals_applied_total",
          "Slots of the log that are part of the state", status.applied());
  counter("onepiece_nodemanager_leader_changes_seen_total",
          "New leaders that this replica has followed", counters.leader_changes);
  counter("onepiece_nodemanager_consensus_disk_failures_total", "Writes that the disk refused",
          counters.disk_failures);
  const ReplicatedLog::DiskUse disk = log.disk_use();
  gauge("onepiece_nodemanager_db_total_size_in_bytes",
        "Size of the database with its write-ahead log", disk.bytes);
  gauge("onepiece_nodemanager_db_available_bytes", "What the database's disk has left",
        disk.available);
}

void ExportState(const StateMachine& state, telemetry::Metrics& metrics) {
  const auto gauge = [&](const char* name, const char* help, auto value) {
    metrics.Gauge(name, help).Set(static_cast<double>(value));
  };
  gauge("onepiece_nodemanager_epoch", "Routing epoch", state.epoch());
  gauge("onepiece_nodemanager_generation", "How often the state was put back",
        base::GenerationOf(state.epoch()));
  gauge("onepiece_nodemanager_revision", "Revision of the cluster state", state.revision());
  gauge("onepiece_nodemanager_log_index", "Log entries applied since the cluster began",
        state.applied_index());
  gauge("onepiece_nodemanager_workflows", "Applications", state.workflows().size());
  gauge("onepiece_nodemanager_state_size_in_bytes", "Size of nodes and workflows in the state",
        state.bytes());
  gauge("onepiece_nodemanager_quota_state_bytes",
        "Above this size of the state, registrations and workflows are refused",
        StateMachine::kMaxBytes);
}

void ExportWatches(const NodeManagerService& service, telemetry::Metrics& metrics) {
  metrics.Gauge("onepiece_nodemanager_streams", "Watch streams that are open")
      .Set(static_cast<double>(service.streams()));
  const WatchCounters watches = service.watch_counters();
  metrics.Gauge("onepiece_nodemanager_slow_watchers", "Watchers that had not taken the last news")
      .Set(static_cast<double>(watches.slow));
  telemetry::RaiseTo(
      metrics.Counter("onepiece_nodemanager_routing_snapshots_total",
                      "Whole routing tables sent to watchers that were too far behind for changes"),
      static_cast<double>(watches.snapshots));
}

}  // namespace

prometheus::Histogram& CommitHistogram(telemetry::Metrics& metrics) {
  return metrics.Histogram("onepiece_nodemanager_proposal_duration_seconds",
                           "From a proposal to its result", telemetry::DurationBuckets());
}

ReplicatedLogOptions::Observers MakeObservers(telemetry::Metrics& metrics) {
  prometheus::Histogram& syncs =
      metrics.Histogram("onepiece_nodemanager_disk_wal_fsync_duration_seconds",
                        "One write of the log with its sync", telemetry::DurationBuckets());
  prometheus::Histogram& applies =
      metrics.Histogram("onepiece_nodemanager_apply_duration_seconds",
                        "Applying what was chosen together", telemetry::DurationBuckets());
  // The log calls this for every answer of a peer, on its one thread, so each histogram is looked
  // up once.
  const auto round_trips = std::make_shared<std::map<std::string, prometheus::Histogram*>>();
  return {.sync = [&syncs](base::Duration took) { syncs.Observe(base::ToSeconds(took)); },
          .apply = [&applies](base::Duration took) { applies.Observe(base::ToSeconds(took)); },
          .round_trip =
              [&metrics, round_trips](const std::string& peer, base::Duration took) {
                prometheus::Histogram*& known = (*round_trips)[peer];
                if (known == nullptr) {
                  known = &metrics.Histogram(
                      "onepiece_nodemanager_network_peer_round_trip_time_seconds",
                      "From the leader's message to the peer's answer, its sync included",
                      telemetry::DurationBuckets(), {{"peer", peer}});
                }
                known->Observe(base::ToSeconds(took));
              }};
}

void ExportMetrics(const Controller& controller, const NodeManagerService& service,
                   const ReplicatedLog& log, telemetry::Metrics& metrics) {
  const auto elasticity = std::make_shared<ElasticityGauges>(metrics);
  metrics.OnScrape([&controller, &service, &log, &metrics, elasticity] {
    ExportConsensus(log, metrics);
    ExportElasticity(controller, *elasticity);
    controller.Read([&](const StateMachine& state) {
      ExportNodes(state, metrics);
      ExportState(state, metrics);
    });
    ExportWatches(service, metrics);
    const Controller::Counters counters = controller.counters();
    const std::pair<const char*, std::uint64_t> results[] = {{"applied", counters.applied},
                                                             {"refused", counters.refused}};
    for (const auto& [result, count] : results) {
      telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_proposals_total",
                                         "Commands proposed to the log", {{"result", result}}),
                         static_cast<double>(count));
    }
    telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_proposals_failed_total",
                                       "Commands that were not applied, or of which nobody knows"),
                       static_cast<double>(counters.failed));
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
