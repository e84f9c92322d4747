#include "cluster/cli/node_output.h"

namespace onepiece::cli {

std::string RoleName(v1::Role role) {
  switch (role) {
    case v1::NODE_MANAGER:
      return "nodemanager";
    case v1::PROXY:
      return "proxy";
    case v1::INSTANCE:
      return "instance";
    case v1::DATABASE:
      return "database";
    default:
      return "unknown";
  }
}

std::string ActivityName(v1::Activity activity) {
  return activity == v1::ACTIVITY_UNSPECIFIED ? "" : v1::Activity_Name(activity);
}

}  // namespace onepiece::cli
