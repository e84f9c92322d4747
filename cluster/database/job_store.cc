#include "cluster/database/job_store.h"

#include <algorithm>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/job_records.h"

namespace onepiece::database {
namespace {

using v1::Job;
using v1::JobRecord;

constexpr int kMaxTimings = 256;
constexpr int kDefaultResultTtlS = 3600;
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

absl::Status JobUnknown(const std::string& uid) {
  return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "no job " + uid,
                         {{"uid", uid}});
}

// "deleted" tells the reader that no other database knows better, whatever it has not heard yet.
absl::Status JobDeleted(const std::string& uid) {
  return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "no job " + uid,
                         {{"uid", uid}, {"deleted", "true"}});
}

absl::StatusOr<base::Uid> ParseUid(const std::string& text) {
  const auto uid = base::Uid::Parse(text);
  if (!uid.has_value()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID",
                           "not a UID: \"" + text + "\"");
  }
  return *uid;
}

// Moves a record that has not ended to where the update says.
void ApplyPlace(const v1::UpdateJobRequest& request, JobRecord& next) {
  for (const v1::WorkHolder& placed : request.placed()) {
    job::Place(placed, 0, 0, next);
    if (!placed.from().empty()) next.mutable_job()->set_state(Job::RUNNING);
  }
  if (request.has_progress()) {
    const v1::JobProgress& progress = request.progress();
    job::Place(progress.holder(), progress.step(), progress.steps(), next);
    next.mutable_job()->set_state(Job::RUNNING);
  }
}

void SetEnd(JobRecord& record, Job::State state, base::WallTime now) {
  record.mutable_job()->set_state(state);
  *record.mutable_job()->mutable_end_time() = job::ToTimestamp(now);
}

}  // namespace

JobStore::JobStore(JobStoreOptions options, base::Clock& clock, Observer observer)
    : options_(options), clock_(clock), observer_(std::move(observer)) {}

absl::StatusOr<v1::CreateJobResponse> JobStore::Create(JobRecord record) {
  absl::StatusOr<base::Uid> parsed = ParseUid(record.job().uid());
  if (!parsed.ok()) return parsed.status();
  if (!record.job().has_deadline() || !record.job().has_create_time() ||
      record.fingerprint().empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_RECORD",
                           "a new record needs create_time, deadline and fingerprint");
  }
  record.mutable_job()->set_state(Job::QUEUED);
  record.set_has_bytes(false);
  if (record.result_ttl_s() <= 0) record.set_result_ttl_s(kDefaultResultTtlS);
  const std::lock_guard lock(mutex_);
  v1::CreateJobResponse response;
  const auto found = entries_.find(*parsed);
  Entry* entry = found == entries_.end() ? nullptr : &found->second;
  if (entry == nullptr) {
    entry = Insert(*parsed, record);
    if (entry == nullptr) {
      ++stats_.refused_records;
      return base::MakeError(absl::StatusCode::kResourceExhausted, "RECORDS_FULL",
                             "the database holds as many jobs as it may");
    }
    response.set_created(true);
  } else if (entry->record.fingerprint().empty()) {
    // Made up from a result that overtook its record.
    Commit(*parsed, *entry, record);
  }
  *response.mutable_record() = entry->record;
  response.mutable_record()->set_has_bytes(entry->result != nullptr);
  return response;
}

absl::StatusOr<JobRecord> JobStore::Update(const v1::UpdateJobRequest& request) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(request.uid());
  if (!found.ok()) return found.status();
  const base::Uid uid = *found;
  Entry& entry = entries_.at(uid);
  JobRecord next = entry.record;
  if (request.has_timing() && next.job().timings_size() < kMaxTimings) {
    *next.mutable_job()->add_timings() = request.timing();
  }
  if (!job::IsTerminal(next.job().state())) {
    ApplyPlace(request, next);
    // A sign of life, wherever it comes from: the holder's absence counts anew.
    for (const v1::WorkHolder& placed : request.placed()) entry.missing_since.erase(KeyOf(placed));
    if (request.has_progress()) entry.missing_since.erase(KeyOf(request.progress().holder()));
    const base::WallTime now = clock_.WallNow();
    if (request.cancelled()) {
      SetEnd(next, Job::CANCELLED, now);
    } else if (request.has_failed()) {
      *next.mutable_job()->mutable_error() = request.failed();
      SetEnd(next, Job::FAILED, now);
    }
  }
  if (Commit(uid, entry, next)) Notify(uid, Change::kRecord);
  JobRecord answer = entry.record;
  answer.set_has_bytes(entry.result != nullptr);
  return answer;
}

