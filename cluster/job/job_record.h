// What a job record is: states, the join that replication relies on, and what clients see of it.
// Pure functions.
#pragma once

#include <string>
#include <vector>

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
///   - who holds its work: for each (from, stage) the larger attempt wins;
///   - where it is: larger (attempt, stage_index, step) wins;
///   - how it ended: an end beats none, the earlier end wins (EXPIRED follows SUCCEEDED of the same
///   end);
///   - fetched and deleted stick; timings are united by (stage, node), in that order.
/// has_bytes says something about one instance only: it is false in the answer. Both must have the
/// same uid.
v1::JobRecord Join(const v1::JobRecord& a, const v1::JobRecord& b);

/// Makes a record what Join(record, record) is, cheaper: as Join leaves records. What follows here
/// takes such records, leaves such records, and is what joining with the same change would be.
void Normalize(v1::JobRecord& record);

/// Joins into the record that `holder` has the work, with step `step` of `steps` done; true when
/// that is news. A record of kMaxHolders takes no more of them.
bool Place(const v1::WorkHolder& holder, int step, int steps, v1::JobRecord& record);
inline constexpr int kMaxHolders = 256;

/// Joins a timing in; true when that is news. A record of kMaxTimings takes no more of them.
bool AddTiming(const v1::StageTiming& timing, v1::JobRecord& record);
inline constexpr int kMaxTimings = 256;

/// Ends a job that has not ended.
void SetEnd(v1::Job::State state, base::WallTime now, v1::JobRecord& record);

/// The holders that the job waits for: without those that have handed on to every stage after
/// theirs, and without those whose work is being done again further up (a larger attempt holds a
/// stage that theirs came from). Points into `record`.
std::vector<const v1::WorkHolder*> LiveHolders(const v1::JobRecord& record);

/// The job as clients see it: a fetched job SUCCEEDED even where its TTL ended first, and only such
/// jobs have results.
v1::Job PublicJob(const v1::JobRecord& record);
/// PublicJob().state(), without a copy.
v1::Job::State PublicState(const v1::JobRecord& record);

/// Serialised with map entries in order: equal messages give equal bytes.
std::string CanonicalBytes(const google::protobuf::MessageLite& message);

google::protobuf::Timestamp ToTimestamp(base::WallTime time);
base::WallTime FromTimestamp(const google::protobuf::Timestamp& timestamp);

}  // namespace onepiece::job
