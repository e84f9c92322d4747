// Results that people give up by hand.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/database/job_store.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

/// Acknowledges every result that matches all that `request` sets, and counts those whose bytes
/// were here; with dry_run it only counts. Jobs that end while it runs may or may not be among
/// them.
/// Errors: INVALID_ARGUMENT (BAD_UID, NOTHING_NAMED: nothing is set).
absl::StatusOr<v1::PurgeResultsResponse> PurgeResults(JobStore& store,
                                                      const v1::PurgeResultsRequest& request);

}  // namespace onepiece::database
