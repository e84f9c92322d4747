// Job parameters as a stage reads them: typed, bounded, with errors that name the parameter.
//
// All functions are thread-safe. A missing parameter takes `fallback`, or is an error where there
// is none.
// Errors: INVALID_ARGUMENT with reason BAD_PARAMETER and metadata field=NAME.
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
/// Takes minimum ≤ value ≤ maximum.
absl::StatusOr<std::int64_t> IntParameter(const Parameters& parameters, std::string_view name,
                                          std::int64_t minimum, std::int64_t maximum,
                                          std::optional<std::int64_t> fallback = {});
/// Takes integers too; minimum ≤ value ≤ maximum, never NaN.
absl::StatusOr<double> NumberParameter(const Parameters& parameters, std::string_view name,
                                       double minimum, double maximum,
                                       std::optional<double> fallback = {});
absl::StatusOr<bool> BoolParameter(const Parameters& parameters, std::string_view name,
                                   std::optional<bool> fallback = {});
/// The error that these functions return: "NAME: what is wrong".
absl::Status BadParameter(std::string_view name, std::string_view what);

}  // namespace onepiece::sdk
