#include "cluster/database/job_store.h"

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/database/store_shard.h"
#include "cluster/job/job_record.h"
#include "cluster/node/job_position.h"
#include "cluster/values/no_room.h"

namespace onepiece::database {
namespace {

using v1::Job;
using v1::JobRecord;

constexpr int kDefaultResultTtlS = 3600;
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

absl::StatusOr<base::Uid> ParseUid(const std::string& text) {
  const auto uid = base::Uid::Parse(text);
  if (!uid.has_value()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID",
                           "not a UID: \"" + text + "\"");
  }
  return *uid;
}

absl::Status RecordsFull() {
  return base::MakeError(absl::StatusCode::kResourceExhausted, values::kRecordsFull,
                         "the database holds as many jobs as it may");
}

StoreShard::TimeLeft TimeLeftOf(const JobRecord& record) {
  if (!record.has_time_left()) return std::nullopt;
  return job::FromProto(record.time_left());
}

StoreShard::TimeLeft LeaseLeftOf(const JobRecord& record) {
  if (!record.lease().has_time_left()) return std::nullopt;
  return job::FromProto(record.lease().time_left());
}

/// Returns the filter of a list request. It borrows `request`.
StoreShard::Wanted WantedBy(const v1::ListJobsRequest& request) {
  return [&request](const Job& job, Job::State state) {
    if (!request.app_id().empty() && job.app_id() != request.app_id()) return false;
    if (!request.states().empty() &&
        std::ranges::find(request.states(), state) == request.states().end()) {
      return false;
    }
    const base::WallTime created = job::FromTimestamp(job.create_time());
    if (request.has_created_from() && created < job::FromTimestamp(request.created_from())) {
      return false;
    }
    if (request.has_created_before() && created >= job::FromTimestamp(request.created_before())) {
      return false;
    }
    if (!request.tenant().empty() && request.tenant() != job::TenantOf(job)) return false;
    return std::ranges::all_of(request.labels(), [&job](const auto& label) {
      const auto found = job.labels().find(label.first);
      return found != job.labels().end() && found->second == label.second;
    });
  };
}

}  // namespace

JobStore::JobStore(JobStoreOptions options, base::Clock& clock, JobStoreHooks hooks)
    : shared_(std::make_unique<StoreShared>(options, clock, std::move(hooks))) {
  for (auto& shard : shards_) shard = std::make_unique<StoreShard>(*shared_);
  shared_->watches.Start([this](const base::Uid& uid) { return ShardOf(uid).Watch(uid); });
}

JobStore::~JobStore() { shared_->watches.Stop(); }

StoreShard& JobStore::ShardOf(const base::Uid& uid) const {
  return *shards_[static_cast<std::size_t>(BucketOf(uid)) % kShards];
}

absl::StatusOr<v1::CreateJobResponse> JobStore::Create(JobRecord record) {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid uid, ParseUid(record.job().uid()));
  if (!record.has_time_left() || !record.job().has_create_time() || record.fingerprint().empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_RECORD",
                           "a new record needs create_time, time_left and fingerprint");
  }
  const base::Duration limit = job::FromProto(record.time_left());
  record.mutable_job()->set_state(Job::QUEUED);
  if (record.result_ttl_s() <= 0) record.set_result_ttl_s(kDefaultResultTtlS);
  job::Normalize(record);
  do {
    std::optional<v1::CreateJobResponse> response = ShardOf(uid).Create(uid, record, limit);
    if (response.has_value()) return *std::move(response);
  } while (ForgetOldestTombstone());
  ++shared_->refused_records;
  return RecordsFull();
}

absl::StatusOr<v1::ClaimStartResponse> JobStore::Claim(const v1::ClaimStartRequest& request) {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid uid, ParseUid(request.uid()));
  return ShardOf(uid).Claim(uid, request);
}

absl::StatusOr<JobRecord> JobStore::Update(const v1::UpdateJobRequest& request) {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid uid, ParseUid(request.uid()));
  return ShardOf(uid).Update(uid, request);
}

