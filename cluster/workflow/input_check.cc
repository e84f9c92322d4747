#include "cluster/workflow/input_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/utf8.h"

namespace onepiece::workflow {
namespace {

/// Returns why the input is refused, or an empty text when it is good.
std::string WhyNot(const v1::InputSpec& spec, const v1::JobInput& input) {
  const std::int64_t limit = spec.max_bytes() == 0 ? kDefaultInputBytes : spec.max_bytes();
  const auto size = static_cast<std::int64_t>(input.data().size());
  if (size == 0) return "is empty";
  if (size > limit) return absl::StrCat("has ", size, " bytes, at most ", limit, " are allowed");
  const auto& allowed = spec.media_types();
  if (!allowed.empty() &&
      std::find(allowed.begin(), allowed.end(), input.media_type()) == allowed.end()) {
    const bool shown = !input.media_type().empty() && base::IsUtf8(input.media_type());
    return absl::StrCat("is ", shown ? input.media_type().substr(0, 64) : "of no known media type",
                        ", must be one of: ", absl::StrJoin(allowed, ", "));
  }
  return {};
}

const v1::InputSpec* FindSpec(const v1::Workflow& workflow, const std::string& name) {
  const auto& specs = workflow.inputs();
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const auto& spec) { return spec.name() == name; });
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

absl::Status CheckInputs(const v1::Workflow& workflow,
                         const google::protobuf::RepeatedPtrField<v1::JobInput>& given) {
  std::map<std::string, std::string> violations;
  std::map<std::string_view, int> counts;
  std::int64_t total = 0;
  for (const v1::JobInput& input : given) {
    total += static_cast<std::int64_t>(input.data().size());
    const v1::InputSpec* spec = FindSpec(workflow, input.name());
    if (spec == nullptr) {
      const std::string shown =
          base::IsUtf8(input.name()) ? input.name().substr(0, 64) : "(not UTF-8)";
      violations.emplace(shown, absl::StrCat("is not an input of ", workflow.app_id()));
    } else if (++counts[spec->name()] > 1) {
      violations.insert_or_assign(spec->name(), "is given twice");
    } else if (std::string why = WhyNot(*spec, input); !why.empty()) {
      violations.emplace(spec->name(), std::move(why));
    }
  }
  for (const v1::InputSpec& spec : workflow.inputs()) {
    if (spec.required() && counts[spec.name()] == 0) violations.emplace(spec.name(), "is required");
  }
  if (total > kMaxInputBytes) {
    violations.emplace("inputs", absl::StrCat("have ", total, " bytes together, at most ",
                                              kMaxInputBytes, " are allowed"));
  }
  if (violations.empty()) return absl::OkStatus();
  const std::string text =
      absl::StrJoin(violations, "; ", [](std::string* out, const auto& violation) {
        absl::StrAppend(out, violation.first, " ", violation.second);
      });
  return base::MakeError(absl::StatusCode::kInvalidArgument, "INVALID_INPUTS", text,
                         std::move(violations));
}

}  // namespace onepiece::workflow
