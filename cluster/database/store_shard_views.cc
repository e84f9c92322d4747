// What clients, peers and waiting callers see of a shard's jobs.
#include <fmt/format.h>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/digest.h"
#include "cluster/database/store_shard.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

using v1::Job;
using v1::JobRecord;

/// Jobs that a walk over all jobs looks at before it releases the lock.
constexpr std::size_t kRowsAtOnce = 256;
constexpr char kLostOnRestart[] = "LOST_ON_RESTART";
constexpr char kWhyLost[] = "no database has its result any more: they were restarted";

absl::Status NotFetchable(std::string_view reason, const Job& job, std::string_view why) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason,
                         fmt::format("job {} {}", job.uid(), why),
                         {{"uid", job.uid()}, {"state", Job::State_Name(job.state())}});
}

}  // namespace

absl::StatusOr<JobRecord> StoreShard::Get(const base::Uid& uid) const {
  const base::MutexLock lock(mutex_);
  const JobEntry* const entry = Find(uid);
  if (entry == nullptr || entry->record.deleted()) return JobUnknown(uid, entry != nullptr);
  return View(*entry);
}

absl::StatusOr<StoredArtifact> StoreShard::FindArtifact(const base::Uid& uid,
                                                        const std::string& name) const {
  const base::MutexLock lock(mutex_);
  const JobEntry* const entry = Find(uid);
  if (entry == nullptr) return JobUnknown(uid, false);
  ONEPIECE_RETURN_IF_ERROR(CheckFetchable(*entry));
  if (entry->result == nullptr) {
    return base::MakeError(absl::StatusCode::kUnavailable, "RESULT_ELSEWHERE",
                           "another database instance holds the result of job " + uid.ToString(),
                           {{"uid", uid.ToString()}});
  }
  for (const StoredArtifact& artifact : *entry->result) {
    if (name.empty() || artifact.info.artifact() == name) return artifact;
  }
  return base::MakeError(
      absl::StatusCode::kNotFound, "ARTIFACT_UNKNOWN",
      fmt::format("the result of job {} has no artifact \"{}\"", uid.ToString(), name),
      {{"uid", uid.ToString()}, {"artifact", name}});
}

std::shared_ptr<const Artifacts> StoreShard::FindResult(const base::Uid& uid) const {
  const base::MutexLock lock(mutex_);
  const JobEntry* const entry = Find(uid);
  return entry == nullptr ? nullptr : entry->result;
}

absl::StatusOr<JobRevision> StoreShard::Watch(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || entry->record.deleted()) return JobUnknown(uid, entry != nullptr);
  entry->watched = true;
  return JobRevision{std::make_shared<const Job>(PublicView(*entry)), entry->revision};
}

std::optional<JobRecord> StoreShard::Record(const base::Uid& uid) const {
  const base::MutexLock lock(mutex_);
  const JobEntry* const entry = Find(uid);
  if (entry == nullptr) return std::nullopt;
  JobRecord record = WithTimeLeft(*entry);
  record.set_has_bytes(entry->result != nullptr);
  return record;
}

std::vector<AgeKey> StoreShard::Positions(const AgeKey& after, std::size_t limit,
                                          const Wanted& wanted) const {
  std::vector<AgeKey> keys;
  const base::MutexLock lock(mutex_);
  for (auto it = by_age_.upper_bound(after); it != by_age_.end() && keys.size() < limit; ++it) {
    if (IsSeen(*it->second, wanted)) keys.push_back(it->first);
  }
  return keys;
}

std::optional<Job> StoreShard::Seen(const base::Uid& uid, const Wanted& wanted) const {
  const base::MutexLock lock(mutex_);
  const JobEntry* const entry = Find(uid);
  if (entry == nullptr || !IsSeen(*entry, wanted)) return std::nullopt;
  return PublicView(*entry);
}

bool StoreShard::IsSeen(const JobEntry& entry, const Wanted& wanted) {
  return entry.phase != Phase::kDeleted &&
         wanted(entry.record.job(), entry.lost ? Job::FAILED : job::PublicState(entry.record));
}

