// Asks single databases what they hold, for operators. Clients of a cluster use Client, which finds
// the database that has a job.
//
// Threading: the functions may be called from any thread.
// Errors: UNAVAILABLE, DEADLINE_EXCEEDED and those of DatabaseService, unless a function says
// otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/client/client.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::client {

/// What a database reports, or why it did not answer.
struct DatabaseAnswer {
  std::string node_id, address;
  absl::StatusOr<v1::Database> database;
};

/// Asks every database of the cluster that is not dead, all at the same time. The answers are
/// sorted by node id.
///
/// Errors: those of Client::GetCluster.
absl::StatusOr<std::vector<DatabaseAnswer>> AskDatabases(Client& client);

/// Returns the record as the database at `address` has it. Asks once.
///
/// Blocking: 5 s (scaled) at most.

absl::StatusOr<v1::JobRecord> GetJobAt(const std::string& address, std::string_view uid);
/// Returns one page of the jobs at `address`, newest first.
///
/// Blocking: 5 s (scaled) at most.
absl::StatusOr<v1::ListJobsResponse> ListJobsAt(const std::string& address,
                                                const v1::ListJobsRequest& request);
/// Streams an artifact, or a range of it, whose bytes the database at `address` has. Checks the
/// number of bytes, and the SHA-256 when the whole artifact came.
///
/// Blocking: one minute (scaled) at most.
/// Errors: also DATA_LOSS (CHECKSUM_MISMATCH) and the errors of `sink`.
absl::StatusOr<v1::ResultArtifact> FetchAt(const std::string& address,
                                           const v1::FetchResultRequest& request,
                                           const ChunkSink& sink);
/// Purges the results that match, as if their clients had acknowledged them. The other databases
/// learn of it.
///
/// Blocking: half a minute (scaled) at most.
absl::StatusOr<v1::PurgeResultsResponse> PurgeResultsAt(const std::string& address,
                                                        const v1::PurgeResultsRequest& request);

}  // namespace onepiece::client
