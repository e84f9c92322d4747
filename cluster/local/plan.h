// Plans which processes make an embedded cluster, and how each is configured.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/local/data_dir.h"
#include "google/protobuf/message.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::local {

struct NodePlan {
  std::string node_id;  ///< "proxy-1"
  std::string role;     ///< "proxy"
  std::string program;  ///< The program's path.
  std::shared_ptr<google::protobuf::Message>
      config;                      ///< A v1::…Config. node.nodemanagers is filled in later.
  v1::NodeConfig* node = nullptr;  ///< Points into `config`.
};

struct ClusterPlan {
  std::string cluster_id;
  std::string fabric;            ///< The fabric's URI.
  bool insecure = false;         ///< As in NodeConfig, for all nodes.
  std::size_t nodemanagers = 1;  ///< Replicas. Several replicas have fixed addresses.
  std::vector<NodePlan> nodes;   ///< The NodeManager's replicas first.
};

/// Fills in what `config` leaves open: workflow files, the model root, and one instance for every
/// pool of stages. Relative paths in `config` start from `folder`.
///
/// Errors: NOT_FOUND, INVALID_ARGUMENT (workflow files).
absl::StatusOr<v1::LocalClusterConfig> Complete(v1::LocalClusterConfig config,
                                                const std::string& folder);

/// Makes the plan.
/// REQUIRES: `config` is complete.
///
/// Errors: NOT_FOUND (a program is missing), INVALID_ARGUMENT (counts).
absl::StatusOr<ClusterPlan> MakePlan(const v1::LocalClusterConfig& config, const DataDir& dir,
                                     const std::string& cluster_id);

/// Makes the cluster read-only: all nodes except the instances refuse calls by which people change
/// something.
void MakeReadOnly(ClusterPlan& plan);

/// Writes a configuration message as YAML.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace onepiece::local
