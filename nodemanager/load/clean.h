// Checks the reports of nodes before anybody believes them.
#pragma once

#include <string>

#include "cluster/base/clock.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// What is known of the node that reports.
struct ReportContext {
  /// The last report of this incarnation, cleaned, or null for the first one.
  const v1::NodeLoad* last = nullptr;
  base::Duration since_last{}, since_first{};
  /// The compute time of all entries in the first report of this incarnation.
  double compute_at_first_s = 0;
};

struct CleanedReport {
  /// The report, with the last good numbers (or none) in the place of impossible ones.
  v1::NodeLoad load;
  bool utilization_is_good = true;
  std::string wrong;  ///< What was replaced, for people. Empty when all was well.
};

/// Replaces the numbers in a report that cannot be true. Entries that `load` leaves out stay as
/// they were in the last report, because counts never fall. It keeps at most 1024 stages of
/// applications, and 1024 applications of a proxy: a report of that size has about half a MiB.
/// Impossible numbers of a device become absent, and at most 16 devices are kept. Debts that cannot
/// be are left out.
///
/// Threading: thread-safe. It is a pure function.
CleanedReport CleanReport(const v1::NodeLoad& load, const ReportContext& context);

}  // namespace onepiece::nodemanager
