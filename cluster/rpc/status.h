// absl::Status on the wire: gRPC's code and message, with a google.rpc.Status in the binary
// details.
#pragma once

#include "cluster/base/status.h"
#include "grpcpp/support/status.h"

namespace onepiece::rpc {

/// A metadata key of a reason. Its value is the number of milliseconds to wait before a retry may
/// work. It becomes google.rpc.RetryInfo.
inline constexpr char kRetryAfterMs[] = "retry_after_ms";

/// Converts `status` into gRPC's form. The reason travels as google.rpc.ErrorInfo (domain
/// "onepiece"). Its metadata "retry_after_ms" travels also as RetryInfo, and the "field" of an
/// INVALID_ARGUMENT also as BadRequest. Text is cut and made valid UTF-8, so that all of it stays
/// below gRPC's 8 KiB of trailers.
///
/// Threading: may be called from any thread.
grpc::Status ToGrpc(const absl::Status& status);

/// Converts gRPC's form back. Details that are malformed or of another domain are left out. Without
/// details the message may begin with the reason, "REASON: message": the door of a server (door.h)
/// can send no more.
///
/// Threading: may be called from any thread.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace onepiece::rpc
