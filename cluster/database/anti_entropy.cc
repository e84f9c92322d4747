#include "cluster/database/anti_entropy.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <span>
#include <unordered_map>
#include <utility>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/digest.h"
#include "cluster/database/placement.h"
#include "cluster/job/job_record.h"
#include "cluster/rpc/channel.h"

namespace onepiece::database {
namespace {

constexpr base::Duration kTick = std::chrono::milliseconds(100);
constexpr int kStuckIntervals = 16;

Places PlacesOf(const node::Routing& routing) { return node::DatabasePlaces(routing.table()); }

std::optional<base::Uid> UidOfBytes(const std::string& bytes) {
  std::array<std::uint8_t, 16> uid{};
  if (bytes.size() != uid.size()) return std::nullopt;
  std::ranges::copy(bytes, uid.begin());
  return base::Uid(uid);
}

void AppendUids(std::span<const base::Uid> uids,
                google::protobuf::RepeatedPtrField<std::string>& to) {
  for (const base::Uid& uid : uids) to.Add(std::string(uid.bytes().begin(), uid.bytes().end()));
}

absl::Status OtherView(const std::string& why) {
  return base::MakeError(absl::StatusCode::kAborted, "OTHER_VIEW", why);
}

/// Takes up to `count` off the front.
std::span<const base::Uid> TakeFront(std::span<const base::Uid>& uids, std::size_t count) {
  const auto front = uids.first(std::min(count, uids.size()));
  uids = uids.subspan(front.size());
  return front;
}

}  // namespace

AntiEntropy::AntiEntropy(const node::ClusterView& view, AntiEntropyOptions options, JobStore& store,
                         Replicator& replicator, base::Clock& clock)
    : view_(view),
      options_(std::move(options)),
      store_(store),
      replicator_(replicator),
      clock_(clock) {}

AntiEntropy::~AntiEntropy() { Stop(); }

void AntiEntropy::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void AntiEntropy::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

absl::Status AntiEntropy::CheckCluster(const std::string& cluster_id) const {
  const std::string ours = view_.cluster_id();
  // Neither may be unknown: a node that has not registered yet knows no cluster.
  if (cluster_id == ours && !ours.empty()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
                         "this database is of cluster '" + ours + "', not '" + cluster_id + "'");
}

JobStore::Filter AntiEntropy::BothKeep(Places databases, const std::string& peer) const {
  return [this, databases = std::move(databases), peer](const base::Uid& uid) {
    const auto keepers = KeepersOf(uid, databases, options_.copies);
    const auto among = [&](const std::string& id) {
      return std::ranges::any_of(keepers, [&](const std::string* keeper) { return *keeper == id; });
    };
    return among(options_.node_id) && among(peer);
  };
}

absl::StatusOr<v1::CompareJobsResponse> AntiEntropy::Compare(
    const v1::CompareJobsRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckCluster(request.cluster_id()));
  const Places databases = PlacesOf(*view_.routing());
  if (!std::ranges::equal(databases, request.databases(), {}, node::TextOf)) {
    return OtherView("this database sees other databases than the caller");
  }
  if (request.node_id() == options_.node_id ||
      node::FindPlace(databases, request.node_id()) == nullptr) {
    return OtherView("the caller is not among the other databases");
  }
  if (request.digests_size() != kBuckets) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_DIGESTS",
                           "there must be " + std::to_string(kBuckets) + " digests",
                           {{"field", "digests"}});
  }
  const base::MonotonicTime now = clock_.Now();
  const JobStore::Filter filter = BothKeep(databases, request.node_id());
  const std::vector<std::uint64_t> theirs(request.digests().begin(), request.digests().end());
  v1::CompareJobsResponse response;
  const std::vector<int> differing = store_.DigestsFor(filter).Differing(theirs);
  JobStore::Summaries summaries = store_.SummariesOf(differing, filter);
  for (const int bucket : differing) {
    std::vector<v1::JobSummary>& jobs = summaries[static_cast<std::size_t>(bucket)];
    // The first bucket is sent whatever its size. Otherwise a bucket above the limit would never
    // be sent, and the two databases would never get past it.
    if (response.buckets_size() > 0 &&
        response.jobs_size() + static_cast<int>(jobs.size()) > kMaxSummaries) {
      response.set_more(true);
      break;
    }
    response.add_buckets(bucket);
    for (v1::JobSummary& job : jobs) *response.add_jobs() = std::move(job);
  }
  if (response.buckets_size() == 0) NoteEqual(request.node_id(), now);
  return response;
}