void StoreShard::VisitDigests(const JobStore::Filter& filter, const Visit& visit) const {
  AgeKey last{base::Duration::min(), base::Uid()};
  std::size_t seen = kRowsAtOnce;
  while (seen == kRowsAtOnce) {
    const base::MutexLock lock(mutex_);
    auto it = by_age_.upper_bound(last);
    for (seen = 0; seen < kRowsAtOnce && it != by_age_.end(); ++seen, ++it) {
      last = it->first;
      const JobEntry& entry = *it->second;
      if (!filter(entry.uid)) continue;
      // Tombstones are left out, because each instance forgets its own at another time.
      if (entry.phase > Phase::kEnded) continue;
      const bool has_bytes = entry.result != nullptr && !entry.held;
      if (!entry.digest.has_value()) entry.digest = DigestOf(entry.record, has_bytes);
      visit(entry.uid, *entry.digest, has_bytes);
    }
  }
}

void StoreShard::AddTombstones(const JobStore::Filter& filter, std::vector<base::Uid>& uids) const {
  std::uint64_t last = 0;
  std::size_t seen = kRowsAtOnce;
  while (seen == kRowsAtOnce) {
    const base::MutexLock lock(mutex_);
    auto it = tombstones_.entries.upper_bound(last);
    for (seen = 0; seen < kRowsAtOnce && it != tombstones_.entries.end(); ++seen, ++it) {
      last = it->first;
      if (filter(it->second->uid)) uids.push_back(it->second->uid);
    }
  }
}

absl::Status StoreShard::JobUnknown(const base::Uid& uid, bool deleted) {
  std::map<std::string, std::string> metadata{{"uid", uid.ToString()}};
  // Tells the proxy not to ask another database, which may not have heard of the deletion yet.
  if (deleted) metadata.emplace("deleted", "true");
  return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "no job " + uid.ToString(),
                         std::move(metadata));
}

JobRecord StoreShard::WithTimeLeft(const JobEntry& entry) const {
  JobRecord record = entry.record;
  *record.mutable_time_left() = job::ToProto(entry.due - shared_.clock.Now());
  if (const base::Duration left = LeaseLeft(entry); left > base::Duration::zero())
    *record.mutable_lease()->mutable_time_left() = job::ToProto(left);
  return record;
}

JobRecord StoreShard::View(const JobEntry& entry) const {
  JobRecord record = WithTimeLeft(entry);
  record.set_has_bytes(Servable(entry));
  if (!entry.lost) return record;
  Job& job = *record.mutable_job();
  job.set_state(Job::FAILED);
  job.mutable_error()->set_reason(kLostOnRestart);
  job.mutable_error()->set_message(kWhyLost);
  return record;
}

Job StoreShard::PublicView(const JobEntry& entry) const {
  return job::PublicJob(entry.lost ? View(entry) : entry.record);
}

absl::Status StoreShard::CheckFetchable(const JobEntry& entry) const {
  const Job& job = entry.record.job();
  if (entry.lost) return NotFetchable(kLostOnRestart, job, kWhyLost);
  switch (entry.phase) {
    case Phase::kDeleted:
      return JobUnknown(entry.uid, true);
    case Phase::kFetched:
      return NotFetchable("RESULT_FETCHED", job, "was fetched and its result purged");
    case Phase::kEvicted:
      return NotFetchable("RESULT_EVICTED", job,
                          "was sent to a client once, and its result gave way to others when "
                          "memory was short: submit the job again, or raise budget_bytes");
    case Phase::kExpired:
      return NotFetchable("RESULT_EXPIRED", job, "was not fetched in time");
    case Phase::kOpen:
      return NotFetchable("JOB_NOT_DONE", job, "is not done");
    case Phase::kEnded:
      break;
  }
  if (job.state() == Job::SUCCEEDED) return absl::OkStatus();
  if (job.state() == Job::CANCELLED) return NotFetchable("JOB_CANCELLED", job, "was cancelled");
  return NotFetchable("JOB_FAILED", job,
                      fmt::format("failed: {}: {}", job.error().reason(), job.error().message()));
}

}  // namespace onepiece::database
