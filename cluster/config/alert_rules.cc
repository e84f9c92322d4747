#include "cluster/config/alert_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cluster/base/utf8.h"

namespace onepiece::config {
namespace {

constexpr int kMaxRules = 200;
constexpr std::size_t kMaxRuleName = 64;
constexpr std::size_t kMaxRuleText = 500;
constexpr auto kLongestFor = absl::Hours(24);

bool IsRuleName(std::string_view text) {
  if (text.empty() || text.size() > kMaxRuleName) return false;
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

// Returns true when every {word} is one that the text of an alert explains.
bool HasKnownPlaces(std::string_view text) {
  static const std::set<std::string_view> known = {"entity", "value", "threshold", "for", "detail"};
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const std::size_t end = text.find('}', at);
    if (end == std::string_view::npos || !known.contains(text.substr(at + 1, end - at - 1)))
      return false;
  }
  return true;
}

absl::Status CheckThresholds(const v1::AlertRule& rule) {
  if (rule.has_above() && rule.has_below())
    return BadRule(rule.name(), "below", "above or below, not both");
  if (rule.has_above() && !std::isfinite(rule.above()))
    return BadRule(rule.name(), "above", "a number");
  if (rule.has_below() && !std::isfinite(rule.below()))
    return BadRule(rule.name(), "below", "a number");
  return absl::OkStatus();
}

}  // namespace

absl::Status BadRule(std::string_view rule, std::string_view key, std::string_view what) {
  const std::string name = base::ToUtf8(rule, kMaxRuleName), at = base::ToUtf8(key, kMaxRuleName);
  return base::MakeError(
      absl::StatusCode::kInvalidArgument, "BAD_RULE",
      absl::StrCat("rule '", name, "', ", at, ": ", base::ToUtf8(what, 400)),
      {{"field", name.empty() ? std::string("alerts") : absl::StrCat("alerts[", name, "].", at)}});
}

absl::StatusOr<std::int64_t> AlertForMs(const v1::AlertRule& rule) {
  if (rule.for_().empty()) return 0;
  absl::Duration length;
  if (!absl::ParseDuration(rule.for_(), &length) || length < absl::ZeroDuration() ||
      length > kLongestFor)
    return BadRule(rule.name(), "for", "a time like 30s or 5m, at most 24h");
  return absl::ToInt64Milliseconds(length);
}

absl::Status CheckAlertRule(const v1::AlertRule& rule) {
  if (!IsRuleName(rule.name()))
    return BadRule(rule.name(), "name", "1 to 64 lower-case letters, digits and dashes");
  if (rule.watches().empty() || rule.watches().size() > kMaxRuleText)
    return BadRule(rule.name(), "watches", "a condition, or a series with above or below");
  ONEPIECE_RETURN_IF_ERROR(CheckThresholds(rule));
  ONEPIECE_RETURN_IF_ERROR(AlertForMs(rule).status());
  static constexpr std::array<std::string_view, 4> kSeverities = {"", "info", "warning",
                                                                  "critical"};
  if (std::ranges::find(kSeverities, rule.severity()) == kSeverities.end())
    return BadRule(rule.name(), "severity", "info, warning or critical");
  if (rule.text().empty())
    return BadRule(rule.name(), "text", "is missing: what is wrong, and what to do");
  if (rule.text().size() > kMaxRuleText || !HasKnownPlaces(rule.text())) {
    return BadRule(rule.name(), "text",
                   "1 to 500 characters; in braces only entity, value, threshold, for and detail");
  }
  return absl::OkStatus();
}

absl::Status CheckAlertRules(const google::protobuf::RepeatedPtrField<v1::AlertRule>& rules) {
  if (rules.size() > kMaxRules) return BadRule("", "alerts", "at most 200 rules");
  std::set<std::string_view> names;
  for (const v1::AlertRule& rule : rules) {
    ONEPIECE_RETURN_IF_ERROR(CheckAlertRule(rule));
    if (!names.insert(rule.name()).second)
      return BadRule(rule.name(), "name", "another rule has it");
  }
  return absl::OkStatus();
}

}  // namespace onepiece::config