absl::Status AntiEntropy::Send(const v1::SendJobsRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckCluster(request.cluster_id()));
  if (request.node_id() == options_.node_id ||
      !view_.routing()->FindDatabase(request.node_id()).has_value()) {
    return OtherView("the caller is not among the other databases");
  }
  if (request.records_size() > kMaxUidsPerCall || request.results_size() > kMaxUidsPerCall) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_JOBS",
                           "at most " + std::to_string(kMaxUidsPerCall) + " of a kind in a call");
  }
  std::vector<base::Uid> records, results;
  for (const auto& [from, to] :
       {std::pair(&request.records(), &records), std::pair(&request.results(), &results)}) {
    for (const std::string& bytes : *from) {
      const std::optional<base::Uid> uid = UidOfBytes(bytes);
      if (!uid.has_value()) {
        return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID",
                               "a uid has 16 bytes, not " + std::to_string(bytes.size()));
      }
      to->push_back(*uid);
    }
  }
  for (const base::Uid& uid : records) {
    replicator_.EnqueueFor(request.node_id(), uid, Change::kRecord);
  }
  for (const base::Uid& uid : results) {
    replicator_.EnqueueFor(request.node_id(), uid, Change::kResultBytes);
  }
  return absl::OkStatus();
}

absl::Status AntiEntropy::AskForRecords(const v1::Endpoint& peer,
                                        std::span<const base::Uid> uids) const {
  v1::SendJobsRequest request;
  request.set_cluster_id(view_.cluster_id());
  request.set_node_id(options_.node_id);
  AppendUids(uids, *request.mutable_records());
  v1::DatabaseService::Stub stub(rpc::MakeChannel(peer.address()));
  return rpc::Call(stub, &v1::DatabaseService::Stub::SendJobs, request, options_.call_timeout)
      .status();
}

absl::StatusOr<bool> AntiEntropy::CompareWith(const v1::Endpoint& peer) {
  // The time comes before the digests of both sides, because SettledTime() must not vouch for
  // anything that reaches the peer after it has answered.
  const base::MonotonicTime now = clock_.Now();
  const Places databases = PlacesOf(*view_.routing());
  const JobStore::Filter filter = BothKeep(databases, peer.node_id());
  v1::CompareJobsRequest request;
  request.set_cluster_id(view_.cluster_id());
  request.set_node_id(options_.node_id);
  for (const node::DatabasePlace& place : databases) request.add_databases(node::TextOf(place));
  const Digests digests = store_.DigestsFor(filter);
  request.mutable_digests()->Add(digests.values().begin(), digests.values().end());
  v1::DatabaseService::Stub stub(rpc::MakeChannel(peer.address()));
  ONEPIECE_ASSIGN_OR_RETURN(
      const v1::CompareJobsResponse answer,
      rpc::Call(stub, &v1::DatabaseService::Stub::CompareJobs, request, options_.call_timeout));
  const absl::StatusOr<Plan> made = MakePlan(answer, filter);
  const Plan plan = made.value_or(Plan());
  {
    const base::MutexLock lock(mutex_);
    if (!made.ok()) {
      ++stats_.nonsense;
      return made.status();
    }
    ++stats_.compared;
    if (const auto contact = contacts_.find(peer.node_id()); contact != contacts_.end()) {
      Contact& known = contact->second;
      // This database may lack something until a comparison finds nothing to ask for. With `more`,
      // the buckets that are left out may hold it.
      known.settled_time.reset();
      if (!answer.more() && plan.ask_records.empty() && plan.ask_results.empty())
        known.settled_time = now;
      const bool stuck = known.lacking > 0 && plan.push_results.size() >= known.lacking;
      known.lacking = plan.push_results.size();
      known.pause = std::min(2 * known.pause,
                             (stuck ? kStuckIntervals : 1) * base::Scaled(options_.interval));
    }
  }
  if (answer.buckets_size() == 0) {
    NoteEqual(peer.node_id(), now);
    return true;
  }
  ONEPIECE_RETURN_IF_ERROR(Carry(peer, stub, plan));
  return false;
}

