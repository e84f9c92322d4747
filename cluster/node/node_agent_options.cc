#include "cluster/base/build_id.h"
#include "cluster/node/node_agent.h"

namespace onepiece::node {

NodeAgentOptions MakeNodeAgentOptions(v1::Role role, const v1::NodeConfig& node,
                                      std::string address, std::string metrics_address,
                                      telemetry::Metrics& metrics, rpc::Door* door) {
  return {.role = role,
          .node_id = node.node_id(),
          .nodemanagers = {node.nodemanagers().begin(), node.nodemanagers().end()},
          .address = std::move(address),
          .metrics_address = std::move(metrics_address),
          .workflow_set = node.workflow_set(),
          .version = ONEPIECE_VERSION,
          .build = std::string(base::BuildId()),
          .zone = node.zone(),
          .host = node.host(),
          .labels = {node.labels().begin(), node.labels().end()},
          .metrics = &metrics,
          .door = door,
          .identity = door == nullptr ? "" : node.identity()};
}

}  // namespace onepiece::node
