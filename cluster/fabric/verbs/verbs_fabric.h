// The fabric over RDMA devices: InfiniBand, RoCE, Soft-RoCE.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// How the backend makes a key that holds for one peer only.
enum class VerbsKeys {
  kBest,           ///< Memory windows of type 2B where the device has them.
  kRegistrations,  ///< A protection domain and a registration for each peer.
};

/// `address` is the part of the URI behind verbs://.
///
/// Errors: NOT_FOUND (NO_RDMA_DEVICE, NO_GID), FAILED_PRECONDITION (PORT_NOT_ACTIVE,
/// DEVICE_TOO_WEAK), INTERNAL (VERBS_FAILED), and those of Fabric::Open.
absl::StatusOr<std::unique_ptr<Fabric>> OpenVerbsFabric(std::string_view address,
                                                        base::Clock& clock,
                                                        VerbsKeys keys = VerbsKeys::kBest);

}  // namespace onepiece::fabric
