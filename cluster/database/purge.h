// Purging results by hand.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/database/job_store.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

/// Acknowledges every result that matches all filters of `request`, and counts those whose bytes
/// were here. With dry_run it only counts. A job that ends while it runs may or may not be purged.
///
/// Errors: INVALID_ARGUMENT (BAD_UID; NOTHING_NAMED: no filter is set).
absl::StatusOr<v1::PurgeResultsResponse> PurgeResults(JobStore& store,
                                                      const v1::PurgeResultsRequest& request);

}  // namespace onepiece::database
