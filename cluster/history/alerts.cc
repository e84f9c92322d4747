#include "cluster/history/alerts.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/history/conditions.h"
#include "cluster/history/pieces.h"

namespace onepiece::history {
namespace {

constexpr std::int64_t kKeepResolvedMs = 60 * 60'000;
constexpr std::int64_t kForgetGoneMs = 10 * 60'000;
constexpr std::size_t kMaxWords = 500;

bool IsSeries(const Rule& rule) { return rule.when != Rule::When::kTrue; }

std::string InWords(double value, std::string_view unit) {
  if (unit == "ratio") return absl::StrFormat("%.0f %%", value * 100);
  if (unit == "bytes") return absl::StrFormat("%.1f MiB", value / (1 << 20));
  if (unit == "celsius") return absl::StrFormat("%.0f °C", value);
  if (unit == "watts") return absl::StrFormat("%.0f W", value);
  if (unit == "1") return absl::StrFormat("%.6g", value);
  return absl::StrCat(absl::StrFormat("%.6g ", value), std::string(unit));
}

// Returns the prefixes of series whose source is silent. Their numbers are old.
std::set<std::string, std::less<>> Silent(const session::Snapshot& snapshot) {
  std::set<std::string, std::less<>> silent;
  if (snapshot.cluster.value) {
    for (const v1::Node& node : snapshot.cluster.value->nodes()) {
      if (node.state() == v1::Node::DEAD) silent.insert("node/" + node.node_id() + "/");
    }
  }
  const auto add = [&silent](const char* kind, const std::string& id, const std::string& error) {
    if (!error.empty()) silent.insert(kind + id + "/");
  };
  if (snapshot.rings.value) {
    for (const session::RingEntry& ring : *snapshot.rings.value)
      add("ring/", ring.node_id, ring.error);
  }
  if (snapshot.databases.value) {
    for (const auto& database : *snapshot.databases.value)
      add("database/", database.node_id, database.error);
  }
  if (snapshot.replicas.value) {
    for (const auto& replica : *snapshot.replicas.value)
      add("replica/", replica.name, replica.error);
  }
  return silent;
}

}  // namespace

/// The snapshot's numbers without those of silent sources. Empty when no rule needs numbers.
struct AlertEngine::Numbers {
  std::vector<Number> all;
};

AlertEngine::AlertEngine(std::vector<Rule> rules) : rules_(std::move(rules)) {}

void AlertEngine::SetRules(std::vector<Rule> rules) {
  rules_ = std::move(rules);
  std::set<std::string, std::less<>> names;
  for (const Rule& rule : rules_) names.insert(rule.name);
  // Names of rules have no '/'.
  std::erase_if(known_, [&](const auto& known) {
    return !names.contains(std::string_view(known.first).substr(0, known.first.find('/')));
  });
  Publish();
}

const session::Alerts& AlertEngine::alerts() const { return sorted_; }

void AlertEngine::Turn(Known& known, session::Alert::State state) const {
  if (known.alert.state == state) return;
  if (state == session::Alert::State::kNoData || state == session::Alert::State::kError)
    known.fired = known.fired || known.alert.state == session::Alert::State::kFiring;
  if (state == session::Alert::State::kFiring || state == session::Alert::State::kResolved)
    known.fired = false;
  known.alert.state = state;
  known.alert.since_ms = now_ms_;
}

void AlertEngine::Holds(const Rule& rule, const std::string& entity, std::optional<double> value,
                        const std::string& detail) {
  const std::string id = rule.name + "/" + entity;
  auto [place, is_new] = known_.try_emplace(id);
  Known& known = place->second;
  session::Alert& alert = known.alert;
  // Nobody has seen an alert that begins anew, so the acknowledgement goes. The silence stays.
  const bool begins = is_new || known.stands_in || alert.state == session::Alert::State::kResolved;
  if (begins) {
    const std::int64_t silenced_until_ms = alert.silenced_until_ms;
    std::string reason = std::move(alert.silence_reason);
    known = Known{.true_since_ms = now_ms_};
    alert.id = id;
    alert.rule = rule.name;
    alert.entity = entity;
    alert.since_ms = now_ms_;
    alert.silenced_until_ms = silenced_until_ms;
    alert.silence_reason = std::move(reason);
  }
  known.seen = evaluations_;
  // Nobody knows whether the rule held while it could not be evaluated, so the time begins anew.
  const bool was_unseen =
      alert.state == session::Alert::State::kNoData || alert.state == session::Alert::State::kError;
  if (was_unseen && !known.fired) known.true_since_ms = now_ms_;
  alert.severity = rule.severity;
  alert.value = value;
  alert.threshold.reset();
  if (IsSeries(rule)) alert.threshold = rule.threshold;
  const std::string unit = IsSeries(rule) ? UnitOf(rule.watches) : "1";
  alert.text = base::ToUtf8(
      absl::StrReplaceAll(
          rule.text,
          {{"{entity}", entity},
           {"{value}", value ? InWords(*value, unit) : "?"},
           {"{threshold}", InWords(rule.threshold, unit)},
           {"{for}", absl::FormatDuration(absl::Seconds((now_ms_ - known.true_since_ms) / 1000))},
           {"{detail}", detail}}),
      kMaxWords);
  const bool fires = known.fired || alert.state == session::Alert::State::kFiring ||
                     now_ms_ - known.true_since_ms >= rule.for_ms;
  Turn(known, fires ? session::Alert::State::kFiring : session::Alert::State::kPending);
}

// Ends the alerts of a rule that could be evaluated and did not hold for them.
void AlertEngine::HoldsNoMore(const Rule& rule) {
  // Names of rules have no '/', so the prefix selects the alerts of this rule only.
  const std::string prefix = rule.name + "/";
  for (auto place = known_.lower_bound(prefix);
       place != known_.end() && absl::StartsWith(place->first, prefix);) {
    Known& known = place->second;
    if (known.seen == evaluations_) {
      ++place;
      continue;
    }
    if (known.alert.state == session::Alert::State::kFiring || known.fired) {
      Turn(known, session::Alert::State::kResolved);
    }
    const bool recent = known.alert.state == session::Alert::State::kResolved &&
                        now_ms_ - known.alert.since_ms < kKeepResolvedMs;
    const bool silenced = known.alert.state == session::Alert::State::kResolved &&
                          known.alert.silenced_until_ms > now_ms_;
    place = recent || silenced ? std::next(place) : known_.erase(place);
  }
}

void AlertEngine::CannotTell(const Rule& rule, session::Alert::State state,
                             const std::string& why) {
  const std::string prefix = rule.name + "/";
  const std::string words =
      base::ToUtf8(absl::StrCat("Nobody can tell whether this holds: ", why), kMaxWords);
  bool said = false;
  for (auto place = known_.lower_bound(prefix);
       place != known_.end() && absl::StartsWith(place->first, prefix); ++place) {
    Known& known = place->second;
    if (known.alert.state == session::Alert::State::kResolved) continue;
    Turn(known, state);
    known.alert.text = words;
    known.alert.value.reset();
    said = true;
  }
  if (said) return;
  Known& known = known_[prefix + "cluster"];
  known = Known{.stands_in = true};
  known.alert.id = prefix + "cluster";
  known.alert.rule = rule.name;
  known.alert.entity = "cluster";
  known.alert.state = state;
  known.alert.severity = rule.severity;
  known.alert.since_ms = now_ms_;
  known.alert.text = words;
}

void AlertEngine::EvaluateSeries(const Rule& rule, const Numbers& numbers) {
  for (const Number& number : numbers.all) {
    if (fnmatch(rule.watches.c_str(), number.name.c_str(), 0) != 0) continue;
    // '*' also matches '/', because the ids of pools contain it. An application's share of a pool
    // is no pool, so its series match only patterns that name it.
    constexpr const char* kShares = "/shares/";
    if (absl::StrContains(number.name, kShares) && !absl::StrContains(rule.watches, kShares))
      continue;
    const std::string entity = number.name.substr(0, number.name.rfind('/'));
    const bool holds = rule.when == Rule::When::kAbove ? number.value > rule.threshold
                                                       : number.value < rule.threshold;
    if (holds) {
      Holds(rule, entity, number.value, "");
      continue;
    }
    const auto known = known_.find(rule.name + "/" + entity);
    if (known == known_.end()) continue;
    // The series is there, and its value is good.
    const bool fired =
        known->second.alert.state == session::Alert::State::kFiring || known->second.fired;
    if (fired) Turn(known->second, session::Alert::State::kResolved);
    if (known->second.alert.state != session::Alert::State::kResolved) known_.erase(known);
  }
  // A series that is no longer there is neither good nor bad. It is kNoData for a while and then
  // forgotten.
  const std::string prefix = rule.name + "/";
  for (auto place = known_.lower_bound(prefix);
       place != known_.end() && absl::StartsWith(place->first, prefix); ++place) {
    Known& known = place->second;
    const bool open = known.alert.state == session::Alert::State::kPending ||
                      known.alert.state == session::Alert::State::kFiring;
    if (known.seen == evaluations_ || known.stands_in) continue;
    if (open) {
      Turn(known, session::Alert::State::kNoData);
      known.alert.text = "Nobody can tell whether this holds: its numbers are not there any more";
      known.alert.value.reset();
    }
    if (known.alert.state == session::Alert::State::kNoData &&
        now_ms_ - known.alert.since_ms < kForgetGoneMs)
      known.seen = evaluations_;
  }
}

void AlertEngine::EvaluateRule(const Rule& rule, const session::Snapshot& snapshot,
                               const session::LinkStatus& link, const Numbers& numbers) {
  const Condition* condition = IsSeries(rule) ? nullptr : FindCondition(rule.watches);
  const auto series = IsSeries(rule) ? SourceOfSeries(rule.watches) : std::nullopt;
  if ((condition == nullptr && !series) || std::isnan(rule.threshold)) {
    CannotTell(rule, session::Alert::State::kError,
               absl::StrCat("the rule watches '", rule.watches,
                            "', which is neither a series nor one of ", ConditionNames()));
    return;
  }
  const Source source = condition != nullptr ? condition->source : *series;
  if (const std::string why = WhyNoData(source, snapshot, link); !why.empty()) {
    CannotTell(rule, session::Alert::State::kNoData, why);
    return;
  }
  if (condition != nullptr) {
    for (const Finding& finding : condition->find(snapshot, link))
      Holds(rule, finding.entity, finding.value, finding.detail);
  } else {
    EvaluateSeries(rule, numbers);
  }
  HoldsNoMore(rule);
}

void AlertEngine::Evaluate(const session::Snapshot& snapshot, const session::LinkStatus& link) {
  ++evaluations_;
  // Time never falls here, so no alert has a negative age after the clock was set back.
  now_ms_ = std::max(now_ms_, snapshot.at_ms);
  Numbers numbers;
  if (std::ranges::any_of(rules_, IsSeries)) {
    numbers.all = TakeApart(snapshot).numbers;
    const auto silent = Silent(snapshot);
    std::erase_if(numbers.all, [&](const Number& number) {
      auto prefix = silent.upper_bound(number.name);
      return prefix != silent.begin() && absl::StartsWith(number.name, *--prefix);
    });
  }
  for (const Rule& rule : rules_) EvaluateRule(rule, snapshot, link, numbers);
  Publish();
}

void AlertEngine::Publish() {
  sorted_.clear();
  for (const auto& [id, known] : known_) sorted_.push_back(known.alert);
  std::ranges::sort(sorted_, IsWorse);
  if (sorted_.size() <= kMaxAlerts) return;
  const std::size_t more = sorted_.size() - (kMaxAlerts - 1);
  session::Alert rest;
  rest.id = "more/cluster";
  rest.rule = "more";
  rest.entity = "cluster";
  rest.state = sorted_[kMaxAlerts - 1].state;
  rest.severity = sorted_[kMaxAlerts - 1].severity;
  rest.since_ms = now_ms_;
  rest.value = static_cast<double>(more);
  rest.text = absl::StrCat(more, " more alerts, milder than these");
  // An alert that still holds stays known even if it is only counted, because its time would begin
  // anew at each evaluation otherwise, and it would never fire.
  for (std::size_t i = kMaxAlerts - 1; i < sorted_.size(); ++i) {
    if (sorted_[i].state == session::Alert::State::kResolved) known_.erase(sorted_[i].id);
  }
  sorted_.resize(kMaxAlerts - 1);
  sorted_.push_back(std::move(rest));
}

absl::StatusOr<AlertEngine::Known*> AlertEngine::Find(std::string_view id) {
  const auto known = known_.find(id);
  if (known != known_.end()) return &known->second;
  return base::MakeError(
      absl::StatusCode::kNotFound, "NO_ALERT",
      absl::StrCat("there is no alert '", base::ToUtf8(id, 200), "' now; it may be over"));
}

void AlertEngine::Restore(const session::Alerts& alerts) {
  for (const session::Alert& before : alerts) {
    const bool over = before.state == session::Alert::State::kResolved;
    const bool seen = !before.acknowledged_by.empty() && !over;
    const bool silenced = before.silenced_until_ms > now_ms_;
    if (!seen && !silenced) continue;
    const auto [place, is_new] = known_.try_emplace(before.id);
    Known& known = place->second;
    if (is_new) {
      // The next evaluation ends the alert if its rule no longer holds.
      known.alert = before;
      known.true_since_ms = before.since_ms;
      continue;
    }
    const bool ended = known.alert.state == session::Alert::State::kResolved;
    if (seen && !ended && known.alert.acknowledged_by.empty())
      known.alert.acknowledged_by = before.acknowledged_by;
    if (silenced && known.alert.silenced_until_ms == 0) {
      known.alert.silenced_until_ms = before.silenced_until_ms;
      known.alert.silence_reason = before.silence_reason;
    }
  }
  Publish();
}

absl::Status AlertEngine::Acknowledge(std::string_view id, std::string_view who) {
  ONEPIECE_ASSIGN_OR_RETURN(Known * known, Find(id));
  known->alert.acknowledged_by = base::ToUtf8(who, 200);
  Publish();
  return absl::OkStatus();
}

absl::Status AlertEngine::Silence(std::string_view id, std::int64_t until_ms,
                                  std::string_view reason) {
  const auto bad = [](const char* what) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SILENCE", what);
  };
  if (until_ms <= now_ms_) return bad("a silence ends in the future: say until when");
  if (reason.empty()) return bad("a silence needs a reason");
  ONEPIECE_ASSIGN_OR_RETURN(Known * known, Find(id));
  known->alert.silenced_until_ms = until_ms;
  known->alert.silence_reason = base::ToUtf8(reason, kMaxWords);
  Publish();
  return absl::OkStatus();
}

}  // namespace onepiece::history
