// How results and records leave a shard: fetched, deleted, expired, lost, or evicted by newer ones.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/mutex.h"
#include "cluster/database/store_shard.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

using v1::Job;

/// At its job's deadline, but not before this time, a hold or a proposed end ends by itself,
/// whatever has become of whoever was to end it.
constexpr base::Duration kLongestHold = std::chrono::minutes(1);
/// Jobs that a sweep handles before it releases the lock.
constexpr std::size_t kJobsAtOnce = 256;

// A keeper that was stopped for a while lives on under a later incarnation. One that was started
// again has a later incarnation too, and says when it is asked that it keeps nothing.
bool KeeperLives(const v1::WorkHolder& holder, const JobStore::IsAlive& is_alive) {
  if (holder.keeper().empty()) return false;
  v1::WorkHolder keeper = holder;
  keeper.set_node_id(holder.keeper());
  keeper.set_incarnation(std::numeric_limits<std::uint64_t>::max());
  return is_alive(keeper);
}

std::string Died(const v1::WorkHolder& holder, const JobStore::IsAlive& is_alive) {
  std::string died = fmt::format("instance {} died while it held the job in stage {}",
                                 holder.node_id(), holder.stage());
  if (KeeperLives(holder, is_alive))
    died += fmt::format(", and {} keeps nothing of it", holder.keeper());
  return died;
}

}  // namespace

absl::StatusOr<v1::ClaimStartResponse> StoreShard::Claim(const base::Uid& uid,
                                                         const v1::ClaimStartRequest& request) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || entry->record.deleted()) return JobUnknown(uid, entry != nullptr);
  v1::StartLease lease = entry->record.lease();
  const bool is_new = job::RunSequence(request.number()) == 0;
  // A claim whose answer was lost is made again, and has been granted already.
  const bool is_holder = lease.claimant() == request.claimant() &&
                         lease.incarnation() == request.incarnation() && lease.number() != 0 &&
                         (is_new ? job::RunRandom(lease.number()) == request.number()
                                 : lease.number() == request.number());
  // Another database has granted a claim that is newer than what is known here.
  const bool is_newer = !is_new && request.number() > lease.number();
  const bool is_free = is_new && LeaseLeft(*entry) == base::Duration::zero();
  v1::ClaimStartResponse response;
  response.set_granted(entry->phase == Phase::kOpen && !entry->held && !request.release() &&
                       (is_holder || is_newer || is_free));
  if (response.granted()) {
    if (!is_holder) {
      lease.set_claimant(request.claimant());
      lease.set_incarnation(request.incarnation());
      lease.set_number(is_new ? job::NextRun(entry->record, job::RunRandom(request.number()))
                              : request.number());
      *entry->record.mutable_lease() = lease;
      Committed(*entry);
    }
    HoldLease(*entry, base::Scaled(shared_.options.start_lease));
    Notify(*entry, Change::kRecord);
  } else if (request.release() && is_holder) {
    HoldLease(*entry, base::Duration::zero());
  }
  *response.mutable_record() = View(*entry);
  return response;
}

void StoreShard::HoldLease(JobEntry& entry, base::Duration left) {
  entry.leased = entry.record.lease().number();
  entry.lease_until = shared_.clock.Now() + left;
}

base::Duration StoreShard::LeaseLeft(const JobEntry& entry) const {
  const std::uint64_t number = entry.record.lease().number();
  if (number == 0 || entry.leased != number) return base::Duration::zero();
  return std::max(entry.lease_until - shared_.clock.Now(), base::Duration::zero());
}

// A renewal comes as a copy with more time left. But a copy's time stands still on its way, so no
// copy counts for more than a claim that is granted now.
void StoreShard::ExtendLease(const base::Uid& uid, std::uint64_t number, TimeLeft left) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || !left.has_value() || entry->record.lease().number() != number) return;
  const base::Duration most = base::Scaled(shared_.options.start_lease);
  HoldLease(*entry, std::max(LeaseLeft(*entry), std::min(*left, most)));
}

void StoreShard::MarkStreamed(const base::Uid& uid, const std::string& artifact) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || !Servable(*entry)) return;
  entry->streamed.insert(artifact);
  if (entry->counted && entry->streamed.size() >= entry->result->size()) {
    streamed_.Add(*entry, entry->streamed_ticket, shared_);
  }
}

