// Messages in memory that processes of one host share. Private to stages/worker.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "stages/worker/packet_socket.h"

namespace onepiece::worker {

struct SharedMessage {
  FileDescriptor memory;  ///< A memfd that nobody can change any more.
  std::uint64_t bytes = 0;
};

/// Writes `message` into memory of its own, once for any number of readers.
///
/// Errors: RESOURCE_EXHAUSTED (no memory), INVALID_ARGUMENT (MALFORMED_MESSAGE).
absl::StatusOr<SharedMessage> Share(const message::Message& message, base::MonotonicTime now);

/// Maps a message that another process has written. Its artifacts are views of the shared memory,
/// and keep it mapped.
///
/// Errors: INVALID_ARGUMENT (MALFORMED_MESSAGE, also for memory that could still change or is
/// smaller than `bytes`), RESOURCE_EXHAUSTED.
absl::StatusOr<message::Message> Map(const FileDescriptor& memory, std::uint64_t bytes,
                                     base::MonotonicTime now);

}  // namespace onepiece::worker