absl::StatusOr<StoreOutcome> JobStore::StoreResult(const ResultBundle& bundle, message::Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(bundle.uid);
  Entry* entry = found == entries_.end() ? nullptr : &found->second;
  if (entry == nullptr) {
    // The record is at another database, or was lost with one; the result must not be.
    JobRecord record;
    Job& job = *record.mutable_job();
    job.set_uid(bundle.uid.ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id(bundle.app_id);
    job.set_state(Job::QUEUED);
    *job.mutable_create_time() = job::ToTimestamp(bundle.ingress_time);
    *job.mutable_deadline() = job::ToTimestamp(bundle.deadline);
    record.set_result_ttl_s(kDefaultResultTtlS);
    entry = Insert(bundle.uid, record);
    if (entry == nullptr) {
      ++stats_.refused_results;
      return base::MakeError(absl::StatusCode::kResourceExhausted, "RECORDS_FULL",
                             "the database holds as many jobs as it may");
    }
  }
  JobRecord next = entry->record;
  auto* artifacts = next.mutable_job()->mutable_result()->mutable_artifacts();
  artifacts->Clear();
  for (const StoredArtifact& artifact : bundle.artifacts) *artifacts->Add() = artifact.info;
  if (job::IsTerminal(entry->record.job().state())) {
    // Only a second copy of the very result that won may still be of use.
    const bool wanted = entry->record.job().state() == Job::SUCCEEDED &&
                        !job::IsTombstone(entry->record) && entry->result == nullptr &&
                        job::CanonicalBytes(next) == job::CanonicalBytes(entry->record);
    if (!wanted) {
      ++stats_.late_results;
      return StoreOutcome::kLate;
    }
  }
  if (!MakeRoomForBytes(bundle.total_bytes)) {
    ++stats_.refused_results;
    if (kind == message::Kind::kResult && !job::IsTerminal(entry->record.job().state())) {
      Fail(bundle.uid, *entry, "RESULT_BUDGET_EXCEEDED",
           "no room for a result of " + std::to_string(bundle.total_bytes) + " bytes (budget " +
               std::to_string(options_.budget_bytes) + ")");
    }
    return StoreOutcome::kRefused;
  }
  if (!job::IsTerminal(entry->record.job().state())) SetEnd(next, Job::SUCCEEDED, clock_.WallNow());
  Attach(*entry, bundle);
  if (Commit(bundle.uid, *entry, next)) Notify(bundle.uid, Change::kRecord);
  if (kind == message::Kind::kResult) Notify(bundle.uid, Change::kResultBytes);
  ++stats_.stored;
  return StoreOutcome::kStored;
}

void JobStore::FailJob(const base::Uid& uid, const std::string& reason,
                       const std::string& message) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(uid);
  if (found != entries_.end()) Fail(uid, found->second, reason, message);
}

void JobStore::Merge(std::span<const JobRecord> records) {
  const std::lock_guard lock(mutex_);
  const base::WallTime now = clock_.WallNow();
  for (const JobRecord& incoming : records) {
    const auto uid = base::Uid::Parse(incoming.job().uid());
    if (!uid.has_value()) {
      ++stats_.refused_records;
      continue;
    }
    const JobRecord theirs = job::Join(incoming, incoming);
    const auto found = entries_.find(*uid);
    if (found == entries_.end()) {
      // What we would forget at once is not learnt again.
      const bool stale =
          job::IsTerminal(theirs.job().state()) &&
          job::FromTimestamp(theirs.job().expire_time()) + options_.tombstone_ttl <= now;
      if (!stale && Insert(*uid, theirs) == nullptr) ++stats_.refused_records;
      continue;
    }
    Commit(*uid, found->second, theirs);
    if (job::CanonicalBytes(found->second.record) != job::CanonicalBytes(theirs)) {
      Notify(*uid, Change::kRecord);
    }
  }
}

absl::StatusOr<JobRecord> JobStore::Get(const std::string& uid) const {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(uid);
  if (!found.ok()) return found.status();
  const Entry& entry = entries_.at(*found);
  if (entry.record.deleted()) return JobDeleted(uid);
  JobRecord record = entry.record;
  record.set_has_bytes(entry.result != nullptr);
  return record;
}

