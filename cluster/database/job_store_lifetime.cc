// How results and records leave the store: fetched, deleted, expired, lost, or pushed out by newer
// ones.
#include <fmt/format.h>

#include "cluster/base/status.h"
#include "cluster/database/job_store.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

using v1::Job;
using v1::JobRecord;

absl::Status NotFetchable(std::string_view reason, const JobRecord& record, std::string_view why) {
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, reason,
      fmt::format("job {} {}", record.job().uid(), why),
      {{"uid", record.job().uid()}, {"state", Job::State_Name(record.job().state())}});
}

std::string Died(const v1::WorkHolder& holder) {
  return fmt::format("instance {} died while it held the job in stage {}", holder.node_id(),
                     holder.stage());
}

}  // namespace

absl::Status JobStore::CheckFetchable(const JobRecord& record) const {
  if (record.deleted()) {
    return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN",
                           "no job " + record.job().uid(),
                           {{"uid", record.job().uid()}, {"deleted", "true"}});
  }
  if (record.job().result().fetched()) {
    return NotFetchable("RESULT_FETCHED", record, "was fetched and its result purged");
  }
  switch (record.job().state()) {
    case Job::SUCCEEDED:
      return absl::OkStatus();
    case Job::EXPIRED:
      return NotFetchable("RESULT_EXPIRED", record, "was not fetched in time");
    case Job::FAILED:
      return NotFetchable("JOB_FAILED", record,
                          fmt::format("failed: {}: {}", record.job().error().reason(),
                                      record.job().error().message()));
    case Job::CANCELLED:
      return NotFetchable("JOB_CANCELLED", record, "was cancelled");
    default:
      return NotFetchable("JOB_NOT_DONE", record, "is not done");
  }
}

absl::StatusOr<StoredArtifact> JobStore::FindArtifact(const std::string& uid,
                                                      const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(uid);
  if (!found.ok()) return found.status();
  const Entry& entry = entries_.at(*found);
  ONEPIECE_RETURN_IF_ERROR(CheckFetchable(entry.record));
  if (entry.result == nullptr) {
    return base::MakeError(absl::StatusCode::kUnavailable, "RESULT_ELSEWHERE",
                           "another database instance holds the result of job " + uid,
                           {{"uid", uid}});
  }
  for (const StoredArtifact& artifact : *entry.result) {
    if (name.empty() || artifact.info.artifact() == name) return artifact;
  }
  return base::MakeError(absl::StatusCode::kNotFound, "ARTIFACT_UNKNOWN",
                         fmt::format("the result of job {} has no artifact \"{}\"", uid, name),
                         {{"uid", uid}, {"artifact", name}});
}

std::shared_ptr<const std::vector<StoredArtifact>> JobStore::FindResult(
    const base::Uid& uid) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(uid);
  return found == entries_.end() ? nullptr : found->second.result;
}

void JobStore::MarkStreamed(const std::string& uid, const std::string& artifact) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(uid);
  if (!found.ok()) return;
  Entry& entry = entries_.at(*found);
  if (entry.result == nullptr) return;
  entry.streamed.insert(artifact);
  if (entry.streamed_at.has_value() || entry.streamed.size() < entry.result->size()) return;
  entry.streamed_at = clock_.WallNow();
  streamed_.insert({*entry.streamed_at, *found});
}

absl::StatusOr<Job> JobStore::Acknowledge(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(uid);
  if (!found.ok()) return found.status();
  Entry& entry = entries_.at(*found);
  if (!entry.record.job().result().fetched() || entry.record.deleted()) {
    ONEPIECE_RETURN_IF_ERROR(CheckFetchable(entry.record));
    MarkFetched(*found, entry);
  }
  return job::PublicJob(entry.record);
}

absl::Status JobStore::Delete(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(uid);
  if (!found.ok()) return found.status();
  Entry& entry = entries_.at(*found);
  if (entry.record.deleted()) return CheckFetchable(entry.record);
  JobRecord next = entry.record;
  if (!job::IsTerminal(next.job().state())) {
    next.mutable_job()->set_state(Job::CANCELLED);
    *next.mutable_job()->mutable_end_time() = job::ToTimestamp(clock_.WallNow());
  }
  next.set_deleted(true);
  if (Commit(*found, entry, next)) Notify(*found, Change::kRecord);
  return absl::OkStatus();
}

void JobStore::Sweep(const IsAlive& is_alive) {
  const std::lock_guard lock(mutex_);
  ExpireDue(clock_.WallNow(), is_alive);
  if (is_alive) FailOrphans(is_alive);
}

