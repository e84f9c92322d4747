#include "cluster/workflow/parameter_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"

namespace onepiece::workflow {
namespace {

using google::protobuf::Value;
using v1::ParameterSpec;

constexpr double kMaxExactInteger = 9007199254740991.0;  // 2^53 − 1
constexpr std::int64_t kDefaultMaxBytes = 65536;

// Holds either the value or the reason why it is refused.
struct Checked {
  std::optional<message::ParameterValue> value;
  std::string why;
};

Checked Refuse(std::string why) { return {.value = std::nullopt, .why = std::move(why)}; }

bool IsBounded(const ParameterSpec& spec) { return spec.minimum() != 0 || spec.maximum() != 0; }

Checked CheckString(const ParameterSpec& spec, const std::string& text) {
  const auto limit = spec.max_bytes() == 0 ? kDefaultMaxBytes : spec.max_bytes();
  if (static_cast<std::int64_t>(text.size()) > limit) {
    return Refuse(absl::StrCat("has ", text.size(), " bytes, at most ", limit, " are allowed"));
  }
  if (!base::IsUtf8(text)) return Refuse("is not valid UTF-8");
  if (spec.required() && absl::StripAsciiWhitespace(text).empty())
    return Refuse("must not be empty");
  const auto& allowed = spec.allowed_values();
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    return Refuse(absl::StrCat("must be one of: ", absl::StrJoin(allowed, ", ")));
  }
  return {.value = text, .why = {}};
}

Checked CheckNumber(const ParameterSpec& spec, double number) {
  if (!std::isfinite(number)) return Refuse("must be a finite number");
  if (IsBounded(spec) && (number < spec.minimum() || number > spec.maximum())) {
    return Refuse(absl::StrCat("must be within ", spec.minimum(), " to ", spec.maximum()));
  }
  if (spec.type() == ParameterSpec::NUMBER) return {.value = number, .why = {}};
  if (number != std::floor(number) || std::abs(number) > kMaxExactInteger)
    return Refuse("must be an integer");
  const auto whole = static_cast<std::int64_t>(number);
  if (spec.multiple_of() > 0 && (whole - spec.multiple_offset()) % spec.multiple_of() != 0) {
    return Refuse(spec.multiple_offset() == 0
                      ? absl::StrCat("must be a multiple of ", spec.multiple_of())
                      : absl::StrCat("must be a multiple of ", spec.multiple_of(), " plus ",
                                     spec.multiple_offset()));
  }
  return {.value = whole, .why = {}};
}

Checked CheckGiven(const ParameterSpec& spec, const Value& value) {
  switch (spec.type()) {
    case ParameterSpec::STRING:
      if (value.kind_case() != Value::kStringValue) return Refuse("must be a string");
      return CheckString(spec, value.string_value());
    case ParameterSpec::INTEGER:
    case ParameterSpec::NUMBER:
      if (value.kind_case() != Value::kNumberValue) return Refuse("must be a number");
      return CheckNumber(spec, value.number_value());
    case ParameterSpec::BOOLEAN:
      if (value.kind_case() != Value::kBoolValue) return Refuse("must be true or false");
      return {.value = value.bool_value(), .why = {}};
    default:
      return Refuse("has no type in the application's schema");
  }
}

// CheckWorkflow has checked the defaults when the workflow was applied, so they parse.
message::ParameterValue DefaultOf(const ParameterSpec& spec) {
  const std::string& text = spec.default_value();
  switch (spec.type()) {
    case ParameterSpec::INTEGER: {
      std::int64_t number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      return number;
    }
    case ParameterSpec::NUMBER: {
      double number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      return number;
    }
    case ParameterSpec::BOOLEAN:
      return text == "true";
    default:
      return text;
  }
}

}  // namespace

absl::StatusOr<message::Parameters> CheckParameters(const v1::Workflow& workflow,
                                                    const google::protobuf::Struct& given) {
  message::Parameters parameters;
  std::map<std::string, std::string> violations;
  for (const auto& spec : workflow.parameters()) {
    const auto found = given.fields().find(spec.name());
    if (found != given.fields().end()) {
      auto checked = CheckGiven(spec, found->second);
      if (checked.value) {
        parameters.emplace(spec.name(), *std::move(checked.value));
      } else {
        violations.emplace(spec.name(), std::move(checked.why));
      }
    } else if (spec.required()) {
      violations.emplace(spec.name(), "is required");
    } else {
      parameters.emplace(spec.name(), DefaultOf(spec));
    }
  }
  for (const auto& [name, value] : given.fields()) {
    const auto& specs = workflow.parameters();
    if (std::none_of(specs.begin(), specs.end(),
                     [&name = name](const ParameterSpec& spec) { return spec.name() == name; })) {
      const std::string shown = base::IsUtf8(name) ? name.substr(0, 64) : "(not UTF-8)";
      violations.emplace(shown, absl::StrCat("is not a parameter of ", workflow.app_id()));
    }
  }
  if (violations.empty()) return parameters;
  const std::string text =
      absl::StrJoin(violations, "; ", [](std::string* out, const auto& violation) {
        absl::StrAppend(out, violation.first, " ", violation.second);
      });
  return base::MakeError(absl::StatusCode::kInvalidArgument, "INVALID_PARAMETERS", text,
                         std::move(violations));
}

}  // namespace onepiece::workflow