absl::StatusOr<v1::ListJobsResponse> JobStore::List(const v1::ListJobsRequest& request) const {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PAGE_SIZE",
                           "page_size must be 0 to " + std::to_string(kMaxPageSize));
  }
  const int page_size = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  AgeKey after{base::Duration::min(), base::Uid()};
  if (!request.page_token().empty()) {
    const auto position = node::JobPosition::Parse(request.page_token());
    const auto uid = position.has_value() ? base::Uid::Parse(position->uid) : std::nullopt;
    if (!uid.has_value()) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN",
                             "page_token was not made by this cluster");
    }
    after = {base::Duration(-position->create_unix_ns), *uid};
  }
  const std::set<int> states(request.states().begin(), request.states().end());
  v1::ListJobsResponse response;
  const std::lock_guard lock(mutex_);
  for (auto it = by_age_.upper_bound(after); it != by_age_.end(); ++it) {
    const Entry& entry = entries_.at(it->second);
    const JobRecord& record = entry.record;
    if (record.deleted()) continue;
    // Before anything is copied: a page of few jobs may look at all of them.
    if (!request.app_id().empty() && record.job().app_id() != request.app_id()) continue;
    if (!states.empty() && !states.contains(job::PublicState(record))) continue;
    if (response.jobs_size() == page_size) {
      const Job& last = response.jobs(page_size - 1);
      response.set_next_page_token(node::JobPosition::Of(last).ToToken());
      break;
    }
    *response.add_jobs() = job::PublicJob(record);
  }
  return response;
}

absl::StatusOr<JobStore::Revision> JobStore::WaitForChange(const std::string& uid,
                                                           std::int64_t after,
                                                           base::MonotonicTime deadline,
                                                           std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const absl::StatusOr<base::Uid> found = Locate(uid);
  if (!found.ok()) return found.status();
  std::shared_ptr<std::condition_variable_any>& slot = entries_.at(*found).changed;
  if (slot == nullptr) slot = std::make_shared<std::condition_variable_any>();
  const std::shared_ptr<std::condition_variable_any> changed = slot;
  // The entry may go while we wait, and come back with a smaller revision: then it is another one.
  const auto entry_now = [&]() -> const Entry* {
    const auto it = entries_.find(*found);
    return it != entries_.end() && it->second.changed == changed ? &it->second : nullptr;
  };
  const bool moved = clock_.WaitUntil(*changed, lock, stop, deadline, [&] {
    const Entry* entry = entry_now();
    return entry == nullptr || entry->record.deleted() || entry->revision > after;
  });
  if (!moved) {
    return stop.stop_requested() ? absl::CancelledError("stopped waiting")
                                 : absl::DeadlineExceededError("the job did not change in time");
  }
  const Entry* entry = entry_now();
  if (entry == nullptr) return JobUnknown(uid);
  if (entry->record.deleted()) return JobDeleted(uid);
  return Revision{job::PublicJob(entry->record), entry->revision};
}

std::vector<JobRecord> JobStore::Records(std::span<const base::Uid> uids) const {
  const std::lock_guard lock(mutex_);
  std::vector<JobRecord> records;
  for (const base::Uid& uid : uids) {
    const auto found = entries_.find(uid);
    if (found != entries_.end()) records.push_back(found->second.record);
  }
  return records;
}

JobStoreStats JobStore::stats() const {
  const std::lock_guard lock(mutex_);
  JobStoreStats stats = stats_;
  stats.records = static_cast<std::int64_t>(entries_.size());
  stats.budget_bytes = options_.budget_bytes;
  return stats;
}

absl::StatusOr<base::Uid> JobStore::Locate(const std::string& uid) const {
  absl::StatusOr<base::Uid> parsed = ParseUid(uid);
  if (parsed.ok() && !entries_.contains(*parsed)) return JobUnknown(uid);
  return parsed;
}

JobStore::Entry* JobStore::Insert(const base::Uid& uid, const JobRecord& record) {
  const JobRecord joined = job::Join(record, record);
  if (!MakeRoomForRecord(static_cast<std::int64_t>(joined.ByteSizeLong()))) return nullptr;
  Entry& entry = entries_[uid];
  entry.record = joined;
  Commit(uid, entry, joined);
  Notify(uid, Change::kRecord);
  return &entry;
}

