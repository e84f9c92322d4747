// SHA-256 of results and requests.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace onepiece::job {

/// 32 raw bytes. Thread-safe.
std::string Sha256(std::span<const std::byte> bytes);
/// Lower-case hex. Thread-safe.
std::string Sha256Hex(std::span<const std::byte> bytes);

}  // namespace onepiece::job
