// Who may send on a connection over UCX, and how its frames prove it. Internal to the backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/frame_cipher.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/ucx/ucx_wire.h"

namespace onepiece::fabric {

/// What both ends of one connection know from the control plane, which keeps it secret. The offer's
/// secret is the dialler's and the grant's is the owner's; each makes a new one for each
/// connection. So the grant's secret is also the owner's challenge, and the dialler's hello answers
/// it. A value type.
struct UcxAgreement {
  std::string offer_secret;
  std::string grant_secret;
  FrameProtection protection = FrameProtection::kNone;
  std::uint64_t key = 0;
  std::uint64_t length_bytes = 0;
  std::string address;

  /// What the dialler says to prove who it is, and the owner's answer. `nonce` is the dialler's.
  [[nodiscard]] std::string HelloTag(std::string_view nonce) const;
  [[nodiscard]] std::string WelcomeTag(std::string_view nonce) const;
  /// The keys of the frames, one for each direction.
  [[nodiscard]] std::string KeyToOwner(std::string_view nonce) const;
  [[nodiscard]] std::string KeyToDialler(std::string_view nonce) const;

 private:
  [[nodiscard]] std::string Derive(std::string_view purpose, std::string_view nonce) const;
};

/// Every header is followed by a tag of this size.
inline constexpr std::size_t kUcxTagBytes = base::FrameCipher::kTagBytes;
inline constexpr std::size_t kUcxMaxHeaderBytes = sizeof(UcxOp);

/// A header as it travels.
struct UcxSealedHeader {
  std::array<std::byte, kUcxMaxHeaderBytes + kUcxTagBytes> bytes{};
  std::size_t size = 0;
};

/// The sending end of one direction. kMac: the tag authenticates header, payload and the frame's
/// place in the stream. kAead: both are encrypted as well. kNone: the tag is the same in all
/// frames, a password that only the two ends know.
///
/// Threading: thread-confined.
class UcxSealer {
 public:
  UcxSealer(FrameProtection protection, std::string_view key);
  /// Whether Seal writes what goes out as the payload. If not, the payload goes out as it is.
  [[nodiscard]] bool encrypts() const { return protection_ == FrameProtection::kAead; }
  /// Seals the next frame. With encrypts(), `out` gets the payload as it travels; it may be the
  /// payload's own memory. REQUIRES: the header has at most kUcxMaxHeaderBytes.
  UcxSealedHeader Seal(std::span<const std::byte> header, std::span<const std::byte> payload,
                       std::byte* out);

 private:
  const FrameProtection protection_;
  const base::FrameCipher::Tag password_;  // Of kNone.
  base::FrameCipher cipher_;
};

/// The receiving end of one direction.
///
/// Threading: thread-confined.
class UcxOpener {
 public:
  UcxOpener(FrameProtection protection, std::string_view key);
  struct Frame {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
  };
  /// The frame in the clear, valid until the next call. nullopt when it is not the other end's next
  /// frame; from then on nothing is.
  std::optional<Frame> Open(std::span<const std::byte> header, std::span<const std::byte> payload);

 private:
  bool Verify(std::span<const std::byte> header, std::span<const std::byte> payload,
              const base::FrameCipher::Tag& tag);

  const FrameProtection protection_;
  const base::FrameCipher::Tag password_;  // Of kNone.
  base::FrameCipher cipher_;
  bool broken_ = false;
  std::array<std::byte, kUcxMaxHeaderBytes> header_{};
  std::vector<std::byte> payload_;  // Has kUcxChunkBytes with kAead.
};

}  // namespace onepiece::fabric
