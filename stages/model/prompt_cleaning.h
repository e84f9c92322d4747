// Cleans prompts as diffusers' pipelines with T5 encoders do before they tokenize.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::model {

/// The longest prompt that CleanPrompt reads, in bytes. The tokenizer keeps a few hundred tokens of
/// it.
inline constexpr std::size_t kMaxPromptBytes = std::size_t{1} << 20;

/// Composes to Unicode NFC, resolves HTML character references twice, then trims and collapses
/// Unicode white space to single spaces. The time is linear in the length.
///
/// The reference also repairs mojibake with the ftfy package ("schÃ¶n" → "schön"). This function
/// does not.
///
/// Threading: may be called from any thread.
///
/// Errors: INVALID_ARGUMENT BAD_PROMPT (not UTF-8, longer than kMaxPromptBytes).
absl::StatusOr<std::string> CleanPrompt(std::string_view prompt);

/// Resolves HTML character references once, with HTML5's rules for numbers, names and missing
/// semicolons.
///
/// REQUIRES: `text` is UTF-8.
std::string UnescapeHtml(std::string_view text);

}  // namespace onepiece::model
