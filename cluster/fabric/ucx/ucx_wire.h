// What the two ends of a connection over UCX tell each other. Internal to the backend.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

inline constexpr char kUcxBackend[] = "ucx";
/// Grows with every change of what travels. Peers of another version are refused.
inline constexpr std::uint64_t kUcxProtocolVersion = 1;

/// RemoteRegion::details of this backend: what UCX needs to reach the owner.
struct UcxDetails {
  std::string worker_address;  ///< Of the worker that serves this one peer.

  [[nodiscard]] std::string Serialize() const;
  /// UCX trusts these bytes, so they carry a check against damage. Against malice there is none.
  /// Errors: INVALID_ARGUMENT (WRONG_REGION).
  static absl::StatusOr<UcxDetails> Parse(std::string_view bytes);
};

/// Offer::details.
std::string SerializeUcxOffer();
/// Errors: INVALID_ARGUMENT (WRONG_FABRIC, of another backend or protocol version).
absl::Status CheckUcxOffer(const Offer& offer);

/// First message of a peer: what it believes to be connected to.
struct UcxHello {
  std::uint64_t version = kUcxProtocolVersion;
  std::uint64_t key = 0;
  std::uint64_t length_bytes = 0;
  std::string address;

  [[nodiscard]] std::string Serialize() const;
  static absl::StatusOr<UcxHello> Parse(std::string_view bytes);
};

/// The answer to it.
enum class UcxVerdict : std::uint64_t { kWelcome = 1, kWrongVersion = 2, kWrongRegion = 3 };

enum class UcxKind : std::uint64_t { kWrite = 1, kWriteWords, kRead, kSwap, kAdd, kNotify, kEnd };

/// Header of an operation, the payload of a write behind it. Travels as it lies in memory.
struct UcxOp {
  std::uint64_t sequence = 0;  ///< Of this connection, from 0 without a gap.
  std::uint64_t chain = 0;
  std::uint64_t index = 0;  ///< Of the operation in its chain; answers carry it.
  UcxKind kind = UcxKind::kEnd;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t compare = 0;
  std::uint64_t value = 0;
};

/// Header of an answer, what was read behind it.
struct UcxAnswer {
  std::uint64_t chain = 0;
  std::uint64_t index = 0;
  std::uint64_t offset = 0;  ///< Of these bytes in all that the operation reads.
  UcxKind kind = UcxKind::kEnd;
  std::uint64_t refused = 0;  ///< Not 0: the operations broke the rules, nothing more is executed.
};

/// Payload of one message, which is one segment on the wire, whole and in order.
inline constexpr std::uint64_t kUcxChunkBytes = 64 * 1024;

/// Ids of the active messages.
enum UcxMessage : unsigned { kUcxHello = 1, kUcxVerdict, kUcxOp, kUcxAnswer };

}  // namespace onepiece::fabric
