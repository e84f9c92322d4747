// Reports of nodes, before anybody believes them.
#pragma once

#include <string>

#include "cluster/base/clock.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// What is known of the node that reports.
struct ReportContext {
  const v1::NodeLoad* last = nullptr;  ///< Cleaned; nullptr: the first of this incarnation.
  base::Duration since_last{}, since_first{};
  double compute_at_first_s = 0;  ///< Told by the first report, of all entries together.
};

struct CleanedReport {
  v1::NodeLoad load;  ///< The last good numbers (or none) in the place of those that cannot be.
  bool utilization_is_good = true;
  std::string wrong;  ///< What was replaced, for people; empty: nothing.
};

/// Entries that `load` leaves out stay as they were: counts never fall. At most 64 entries each.
/// What a device cannot have said becomes absent; at most 16 devices.
CleanedReport CleanReport(const v1::NodeLoad& load, const ReportContext& context);

}  // namespace onepiece::nodemanager
