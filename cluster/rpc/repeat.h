// How a client says that it asks again.
#pragma once

namespace onepiece::rpc {

/// Metadata of a call whose client does not know what came of an earlier attempt, or uses a request
/// id that it may have used before: a proxy that is full then looks whether the job exists already.
/// Any value.
inline constexpr char kRepeated[] = "onepiece-repeated";

}  // namespace onepiece::rpc
