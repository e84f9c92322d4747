#include <yaml-cpp/yaml.h>

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/history/alerts.h"
#include "cluster/history/conditions.h"

namespace onepiece::history {
namespace {

constexpr std::size_t kMaxBytes = 256 << 10;
constexpr std::size_t kMaxRules = 200;
constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxRuleText = 500;
constexpr auto kLongest = absl::Hours(24);

absl::Status Bad(std::string_view rule, std::string_view key, std::string_view what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_RULE",
                         absl::StrCat("rule '", base::ToUtf8(rule, kMaxName), "', ",
                                      base::ToUtf8(key, kMaxName), ": ", base::ToUtf8(what, 400)));
}

bool IsName(std::string_view text) {
  if (text.empty() || text.size() > kMaxName) return false;
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

// Returns true when every {word} is one that Rule::text explains.
bool HasKnownPlaces(std::string_view text) {
  static const std::set<std::string_view> known = {"entity", "value", "threshold", "for", "detail"};
  for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    const std::size_t end = text.find('}', at);
    if (end == std::string_view::npos || !known.contains(text.substr(at + 1, end - at - 1)))
      return false;
  }
  return true;
}

absl::Status SetThreshold(const YAML::Node& value, Rule::When when, Rule& rule) {
  const char* key = when == Rule::When::kAbove ? "above" : "below";
  if (rule.when != Rule::When::kTrue) return Bad(rule.name, key, "above or below, not both");
  if (!YAML::convert<double>::decode(value, rule.threshold) || !std::isfinite(rule.threshold))
    return Bad(rule.name, key, "a number");
  rule.when = when;
  return absl::OkStatus();
}

absl::Status SetKey(const std::string& key, const YAML::Node& value, Rule& rule) {
  if (key == "above") return SetThreshold(value, Rule::When::kAbove, rule);
  if (key == "below") return SetThreshold(value, Rule::When::kBelow, rule);
  const std::string text = value.IsScalar() ? value.Scalar() : "";
  if (key == "name") return absl::OkStatus();
  if (key == "watches") {
    rule.watches = text;
  } else if (key == "text") {
    if (text.empty() || text.size() > kMaxRuleText || !HasKnownPlaces(text)) {
      return Bad(rule.name, key,
                 "1 to 500 characters; in braces only entity, value, threshold, for and detail");
    }
    rule.text = text;
  } else if (key == "severity") {
    if (text == "info") {
      rule.severity = session::Alert::Severity::kInfo;
    } else if (text == "warning") {
      rule.severity = session::Alert::Severity::kWarning;
    } else if (text == "critical") {
      rule.severity = session::Alert::Severity::kCritical;
    } else {
      return Bad(rule.name, key, "info, warning or critical");
    }
  } else if (key == "for") {
    absl::Duration length;
    if (!absl::ParseDuration(text, &length) || length < absl::ZeroDuration() || length > kLongest)
      return Bad(rule.name, key, "a time like 30s or 5m, at most 24h");
    rule.for_ms = absl::ToInt64Milliseconds(length);
  } else {
    return Bad(rule.name, key, "not a key: name, watches, above, below, for, severity, text are");
  }
  return absl::OkStatus();
}

absl::Status CheckWatches(const Rule& rule) {
  if (rule.when == Rule::When::kTrue) {
    if (FindCondition(rule.watches) != nullptr) return absl::OkStatus();
    return Bad(rule.name, "watches",
               absl::StrCat("one of ", ConditionNames(), ", or a series with above or below"));
  }
  if (FindCondition(rule.watches) != nullptr)
    return Bad(rule.name, "watches", "a condition holds or not: above and below are for series");
  const bool ends_well = !rule.watches.empty() && rule.watches.back() != '/';
  if (!SourceOfSeries(rule.watches) || rule.watches.size() > kMaxRuleText || !ends_well) {
    return Bad(rule.name, "watches",
               "a series like node/*/utilization: node/, ring/, pool/, database/, replica/, jobs/ "
               "or part/ come first");
  }
  return absl::OkStatus();
}

absl::StatusOr<Rule> ParseRule(const YAML::Node& node, std::size_t place) {
  Rule rule;
  rule.name = absl::StrCat("#", place + 1);
  if (!node.IsMap()) return Bad(rule.name, "rule", "a mapping with name, watches and text");
  const YAML::Node name = node["name"];
  if (!name || !name.IsScalar() || !IsName(name.Scalar()))
    return Bad(rule.name, "name", "1 to 64 lower-case letters, digits and dashes");
  rule.name = name.Scalar();
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!seen.insert(key).second) return Bad(rule.name, key, "is given twice");
    ONEPIECE_RETURN_IF_ERROR(SetKey(key, entry.second, rule));
  }
  if (rule.text.empty()) return Bad(rule.name, "text", "is missing: what is wrong, and what to do");
  ONEPIECE_RETURN_IF_ERROR(CheckWatches(rule));
  return rule;
}

absl::StatusOr<std::vector<Rule>> ParseTree(const YAML::Node& root) {
  if (!root.IsMap() || root.size() != 1 || !root["alerts"] || !root["alerts"].IsSequence())
    return Bad("", "alerts", "the file is one list, alerts");
  const YAML::Node list = root["alerts"];
  if (list.size() > kMaxRules) return Bad("", "alerts", "at most 200 rules");
  std::vector<Rule> rules;
  std::set<std::string> names;
  for (std::size_t i = 0; i < list.size(); ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(Rule rule, ParseRule(list[i], i));
    if (!names.insert(rule.name).second) return Bad(rule.name, "name", "another rule has it");
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace

absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view yaml) {
  if (yaml.size() > kMaxBytes) return Bad("", "alerts", "the file is larger than 256 KiB");
  if (!base::IsUtf8(yaml)) return Bad("", "alerts", "the file is not UTF-8");
  try {
    return ParseTree(YAML::Load(std::string(yaml)));
  } catch (const YAML::Exception& error) {
    return Bad("", "alerts", error.what());
  }
}

}  // namespace onepiece::history