absl::StatusOr<StoreOutcome> JobStore::StoreResult(const ResultBundle& bundle, message::Kind kind,
                                                   StoreMode mode) {
  StoreShard& shard = ShardOf(bundle.uid);
  // A result above the whole budget must not reach MakeRoomForBytes(). It would evict every
  // streamed result and still be refused.
  const bool ever_fits = bundle.total_bytes <= shared_->result_bytes.limit();
  while (true) {
    const std::optional<StoreOutcome> outcome = shard.StoreResult(bundle, kind, mode.hold);
    if (!outcome.has_value()) {
      if (ForgetOldestTombstone()) continue;
      ++shared_->refused_results;
      return RecordsFull();
    }
    if (*outcome != StoreOutcome::kFull) return *outcome;
    if (!ever_fits || !MakeRoomForBytes()) break;
  }
  if (ever_fits && mode.wait_for_room) return StoreOutcome::kFull;
  shard.Refuse(bundle, kind);
  return StoreOutcome::kRefused;
}

std::int64_t JobStore::BytesOf(const std::string& tenant) const {
  return shared_->tenant_bytes.Of(tenant);
}

bool JobStore::MakeRoom(std::int64_t bytes) {
  const Budget& budget = shared_->result_bytes;
  if (bytes > budget.limit()) return false;
  while (budget.used() > budget.limit() - bytes) {
    if (!MakeRoomForBytes()) return false;
  }
  return true;
}

void JobStore::SetLimits(const JobStoreLimits& limits) {
  shared_->result_bytes.SetLimit(limits.budget_bytes);
  shared_->records.SetLimit(limits.max_records);
  shared_->tombstone_ttl = limits.tombstone_ttl;
}

bool JobStore::Confirm(const base::Uid& uid) { return ShardOf(uid).Confirm(uid); }

void JobStore::FailJob(const message::Header& result, const std::string& reason,
                       const std::string& message) {
  ShardOf(result.uid).FailJob(result, reason, message);
}

void JobStore::Merge(std::span<const JobRecord> records) {
  for (const JobRecord& incoming : records) {
    const auto uid = base::Uid::Parse(incoming.job().uid());
    if (!uid.has_value()) {
      ++shared_->refused_records;
      continue;
    }
    JobRecord theirs = incoming;
    const StoreShard::TimeLeft left = TimeLeftOf(incoming);
    const StoreShard::TimeLeft lease_left = LeaseLeftOf(incoming);
    job::Normalize(theirs);
    StoreShard& shard = ShardOf(*uid);
    bool merged = shard.Merge(*uid, theirs, left);
    while (!merged && ForgetOldestTombstone()) merged = shard.Merge(*uid, theirs, left);
    if (merged) shard.ExtendLease(*uid, theirs.lease().number(), lease_left);
    if (!merged) ++shared_->refused_records;
  }
}

bool JobStore::Restore(JobRecord record, const Artifacts& artifacts) {
  const auto uid = base::Uid::Parse(record.job().uid());
  if (!uid.has_value()) return false;
  const StoreShard::TimeLeft left = TimeLeftOf(record);
  record.clear_proposed();  // Nobody waits for it any more.
  job::Normalize(record);
  using Restored = StoreShard::Restored;
  Restored restored = Restored::kNoRoom;
  do {
    restored = ShardOf(*uid).Restore(*uid, record, left, artifacts);
  } while (restored == Restored::kNoRoom && ForgetOldestTombstone());
  if (restored == Restored::kNoRoom) ++shared_->refused_records;
  return restored == Restored::kYes;
}

void JobStore::MarkLost(base::MonotonicTime since, const Filter& filter) {
  for (const auto& shard : shards_) shard->MarkLost(since, filter);
}

absl::StatusOr<JobRecord> JobStore::Get(const std::string& uid) const {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid parsed, ParseUid(uid));
  return ShardOf(parsed).Get(parsed);
}

