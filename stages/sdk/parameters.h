// Typed and bounded access to a job's parameters, with errors that name the parameter.
//
// All functions are thread-safe. They return `fallback` for a missing parameter, or an error when
// there is no fallback.
// Errors: INVALID_ARGUMENT (BAD_PARAMETER) with the metadata field=NAME.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"

namespace onepiece::sdk {

absl::StatusOr<std::string> StringParameter(const Parameters& parameters, std::string_view name,
                                            std::optional<std::string_view> fallback = {});
/// Accepts minimum ≤ value ≤ maximum.
absl::StatusOr<std::int64_t> IntParameter(const Parameters& parameters, std::string_view name,
                                          std::int64_t minimum, std::int64_t maximum,
                                          std::optional<std::int64_t> fallback = {});
/// Accepts integers too, with minimum ≤ value ≤ maximum. Never returns NaN.
absl::StatusOr<double> NumberParameter(const Parameters& parameters, std::string_view name,
                                       double minimum, double maximum,
                                       std::optional<double> fallback = {});
absl::StatusOr<bool> BoolParameter(const Parameters& parameters, std::string_view name,
                                   std::optional<bool> fallback = {});
/// Returns the error of these functions, with the message "NAME: what is wrong".
absl::Status BadParameter(std::string_view name, std::string_view what);

}  // namespace onepiece::sdk