absl::StatusOr<Job> StoreShard::Acknowledge(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr) return JobUnknown(uid, false);
  if (entry->phase != Phase::kFetched) {
    if (absl::Status status = CheckFetchable(*entry); !status.ok()) return status;
    MarkFetched(*entry);
  }
  return job::PublicJob(entry->record);
}

absl::Status StoreShard::Delete(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr) return JobUnknown(uid, false);
  if (entry->record.deleted()) return JobUnknown(uid, true);
  if (!job::IsTerminal(entry->record.job().state())) {
    job::SetEnd(Job::CANCELLED, shared_.clock.WallNow(), entry->record);
  }
  entry->record.set_deleted(true);
  Committed(*entry);
  Notify(*entry, Change::kRecord);
  return absl::OkStatus();
}

void StoreShard::Sweep(const JobStore::IsAlive& is_alive) {
  SweepTimers(is_alive);
  if (is_alive) FailOrphans(is_alive);
}

void StoreShard::SweepTimers(const JobStore::IsAlive& is_alive) {
  std::size_t seen = kJobsAtOnce;
  while (seen == kJobsAtOnce) {
    const base::MutexLock lock(mutex_);
    const std::vector<Timer*> due = timers_.Advance(shared_.clock.Now(), kJobsAtOnce);
    seen = due.size();
    for (Timer* timer : due) {
      // Advance() has unset the timer. Each branch either erases the entry or sets the timer again
      // in Committed(). Otherwise the job would stay here for ever.
      JobEntry& entry = *static_cast<JobEntry*>(timer);
      if (IsEnding(entry)) {
        EndInTime(entry);
      } else if (entry.phase == Phase::kOpen) {
        FailOverdue(entry, is_alive);
      } else if (entry.phase == Phase::kEnded && entry.record.job().state() == Job::SUCCEEDED) {
        Expire(entry);
      } else {
        Erase(entry);
      }
    }
  }
}

bool StoreShard::ExpireResults() {
  const base::MutexLock lock(mutex_);
  bool any = false;
  const std::vector<Timer*> due =
      timers_.Advance(shared_.clock.Now(), std::numeric_limits<std::size_t>::max());
  for (Timer* timer : due) {
    JobEntry& entry = *static_cast<JobEntry*>(timer);
    if (Servable(entry) && entry.counted) {
      Expire(entry);
      any = true;
    } else {
      timers_.Set(entry, entry.due);  // Left to Sweep.
    }
  }
  return any;
}

// The deadline of a job that is about to end does not fail it.
void StoreShard::EndInTime(JobEntry& entry) {
  const base::MonotonicTime limit = entry.ending_since + base::Scaled(kLongestHold);
  if (shared_.clock.Now() >= limit) return End(entry);
  SetDue(limit, entry);
}

void StoreShard::FailOverdue(JobEntry& entry, const JobStore::IsAlive& is_alive) {
  const std::vector<const v1::WorkHolder*> holders = job::LiveHolders(entry.record);
  if (holders.empty()) {
    return Fail(entry, "LOST", "no instance had taken the job when its deadline passed");
  }
  std::string who;
  for (const v1::WorkHolder* holder : holders) {
    if (is_alive && GraceOf(entry, *holder, is_alive).has_value())
      return Fail(entry, "LOST", Died(*holder, is_alive));
    who += fmt::format("{}instance {} held the job in stage {}", who.empty() ? "" : " and ",
                       holder->node_id(), holder->stage());
  }
  Fail(entry, "DEADLINE_EXCEEDED", "the deadline passed while " + who);
}

void StoreShard::FailOrphans(const JobStore::IsAlive& is_alive) {
  std::optional<base::Uid> last;
  std::size_t seen = kJobsAtOnce;
  while (seen == kJobsAtOnce) {
    const base::MutexLock lock(mutex_);
    const base::MonotonicTime now = shared_.clock.Now();
    auto it = last.has_value() ? open_.upper_bound(*last) : open_.begin();
    for (seen = 0; seen < kJobsAtOnce && it != open_.end(); ++seen) {
      last = *it++;  // Move on first: a job that fails leaves open_.
      FailIfOrphaned(entries_.at(*last), is_alive, now);
    }
  }
}

