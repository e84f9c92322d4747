// Losses that are planted behind the cluster's back, so that a test sees a whole run find them. No
// cluster that keeps its promises loses anything by itself.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/chaos/ledger.h"
#include "tests/chaos/ledger_cluster.h"

namespace onepiece::ledger {

struct Plants {
  bool fetch_all = false;   ///< The load leaves nothing unfetched: the run is blind.
  bool loss = false;        ///< Both keepers of every result lose all that they have.
  bool second_end = false;  ///< A job that was announced as SUCCEEDED is FAILED from now on.
};
/// Reads "fetch_all,loss".
///
/// Errors: INVALID_ARGUMENT (BAD_PLANT).
absl::StatusOr<Plants> ParsePlants(std::string_view list);

/// Plants the loss and the second end, as far as they are asked for. REQUIRES: all databases run.
///
/// Blocking: at most 2 minutes, scaled.
/// Errors: FAILED_PRECONDITION (NOT_PLANTED).
absl::Status Plant(const Plants& plants, const Cluster& cluster, const Ledger& ledger);

}  // namespace onepiece::ledger
