// The fabric between processes of one host.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// REQUIRES: as Fabric::Open, which calls it.
absl::StatusOr<std::unique_ptr<Fabric>> OpenShmFabric(std::string_view cluster_id,
                                                      base::Clock& clock);

}  // namespace onepiece::fabric
