// How the verbs name what a node is and does.
#pragma once

#include <string>

#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::cli {

/// Returns "nodemanager", "proxy", "instance", "database" or "unknown".
std::string RoleName(v1::Role role);
/// Returns "SERVING" and so on; empty for a node that has no activity.
std::string ActivityName(v1::Activity activity);

}  // namespace onepiece::cli
