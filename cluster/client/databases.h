// The databases themselves, for who runs the cluster: what each holds, piece by piece. Clients of a
// cluster use Client, which finds the database that has a job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/client/client.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::client {

/// What a database says of itself, or why it does not.
struct DatabaseAnswer {
  std::string node_id, address;
  absl::StatusOr<v1::Database> database;
};

/// Asks every database of the cluster that is not dead, all at the same time; by node id. Errors:
/// those of Client::GetCluster.
absl::StatusOr<std::vector<DatabaseAnswer>> AskDatabases(Client& client);

// Of the database at `address`, asked once, for 5 s (scaled) at most. Errors: UNAVAILABLE,
// DEADLINE_EXCEEDED, and those of DatabaseService. Thread-safe.

absl::StatusOr<v1::JobRecord> GetJobAt(const std::string& address, std::string_view uid);
/// One page, newest first.
absl::StatusOr<v1::ListJobsResponse> ListJobsAt(const std::string& address,
                                                const v1::ListJobsRequest& request);
/// Streams (a range of) an artifact whose bytes are there. Checks how many bytes came, and the
/// SHA-256 where that is all of them: DATA_LOSS (CHECKSUM_MISMATCH). A minute at most.
absl::StatusOr<v1::ResultArtifact> FetchAt(const std::string& address,
                                           const v1::FetchResultRequest& request,
                                           const ChunkSink& sink);
/// Gives up the results that match, as if they were acknowledged; other databases learn of it. Half
/// a minute at most.
absl::StatusOr<v1::PurgeResultsResponse> PurgeResultsAt(const std::string& address,
                                                        const v1::PurgeResultsRequest& request);

}  // namespace onepiece::client
