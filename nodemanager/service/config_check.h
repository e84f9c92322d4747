// Whether a configuration makes sense by itself. What depends on the state is checked by
// StateMachine::CheckConfig().
#pragma once

#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::nodemanager {

/// Checks the named sections of `config`.
/// Errors: INVALID_ARGUMENT (BAD_CONFIG), which names the field in its text and as metadata
/// "field".
absl::Status CheckSections(const v1::ClusterConfig& config,
                           const std::vector<std::string>& sections);

}  // namespace onepiece::nodemanager
