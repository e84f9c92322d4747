// absl::Status on the wire: gRPC's code and message, and google.rpc.Status in the binary details.
#pragma once

#include "cluster/base/status.h"
#include "grpcpp/support/status.h"

namespace onepiece::rpc {

/// Metadata key of a reason: how many milliseconds to wait before a retry may work. Becomes
/// google.rpc.RetryInfo.
inline constexpr char kRetryAfterMs[] = "retry_after_ms";

/// The gRPC form of `status`. The reason travels as google.rpc.ErrorInfo (domain "onepiece"); its
/// metadata "retry_after_ms" also as RetryInfo, and "field" of an INVALID_ARGUMENT also as
/// BadRequest. Text is cut and made valid UTF-8 so that all of it stays below gRPC's 8 KiB of
/// trailers. Thread-safe.
grpc::Status ToGrpc(const absl::Status& status);

/// The other direction. Details that are malformed, or of another domain, are left out.
/// Thread-safe.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace onepiece::rpc
