#include "cluster/database/store_shard.h"

#include <algorithm>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/check.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/digest.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

using v1::Job;
using v1::JobRecord;

constexpr int kMadeUpTtlS = 3600;
// The deadline of an open job whose sender did not say how much time it has.
constexpr base::Duration kUnknownTimeLimit = std::chrono::hours(1);

// Moves a record that has not ended forward, as the update says. Returns whether the record
// changed.
bool ApplyPlace(const v1::UpdateJobRequest& request, JobRecord& record) {
  bool news = false;
  bool runs = request.has_progress();
  for (const v1::WorkHolder& placed : request.placed()) {
    news = job::Place(placed, 0, 0, record) || news;
    runs = runs || !placed.from().empty();
  }
  if (request.has_progress()) {
    const v1::JobProgress& progress = request.progress();
    news = job::Place(progress.holder(), progress.step(), progress.steps(), record) || news;
  }
  if (runs && record.job().state() != Job::RUNNING) {
    record.mutable_job()->set_state(Job::RUNNING);
    news = true;
  }
  return news;
}

// Makes up a record for a result whose record is at another database or was lost with one, so that
// the result is not lost too.
JobRecord MadeUpFrom(const ResultBundle& bundle) {
  JobRecord record;
  Job& job = *record.mutable_job();
  job.set_uid(bundle.uid.ToString());
  job.set_name("jobs/" + job.uid());
  job.set_app_id(bundle.app_id);
  job.set_state(Job::QUEUED);
  *job.mutable_create_time() = job::ToTimestamp(bundle.ingress_time);
  record.set_result_ttl_s(kMadeUpTtlS);
  return record;
}

bool SameArtifact(const v1::ResultArtifact& a, const v1::ResultArtifact& b) {
  return a.sha256() == b.sha256() && a.size_bytes() == b.size_bytes() &&
         a.artifact() == b.artifact() && a.media_type() == b.media_type();
}

// Returns whether the work that this result is of is being done again: the job has a larger run, or
// the stage that made the result has a larger attempt of all that came to it. A result of joined
// branches has the largest attempt of them, so one branch that was sent again says nothing.
bool IsDoneAgain(const message::Header& result, const JobRecord& record) {
  if (result.run != record.run()) return job::IsFenced(result.run, record);
  std::size_t came = 0, again = 0;
  for (const v1::WorkHolder& holder : record.holders()) {
    if (holder.stage() != result.from) continue;
    ++came;
    again += holder.attempt() > result.attempt ? 1 : 0;
  }
  return came > 0 && again == came;
}

std::int64_t BytesOf(const Artifacts& artifacts) {
  std::int64_t bytes = 0;
  for (const StoredArtifact& artifact : artifacts) bytes += artifact.info.size_bytes();
  return bytes;
}

Phase PhaseOf(const JobRecord& record) {
  if (record.deleted()) return Phase::kDeleted;
  if (record.job().result().fetched()) return Phase::kFetched;
  if (record.job().state() == Job::EXPIRED) return Phase::kExpired;
  if (record.job().result().evicted()) return Phase::kEvicted;
  return job::IsTerminal(record.job().state()) ? Phase::kEnded : Phase::kOpen;
}

bool IsTombstone(Phase phase) { return phase > Phase::kEnded; }

std::atomic<std::int64_t>* TombstonesOf(Phase phase, StoreShared& shared) {
  switch (phase) {
    case Phase::kFetched:
      return &shared.fetched_tombstones;
    case Phase::kExpired:
      return &shared.expired_tombstones;
    case Phase::kDeleted:
      return &shared.deleted_tombstones;
    default:
      return nullptr;
  }
}

}  // namespace

void StoreShard::Line::Add(JobEntry& entry, std::uint64_t& ticket, StoreShared& shared) {
  if (ticket != 0) return;
  ticket = ++shared.last_ticket;
  entries.emplace_hint(entries.end(), ticket, &entry);
  oldest = entries.begin()->first;
}

void StoreShard::Line::Remove(std::uint64_t& ticket) {
  if (ticket == 0) return;
  entries.erase(ticket);
  ticket = 0;
  oldest = entries.empty() ? kNoTicket : entries.begin()->first;
}

StoreShard::~StoreShard() {
  for (auto& [uid, entry] : entries_) timers_.Cancel(entry);
}

