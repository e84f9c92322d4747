// How much a process-wide cache may hold: an environment variable that an operator may set.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::model {

/// The number of bytes that `text`, the value of `variable`, says in digits; nullptr: `fallback`.
/// Errors: INVALID_ARGUMENT BAD_SETTING naming the variable.
absl::StatusOr<std::int64_t> ParseByteBudget(std::string_view variable, const char* text,
                                             std::int64_t fallback);

/// ParseByteBudget of the environment's value.
absl::StatusOr<std::int64_t> ByteBudget(const char* variable, std::int64_t fallback);

}  // namespace onepiece::model
