#include "stages/model/byte_budget.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::model {

absl::StatusOr<std::int64_t> ParseByteBudget(std::string_view variable, const char* text,
                                             std::int64_t fallback) {
  if (text == nullptr) return fallback;
  std::int64_t budget = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, budget);
  if (error == std::errc() && stop == end && budget >= 0) return budget;
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SETTING",
                         std::string(variable) + " is not a number of bytes");
}

absl::StatusOr<std::int64_t> ByteBudget(const char* variable, std::int64_t fallback) {
  return ParseByteBudget(variable, std::getenv(variable), fallback);
}

}  // namespace onepiece::model
