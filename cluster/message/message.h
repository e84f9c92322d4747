// The workflow message: a fixed header and an artifact bundle (docs/message-format.md).
//
// Decode trusts nothing that arrives: it checks each length, offset, name and checksum before use,
// and refuses a bad one with INVALID_ARGUMENT (MALFORMED_MESSAGE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/piece.h"
#include "cluster/message/artifact.h"

namespace onepiece::message {

enum class Kind : std::uint8_t {
  kWork = 1,     ///< The input of a stage.
  kResult = 2,   ///< The output of the last stage, for a database instance.
  kReplica = 3,  ///< A result that one database instance hands to its peer.
};

/// Stages copy the header from hop to hop. Only `kind`, `stage`, `from`, `attempt`, `deaths`,
/// `keeper`, `routing_epoch`, `sent_time` and `sender` change.
struct Header {
  Kind kind = Kind::kWork;
  base::Uid uid;
  std::string app;    ///< Application id, at most 63 bytes.
  std::string stage;  ///< The stage that runs next, at most 63 bytes; empty for results.
  std::string from;   ///< The stage that made the artifacts; empty for the job's inputs.
  /// The number of the job's start. A larger number fences a smaller one.
  std::uint64_t run = 0;
  /// Grows each time the work goes to another instance, because its consumer was declared dead or
  /// passed it on.
  std::uint32_t attempt = 0;
  /// How many instances died while they computed this work.
  std::uint32_t deaths = 0;
  /// The node that keeps the work until its receiver has completed it, at most 128 bytes; empty
  /// when nobody does. The receiver tells it.
  std::string keeper;
  std::uint64_t keeper_incarnation = 0;
  std::int32_t priority = 0;  ///< Higher first.
  std::uint64_t routing_epoch = 0;
  base::WallTime ingress_time{};  ///< When the proxy accepted the job. Only shown.
  /// When the cluster gives the job up, on this process's monotonic clock. It travels as the time
  /// that is left, so no wall clock decides about a job, and the time that a message spends in a
  /// ring does not count. The databases, which count all of it, end the job.
  base::MonotonicTime deadline{};
  base::WallTime sent_time{};  ///< When this hop's sender encoded it. Only shown.
  std::string sender;          ///< The SenderName of this hop's sender, at most 63 bytes.
};

struct Message {
  Header header;
  Parameters parameters;
  std::vector<Artifact> artifacts;
};

/// The largest message that Encode makes and Decode takes, in bytes.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{4} << 30;
inline constexpr std::size_t kMaxArtifacts = 256;
inline constexpr std::size_t kMaxParameters = 256;
/// The largest table, parameters included, in bytes.
inline constexpr std::size_t kMaxTableBytes = std::size_t{1} << 20;
inline constexpr std::size_t kArtifactAlignBytes = 64;

using Piece = base::Piece;

/// An encoded message as pieces, to be written one after the other. Tensors are not copied, so
/// `artifacts` keeps the message's buffers alive. Movable, and not copyable, because pieces point
/// into it.
struct Encoded {
  std::unique_ptr<std::byte[]> head;  ///< Header, table and parameters.
  std::vector<Piece> pieces;          ///< The head, then artifacts and padding in order.
  std::vector<Artifact> artifacts;
  std::uint64_t total_bytes = 0;
};

/// Encodes `message`. It reads each artifact once, for its checksum. A deadline before `now`
/// travels as no time left.
///
/// Errors: INVALID_ARGUMENT (MALFORMED_MESSAGE: names, sizes or counts out of bounds).
absl::StatusOr<Encoded> Encode(const Message& message, base::MonotonicTime now);

enum class Checksum : std::uint8_t {
  kVerify,    ///< Check the payload's checksum too.
  kVerified,  ///< The transport has checked every byte already.
};

/// Maps `bytes` in place: the artifacts of the result are views that keep `bytes` alive. Bytes that
/// do not start at a multiple of 64 are copied first; AllocateAligned avoids that. The deadline is
/// the time left from `now`.
///
/// Errors: INVALID_ARGUMENT (MALFORMED_MESSAGE; the message says what is wrong).
absl::StatusOr<Message> Decode(const Buffer& bytes, Checksum checksum, base::MonotonicTime now);

}  // namespace onepiece::message
