// What a job record is: states, the join that replication relies on, and what clients see of it.
// Pure functions.
#pragma once

#include <string>

#include "cluster/base/clock.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::job {

/// SUCCEEDED, FAILED, CANCELLED or EXPIRED.
bool IsTerminal(v1::Job::State state);

/// Deleted, fetched or expired: kept for a while to tell late pollers what became of the job.
bool IsTombstone(const v1::JobRecord& record);

/// The least record that holds what both hold. Commutative, associative, idempotent, so that
/// instances which have seen the same records in any order, any number of times, agree:
///   - what creation fixed: the complete record before one made up from a result, then the older
///   one;
///   - where the job is: larger (attempt, stage_index, step) wins;
///   - how it ended: an end beats none, the earlier end wins (EXPIRED follows SUCCEEDED of the same
///   end);
///   - fetched and deleted stick; timings are united by (stage, node), in that order.
/// has_bytes says something about one instance only: it is false in the answer. Both must have the
/// same uid.
v1::JobRecord Join(const v1::JobRecord& a, const v1::JobRecord& b);

/// The job as clients see it: a fetched job SUCCEEDED even where its TTL ended first, and only such
/// jobs have results.
v1::Job PublicJob(const v1::JobRecord& record);

/// Serialised with map entries in order: equal messages give equal bytes.
std::string CanonicalBytes(const google::protobuf::MessageLite& message);

google::protobuf::Timestamp ToTimestamp(base::WallTime time);
base::WallTime FromTimestamp(const google::protobuf::Timestamp& timestamp);

}  // namespace onepiece::job
