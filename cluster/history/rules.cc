#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/config/alert_rules.h"
#include "cluster/config/watched.h"
#include "cluster/history/alerts.h"

namespace onepiece::history {
namespace {

constexpr std::size_t kMaxBytes = 256 << 10;
constexpr std::size_t kMaxRules = 200;  // As CheckAlertRules() says. No more are read.

using config::BadRule;

absl::Status SetThreshold(const std::string& key, const YAML::Node& value, v1::AlertRule& rule) {
  double threshold = 0;
  if (!YAML::convert<double>::decode(value, threshold))
    return BadRule(rule.name(), key, "a number");
  if (key == "above") {
    rule.set_above(threshold);
  } else {
    rule.set_below(threshold);
  }
  return absl::OkStatus();
}

absl::Status SetKey(const std::string& key, const YAML::Node& value, v1::AlertRule& rule) {
  const std::string text = value.IsScalar() ? value.Scalar() : "";
  if (key == "above" || key == "below") return SetThreshold(key, value, rule);
  if (key == "name") return absl::OkStatus();
  if (key == "watches") {
    rule.set_watches(text);
  } else if (key == "text") {
    rule.set_text(text);
  } else if (key == "severity") {
    // In a file a key without a value is a mistake, and not the default.
    rule.set_severity(text.empty() ? " " : text);
  } else if (key == "for") {
    rule.set_for_(text.empty() ? " " : text);
  } else {
    return BadRule(rule.name(), key,
                   "not a key: name, watches, above, below, for, severity, text are");
  }
  return absl::OkStatus();
}

// REQUIRES: CheckAlertRule(rule).
absl::StatusOr<Rule> RuleOf(const v1::AlertRule& from) {
  Rule rule;
  rule.name = from.name();
  rule.watches = from.watches();
  rule.text = from.text();
  if (from.has_above() || from.has_below()) {
    rule.when = from.has_above() ? Rule::When::kAbove : Rule::When::kBelow;
    rule.threshold = from.has_above() ? from.above() : from.below();
  }
  ONEPIECE_ASSIGN_OR_RETURN(rule.for_ms, config::AlertForMs(from));
  if (from.severity() == "info") rule.severity = session::Alert::Severity::kInfo;
  if (from.severity() == "critical") rule.severity = session::Alert::Severity::kCritical;
  return rule;
}

absl::StatusOr<v1::AlertRule> ReadRule(const YAML::Node& node, std::size_t place) {
  v1::AlertRule rule;
  rule.set_name(absl::StrCat("#", place + 1));
  if (!node.IsMap()) return BadRule(rule.name(), "rule", "a mapping with name, watches and text");
  const YAML::Node name = node["name"];
  if (!name || !name.IsScalar())
    return BadRule(rule.name(), "name", "1 to 64 lower-case letters, digits and dashes");
  rule.set_name(name.Scalar());
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    if (!seen.insert(key).second) return BadRule(rule.name(), key, "is given twice");
    ONEPIECE_RETURN_IF_ERROR(SetKey(key, entry.second, rule));
  }
  return rule;
}

absl::StatusOr<std::vector<Rule>> ParseTree(const YAML::Node& root) {
  if (!root.IsMap() || root.size() != 1 || !root["alerts"] || !root["alerts"].IsSequence())
    return BadRule("", "alerts", "the file is one list, alerts");
  const YAML::Node list = root["alerts"];
  google::protobuf::RepeatedPtrField<v1::AlertRule> read;
  for (std::size_t i = 0; i < list.size() && i <= kMaxRules; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(*read.Add(), ReadRule(list[i], i));
  }
  ONEPIECE_RETURN_IF_ERROR(config::CheckAlertRules(read));
  std::vector<Rule> rules;
  for (const v1::AlertRule& rule : read) {
    ONEPIECE_RETURN_IF_ERROR(config::CheckWatches(rule));
    ONEPIECE_ASSIGN_OR_RETURN(rules.emplace_back(), RuleOf(rule));
  }
  return rules;
}

}  // namespace

absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view yaml) {
  if (yaml.size() > kMaxBytes) return BadRule("", "alerts", "the file is larger than 256 KiB");
  if (!base::IsUtf8(yaml)) return BadRule("", "alerts", "the file is not UTF-8");
  try {
    return ParseTree(YAML::Load(std::string(yaml)));
  } catch (const YAML::Exception& error) {
    return BadRule("", "alerts", error.what());
  }
}

absl::StatusOr<std::vector<Rule>> RulesOf(const v1::ClusterConfig& config) {
  ONEPIECE_RETURN_IF_ERROR(config::CheckAlertRules(config.alerts()));
  std::vector<Rule> rules;
  for (const v1::AlertRule& rule : config.alerts()) {
    ONEPIECE_ASSIGN_OR_RETURN(rules.emplace_back(), RuleOf(rule));
  }
  return rules;
}

}  // namespace onepiece::history