// A living keeper gives the work to somebody else.
std::optional<base::Duration> StoreShard::GraceOf(const JobEntry& entry,
                                                  const v1::WorkHolder& holder,
                                                  const JobStore::IsAlive& is_alive) const {
  const JobStoreOptions& options = shared_.options;
  if (is_alive(holder)) return std::nullopt;
  if (holder.keeper().empty()) return options.holder_grace;
  if (!KeeperLives(holder, is_alive)) return options.keeper_grace;
  if (!shared_.hooks.kept || shared_.hooks.kept(entry.uid, holder)) return std::nullopt;
  return options.holder_grace;
}

void StoreShard::FailIfOrphaned(JobEntry& entry, const JobStore::IsAlive& is_alive,
                                base::MonotonicTime now) {
  if (IsEnding(entry)) return;
  std::map<HolderKey, base::MonotonicTime> missing;
  std::string lost;
  for (const v1::WorkHolder* holder : job::LiveHolders(entry.record)) {
    const auto grace = GraceOf(entry, *holder, is_alive);
    if (!grace.has_value()) continue;
    const auto known = entry.missing_since.find(KeyOf(*holder));
    const base::MonotonicTime since = known == entry.missing_since.end() ? now : known->second;
    missing.emplace(KeyOf(*holder), since);
    if (lost.empty() && now - since >= *grace) lost = Died(*holder, is_alive);
  }
  entry.missing_since = std::move(missing);
  if (!lost.empty()) Fail(entry, "LOST", lost);
}

void StoreShard::Fail(JobEntry& entry, const std::string& reason, const std::string& message) {
  if (IsEnding(entry) || job::IsTerminal(entry.record.job().state())) return;
  if (reason == "LOST") ++shared_.lost;
  if (reason == "DEADLINE_EXCEEDED") ++shared_.deadline_exceeded;
  v1::JobEnd end;
  end.set_state(Job::FAILED);
  end.mutable_error()->set_reason(reason);
  end.mutable_error()->set_message(message);
  ProposeEnd(std::move(end), entry);
}

void StoreShard::MarkFetched(JobEntry& entry) {
  entry.record.mutable_job()->mutable_result()->set_fetched(true);
  Committed(entry);
  Notify(entry, Change::kRecord);
}

void StoreShard::Expire(JobEntry& entry) {
  entry.record.mutable_job()->set_state(Job::EXPIRED);
  ++shared_.expired;
  Committed(entry);
  Notify(entry, Change::kRecord);
}

void StoreShard::ForgetOldestTombstone() {
  const base::MutexLock lock(mutex_);
  if (tombstones_.entries.empty()) return;
  ++shared_.tombstones_forgotten;
  Erase(*tombstones_.entries.begin()->second);
}

bool StoreShard::Drop(const base::Uid& uid, const v1::JobRecord& record) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || entry->held) return false;
  if (base::CanonicalBytes(entry->record) != base::CanonicalBytes(record)) return false;
  Erase(*entry);
  return true;
}

void StoreShard::EvictOldestStreamed() {
  const base::MutexLock lock(mutex_);
  if (streamed_.entries.empty()) return;
  ++shared_.evicted_results;
  JobEntry& entry = *streamed_.entries.begin()->second;
  entry.record.mutable_job()->mutable_result()->set_evicted(true);
  Committed(entry);
  Notify(entry, Change::kRecord);
}

std::optional<base::Uid> StoreShard::OldestResult() const {
  const base::MutexLock lock(mutex_);
  if (results_.entries.empty()) return std::nullopt;
  return results_.entries.begin()->second->uid;
}

bool StoreShard::Replace(const base::Uid& uid, Artifacts artifacts, bool counted) {
  const base::MutexLock lock(mutex_);
  JobEntry* const entry = Find(uid);
  if (entry == nullptr || !Servable(*entry) || !AreResultOf(entry->record, artifacts)) return false;
  // Keeps the old bytes until ShowBytes has called the hook: peers may be reading them.
  const std::shared_ptr<const Artifacts> before = entry->result;
  const std::int64_t bytes = entry->result_bytes;
  if (counted && !entry->counted && !shared_.result_bytes.Take(bytes)) return false;
  if (counted == entry->counted) {
    entry->result = std::make_shared<const Artifacts>(std::move(artifacts));
  } else {
    GiveBytesBack(*entry);
    entry->result = nullptr;
    Attach(*entry, std::make_shared<const Artifacts>(std::move(artifacts)), bytes, counted);
  }
  ShowBytes(*entry);
  return true;
}

}  // namespace onepiece::database