std::optional<v1::CreateJobResponse> StoreShard::Create(const base::Uid& uid, JobRecord& record,
                                                        base::Duration limit) {
  const base::MutexLock lock(mutex_);
  v1::CreateJobResponse response;
  JobEntry* entry = Find(uid);
  if (entry == nullptr) {
    entry = Insert(uid, record, limit);
    if (entry == nullptr) return std::nullopt;
    // Whoever makes a job also starts it.
    HoldLease(*entry, base::Scaled(shared_.options.start_lease));
    Notify(*entry, Change::kRecord);
    response.set_created(true);
  } else if (entry->record.fingerprint().empty()) {
    // The record was made up from a result that arrived before it, so another call has started the
    // job, and this one gets no lease.
    record.clear_lease();
    entry->record = job::Join(entry->record, record);
    Committed(*entry);
    if (entry->phase == Phase::kOpen) SetDue(shared_.clock.Now() + limit, *entry);
    Notify(*entry, Change::kRecord);
    if (shared_.hooks.made) shared_.hooks.made(WithTimeLeft(*entry));
  }
  *response.mutable_record() = View(*entry);
  return response;
}

absl::StatusOr<JobRecord> StoreShard::Update(const base::Uid& uid,
                                             const v1::UpdateJobRequest& request) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr) return JobUnknown(uid, false);
  bool news = request.has_timing() && job::AddTiming(request.timing(), entry->record);
  if (!job::IsTerminal(entry->record.job().state())) {
    news = ApplyPlace(request, entry->record) || news;
    // An update is a sign of life, wherever it comes from: the holder's absence is counted from
    // zero again.
    for (const v1::WorkHolder& placed : request.placed()) entry->missing_since.erase(KeyOf(placed));
    if (request.has_progress()) entry->missing_since.erase(KeyOf(request.progress().holder()));
    // What ended in an older run or attempt is done again in the newer one. And the work of a held
    // job is done: another keeper may have told its client so already.
    const bool fenced = request.has_ended_by() && job::IsFenced(request.ended_by(), entry->record);
    if (!IsEnding(*entry) && !fenced && (request.cancelled() || request.has_failed())) {
      v1::JobEnd end;
      end.set_state(request.cancelled() ? Job::CANCELLED : Job::FAILED);
      if (!request.cancelled()) *end.mutable_error() = request.failed();
      ProposeEnd(std::move(end), *entry);
      return View(*entry);
    }
  }
  if (news) {
    Committed(*entry);
    Notify(*entry, Change::kRecord);
  }
  return View(*entry);
}

std::optional<StoreOutcome> StoreShard::StoreResult(const ResultBundle& bundle, message::Kind kind,
                                                    bool hold) {
  const base::MutexLock lock(mutex_);
  JobEntry* entry = Find(bundle.uid);
  if (entry == nullptr) {
    JobRecord record = MadeUpFrom(bundle);
    entry = Insert(bundle.uid, record, bundle.deadline - shared_.clock.Now());
    if (entry == nullptr) return std::nullopt;
    Notify(*entry, Change::kRecord);
  }
  const bool open = entry->phase == Phase::kOpen;
  const bool proposed = entry->record.has_proposed();
  if (open && !proposed && job::IsFenced(bundle.run, entry->record)) {
    ++shared_.late_results;
    return StoreOutcome::kLate;
  }
  // After an end is known, only a copy of the result that won is still of use.
  const bool wanted = entry->result == nullptr &&
                      ((open && !proposed) || (entry->phase <= Phase::kEnded &&
                                               job::EndOf(entry->record) == Job::SUCCEEDED &&
                                               AreResultOf(entry->record, bundle.artifacts)));
  if (!wanted) {
    // The result is held until a peer has a copy. A peer that sends this very result has one.
    if (entry->held && !proposed && kind == message::Kind::kReplica &&
        std::ranges::equal(*entry->result, bundle.artifacts, SameArtifact, &StoredArtifact::info,
                           &StoredArtifact::info)) {
      ProposeSuccess(*entry);
    }
    ++shared_.late_results;
    return StoreOutcome::kLate;
  }
  if (!shared_.result_bytes.Take(bundle.total_bytes)) return StoreOutcome::kFull;
  Attach(*entry, std::make_shared<const Artifacts>(bundle.artifacts), bundle.total_bytes, true);
  ++shared_.stored;
  if (open && !proposed && bundle.run > entry->record.run()) {
    job::NoteRun(bundle.run, entry->record);
    Committed(*entry);
    Notify(*entry, Change::kRecord);
  }
  if (open && !proposed && hold) {
    // Committed() is not needed, because holding changes nothing that clients and peers see.
    entry->held = true;
    entry->ending_since = shared_.clock.Now();
    return StoreOutcome::kHeld;
  }
  if (open && !proposed) {
    ProposeSuccess(*entry);
  } else if (open) {
    AskKeepers(*entry);  // They are told that the bytes are here.
  } else {
    entry->lost = false;
    Committed(*entry);
  }
  // A kReplica comes from a database that sends the result to the other keepers itself.
  if (kind == message::Kind::kResult) Notify(*entry, Change::kResultBytes);
  return StoreOutcome::kStored;
}

