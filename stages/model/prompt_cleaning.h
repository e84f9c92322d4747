// Prompt text as diffusers' pipelines with T5 encoders clean it before tokenizing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::model {

/// Longest prompt that is read, in bytes; the tokenizer keeps a few hundred tokens of it.
inline constexpr std::size_t kMaxPromptBytes = std::size_t{1} << 20;

/// Composes to Unicode NFC, resolves HTML character references twice, then trims and collapses
/// Unicode white space to single spaces. Thread-safe, linear in the length.
///
/// The reference also repairs mojibake with the ftfy package ("schÃ¶n" → "schön"); that is left out
/// here. Errors: INVALID_ARGUMENT with reason BAD_PROMPT (not UTF-8, longer than kMaxPromptBytes).
absl::StatusOr<std::string> CleanPrompt(std::string_view prompt);

/// Resolves HTML character references once, with HTML5's rules for numbers, names and missing
/// semicolons. REQUIRES: `text` is UTF-8.
std::string UnescapeHtml(std::string_view text);

}  // namespace onepiece::model
