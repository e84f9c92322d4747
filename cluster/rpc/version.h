// The version of the API that servers speak and clients expect.
#pragma once

namespace onepiece::rpc {

/// The Cluster.api_version of this program. It grows with changes that an older client would
/// misread.
inline constexpr int kApiVersion = 1;

}  // namespace onepiece::rpc
