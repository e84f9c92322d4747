// The named conditions of alert rules, and what all alerts have in common. Internal to
// cluster/history.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

/// Returns the order of Alerts: the worst first, then the oldest.
bool IsWorse(const session::Alert& a, const session::Alert& b);

/// An entity for which a condition holds.
struct Finding {
  std::string entity;
  std::optional<double> value;
  std::string detail;  ///< A text from outside, such as a node's own words.
};

/// The part of the snapshot that a condition or a series is taken from.
enum class Source { kCluster, kElasticity, kRings, kJobs, kDatabases, kReplicas, kPlans, kAlways };
/// Tells people why the part is too old. Empty when it is new enough.
std::string WhyNoData(Source source, const session::Snapshot& snapshot,
                      const session::LinkStatus& link);

struct Condition {
  std::string_view name;
  Source source;
  std::vector<Finding> (*find)(const session::Snapshot& snapshot, const session::LinkStatus& link);
};
/// Returns the condition of this name, or null.
const Condition* FindCondition(std::string_view name);
/// Returns "node-dead, job-failed, …".
std::string ConditionNames();
/// Returns the source by a series' first word, or nullopt when no series begins like this.
std::optional<Source> SourceOfSeries(std::string_view pattern);

}  // namespace onepiece::history
