// Which processes make an embedded cluster, and how each is configured.
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
  std::string program;  ///< Path.
  std::shared_ptr<google::protobuf::Message>
      config;                      ///< A v1::…Config; node.nodemanagers is filled in later.
  v1::NodeConfig* node = nullptr;  ///< Points into `config`.
};

struct ClusterPlan {
  std::string cluster_id;
  std::string fabric;            ///< URI.
  std::size_t nodemanagers = 1;  ///< Replicas; several have fixed addresses.
  std::vector<NodePlan> nodes;   ///< The NodeManager's replicas first.
};

/// Fills in what `config` leaves open: workflow files, model root, one instance for every pool of
/// stages.
/// `folder`: where relative paths in it start. Errors: NOT_FOUND, INVALID_ARGUMENT (workflow
/// files).
absl::StatusOr<v1::LocalClusterConfig> Complete(v1::LocalClusterConfig config,
                                                const std::string& folder);

/// REQUIRES: `config` is complete. Errors: NOT_FOUND (a program is missing), INVALID_ARGUMENT
/// (counts).
absl::StatusOr<ClusterPlan> MakePlan(const v1::LocalClusterConfig& config, const DataDir& dir,
                                     const std::string& cluster_id);

/// The cluster is to be looked at only: all but its instances refuse what people would
/// change.
void MakeReadOnly(ClusterPlan& plan);

/// A configuration message as YAML.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace onepiece::local
