// Rules that look at every snapshot and say what is wrong (docs/console.md, "Alerts").
//
// Threading  Externally synchronised. Time comes with the snapshots: no clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui::history {

/// One rule, as resources/alerts.yaml writes it.
struct Rule {
  std::string name;  ///< "ring-stuck"
  /// What is looked at: a series by pattern ("node/*/utilization", one entity for each match), or a
  /// condition that has a name of its own ("node-dead", "job-failed", "ring-stuck", "no-progress",
  /// "no-leader", "stale-reports", "quarantined", "plan-failed"; docs/console.md, "Alerts").
  std::string watches;
  enum class When { kAbove, kBelow, kTrue } when = When::kTrue;
  double threshold = 0;     ///< In the series' unit.
  std::int64_t for_ms = 0;  ///< Pending for so long before it fires.
  Alert::Severity severity = Alert::Severity::kWarning;
  /// What it says; of {entity}, {value}, {threshold}, {for} and {detail} the present ones are put
  /// in.
  std::string text;
};

/// Errors: INVALID_ARGUMENT (BAD_RULE), which names the rule, the key and what is allowed.
absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view yaml);

class AlertEngine {
 public:
  static constexpr std::size_t kMaxAlerts = 1000;  ///< Beyond that the mildest are counted in one.

  explicit AlertEngine(std::vector<Rule> rules);
  /// Looks at a snapshot; the parts that are old or absent make kNoData, not silence.
  void Evaluate(const Snapshot& snapshot, const LinkStatus& link);
  /// Resolved ones stay for an hour.
  [[nodiscard]] const Alerts& alerts() const;
  /// What people said of alerts before this engine began, from a recording: acknowledgements of
  /// those that had not ended, and silences that have not. What was said to this engine stays.
  void Restore(const Alerts& alerts);
  /// Somebody has seen it. NOT_FOUND.
  absl::Status Acknowledge(std::string_view id, std::string_view who);
  /// INVALID_ARGUMENT without an end in the future or without a reason; NOT_FOUND.
  absl::Status Silence(std::string_view id, std::int64_t until_ms, std::string_view reason);

 private:
  struct Known {
    Alert alert;
    bool fired = false;      // Before its data went away.
    bool stands_in = false;  // For all that its rule cannot see.
    std::int64_t true_since_ms = 0;
    std::uint64_t seen = 0;  // In the evaluation of this number.
  };
  struct Numbers;
  void EvaluateRule(const Rule& rule, const Snapshot& snapshot, const LinkStatus& link,
                    const Numbers& numbers);
  void EvaluateSeries(const Rule& rule, const Numbers& numbers);
  void Holds(const Rule& rule, const std::string& entity, std::optional<double> value,
             const std::string& detail);
  void HoldsNoMore(const Rule& rule);
  void CannotTell(const Rule& rule, Alert::State state, const std::string& why);
  void Turn(Known& known, Alert::State state) const;
  void Publish();
  absl::StatusOr<Known*> Find(std::string_view id);

  std::vector<Rule> rules_;
  std::map<std::string, Known, std::less<>> known_;  // By id: a rule's are together.
  Alerts sorted_;
  std::int64_t now_ms_ = 0;
  std::uint64_t evaluations_ = 0;
};

}  // namespace onepiece::gui::history
