// How a client tells a proxy that it repeats a request.
#pragma once

#include <string_view>

namespace onepiece::rpc {

/// A client sets this metadata, with any value, when it does not know the outcome of an earlier
/// attempt or may have used the request id before. A full proxy then looks whether the job exists
/// already.
inline constexpr char kRepeated[] = "onepiece-repeated";

/// GetJob of this prefix + a request id asks whether a workflow set has the job that was submitted
/// under that id. Submitting again would tell more, but would create the job if there is none.
inline constexpr std::string_view kRequestName = "requests/";

}  // namespace onepiece::rpc
