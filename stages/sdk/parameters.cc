#include "stages/sdk/parameters.h"

#include <sstream>

#include "cluster/base/status.h"

namespace onepiece::sdk {
namespace {

const message::ParameterValue* Find(const Parameters& parameters, std::string_view name) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr : &found->second;
}

template <typename Value>
absl::StatusOr<Value> Within(std::string_view name, Value value, Value minimum, Value maximum) {
  // Both comparisons are false for NaN, which is therefore refused.
  if (value >= minimum && value <= maximum) return value;
  std::ostringstream text;
  text << value << " is not within " << minimum << " to " << maximum;
  return BadParameter(name, text.str());
}

}  // namespace

absl::Status BadParameter(std::string_view name, std::string_view what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PARAMETER",
                         std::string(name) + ": " + std::string(what),
                         {{"field", std::string(name)}});
}

absl::StatusOr<std::string> StringParameter(const Parameters& parameters, std::string_view name,
                                            std::optional<std::string_view> fallback) {
  const auto* value = Find(parameters, name);
  if (value == nullptr) {
    if (fallback) return std::string(*fallback);
    return BadParameter(name, "missing");
  }
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) return BadParameter(name, "not a string");
  return *text;
}

absl::StatusOr<std::int64_t> IntParameter(const Parameters& parameters, std::string_view name,
                                          std::int64_t minimum, std::int64_t maximum,
                                          std::optional<std::int64_t> fallback) {
  const auto* value = Find(parameters, name);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return BadParameter(name, "missing");
  }
  const auto* number = std::get_if<std::int64_t>(value);
  if (number == nullptr) return BadParameter(name, "not an integer");
  return Within(name, *number, minimum, maximum);
}

absl::StatusOr<double> NumberParameter(const Parameters& parameters, std::string_view name,
                                       double minimum, double maximum,
                                       std::optional<double> fallback) {
  const auto* value = Find(parameters, name);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return BadParameter(name, "missing");
  }
  if (const auto* integer = std::get_if<std::int64_t>(value); integer != nullptr) {
    return Within(name, static_cast<double>(*integer), minimum, maximum);
  }
  const auto* number = std::get_if<double>(value);
  if (number == nullptr) return BadParameter(name, "not a number");
  return Within(name, *number, minimum, maximum);
}

absl::StatusOr<bool> BoolParameter(const Parameters& parameters, std::string_view name,
                                   std::optional<bool> fallback) {
  const auto* value = Find(parameters, name);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return BadParameter(name, "missing");
  }
  const auto* boolean = std::get_if<bool>(value);
  if (boolean == nullptr) return BadParameter(name, "not true or false");
  return *boolean;
}

}  // namespace onepiece::sdk