absl::StatusOr<AntiEntropy::Plan> AntiEntropy::MakePlan(const v1::CompareJobsResponse& answer,
                                                        const JobStore::Filter& filter) const {
  const auto bad = [](const std::string& why) {
    return base::MakeError(absl::StatusCode::kDataLoss, "BAD_ANSWER", why);
  };
  std::map<int, std::vector<const v1::JobSummary*>> theirs;
  for (const int bucket : answer.buckets()) {
    if (bucket < 0 || bucket >= kBuckets || !theirs.try_emplace(bucket).second) {
      return bad("it covers a bucket that does not exist, or one twice");
    }
  }
  for (const v1::JobSummary& job : answer.jobs()) {
    const std::optional<base::Uid> uid = UidOfBytes(job.uid());
    const auto bucket = uid.has_value() ? theirs.find(BucketOf(*uid)) : theirs.end();
    if (bucket == theirs.end()) return bad("it tells of a job outside the buckets that it covers");
    if (!filter(*uid)) return bad("it tells of a job that the two do not share");
    bucket->second.push_back(&job);
  }
  const std::vector<int> buckets(answer.buckets().begin(), answer.buckets().end());
  const JobStore::Summaries ours = store_.SummariesOf(buckets, filter);
  Plan plan;
  for (const auto& [bucket, jobs] : theirs) {
    if (!PlanBucket(ours[static_cast<std::size_t>(bucket)], jobs, plan))
      return bad("it tells of one job twice");
  }
  return plan;
}

bool AntiEntropy::PlanBucket(const std::vector<v1::JobSummary>& mine,
                             const std::vector<const v1::JobSummary*>& theirs, Plan& plan) const {
  std::unordered_map<base::Uid, const v1::JobSummary*> left;
  for (const v1::JobSummary* job : theirs) {
    if (!left.emplace(*UidOfBytes(job->uid()), job).second) return false;
  }
  for (const v1::JobSummary& ours : mine) {
    const base::Uid uid = *UidOfBytes(ours.uid());
    const auto found = left.find(uid);
    if (found == left.end()) {
      // Only the record goes now, because the peer may know the job as fetched. The bytes go when
      // the next comparison shows that the peer wants them.
      plan.push_records.push_back(uid);
      continue;
    }
    const v1::JobSummary& their = *found->second;
    left.erase(found);
    if (their.digest() == ours.digest()) continue;
    const std::vector<v1::JobRecord> record = store_.Records(std::vector{uid});
    if (record.empty()) continue;  // It was forgotten meanwhile.
    // The record is sent in one direction only. If the peer's record is newer, its merge sends the
    // newer record back.
    // If our record explains their digest, the two differ only in who has the bytes.
    if (DigestOf(record.front(), their.has_bytes()) != their.digest()) {
      plan.push_records.push_back(uid);
    }
    if (ours.has_bytes() && !their.has_bytes()) plan.push_results.push_back(uid);
    if (!ours.has_bytes() && their.has_bytes()) plan.ask_results.push_back(uid);
  }
  for (const auto& [uid, job] : left) {
    if (!store_.Records(std::vector{uid}).empty()) {
      plan.push_records.push_back(uid);  // The job is a tombstone here.
      continue;
    }
    plan.ask_records.push_back(uid);
    if (job->has_bytes()) plan.ask_results.push_back(uid);
  }
  return true;
}

