// The messages between the two ends of a connection over UCX. Internal to the backend.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

inline constexpr char kUcxBackend[] = "ucx";
/// Grows with every change of the messages. The owner refuses peers of another version.
inline constexpr std::uint64_t kUcxProtocolVersion = 2;

inline constexpr std::size_t kUcxSecretBytes = 32;
inline constexpr std::size_t kUcxMaxSources = 64;
/// A new secret, or a new nonce.
std::string NewUcxSecret();

/// RemoteRegion::details of this backend: UCX reaches the owner with them.
struct UcxDetails {
  std::string worker_address;  ///< The address of the worker that serves this peer alone.
  FrameProtection protection = FrameProtection::kNone;
  std::string secret;  ///< UcxAgreement::grant_secret.

  [[nodiscard]] std::string Serialize() const;
  /// UCX trusts these bytes, so they carry a check against damage. Against malice the control plane
  /// protects them.
  ///
  /// Errors: INVALID_ARGUMENT (WRONG_REGION).
  static absl::StatusOr<UcxDetails> Parse(std::string_view bytes);
};

/// Offer::details.
struct UcxOffer {
  FrameProtection protection = FrameProtection::kNone;
  std::string secret;  ///< UcxAgreement::offer_secret.
  /// Where the dialler may come from: IP addresses of 4 or 16 bytes. None: from anywhere.
  std::vector<std::string> sources;

  [[nodiscard]] std::string Serialize() const;
  /// Errors: INVALID_ARGUMENT (WRONG_FABRIC: the offer is of another backend or protocol version).
  static absl::StatusOr<UcxOffer> Parse(const Offer& offer);
};

/// Both ends of a connection protect its frames alike, so that no end is talked into less.
///
/// Errors: INVALID_ARGUMENT (PROTECTION_DIFFERS).
absl::Status CheckSameProtection(FrameProtection ours, FrameProtection theirs);

/// The first message of a peer. The region is not named: a worker serves one peer in one region,
/// and the tag depends on both.
struct UcxHello {
  std::uint64_t version = kUcxProtocolVersion;
  std::string nonce;
  std::string tag;  ///< UcxAgreement::HelloTag.

  [[nodiscard]] std::string Serialize() const;
  static absl::StatusOr<UcxHello> Parse(std::string_view bytes);
};

enum class UcxVerdict : std::uint64_t { kWelcome = 1, kWrongVersion = 2, kWrongRegion = 3 };

/// The answer to UcxHello.
struct UcxAnswerToHello {
  UcxVerdict verdict{};
  std::string tag;  ///< UcxAgreement::WelcomeTag of a welcome, else empty.

  [[nodiscard]] std::string Serialize() const;
  static absl::StatusOr<UcxAnswerToHello> Parse(std::string_view bytes);
};

enum class UcxKind : std::uint64_t { kWrite = 1, kWriteWords, kRead, kSwap, kAdd, kNotify, kEnd };

/// The header of an operation, followed by the payload of a write. Travels as it lies in memory.
struct UcxOp {
  std::uint64_t sequence = 0;  ///< The operation's number in this connection, from 0 without a gap.
  std::uint64_t chain = 0;
  std::uint64_t index = 0;  ///< The operation's number in its chain. Answers carry it.
  UcxKind kind = UcxKind::kEnd;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t compare = 0;
  std::uint64_t value = 0;
};

/// The header of an answer, followed by the bytes that were read.
struct UcxAnswer {
  std::uint64_t chain = 0;
  std::uint64_t index = 0;
  std::uint64_t offset = 0;  ///< Where these bytes start in all that the operation reads.
  UcxKind kind = UcxKind::kEnd;
  std::uint64_t refused = 0;  ///< Not 0: the peer broke the rules, and nothing more is executed.
};

/// The payload of one message. A message is one segment on the wire, so it arrives whole and in
/// order.
inline constexpr std::uint64_t kUcxChunkBytes = 64 * 1024;

/// How many bytes of answers the owner keeps for a peer that does not take them. It closes the peer
/// that wants more.
inline constexpr std::uint64_t kUcxReplyBytes = std::uint64_t{64} << 20;
/// How many bytes a peer asks for before it has taken those that it asked for earlier. Longer reads
/// go out in pieces of this size.
inline constexpr std::uint64_t kUcxReadBytes = std::uint64_t{16} << 20;

/// How many hellos that are wrong get an answer from one worker. The others are ignored.
inline constexpr int kUcxMaxRefusals = 16;

/// Ids of the active messages.
enum UcxMessage : unsigned { kUcxHello = 1, kUcxVerdict, kUcxOp, kUcxAnswer };

}  // namespace onepiece::fabric