void StoreShard::Refuse(const ResultBundle& bundle, message::Kind kind) {
  const base::MutexLock lock(mutex_);
  ++shared_.refused_results;
  JobEntry* const entry = Find(bundle.uid);
  if (entry == nullptr || kind != message::Kind::kResult) return;
  const std::string bytes = "a result of " + std::to_string(bundle.total_bytes) + " bytes";
  const std::string budget = "budget_bytes, " + std::to_string(shared_.result_bytes.limit());
  Fail(*entry, "RESULT_BUDGET_EXCEEDED",
       bundle.total_bytes > shared_.result_bytes.limit()
           ? bytes + " never fits into a database's memory (" + budget + "): raise that setting"
           : "no room for " + bytes + " in a database's memory (" + budget + ")");
}

bool StoreShard::Confirm(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || !IsEnding(*entry)) return false;
  End(*entry);
  return true;
}

void StoreShard::FailJob(const message::Header& result, const std::string& reason,
                         const std::string& message) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(result.uid);
  if (entry == nullptr) return;
  if (IsDoneAgain(result, entry->record)) {
    ++shared_.late_results;
    return;
  }
  Fail(*entry, reason, message);
}

bool StoreShard::Merge(const base::Uid& uid, const JobRecord& theirs, TimeLeft left) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr) {
    if (IsOver(theirs, left)) return true;
    JobRecord record = theirs;
    JobEntry* const made = Insert(uid, record, left);
    if (made == nullptr) return false;
    if (made->record.has_proposed()) AskKeepers(*made);
    return true;  // No Notify: its sender has the record.
  }
  const std::string before = base::CanonicalBytes(entry->record);
  const std::string told = base::CanonicalBytes(theirs);
  if (before == told) {
    SetPhase(*entry, CopyOf(theirs, left));
    return true;
  }
  JobRecord joined = job::Join(entry->record, theirs);
  const std::string after = base::CanonicalBytes(joined);
  if (after != before) {
    const bool other_end = joined.has_proposed() && !job::SameEnd(joined, entry->record);
    // The work of a held job is done: the peer that proposes another end has not heard of that, or
    // has no room for this very result. A later run is not done by that.
    const bool done_here = entry->held && other_end && job::EndOf(joined) != Job::SUCCEEDED &&
                           joined.run() == entry->record.run();
    entry->record = std::move(joined);
    // Another result won. Its bytes are where it was proposed.
    if (other_end && entry->result != nullptr && job::EndOf(entry->record) == Job::SUCCEEDED &&
        !AreResultOf(entry->record, *entry->result)) {
      DropBytes(*entry);
    }
    Committed(*entry, CopyOf(theirs, left));
    if (done_here) {
      ProposeSuccess(*entry);
    } else if (other_end) {
      AskKeepers(*entry);
    }
  }
  if (after != told) Notify(*entry, Change::kRecord);
  return true;
}

