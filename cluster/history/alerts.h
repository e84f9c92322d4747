// Alert rules look at every snapshot and say what is wrong (docs/console.md, "Alerts").
//
// Threading: needs external synchronisation. There is no clock; the time comes with the snapshots.
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
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::history {

/// One rule, as resources/alerts.yaml writes it.
struct Rule {
  std::string name;  ///< "ring-stuck"
  /// What the rule looks at. It is either a pattern of series names ("node/*/utilization", one
  /// entity for each match), or a condition by its name ("node-dead", "job-failed", "ring-stuck",
  /// "no-progress", "no-leader", "stale-reports", "quarantined", "clock-skew", "plan-failed";
  /// docs/console.md, "Alerts").
  std::string watches;
  enum class When { kAbove, kBelow, kTrue } when = When::kTrue;
  double threshold = 0;     ///< In the series' unit.
  std::int64_t for_ms = 0;  ///< The alert is pending for this long before it fires.
  session::Alert::Severity severity = session::Alert::Severity::kWarning;
  /// The text of the alert, in which {entity}, {value}, {threshold}, {for} and {detail} are
  /// replaced.
  std::string text;
};

/// Parses the rules of a file.
///
/// Errors: INVALID_ARGUMENT (BAD_RULE), which names the rule, the key and what is allowed.
absl::StatusOr<std::vector<Rule>> ParseRules(std::string_view yaml);
/// Returns the rules of a cluster's configuration. A rule that watches something that this program
/// does not know is among them: its alert says so.
///
/// Errors: as ParseRules.
absl::StatusOr<std::vector<Rule>> RulesOf(const v1::ClusterConfig& config);

class AlertEngine {
 public:
  /// Beyond this many alerts the mildest are counted in one.
  static constexpr std::size_t kMaxAlerts = 1000;

  explicit AlertEngine(std::vector<Rule> rules);
  /// Replaces the rules. Alerts of rules that are gone go with them; those of a rule that keeps its
  /// name stay, and the next evaluation judges them by the new rule.
  void SetRules(std::vector<Rule> rules);
  /// Evaluates the rules on a snapshot. Parts that are old or absent make kNoData instead of
  /// silence.
  void Evaluate(const session::Snapshot& snapshot, const session::LinkStatus& link);
  /// Returns the alerts. Resolved ones stay for an hour.
  [[nodiscard]] const session::Alerts& alerts() const;
  /// Takes over what people said about alerts before this engine began, from a recording:
  /// acknowledgements of alerts that had not ended, and silences that have not ended. What people
  /// said to this engine stays.
  void Restore(const session::Alerts& alerts);
  /// Says that somebody has seen the alert.
  ///
  /// Errors: NOT_FOUND (NO_ALERT).
  absl::Status Acknowledge(std::string_view id, std::string_view who);
  /// Silences the alert until a time.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_SILENCE) when the end is not in the future or the reason is
  /// empty, NOT_FOUND (NO_ALERT).
  absl::Status Silence(std::string_view id, std::int64_t until_ms, std::string_view reason);

 private:
  struct Known {
    session::Alert alert;
    bool fired = false;      // It fired before its data went away.
    bool stands_in = false;  // It stands for everything that its rule cannot see.
    std::int64_t true_since_ms = 0;
    std::uint64_t seen = 0;  // The number of the last evaluation in which the rule held.
  };
  struct Numbers;
  void EvaluateRule(const Rule& rule, const session::Snapshot& snapshot,
                    const session::LinkStatus& link, const Numbers& numbers);
  void EvaluateSeries(const Rule& rule, const Numbers& numbers);
  void Holds(const Rule& rule, const std::string& entity, std::optional<double> value,
             const std::string& detail);
  void HoldsNoMore(const Rule& rule);
  void CannotTell(const Rule& rule, session::Alert::State state, const std::string& why);
  void Turn(Known& known, session::Alert::State state) const;
  void Publish();
  absl::StatusOr<Known*> Find(std::string_view id);

  std::vector<Rule> rules_;
  std::map<std::string, Known, std::less<>> known_;  // By id, so a rule's alerts are together.
  session::Alerts sorted_;
  std::int64_t now_ms_ = 0;
  std::uint64_t evaluations_ = 0;
};

}  // namespace onepiece::history