void JobStore::ExpireDue(base::WallTime now, const IsAlive& is_alive) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const base::Uid uid = timers_.begin()->second;
    Entry& entry = entries_.at(uid);
    const Job::State state = entry.record.job().state();
    if (!job::IsTerminal(state)) {
      FailOverdue(uid, entry, is_alive);
    } else if (state == Job::SUCCEEDED && !entry.tombstone) {
      JobRecord next = entry.record;
      next.mutable_job()->set_state(Job::EXPIRED);
      ++stats_.expired;
      if (Commit(uid, entry, next)) Notify(uid, Change::kRecord);
    } else {
      Erase(uid);
    }
  }
}

void JobStore::FailOverdue(const base::Uid& uid, Entry& entry, const IsAlive& is_alive) {
  const std::vector<const v1::WorkHolder*> holders = job::LiveHolders(entry.record);
  if (holders.empty()) {
    return Fail(uid, entry, "LOST", "no instance had taken the job when its deadline passed");
  }
  std::string who;
  for (const v1::WorkHolder* holder : holders) {
    if (is_alive && !is_alive(*holder)) return Fail(uid, entry, "LOST", Died(*holder));
    who += fmt::format("{}instance {} held the job in stage {}", who.empty() ? "" : " and ",
                       holder->node_id(), holder->stage());
  }
  Fail(uid, entry, "DEADLINE_EXCEEDED", "the deadline passed while " + who);
}

void JobStore::FailOrphans(const IsAlive& is_alive) {
  const base::MonotonicTime now = clock_.Now();
  std::map<base::Uid, std::string> lost;  // With the reason, in words.
  for (const base::Uid& uid : active_) {
    Entry& entry = entries_.at(uid);
    std::map<HolderKey, base::MonotonicTime> missing;
    for (const v1::WorkHolder* holder : job::LiveHolders(entry.record)) {
      if (is_alive(*holder)) continue;
      const auto known = entry.missing_since.find(KeyOf(*holder));
      const base::MonotonicTime since = known == entry.missing_since.end() ? now : known->second;
      missing.emplace(KeyOf(*holder), since);
      if (now - since >= options_.holder_grace) lost.emplace(uid, Died(*holder));
    }
    entry.missing_since = std::move(missing);
  }
  for (const auto& [uid, why] : lost) Fail(uid, entries_.at(uid), "LOST", why);
}

void JobStore::Fail(const base::Uid& uid, Entry& entry, const std::string& reason,
                    const std::string& message) {
  if (job::IsTerminal(entry.record.job().state())) return;
  JobRecord next = entry.record;
  Job& job = *next.mutable_job();
  job.set_state(Job::FAILED);
  job.mutable_error()->set_reason(reason);
  job.mutable_error()->set_message(message);
  *job.mutable_end_time() = job::ToTimestamp(clock_.WallNow());
  if (reason == "LOST") ++stats_.lost;
  if (reason == "DEADLINE_EXCEEDED") ++stats_.deadline_exceeded;
  if (Commit(uid, entry, next)) Notify(uid, Change::kRecord);
}

void JobStore::MarkFetched(const base::Uid& uid, Entry& entry) {
  JobRecord next = entry.record;
  next.mutable_job()->mutable_result()->set_fetched(true);
  if (Commit(uid, entry, next)) Notify(uid, Change::kRecord);
}

bool JobStore::MakeRoomForBytes(std::int64_t bytes) {
  if (bytes > options_.budget_bytes) return false;
  const auto full = [&] { return stats_.result_bytes + bytes > options_.budget_bytes; };
  while (full() && !streamed_.empty()) {
    const base::Uid uid = streamed_.begin()->second;
    ++stats_.evicted_results;
    MarkFetched(uid, entries_.at(uid));
  }
  // Results whose time has come but which Sweep has not seen yet. It never touches the caller's
  // entry: a job that is about to get its result has none, and one past its deadline was swept
  // before this one was looked up.
  if (full()) {
    const base::WallTime now = clock_.WallNow();
    std::vector<base::Uid> overdue;
    for (auto it = timers_.begin(); it != timers_.end() && it->first <= now; ++it) {
      if (entries_.at(it->second).result != nullptr) overdue.push_back(it->second);
    }
    for (const base::Uid& uid : overdue) {
      Entry& entry = entries_.at(uid);
      JobRecord next = entry.record;
      next.mutable_job()->set_state(Job::EXPIRED);
      ++stats_.expired;
      if (Commit(uid, entry, next)) Notify(uid, Change::kRecord);
    }
  }
  return !full();
}

}  // namespace onepiece::database
