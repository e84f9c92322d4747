// UTF-8 (RFC 3629): checking text that others sent, and making any bytes presentable.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onepiece::base {

/// Whether `text` is well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
/// Thread-safe.
bool IsUtf8(std::string_view text);
/// `text` cut to at most `max_bytes` at a character boundary, each malformed byte replaced by '?'.
/// Thread-safe.
std::string ToUtf8(std::string_view text, std::size_t max_bytes);

}  // namespace onepiece::base