StoreShard::Restored StoreShard::Restore(const base::Uid& uid, JobRecord& record, TimeLeft left,
                                         const Artifacts& artifacts) {
  const base::MutexLock lock(mutex_);
  JobEntry* entry = Find(uid);
  if (entry == nullptr) {
    if (IsOver(record, left)) return Restored::kStale;
    entry = Insert(uid, record, left, /*known=*/true);
    if (entry == nullptr) return Restored::kNoRoom;
  } else {
    entry->record = job::Join(entry->record, record);
    Committed(*entry, CopyOf(record, left));
  }
  if (artifacts.empty()) return Restored::kYes;
  if (entry->result == nullptr && entry->phase == Phase::kEnded &&
      entry->record.job().state() == Job::SUCCEEDED && AreResultOf(entry->record, artifacts)) {
    Attach(*entry, std::make_shared<const Artifacts>(artifacts), BytesOf(artifacts), false);
    entry->lost = false;
    Committed(*entry);
  } else if (shared_.hooks.served) {
    shared_.hooks.served(uid, entry->served);
  }
  return Restored::kYes;
}

void StoreShard::MarkLost(base::MonotonicTime since, const JobStore::Filter& filter) {
  const base::MutexLock lock(mutex_);
  // The uids are collected first, because Committed() erases from the map that this loop walks.
  std::vector<base::Uid> lost;
  for (const auto& [uid, missing_since] : missing_) {
    if (missing_since <= since && filter(uid)) lost.push_back(uid);
  }
  for (const base::Uid& uid : lost) {
    JobEntry& entry = entries_.at(uid);
    entry.lost = true;
    ++shared_.lost_on_restart;
    Committed(entry);
  }
}

bool StoreShard::AreResultOf(const JobRecord& record, const Artifacts& artifacts) {
  const auto& named =
      record.has_proposed() ? record.proposed().artifacts() : record.job().result().artifacts();
  return std::ranges::equal(named, artifacts, SameArtifact, {}, &StoredArtifact::info);
}

StoreShard::JobEntry* StoreShard::Find(const base::Uid& uid) const {
  const auto found = entries_.find(uid);
  return found == entries_.end() ? nullptr : &found->second;
}

// Returns nullptr when there is no room.
StoreShard::JobEntry* StoreShard::Insert(const base::Uid& uid, JobRecord& record, TimeLeft left,
                                         bool known) {
  const auto record_bytes = static_cast<std::int64_t>(record.ByteSizeLong());
  if (!shared_.records.Take(1)) return nullptr;
  if (!shared_.record_bytes.Take(record_bytes)) {
    shared_.records.GiveBack(1);
    return nullptr;
  }
  JobEntry& entry = entries_.try_emplace(uid, uid).first->second;
  entry.record = std::move(record);
  entry.record_bytes = record_bytes;
  entry.known = known;
  // SetPhase() acts only on a change of the phase, and a new entry counts as kOpen already.
  open_.insert(uid);
  timers_.Set(entry, shared_.clock.Now() + left.value_or(kUnknownTimeLimit));
  if (!known && shared_.hooks.made) shared_.hooks.made(WithTimeLeft(entry));
  Committed(entry, CopyOf(entry.record, left));
  if (entry.phase != Phase::kOpen) entry.open_until = {};  // It was not open here.
  return &entry;
}

// Returns how long a record stays in its phase; 0 for an open job, whose deadline is its own.
base::Duration StoreShard::LifeOf(const JobRecord& record) const {
  switch (PhaseOf(record)) {
    case Phase::kOpen:
      return {};
    case Phase::kEnded:
      return std::chrono::seconds(record.result_ttl_s());
    case Phase::kExpired:
      return shared_.tombstone_ttl;  // Every database expires its copy by itself.
    default:
      // As long as a copy may live that has not heard of it. tombstone_ttl is the margin.
      return shared_.tombstone_ttl.load() + std::chrono::seconds(record.result_ttl_s());
  }
}

// Returns whether the record's time is over, that of the tombstone which would follow it included.
bool StoreShard::IsOver(const JobRecord& record, TimeLeft left) const {
  const Phase phase = PhaseOf(record);
  if (phase == Phase::kOpen || !left.has_value()) return false;
  const bool is_last = IsTombstone(phase) || record.job().state() != Job::SUCCEEDED;
  return *left <= (is_last ? base::Duration::zero() : -shared_.tombstone_ttl.load());
}

StoreShard::Copy StoreShard::CopyOf(const JobRecord& record, TimeLeft left) const {
  if (!left.has_value()) return {};
  return {PhaseOf(record), shared_.clock.Now() + *left};
}

void StoreShard::SetDue(base::MonotonicTime due, JobEntry& entry) {
  if (!entry.set() || due != entry.due) timers_.Set(entry, due);
}