bool JobStore::Commit(const base::Uid& uid, Entry& entry, const JobRecord& next) {
  JobRecord joined = job::Join(entry.record, next);
  if (entry.revision > 0 && job::CanonicalBytes(joined) == job::CanonicalBytes(entry.record))
    return false;
  entry.record = std::move(joined);
  const auto record_bytes = static_cast<std::int64_t>(entry.record.ByteSizeLong());
  record_bytes_ += record_bytes - entry.record_bytes;
  entry.record_bytes = record_bytes;
  ++entry.revision;
  by_age_.erase(entry.age);
  entry.age = {-job::FromTimestamp(entry.record.job().create_time()).time_since_epoch(), uid};
  by_age_.insert(entry.age);
  if (job::IsTerminal(entry.record.job().state())) {
    active_.erase(uid);
  } else {
    active_.insert(uid);
  }
  Reschedule(uid, entry);
  if (entry.result != nullptr) {
    // The bytes here may be those of a result that lost against a peer's.
    const auto& infos = entry.record.job().result().artifacts();
    const bool same =
        std::equal(infos.begin(), infos.end(), entry.result->begin(), entry.result->end(),
                   [](const v1::ResultArtifact& info, const StoredArtifact& stored) {
                     return info.sha256() == stored.info.sha256();
                   });
    if (entry.record.job().state() != Job::SUCCEEDED || job::IsTombstone(entry.record) || !same) {
      DropBytes(uid, entry);
    }
  }
  if (entry.changed != nullptr) entry.changed->notify_all();
  return true;
}

void JobStore::Reschedule(const base::Uid& uid, Entry& entry) {
  base::WallTime due;
  const Job& job = entry.record.job();
  const bool tombstone = job::IsTombstone(entry.record);
  if (tombstone) {
    due = entry.tombstone ? entry.due : clock_.WallNow() + options_.tombstone_ttl;
  } else if (job::IsTerminal(job.state())) {
    due = job::FromTimestamp(job.expire_time());
  } else {
    due = job::FromTimestamp(job.deadline());
  }
  timers_.erase({entry.due, uid});
  if (entry.tombstone) tombstones_.erase({entry.due, uid});
  entry.due = due;
  entry.tombstone = tombstone;
  timers_.insert({due, uid});
  if (tombstone) tombstones_.insert({due, uid});
}

void JobStore::Attach(Entry& entry, const ResultBundle& bundle) {
  ONEPIECE_CHECK(entry.result == nullptr);
  entry.result = std::make_shared<const std::vector<StoredArtifact>>(bundle.artifacts);
  entry.result_bytes = bundle.total_bytes;
  stats_.result_bytes += bundle.total_bytes;
  ++stats_.results;
}

void JobStore::DropBytes(const base::Uid& uid, Entry& entry) {
  if (entry.result == nullptr) return;
  stats_.result_bytes -= entry.result_bytes;
  --stats_.results;
  entry.result = nullptr;
  entry.result_bytes = 0;
  entry.streamed.clear();
  if (entry.streamed_at.has_value()) streamed_.erase({*entry.streamed_at, uid});
  entry.streamed_at.reset();
}

void JobStore::Erase(const base::Uid& uid) {
  const auto found = entries_.find(uid);
  Entry& entry = found->second;
  DropBytes(uid, entry);
  record_bytes_ -= entry.record_bytes;
  by_age_.erase(entry.age);
  timers_.erase({entry.due, uid});
  tombstones_.erase({entry.due, uid});
  active_.erase(uid);
  const std::shared_ptr<std::condition_variable_any> changed = entry.changed;
  entries_.erase(found);
  if (changed != nullptr) changed->notify_all();
}

bool JobStore::MakeRoomForRecord(std::int64_t record_bytes) {
  const auto full = [&] {
    return static_cast<std::int64_t>(entries_.size()) >= options_.max_records ||
           record_bytes_ + record_bytes > options_.max_record_bytes;
  };
  while (full() && !tombstones_.empty()) Erase(base::Uid(tombstones_.begin()->second));
  return !full();
}

void JobStore::Notify(const base::Uid& uid, Change change) {
  if (observer_) observer_(uid, change);
}

}  // namespace onepiece::database