absl::Status AntiEntropy::Carry(const v1::Endpoint& peer, v1::DatabaseService::Stub& stub,
                                const Plan& plan) {
  {
    const base::MutexLock lock(mutex_);
    stats_.records_pushed += plan.push_records.size();
    stats_.results_pushed += plan.push_results.size();
    stats_.records_asked += plan.ask_records.size();
    stats_.results_asked += plan.ask_results.size();
  }
  spdlog::info("op=compare peer={} push={} push_bytes={} ask={} ask_bytes={}", peer.node_id(),
               plan.push_records.size(), plan.push_results.size(), plan.ask_records.size(),
               plan.ask_results.size());
  for (const base::Uid& uid : plan.push_records) {
    replicator_.EnqueueFor(peer.node_id(), uid, Change::kRecord);
  }
  for (const base::Uid& uid : plan.push_results) {
    replicator_.EnqueueFor(peer.node_id(), uid, Change::kResultBytes);
  }
  std::span<const base::Uid> records(plan.ask_records);
  std::span<const base::Uid> results(plan.ask_results);
  while (!records.empty() || !results.empty()) {
    v1::SendJobsRequest request;
    request.set_cluster_id(view_.cluster_id());
    request.set_node_id(options_.node_id);
    AppendUids(TakeFront(records, kMaxUidsPerCall), *request.mutable_records());
    AppendUids(TakeFront(results, kMaxUidsPerCall), *request.mutable_results());
    ONEPIECE_RETURN_IF_ERROR(
        rpc::Call(stub, &v1::DatabaseService::Stub::SendJobs, request, options_.call_timeout)
            .status());
  }
  return absl::OkStatus();
}

void AntiEntropy::NoteEqual(const std::string& node_id, base::MonotonicTime time) {
  const base::MutexLock lock(mutex_);
  ++stats_.equal;
  const auto contact = contacts_.find(node_id);
  if (contact == contacts_.end()) return;
  contact->second.compared_time = clock_.WallNow();
  contact->second.settled_time = time;
}

std::optional<base::MonotonicTime> AntiEntropy::SettledTime() const {
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  if (routing->epoch() == 0) return std::nullopt;
  base::MonotonicTime settled = clock_.Now();
  const base::MutexLock lock(mutex_);
  for (const v1::Endpoint& database : routing->table().databases()) {
    if (database.node_id() == options_.node_id) continue;
    const auto contact = contacts_.find(database.node_id());
    if (contact == contacts_.end() || contact->second.incarnation != database.incarnation() ||
        !contact->second.settled_time.has_value()) {
      return std::nullopt;
    }
    settled = std::min(settled, *contact->second.settled_time);
  }
  return settled;
}

std::optional<base::WallTime> AntiEntropy::ComparedTime(const std::string& node_id) const {
  const base::MutexLock lock(mutex_);
  const auto contact = contacts_.find(node_id);
  return contact == contacts_.end() ? std::nullopt : contact->second.compared_time;
}

AntiEntropyStats AntiEntropy::stats() const {
  const base::MutexLock lock(mutex_);
  return stats_;
}

