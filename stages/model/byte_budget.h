// The budget of a process-wide cache, which an operator may set by an environment variable.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::model {

/// Returns the number of bytes that `text`, the value of `variable`, spells in digits. If `text` is
/// nullptr, returns `fallback`.
///
/// Errors: INVALID_ARGUMENT BAD_SETTING, which names the variable.
absl::StatusOr<std::int64_t> ParseByteBudget(std::string_view variable, const char* text,
                                             std::int64_t fallback);

/// Returns ParseByteBudget of the environment's value.
absl::StatusOr<std::int64_t> ByteBudget(const char* variable, std::int64_t fallback);

}  // namespace onepiece::model
