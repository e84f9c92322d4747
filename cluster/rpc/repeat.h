// How a client tells a proxy that it repeats a request.
#pragma once

#include <string_view>

namespace onepiece::rpc {

/// The key of a call's metadata. A client sets it on SubmitJob, with any value, when it does not
/// know the outcome of an earlier attempt or may have used the request id before. A proxy that
/// would refuse the call then first asks a database for the job, and answers with it if an instance
/// has it. A proxy asks for few calls at once, so the refusal may stand all the same.
inline constexpr char kRepeated[] = "onepiece-repeated";

/// GetJob with the name kRequestNamePrefix + REQUEST_ID (a UUID) asks a proxy whether its workflow
/// set has the job of that request. OK means yes; the answer names only the request id and the
/// workflow set. NOT_FOUND means no, also when no instance has taken the job. Any other error says
/// nothing. SubmitJob would answer too, but would also make a missing job.
inline constexpr std::string_view kRequestNamePrefix = "requests/";

}  // namespace onepiece::rpc
