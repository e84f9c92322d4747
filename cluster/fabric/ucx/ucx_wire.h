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

/// RemoteRegion::details of this backend: what UCX needs to reach the memory.
struct UcxDetails {
  std::uint64_t memory_address = 0;  ///< In the owner's process.
  std::string worker_address;        ///< Of the worker that serves this one peer.
  std::string remote_key;

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

/// Ids of the active messages.
enum UcxMessage : unsigned { kUcxHello = 1, kUcxVerdict = 2, kUcxNotify = 3, kUcxRung = 4 };

}  // namespace onepiece::fabric
