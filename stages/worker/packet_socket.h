// A local socket that carries whole protobuf messages, each perhaps with a file descriptor.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/file_descriptor.h"
#include "google/protobuf/message_lite.h"

namespace onepiece::worker {

using base::FileDescriptor;

/// One end of a pair.
///
/// Threading: one thread at a time sends, and one receives.
/// Errors: UNAVAILABLE (PEER_GONE) when the other end is closed, INTERNAL.
class PacketSocket {
 public:
  /// The largest message. Larger things travel as files.
  static constexpr std::size_t kMaxBytes = 128 << 10;

  PacketSocket() = default;
  explicit PacketSocket(FileDescriptor fd) : fd_(std::move(fd)) {}
  /// Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::pair<PacketSocket, PacketSocket>> Pair();

  /// Sends a message, and a descriptor that the receiver gets a copy of; -1: none.
  ///
  /// Blocking: while the receiver's queue is full, until `deadline`.
  /// Errors: INVALID_ARGUMENT (TOO_LARGE), DEADLINE_EXCEEDED.
  absl::Status Send(const google::protobuf::MessageLite& message, int fd,
                    base::MonotonicTime deadline);
  /// Waits for a message and returns the descriptor that came with it, if any.
  ///
  /// Errors: DEADLINE_EXCEEDED; nothing was taken.
  absl::StatusOr<FileDescriptor> Receive(google::protobuf::MessageLite& message,
                                         base::MonotonicTime deadline);

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

}  // namespace onepiece::worker