// Brings everything that follows from the record up to date. Call it after every change to the
// record, to its bytes, or to what clients see of it.
void StoreShard::Committed(JobEntry& entry, const Copy& copy) {
  const auto record_bytes = static_cast<std::int64_t>(entry.record.ByteSizeLong());
  shared_.record_bytes.Force(record_bytes - entry.record_bytes);
  entry.record_bytes = record_bytes;
  entry.revision = ++shared_.last_revision;
  entry.digest.reset();
  const AgeKey age{-job::FromTimestamp(entry.record.job().create_time()).time_since_epoch(),
                   entry.uid};
  if (entry.age != age) {
    if (entry.age.has_value()) by_age_.erase(*entry.age);
    entry.age = age;
    by_age_.emplace(age, &entry);
  }
  SetPhase(entry, copy);
  // Keeps the bytes until ShowBytes has called the hook: peers may be reading them.
  const std::shared_ptr<const Artifacts> bytes = entry.result;
  // The bytes here may belong to a result that lost against a peer's.
  if (entry.phase != Phase::kOpen && entry.result != nullptr &&
      (entry.phase != Phase::kEnded || entry.record.job().state() != Job::SUCCEEDED ||
       !AreResultOf(entry.record, *entry.result))) {
    DropBytes(entry);
  }
  if (entry.phase != Phase::kOpen) entry.held = false;
  if (entry.phase != Phase::kEnded) entry.lost = false;
  ShowBytes(entry);
  NoteMissing(entry);
  if (entry.watched) shared_.watches.Changed(entry.uid);
}

void StoreShard::NoteMissing(const JobEntry& entry) {
  const bool missing = entry.phase == Phase::kEnded && entry.result == nullptr && !entry.lost &&
                       entry.record.job().state() == Job::SUCCEEDED;
  if (missing) {
    if (missing_.try_emplace(entry.uid, shared_.clock.Now()).second) ++shared_.missing_results;
  } else if (missing_.erase(entry.uid) > 0) {
    --shared_.missing_results;
  }
}

void StoreShard::SetPhase(JobEntry& entry, const Copy& copy) {
  const Phase phase = PhaseOf(entry.record);
  const Phase was = entry.phase;
  const bool changed = phase != was;
  if (changed) {
    if (auto* const count = TombstonesOf(entry.phase, shared_)) --*count;
    if (auto* const count = TombstonesOf(phase, shared_)) ++*count;
    entry.phase = phase;
    if (phase == Phase::kOpen) {
      open_.insert(entry.uid);
    } else {
      open_.erase(entry.uid);
      entry.missing_since.clear();
    }
    if (IsTombstone(phase)) {
      tombstones_.Add(entry, entry.tombstone_ticket, shared_);
    } else {
      tombstones_.Remove(entry.tombstone_ticket);
    }
  }
  // A phase's time runs from its beginning, and a record that completes a made-up one may change
  // how long it lasts.
  const base::Duration life = LifeOf(entry.record);
  base::MonotonicTime due = entry.due + (life - entry.life);
  if (changed) {
    if (was == Phase::kOpen) entry.open_until = entry.due;
    due = shared_.clock.Now() + life;
    // Another database may have the job open until its deadline, and only then ended. A result
    // lives no longer for that: it leaves a tombstone.
    const bool leaves_more = phase == Phase::kEnded && entry.record.job().state() == Job::SUCCEEDED;
    if (phase != Phase::kOpen && !leaves_more) due = std::max(due, entry.open_until + life);
  }
  // A copy's time stands still on its way, so the copy that has the least left is the truest.
  if (copy.phase == phase && copy.due.has_value()) due = std::min(due, *copy.due);
  SetDue(due, entry);
  entry.life = life;
  if (changed && phase != Phase::kOpen && !entry.known && shared_.hooks.ended)
    shared_.hooks.ended(WithTimeLeft(entry));
  entry.known = false;
}

// Calls the `served` hook when what can be fetched has changed, and keeps the line of results that
// may move to files.
void StoreShard::ShowBytes(JobEntry& entry) {
  const Artifacts* const now = Servable(entry) ? entry.result.get() : nullptr;
  if (now != nullptr && entry.counted) {
    results_.Add(entry, entry.result_ticket, shared_);
  } else {
    results_.Remove(entry.result_ticket);
  }
  if (now == entry.served) return;
  entry.served = now;
  if (shared_.hooks.served) shared_.hooks.served(entry.uid, now);
}