void AntiEntropy::Run(const std::stop_token& stop) {
  Members seen, told;
  std::vector<base::Uid> not_ours;
  base::MonotonicTime next_look;
  while (!stop.stop_requested()) {
    const std::shared_ptr<const node::Routing> routing = view_.routing();
    Members now;
    for (const v1::Endpoint& database : routing->table().databases()) {
      now.emplace(database.node_id(),
                  Member{.incarnation = database.incarnation(), .place = node::PlaceOf(database)});
    }
    // When the table does not name this instance, it keeps its jobs: it may only be missing for a
    // moment.
    const bool is_member = now.contains(options_.node_id);
    if (now != seen) {
      if (is_member) HandOn(NotOurs(PlacesOf(*routing)));
      seen = std::move(now);
      not_ours.clear();
      next_look = clock_.Now() + base::Scaled(options_.drop_after);
    } else if (is_member && clock_.Now() >= next_look) {
      if (told != seen) TellNewKeepers(std::exchange(told, seen), seen);
      if (not_ours.empty()) not_ours = NotOurs(PlacesOf(*routing));
      DropHandedOn(*routing, not_ours);
      if (not_ours.empty()) next_look = clock_.Now() + base::Scaled(options_.interval);
    }
    while (const std::optional<v1::Endpoint> peer = NextDue()) {
      if (stop.stop_requested()) return;
      Schedule(*peer, CompareWith(*peer));
    }
    clock_.Pause(stop, base::Scaled(kTick));
  }
}

std::vector<base::Uid> AntiEntropy::NotOurs(const Places& databases) const {
  const auto not_ours = [&](const base::Uid& uid) {
    return !Keeps(uid, options_.node_id, databases, options_.copies);
  };
  std::vector<base::Uid> uids = store_.Tombstones(not_ours);
  std::array<int, kBuckets> all{};
  std::iota(all.begin(), all.end(), 0);
  for (const std::vector<v1::JobSummary>& bucket : store_.SummariesOf(all, not_ours)) {
    for (const v1::JobSummary& job : bucket) uids.push_back(*UidOfBytes(job.uid()));
  }
  return uids;
}

void AntiEntropy::HandOn(const std::vector<base::Uid>& uids) {
  for (const base::Uid& uid : uids) {
    replicator_.Enqueue(uid, Change::kRecord);
    if (store_.FindResult(uid) != nullptr) replicator_.Enqueue(uid, Change::kResultBytes);
  }
}

void AntiEntropy::TellNewKeepers(const Members& before, const Members& now) {
  Places databases, former;
  for (const auto& [id, member] : now) databases.push_back(member.place);
  for (const auto& [id, member] : before) former.push_back(member.place);
  // A database that has restarted may have lost what it had.
  const auto is_new = [&](const base::Uid& uid, const std::string& id) {
    const auto known = before.find(id);
    const bool is_same =
        known != before.end() && known->second.incarnation == now.at(id).incarnation;
    return id != options_.node_id && !(is_same && Keeps(uid, id, former, options_.copies));
  };
  const auto ours = [&](const base::Uid& uid) {
    return Keeps(uid, options_.node_id, databases, options_.copies);
  };
  for (const base::Uid& uid : store_.Tombstones(ours)) {
    for (const std::string* keeper : KeepersOf(uid, databases, options_.copies)) {
      if (is_new(uid, *keeper)) replicator_.EnqueueFor(*keeper, uid, Change::kRecord);
    }
  }
}

void AntiEntropy::DropHandedOn(const node::Routing& routing, std::vector<base::Uid>& not_ours) {
  const Places databases = PlacesOf(routing);
  std::set<std::string> away;
  std::vector<base::Uid> missing;
  for (std::size_t i = 0; i < kDropsAtOnce && !not_ours.empty(); ++i) {
    const base::Uid uid = not_ours.back();
    not_ours.pop_back();
    const std::vector<v1::JobRecord> record = store_.Records(std::vector{uid});
    if (record.empty()) continue;  // It was forgotten meanwhile.
    const auto keepers = KeepersOf(uid, databases, options_.copies);
    const bool all_have_it = std::ranges::all_of(keepers, [&](const std::string* id) {
      const auto keeper = routing.FindDatabase(*id);
      return keeper.has_value() && Has(*keeper, record.front(), away);
    });
    // A job that has changed since is looked at again in the next round.
    if (!all_have_it) {
      missing.push_back(uid);
    } else if (store_.Drop(uid, record.front())) {
      const base::MutexLock lock(mutex_);
      ++stats_.handed_over;
    }
  }
  HandOn(missing);
}

