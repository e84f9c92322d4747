// What an alert rule may watch: the conditions and series of the console and of `onepiece record`
// (docs/console.md, "Alerts"). There is one list of each, here.
//
// Threading: may be called from any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/status.h"
#include "google/protobuf/descriptor.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::config {

inline constexpr std::array<std::string_view, 9> kAlertConditions = {
    "node-dead",     "job-failed",  "ring-stuck", "no-progress", "no-leader",
    "stale-reports", "quarantined", "clock-skew", "plan-failed"};
/// The first words of series.
inline constexpr std::array<std::string_view, 7> kSeriesKinds = {
    "node/", "ring/", "pool/", "database/", "replica/", "jobs/", "part/"};

/// Returns true for a field whose value is a series: a number that changes by itself, and does not
/// say what a thing is.
bool IsSeriesNumber(const google::protobuf::FieldDescriptor& field);
/// Returns true for a field whose name is left out of series names: "node/instance-1/utilization",
/// not "…/load/utilization".
bool IsLeftOutOfSeriesNames(const google::protobuf::FieldDescriptor& field);
/// Returns the last words of the series of a kind, sorted: "utilization", "queued_jobs", … Empty
/// for what is no kind.
std::vector<std::string> SeriesOfKind(std::string_view kind);

/// Checks that what the rule watches exists: a condition, or a series when there is a threshold.
/// Whether there is a node or pool of that name shows only when it is evaluated.
/// Errors: INVALID_ARGUMENT (BAD_RULE), with the nearest name.
absl::Status CheckWatches(const v1::AlertRule& rule);

}  // namespace onepiece::config
