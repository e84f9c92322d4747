// SHA-256 (FIPS 180-4) of results, requests and files.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's; its headers stay in sha256.cc.

namespace onepiece::base {

/// Hashes a stream of bytes.
///
/// Threading: thread-confined.
class Sha256 {
 public:
  Sha256();
  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view bytes);
  /// The 32 bytes of the digest of everything so far. Call Finish or FinishHex once, at the end.
  [[nodiscard]] std::string Finish();
  /// The digest as 64 lower-case hexadecimal digits.
  [[nodiscard]] std::string FinishHex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// The 32 bytes of the digest.
///
/// Threading: thread-safe.
[[nodiscard]] std::string Sha256Digest(std::span<const std::byte> bytes);

/// The digest as 64 lower-case hexadecimal digits.
///
/// Threading: thread-safe.
[[nodiscard]] std::string Sha256Hex(std::span<const std::byte> bytes);
[[nodiscard]] std::string Sha256Hex(std::string_view bytes);

}  // namespace onepiece::base
