// Writes results into files.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cluster/client/client.h"

namespace onepiece::client {

/// Calls `receive` with a sink that writes a file. The file appears under its name only when that
/// succeeds, and an error leaves nothing behind.
///
/// Errors: those of `receive`, FAILED_PRECONDITION (CANNOT_WRITE).
absl::StatusOr<v1::ResultArtifact> ReceiveIntoFile(
    const std::string& path,
    absl::FunctionRef<absl::StatusOr<v1::ResultArtifact>(const ChunkSink&)> receive);

}  // namespace onepiece::client
