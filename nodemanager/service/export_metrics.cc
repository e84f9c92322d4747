#include "nodemanager/service/export_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace onepiece::nodemanager {
namespace {

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

void ExportNodes(const StateMachine& state, telemetry::Metrics& metrics) {
  std::map<std::pair<v1::Role, v1::Node::State>, int> counts;
  // All of them, so that a count that falls to nothing is told.
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

}  // namespace

void ExportMetrics(const Controller& controller, const NodeManagerService& service,
                   telemetry::Metrics& metrics) {
  metrics.OnScrape([&controller, &service, &metrics] {
    controller.Read([&](const StateMachine& state) {
      ExportNodes(state, metrics);
      metrics.Gauge("onepiece_nodemanager_epoch", "Routing epoch")
          .Set(static_cast<double>(state.epoch()));
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
    telemetry::RaiseTo(metrics.Counter("onepiece_nodemanager_reports_total", "Heartbeats taken"),
                       static_cast<double>(counters.reports));
  });
}

}  // namespace onepiece::nodemanager
