// The conditions that have a name of their own, and what alerts have in common. Internal to
// gui/history.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui::history {

/// Worst first, then oldest: the order of Alerts.
bool IsWorse(const Alert& a, const Alert& b);

/// Something for which a condition holds.
struct Finding {
  std::string entity;
  std::optional<double> value;
  std::string detail;  ///< In the words of whoever found it; from outside.
};

/// A part of the snapshot that conditions and series are drawn from.
enum class Source { kCluster, kElasticity, kRings, kJobs, kDatabases, kReplicas, kPlans, kAlways };
/// Empty: it is as new as it must be. Else why not, for people.
std::string WhyNoData(Source source, const Snapshot& snapshot, const LinkStatus& link);

struct Condition {
  std::string_view name;
  Source source;
  std::vector<Finding> (*find)(const Snapshot& snapshot, const LinkStatus& link);
};
/// Null: there is none of this name.
const Condition* FindCondition(std::string_view name);
/// "node-dead, job-failed, …"
std::string ConditionNames();
/// By a series' first word; nullopt: no series begins like this.
std::optional<Source> SourceOfSeries(std::string_view pattern);

}  // namespace onepiece::gui::history
