// AES-256-GCM over a stream of frames in one direction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_cipher_ctx_st;  // OpenSSL's; its headers stay in frame_cipher.cc.

namespace onepiece::base {

/// One end of one direction. Frames have no numbers on the wire: both ends count, and the number is
/// the nonce. So a frame opens only in its own place: one that is changed, repeated, left out or
/// moved does not. Both ends change the key after every kFramesPerKey frames, which keeps each key
/// far below the bounds of GCM on a connection that lives for months.
///
/// A frame is Begin, Authenticate as often as needed, Crypt as often as needed, and then Finish
/// (sealing) or Check (opening). What Crypt opens is not to be used before Check has said yes.
///
/// REQUIRES: `key` (kKeyBytes) is for this direction of this connection alone.
///
/// Threading: thread-confined.
class FrameCipher {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  static constexpr std::size_t kTagBytes = 16;
  static constexpr std::uint64_t kFramesPerKey = std::uint64_t{1} << 20;
  enum class Direction { kSeal, kOpen };
  using Tag = std::array<std::byte, kTagBytes>;

  FrameCipher(std::string_view key, Direction direction);
  ~FrameCipher();
  FrameCipher(const FrameCipher&) = delete;
  FrameCipher& operator=(const FrameCipher&) = delete;

  void Begin();
  /// Bytes that travel in the clear.
  void Authenticate(std::span<const std::byte> bytes);
  /// Encrypts or decrypts `in` to `out`, which may be the same memory.
  void Crypt(std::span<const std::byte> in, std::byte* out);
  [[nodiscard]] Tag Finish();
  [[nodiscard]] bool Check(const Tag& tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  void SetKey();

  const int encrypts_;
  std::string key_;
  std::uint64_t next_frame_ = 0;
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace onepiece::base
