// How a client says that it asks again.
#pragma once

#include <string_view>

namespace onepiece::rpc {

/// Metadata of a call whose client does not know what came of an earlier attempt, or uses a request
/// id that it may have used before: a proxy that is full then looks whether the job exists already.
/// Any value.
inline constexpr char kRepeated[] = "onepiece-repeated";

/// GetJob of this prefix + a request id asks whether a workflow set has the job that was submitted
/// under it. Submitting tells more, but makes the job where there is none.
inline constexpr std::string_view kRequestName = "requests/";

}  // namespace onepiece::rpc
