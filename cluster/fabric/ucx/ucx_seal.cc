#include "cluster/fabric/ucx/ucx_seal.h"

#include <algorithm>
#include <cstring>

#include "cluster/base/check.h"
#include "cluster/base/hmac.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric {
namespace {

base::FrameCipher::Tag PasswordOf(std::string_view key) {
  const std::string password = base::HmacSha256(key, "password");
  base::FrameCipher::Tag tag;
  std::memcpy(tag.data(), password.data(), tag.size());
  return tag;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

// HKDF (RFC 5869): the first code extracts, the second one expands to a single block.
std::string UcxAgreement::Derive(std::string_view purpose, std::string_view nonce) const {
  std::string message;
  AppendText(message, purpose);
  AppendU64(message, kUcxProtocolVersion);
  AppendU64(message, static_cast<std::uint64_t>(protection));
  AppendU64(message, key);
  AppendU64(message, length_bytes);
  AppendText(message, address);
  AppendText(message, nonce);
  return base::HmacSha256(base::HmacSha256(grant_secret, offer_secret), message);
}

std::string UcxAgreement::HelloTag(std::string_view nonce) const { return Derive("hello", nonce); }

std::string UcxAgreement::WelcomeTag(std::string_view nonce) const {
  return Derive("welcome", nonce);
}

std::string UcxAgreement::KeyToOwner(std::string_view nonce) const {
  return Derive("frames to the owner", nonce);
}

std::string UcxAgreement::KeyToDialler(std::string_view nonce) const {
  return Derive("frames to the dialler", nonce);
}

UcxSealer::UcxSealer(FrameProtection protection, std::string_view key)
    : protection_(protection),
      password_(PasswordOf(key)),
      cipher_(key, base::FrameCipher::Direction::kSeal) {}

UcxSealedHeader UcxSealer::Seal(std::span<const std::byte> header,
                                std::span<const std::byte> payload, std::byte* out) {
  ONEPIECE_CHECK(header.size() <= kUcxMaxHeaderBytes);
  UcxSealedHeader sealed;
  sealed.size = header.size() + kUcxTagBytes;
  std::ranges::copy(header, sealed.bytes.begin());
  base::FrameCipher::Tag tag = password_;
  if (protection_ != FrameProtection::kNone) {
    cipher_.Begin();
    if (encrypts()) {
      cipher_.Crypt(header, sealed.bytes.data());
      cipher_.Crypt(payload, out);
    } else {
      cipher_.Authenticate(header);
      cipher_.Authenticate(payload);
    }
    tag = cipher_.Finish();
  }
  std::ranges::copy(tag, sealed.bytes.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return sealed;
}

UcxOpener::UcxOpener(FrameProtection protection, std::string_view key)
    : protection_(protection),
      password_(PasswordOf(key)),
      cipher_(key, base::FrameCipher::Direction::kOpen),
      payload_(protection == FrameProtection::kAead ? kUcxChunkBytes : 0) {}

std::optional<UcxOpener::Frame> UcxOpener::Open(std::span<const std::byte> header,
                                                std::span<const std::byte> payload) {
  const bool fits = header.size() >= kUcxTagBytes &&
                    header.size() <= kUcxMaxHeaderBytes + kUcxTagBytes &&
                    payload.size() <= kUcxChunkBytes;
  if (broken_ || !fits) {
    broken_ = true;
    return std::nullopt;
  }
  base::FrameCipher::Tag tag;
  std::ranges::copy(header.last(kUcxTagBytes), tag.begin());
  header = header.first(header.size() - kUcxTagBytes);
  if (!Verify(header, payload, tag)) {
    broken_ = true;
    return std::nullopt;
  }
  if (protection_ != FrameProtection::kAead) return Frame{header, payload};
  return Frame{std::span(header_).first(header.size()), std::span(payload_).first(payload.size())};
}

bool UcxOpener::Verify(std::span<const std::byte> header, std::span<const std::byte> payload,
                       const base::FrameCipher::Tag& tag) {
  if (protection_ == FrameProtection::kNone) {
    return base::EqualSecrets(TextOf(tag), TextOf(password_));
  }
  cipher_.Begin();
  if (protection_ == FrameProtection::kAead) {
    cipher_.Crypt(header, header_.data());
    cipher_.Crypt(payload, payload_.data());
  } else {
    cipher_.Authenticate(header);
    cipher_.Authenticate(payload);
  }
  return cipher_.Check(tag);
}

}  // namespace onepiece::fabric