absl::StatusOr<v1::ListJobsResponse> JobStore::List(const v1::ListJobsRequest& request) const {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PAGE_SIZE",
                           "page_size must be 0 to " + std::to_string(kMaxPageSize));
  }
  const auto page_size =
      static_cast<std::size_t>(request.page_size() == 0 ? kDefaultPageSize : request.page_size());
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
  const StoreShard::Wanted wanted = WantedBy(request);
  // First collect the keys of every shard, then read only the jobs of the page. One key more than
  // the page holds tells whether there is another page.
  std::vector<AgeKey> page;
  for (const auto& shard : shards_) {
    const std::vector<AgeKey> keys = shard->Positions(after, page_size + 1, wanted);
    const auto middle = page.insert(page.end(), keys.begin(), keys.end());
    std::inplace_merge(page.begin(), middle, page.end());
    if (page.size() > page_size + 1) page.resize(page_size + 1);
  }
  v1::ListJobsResponse response;
  if (page.size() > page_size) {
    page.pop_back();
    const auto& [minus_created, uid] = page.back();
    response.set_next_page_token(
        node::JobPosition{.create_unix_ns = -minus_created.count(), .uid = uid.ToString()}
            .ToToken());
  }
  for (const auto& [minus_created, uid] : page) {
    // A job that was forgotten or stopped matching since its key was read is left out.
    std::optional<Job> job = ShardOf(uid).Seen(uid, wanted);
    if (job.has_value()) *response.add_jobs() = *std::move(job);
  }
  return response;
}

absl::StatusOr<StoredArtifact> JobStore::FindArtifact(const std::string& uid,
                                                      const std::string& name) const {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid parsed, ParseUid(uid));
  return ShardOf(parsed).FindArtifact(parsed, name);
}

std::shared_ptr<const Artifacts> JobStore::FindResult(const base::Uid& uid) const {
  return ShardOf(uid).FindResult(uid);
}

void JobStore::MarkStreamed(const std::string& uid, const std::string& artifact) {
  const auto parsed = base::Uid::Parse(uid);
  if (parsed.has_value()) ShardOf(*parsed).MarkStreamed(*parsed, artifact);
}

absl::StatusOr<Job> JobStore::Acknowledge(const std::string& uid) {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid parsed, ParseUid(uid));
  return ShardOf(parsed).Acknowledge(parsed);
}

absl::Status JobStore::Delete(const std::string& uid) {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid parsed, ParseUid(uid));
  return ShardOf(parsed).Delete(parsed);
}

std::optional<base::Uid> JobStore::OldestResult() const {
  const StoreShard* const shard = Oldest(&StoreShard::result_ticket);
  return shard == nullptr ? std::nullopt : shard->OldestResult();
}

bool JobStore::Replace(const base::Uid& uid, Artifacts artifacts, bool counted) {
  return ShardOf(uid).Replace(uid, std::move(artifacts), counted);
}

void JobStore::Sweep(const IsAlive& is_alive) {
  for (const auto& shard : shards_) shard->Sweep(is_alive);
}

absl::StatusOr<JobStore::Subscribed> JobStore::Subscribe(const std::string& uid,
                                                         JobSubscriber subscriber) {
  ONEPIECE_ASSIGN_OR_RETURN(const base::Uid parsed, ParseUid(uid));
  // The subscription comes first, so that no change falls between it and the state.
  Subscribed subscribed{shared_->watches.Add(parsed, std::move(subscriber)), {}};
  ONEPIECE_ASSIGN_OR_RETURN(subscribed.now, ShardOf(parsed).Watch(parsed));
  return subscribed;
}

std::vector<JobRecord> JobStore::Records(std::span<const base::Uid> uids) const {
  std::vector<JobRecord> records;
  for (const base::Uid& uid : uids) {
    std::optional<JobRecord> record = ShardOf(uid).Record(uid);
    if (record.has_value()) records.push_back(*std::move(record));
  }
  return records;
}

