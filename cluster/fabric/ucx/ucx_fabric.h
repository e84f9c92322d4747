// The fabric over any network: UCX on TCP.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// `devices` is the part behind ucx://: network interfaces ("eth0", "eth0,eth1"), or nothing for
/// all. REQUIRES: as Fabric::Open, which calls it.
absl::StatusOr<std::unique_ptr<Fabric>> OpenUcxFabric(std::string_view devices, base::Clock& clock,
                                                      FrameProtection protection);

}  // namespace onepiece::fabric
