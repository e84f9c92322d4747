// The version of the API that servers speak and clients expect.
#pragma once

namespace onepiece::rpc {

/// Cluster.api_version: grows with changes that an older client misreads.
inline constexpr int kApiVersion = 1;

}  // namespace onepiece::rpc