bool AntiEntropy::Has(const v1::Endpoint& keeper, const v1::JobRecord& record,
                      std::set<std::string>& away) {
  if (away.contains(keeper.node_id())) return false;
  v1::DatabaseService::Stub stub(rpc::MakeChannel(keeper.address()));
  v1::GetJobRecordRequest request;
  request.set_uid(record.job().uid());
  absl::StatusOr<v1::JobRecord> theirs =
      rpc::Call(stub, &v1::DatabaseService::Stub::GetJob, request, options_.call_timeout);
  if (absl::IsUnavailable(theirs.status()) || absl::IsDeadlineExceeded(theirs.status()))
    away.insert(keeper.node_id());
  // A deleted job has nothing that could be missing.
  if (!theirs.ok()) return base::GetReason(theirs.status()).metadata.contains("deleted");
  const bool has_bytes = theirs->has_bytes() || job::IsTombstone(*theirs);
  const auto uid = base::Uid::Parse(record.job().uid());
  if (!has_bytes && uid.has_value() && store_.FindResult(*uid) != nullptr) return false;
  job::Normalize(*theirs);
  return base::CanonicalBytes(job::Join(record, *theirs)) == base::CanonicalBytes(*theirs);
}

std::optional<v1::Endpoint> AntiEntropy::NextDue() {
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  const std::optional<v1::Endpoint> self = routing->FindDatabase(options_.node_id);
  Places databases = PlacesOf(*routing);
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  const bool others = databases != databases_;
  databases_ = std::move(databases);
  std::erase_if(contacts_, [&](const auto& known) {
    const std::optional<v1::Endpoint> peer = routing->FindDatabase(known.first);
    return !peer.has_value() || peer->incarnation() != known.second.incarnation;
  });
  std::optional<v1::Endpoint> due;
  for (const v1::Endpoint& peer : routing->table().databases()) {
    if (peer.node_id() == options_.node_id) continue;
    const auto [at, is_new] = contacts_.try_emplace(peer.node_id());
    Contact& contact = at->second;
    if (is_new || others) {
      contact.incarnation = peer.incarnation();
      contact.next = now;
      // CompareWith() doubles the pause before Schedule() uses it.
      contact.pause = base::Scaled(options_.first_pause) / 2;
    }
    const bool ours_to_ask = self.has_value() && std::pair(self->incarnation(), self->node_id()) >
                                                     std::pair(peer.incarnation(), peer.node_id());
    if (!ours_to_ask || now < contact.next || due.has_value()) continue;
    // While the last comparison's differences are still being sent, another comparison would only
    // find them again.
    const bool wait =
        now < contact.next + base::Scaled(options_.interval) && !replicator_.IsIdle(peer.node_id());
    if (!wait) due = peer;
  }
  return due;
}

void AntiEntropy::Schedule(const v1::Endpoint& peer, const absl::StatusOr<bool>& equal) {
  if (!equal.ok()) {
    spdlog::warn("op=compare peer={} {}", peer.node_id(), base::View(equal.status().message()));
  }
  const base::MutexLock lock(mutex_);
  if (!equal.ok()) ++stats_.failures;
  const auto found = contacts_.find(peer.node_id());
  if (found == contacts_.end()) return;
  Contact& contact = found->second;
  const base::Duration interval = base::Scaled(options_.interval);
  if (!equal.ok()) contact.pause = std::min(2 * contact.pause, interval);
  const bool same = equal.ok() && *equal;
  contact.next = clock_.Now() + (same ? interval : contact.pause);
  if (same) contact.pause = base::Scaled(options_.first_pause) / 2;
}

}  // namespace onepiece::database