Digests JobStore::DigestsFor(const Filter& filter) const {
  Digests digests;
  for (const auto& shard : shards_) {
    shard->VisitDigests(filter, [&](const base::Uid& uid, std::uint64_t digest, bool) {
      digests.Add(uid, digest);
    });
  }
  return digests;
}

JobStore::Summaries JobStore::SummariesOf(std::span<const int> buckets,
                                          const Filter& filter) const {
  Summaries summaries;
  std::array<bool, kBuckets> wanted{};
  std::array<bool, kShards> visited{};
  for (const int bucket : buckets) {
    wanted[static_cast<std::size_t>(bucket)] = true;
    // ShardOf() puts all jobs of a bucket into this shard, so the other shards need no walk.
    visited[static_cast<std::size_t>(bucket) % kShards] = true;
  }
  const auto is_wanted = [&](const base::Uid& uid) {
    return wanted[static_cast<std::size_t>(BucketOf(uid))] && filter(uid);
  };
  for (std::size_t i = 0; i < kShards; ++i) {
    if (!visited[i]) continue;
    shards_[i]->VisitDigests(is_wanted, [&](const base::Uid& uid, std::uint64_t digest,
                                            bool has_bytes) {
      v1::JobSummary& summary = summaries[static_cast<std::size_t>(BucketOf(uid))].emplace_back();
      summary.set_uid(uid.bytes().data(), uid.bytes().size());
      summary.set_digest(digest);
      summary.set_has_bytes(has_bytes);
    });
  }
  return summaries;
}

std::vector<base::Uid> JobStore::Tombstones(const Filter& filter) const {
  std::vector<base::Uid> uids;
  for (const auto& shard : shards_) shard->AddTombstones(filter, uids);
  return uids;
}

bool JobStore::Drop(const base::Uid& uid, JobRecord record) {
  job::Normalize(record);
  return ShardOf(uid).Drop(uid, record);
}

JobStoreStats JobStore::stats() const {
  const StoreShared& shared = *shared_;
  return {.records = shared.records.used(),
          .results = shared.results,
          .result_bytes = shared.result_bytes.used(),
          .budget_bytes = shared.result_bytes.limit(),
          .missing_results = shared.missing_results,
          .spilled_results = shared.spilled_results,
          .spilled_bytes = shared.spilled_bytes,
          .fetched_tombstones = shared.fetched_tombstones,
          .expired_tombstones = shared.expired_tombstones,
          .deleted_tombstones = shared.deleted_tombstones,
          .tombstones_forgotten = shared.tombstones_forgotten,
          .stored = shared.stored,
          .late_results = shared.late_results,
          .refused_results = shared.refused_results,
          .evicted_results = shared.evicted_results,
          .expired = shared.expired,
          .lost = shared.lost,
          .deadline_exceeded = shared.deadline_exceeded,
          .refused_records = shared.refused_records,
          .lost_on_restart = shared.lost_on_restart};
}

// Returns the shard whose line has the oldest ticket, or nullptr when all lines are empty. Another
// thread may take that ticket first.
StoreShard* JobStore::Oldest(std::uint64_t (StoreShard::*ticket)() const) const {
  const auto oldest = std::ranges::min_element(
      shards_, {}, [&](const auto& shard) { return (shard.get()->*ticket)(); });
  return ((*oldest).get()->*ticket)() == StoreShard::kNoTicket ? nullptr : oldest->get();
}

bool JobStore::ForgetOldestTombstone() {
  StoreShard* const shard = Oldest(&StoreShard::tombstone_ticket);
  if (shard != nullptr) shard->ForgetOldestTombstone();
  return shard != nullptr;
}

// Takes one step towards more room. Returns false when nothing can be evicted.
bool JobStore::MakeRoomForBytes() {
  bool any = false;
  for (const auto& shard : shards_) any = shard->ExpireResults() || any;
  if (any || !shared_->options.evict) return any;
  StoreShard* const shard = Oldest(&StoreShard::streamed_ticket);
  if (shard != nullptr) shard->EvictOldestStreamed();
  return shard != nullptr;
}

}  // namespace onepiece::database