void StoreShard::Attach(JobEntry& entry, std::shared_ptr<const Artifacts> artifacts,
                        std::int64_t bytes, bool counted) {
  ONEPIECE_CHECK(entry.result == nullptr);
  entry.result = std::move(artifacts);
  entry.result_bytes = bytes;
  entry.counted = counted;
  ++(counted ? shared_.results : shared_.spilled_results);
  if (!counted) shared_.spilled_bytes += bytes;
  entry.result_tenant = entry.record.job().tenant();
  shared_.tenant_bytes.Add(entry.result_tenant, bytes);
}

void StoreShard::GiveBytesBack(JobEntry& entry) {
  if (entry.counted) {
    shared_.result_bytes.GiveBack(entry.result_bytes);
    --shared_.results;
  } else {
    shared_.spilled_bytes -= entry.result_bytes;
    --shared_.spilled_results;
  }
  shared_.tenant_bytes.Add(entry.result_tenant, -entry.result_bytes);
  streamed_.Remove(entry.streamed_ticket);
}

void StoreShard::DropBytes(JobEntry& entry) {
  if (entry.result == nullptr) return;
  GiveBytesBack(entry);
  entry.result = nullptr;
  entry.result_bytes = 0;
  entry.held = false;
  entry.streamed.clear();
}

// The other keepers of an open job are asked before anybody is told of its end.
void StoreShard::ProposeEnd(v1::JobEnd end, JobEntry& entry) {
  *end.mutable_end_time() = job::ToTimestamp(shared_.clock.WallNow());
  *entry.record.mutable_proposed() = std::move(end);
  AskKeepers(entry);
}

// Ends an open job whose result is here.
void StoreShard::ProposeSuccess(JobEntry& entry) {
  v1::JobEnd end;
  end.set_state(Job::SUCCEEDED);
  for (const StoredArtifact& artifact : *entry.result) *end.add_artifacts() = artifact.info;
  ProposeEnd(std::move(end), entry);
}

void StoreShard::AskKeepers(JobEntry& entry) {
  if (!shared_.hooks.settle || !shared_.hooks.settle(entry.uid)) return End(entry);
  entry.ending_since = shared_.clock.Now();
  Committed(entry);
  Notify(entry, Change::kRecord);
}

// Ends a job that is held or whose end is proposed. Its clients may be told.
void StoreShard::End(JobEntry& entry) {
  if (!entry.record.has_proposed()) {
    v1::JobEnd& end = *entry.record.mutable_proposed();
    end.set_state(Job::SUCCEEDED);
    *end.mutable_end_time() = job::ToTimestamp(shared_.clock.WallNow());
    for (const StoredArtifact& artifact : *entry.result) *end.add_artifacts() = artifact.info;
  }
  job::SettleEnd(entry.record);
  Committed(entry);
  Notify(entry, Change::kRecord);
}

void StoreShard::Erase(JobEntry& entry) {
  // Keeps the bytes until ShowBytes has called the hook: peers may be reading them.
  const std::shared_ptr<const Artifacts> bytes = entry.result;
  DropBytes(entry);
  ShowBytes(entry);
  shared_.record_bytes.GiveBack(entry.record_bytes);
  shared_.records.GiveBack(1);
  by_age_.erase(*entry.age);
  timers_.Cancel(entry);
  tombstones_.Remove(entry.tombstone_ticket);
  if (auto* const count = TombstonesOf(entry.phase, shared_)) --*count;
  open_.erase(entry.uid);
  if (missing_.erase(entry.uid) > 0) --shared_.missing_results;
  // These are copies, because erase() destroys the entry.
  const bool watched = entry.watched;
  const base::Uid uid = entry.uid;
  entries_.erase(uid);
  if (shared_.hooks.forgotten) shared_.hooks.forgotten(uid);
  if (watched) shared_.watches.Changed(uid);
}

void StoreShard::Notify(const JobEntry& entry, Change change) {
  if (shared_.hooks.changed) shared_.hooks.changed(entry.uid, change);
}

}  // namespace onepiece::database
