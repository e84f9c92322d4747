// What the leader goes by: the settings of the cluster's configuration, ready to use.
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "onepiece/v1/cluster_config.pb.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::nodemanager {

/// Units: the times are scaled (base::Scaled). Those of messages are not.
struct Settings {
  v1::ElasticityConfig elasticity;  ///< Complete, with a policy that MakePolicy() knows.
  base::Duration report_interval = std::chrono::milliseconds(500);
  base::Duration dead_after = std::chrono::seconds(3);
  base::Duration forget_after = std::chrono::hours(24);
};

/// Fills in the defaults.
/// Errors: INVALID_ARGUMENT (BAD_CONFIG with metadata "field").
absl::StatusOr<v1::LivenessConfig> CompleteLiveness(v1::LivenessConfig liveness);

/// Makes settings of the sections elasticity and liveness.
/// Errors: those of CompleteElasticity(), MakePolicy() and CompleteLiveness().
absl::StatusOr<Settings> MakeSettings(const v1::ClusterConfig& config);

/// The sections elasticity and liveness that mean these settings.
v1::ClusterConfig ConfigOf(const Settings& settings);

}  // namespace onepiece::nodemanager
