// The workflow message: a fixed header and an artifact bundle (docs/message-format.md).
//
// Nothing that arrives is trusted: Decode checks every length, offset, name and checksum before use
// and answers INVALID_ARGUMENT with reason MALFORMED_MESSAGE.
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
  kWork = 1,     ///< Input of a stage.
  kResult = 2,   ///< Output of the last stage, for a database instance.
  kReplica = 3,  ///< A result that one database instance hands to its peer.
};

/// Copied from hop to hop; only `kind`, `stage`, `from`, `attempt` and `routing_epoch` change.
struct Header {
  Kind kind = Kind::kWork;
  base::Uid uid;
  std::string app;    ///< Application id, at most 63 bytes.
  std::string stage;  ///< Stage that shall run next, at most 63 bytes; empty for results.
  std::string from;   ///< Stage that made the artifacts; empty: the job's inputs.
  /// Grows when the work is sent to another instance than before: its consumer was declared dead,
  /// or passed it on.
  std::uint32_t attempt = 0;
  std::int32_t priority = 0;  ///< Higher first.
  std::uint64_t routing_epoch = 0;
  base::WallTime ingress_time{};  ///< When the proxy accepted the job.
  base::WallTime deadline{};      ///< When the job is given up.
  base::WallTime sent_time{};     ///< When this hop's sender encoded it (queue and transfer times).
  std::string sender;             ///< Node id of this hop's sender, at most 63 bytes.
};

struct Message {
  Header header;
  Parameters parameters;
  std::vector<Artifact> artifacts;
};

/// Largest message that Encode makes and Decode takes, in bytes.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{4} << 30;
inline constexpr std::size_t kMaxArtifacts = 256;
inline constexpr std::size_t kMaxParameters = 256;
/// Largest table, parameters included, in bytes.
inline constexpr std::size_t kMaxTableBytes = std::size_t{1} << 20;
inline constexpr std::size_t kArtifactAlignBytes = 64;

using Piece = base::Piece;

/// An encoded message as pieces to be written one after the other: tensors are not copied, so
/// `artifacts` keeps the message's buffers alive. Movable, not copyable: pieces point into it.
struct Encoded {
  std::unique_ptr<std::byte[]> head;  ///< Header, table and parameters.
  std::vector<Piece> pieces;          ///< Head, then artifacts and padding in order.
  std::vector<Artifact> artifacts;
  std::uint64_t total_bytes = 0;
};

/// Reads every artifact once, for its checksum.
/// Errors: INVALID_ARGUMENT with reason MALFORMED_MESSAGE (names, sizes or counts out of bounds).
absl::StatusOr<Encoded> Encode(const Message& message);

enum class Checksum : std::uint8_t {
  kVerify,    ///< Check the payload's checksum too.
  kVerified,  ///< The transport has checked every byte already.
};

/// Maps `bytes` in place: the artifacts of the result are views that keep `bytes` alive. Bytes that
/// do not start at a multiple of 64 are copied first (AllocateAligned avoids that).
/// Errors: INVALID_ARGUMENT with reason MALFORMED_MESSAGE, the message says what is wrong.
absl::StatusOr<Message> Decode(const Buffer& bytes, Checksum checksum);

}  // namespace onepiece::message
