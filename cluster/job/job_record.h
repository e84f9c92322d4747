// The rules of job records: their states, the join that replication relies on, and what clients see
// of them. All functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::job {

/// SUCCEEDED, FAILED, CANCELLED or EXPIRED.
bool IsTerminal(v1::Job::State state);

/// True for a record that was deleted, fetched, evicted or has expired. It is kept for a while, so
/// that a late question still gets an answer.
bool IsTombstone(const v1::JobRecord& record);

/// Joins two versions of a record into the least record that holds what both hold. Both must have
/// the same uid. The join is commutative, associative and idempotent, so databases that have seen
/// the same records agree, whatever the order and however often they saw each. It goes by these
/// rules:
///   - What creation fixed: a complete record beats a record made up from a result, then the
///     older record wins.
///   - The larger run wins, with who holds its work and where it is.
///   - Of the leases to start the job, the one with the larger number wins.
///   - Who holds the work: the larger attempt wins, for each (from, stage).
///   - Where the job is: the larger (attempt, stage_index, step) wins.
///   - How the job ended: an end beats a proposed one, and that beats none. Of two ends, and of two
///     proposed ones, EXPIRED beats SUCCEEDED, which beats CANCELLED, which beats FAILED.
///   - The flags fetched, evicted and deleted stick. Timings are united by (stage, node), in that
///   order.
///   - A deleted job, which nobody sees, has no parameters, inputs, labels, holders, lease and
///   timings: a tombstone lives long, so it must be small.
/// has_bytes and the time_left of the record and of its lease describe one database only, so the
/// answer does not have them.
v1::JobRecord Join(const v1::JobRecord& a, const v1::JobRecord& b);

/// Brings a record into the form in which Join() leaves records. The result is Join(record,
/// record), but cheaper. The functions below take and leave records in this form, and each has the
/// effect of a join with the same change.
void Normalize(v1::JobRecord& record);

/// Joins into the record that `holder` has the work and has done `step` of `steps`. Returns true
/// when that is news. A deleted record takes no holder. A record with kMaxHolders takes no further
/// holder, and none takes one of an older run.
bool Place(const v1::WorkHolder& holder, int step, int steps, v1::JobRecord& record);
inline constexpr int kMaxHolders = 256;

/// Returns whether this holder's work is being done again elsewhere: the record has a larger run,
/// or a larger attempt for the holder's edge (stage, `from`).
bool IsFenced(const v1::WorkHolder& holder, const v1::JobRecord& record);

/// Joins a timing into the record. Returns true when that is news. A deleted record takes none, and
/// a record with kMaxTimings takes no further one.
bool AddTiming(const v1::StageTiming& timing, v1::JobRecord& record);
inline constexpr int kMaxTimings = 256;

/// Numbers of runs and of claims to start a job (StartLease): the upper half is a sequence, and the
/// lower half is the claimant's own random number.
inline constexpr int kRunRandomBits = 32;
/// Returns the sequence in a number, which is what people are shown.
constexpr std::uint32_t RunSequence(std::uint64_t number) {
  return static_cast<std::uint32_t>(number >> kRunRandomBits);
}
/// Returns the random half of a number.
constexpr std::uint32_t RunRandom(std::uint64_t number) {
  return static_cast<std::uint32_t>(number);
}
/// Returns the number of the claim that follows all that the record knows of.
std::uint64_t NextRun(const v1::JobRecord& record, std::uint32_t random);
/// Returns the run in which whoever has the record's lease starts the job: that of the work which
/// instances have already, else the claim's own.
std::uint64_t RunToStart(const v1::JobRecord& record);
/// Returns whether work or a result of this run is fenced: the record knows of a larger run.
inline bool IsFenced(std::uint64_t run, const v1::JobRecord& record) { return run < record.run(); }

/// Joins into the record that the job's work is of this run, or a larger one.
void NoteRun(std::uint64_t run, v1::JobRecord& record);

/// Sets how long the job may take from now on, and the deadline that people see.
void SetTimeLimit(base::Duration limit, base::WallTime now, v1::JobRecord& record);

/// Ends a job that has not ended. `now` is only shown.
void SetEnd(v1::Job::State state, base::WallTime now, v1::JobRecord& record);

/// Ends a job as its record proposes. Does nothing when there is no proposal.
void SettleEnd(v1::JobRecord& record);

/// Returns how the job ended or is about to end, STATE_UNSPECIFIED when neither is so.
v1::Job::State EndOf(const v1::JobRecord& record);

/// Returns whether both records end, or propose to end, in the same way.
bool SameEnd(const v1::JobRecord& a, const v1::JobRecord& b);

/// Returns the holders that the job waits for, as pointers into `record`. Two kinds are left out:
/// holders that have handed on to every stage after theirs, and holders whose work is being done
/// again because a stage before theirs has a larger attempt.
std::vector<const v1::WorkHolder*> LiveHolders(const v1::JobRecord& record);

/// Returns whose job it is.
const std::string& TenantOf(const v1::Job& job);

/// Returns the job as clients see it. A job that was fetched shows as SUCCEEDED even if its TTL
/// ended first. Only SUCCEEDED jobs show a result.
v1::Job PublicJob(const v1::JobRecord& record);
/// Returns PublicJob(record).state() without a copy of the job.
v1::Job::State PublicState(const v1::JobRecord& record);

/// Puts the job's timings into the order of the workflow's stages. Without a workflow they stay as
/// they are.
void SortTimings(const v1::Workflow* workflow, v1::Job& job);

google::protobuf::Timestamp ToTimestamp(base::WallTime time);
base::WallTime FromTimestamp(const google::protobuf::Timestamp& timestamp);
google::protobuf::Duration ToProto(base::Duration duration);
/// Returns the duration, but at most 10 years either way, so that sums with it do not overflow.
base::Duration FromProto(const google::protobuf::Duration& duration);

}  // namespace onepiece::job
