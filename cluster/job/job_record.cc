#include "cluster/job/job_record.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster/base/canonical_bytes.h"
#include "cluster/identity/subject.h"

namespace onepiece::job {
namespace {

using v1::Job;
using v1::JobRecord;

// Returns the part of a record that its creation fixed, with everything else cleared.
JobRecord Origin(const JobRecord& record) {
  JobRecord origin = record;
  Job& job = *origin.mutable_job();
  job.clear_state();
  job.clear_stage();
  job.clear_stage_index();
  job.clear_step();
  job.clear_steps();
  job.clear_error();
  job.clear_end_time();
  job.clear_expire_time();
  job.clear_result();
  job.clear_timings();
  origin.clear_holders();
  origin.clear_run();
  origin.clear_proposed();
  origin.clear_lease();
  origin.clear_attempt();
  origin.clear_deleted();
  origin.clear_has_bytes();
  origin.clear_time_left();
  origin.clear_stamp();
  return origin;
}

// Clears what a deleted job does not keep.
void Shed(JobRecord& record) {
  record.clear_holders();
  record.clear_lease();
  Job& job = *record.mutable_job();
  job.clear_parameters();
  job.clear_inputs();
  job.clear_labels();
  job.clear_timings();
}

// The key orders all origins, down to their bytes: whichever record is `a`, every database picks
// the same one. What a deleted job keeps comes before the rest of it, so that the order is the same
// before and after the deletion. A record that a database made up from a result has no fingerprint,
// and so comes last.
JobRecord JoinOrigins(const JobRecord& a, const JobRecord& b) {
  JobRecord origin_a = Origin(a);
  JobRecord origin_b = Origin(b);
  std::string bytes_a = base::CanonicalBytes(origin_a);
  std::string bytes_b = base::CanonicalBytes(origin_b);
  if (bytes_a == bytes_b) return origin_a;
  const auto key = [](const JobRecord& origin, std::string bytes) {
    JobRecord kept = origin;
    Shed(kept);
    return std::tuple(origin.fingerprint().empty(), FromTimestamp(origin.job().create_time()),
                      base::CanonicalBytes(kept), std::move(bytes));
  };
  return key(origin_b, std::move(bytes_b)) < key(origin_a, std::move(bytes_a)) ? origin_b
                                                                               : origin_a;
}

// Holds the place of a node in a job's work; whatever else a holder has is joined.
auto HolderKey(const v1::WorkHolder& holder) {
  return std::tuple(holder.attempt(), holder.incarnation(), std::string_view(holder.node_id()));
}

// Joins two holders of one edge and run: the larger attempt wins, and what was told of one and the
// same holder is united.
v1::WorkHolder JoinHolder(const v1::WorkHolder& a, const v1::WorkHolder& b) {
  if (HolderKey(a) != HolderKey(b)) return HolderKey(a) < HolderKey(b) ? b : a;
  v1::WorkHolder joined = a;
  joined.set_stage_index(std::max(a.stage_index(), b.stage_index()));
  joined.set_successors(std::max(a.successors(), b.successors()));
  joined.set_routing_epoch(std::max(a.routing_epoch(), b.routing_epoch()));
  joined.set_begun(a.begun() || b.begun());
  const auto keeper = [](const v1::WorkHolder& holder) {
    return std::pair(holder.keeper_incarnation(), std::string_view(holder.keeper()));
  };
  if (keeper(a) < keeper(b)) {
    joined.set_keeper(b.keeper());
    joined.set_keeper_incarnation(b.keeper_incarnation());
  }
  return joined;
}

bool IsSameHolder(const v1::WorkHolder& a, const v1::WorkHolder& b) {
  return base::CanonicalBytes(a) == base::CanonicalBytes(b);
}

auto PositionKey(const JobRecord& record) {
  const Job& job = record.job();
  return std::tuple(record.run(), record.attempt(), job.stage_index(), job.step(), job.steps(),
                    job.stage());
}

// A record has one holder for each EdgeOf() and one timing for each PlaceOf(), sorted by it.
std::pair<std::string_view, std::string_view> EdgeOf(const v1::WorkHolder& holder) {
  return {holder.stage(), holder.from()};
}
std::pair<std::string_view, std::string_view> PlaceOf(const v1::StageTiming& timing) {
  return {timing.stage(), timing.node()};
}

template <typename Item>
void Insert(const Item& item, int at, google::protobuf::RepeatedPtrField<Item>& items) {
  *items.Add() = item;
  for (int i = items.size() - 1; i > at; --i) items.SwapElements(i, i - 1);
}

void SetExpiry(JobRecord& record) {
  *record.mutable_job()->mutable_expire_time() = ToTimestamp(
      FromTimestamp(record.job().end_time()) + std::chrono::seconds(record.result_ttl_s()));
}

// Joins the holders of each (stage, from), sorted by these. Those of an older run do not count.
void JoinHolders(const JobRecord& a, const JobRecord& b, JobRecord& joined) {
  std::map<std::pair<std::string, std::string>, v1::WorkHolder> holders;
  for (const JobRecord* record : {&a, &b}) {
    if (record->run() < joined.run()) continue;
    for (const v1::WorkHolder& holder : record->holders()) {
      const auto [slot, is_new] = holders.try_emplace({holder.stage(), holder.from()}, holder);
      if (!is_new) slot->second = JoinHolder(slot->second, holder);
    }
  }
  for (auto& [edge, holder] : holders) *joined.add_holders() = std::move(holder);
}

void JoinLeases(const JobRecord& a, const JobRecord& b, JobRecord& joined) {
  const auto key = [](const JobRecord& record) {
    const v1::StartLease& lease = record.lease();
    return std::tuple(lease.number(), lease.incarnation(), std::string_view(lease.claimant()));
  };
  const JobRecord& newer = key(a) < key(b) ? b : a;
  if (newer.lease().number() == 0) return;  // Nobody has claimed it.
  *joined.mutable_lease() = newer.lease();
  joined.mutable_lease()->clear_time_left();
}

int EndRank(Job::State state) {
  switch (state) {
    case Job::EXPIRED:
      return 0;
    case Job::SUCCEEDED:
      return 1;
    case Job::CANCELLED:
      return 2;
    default:
      return 3;
  }
}

bool HasEnded(const JobRecord& record) { return IsTerminal(record.job().state()); }

// Returns how a job ended or is about to end, without `fetched` and `evicted`, which are joined on
// their own.
std::optional<v1::JobEnd> EndingOf(const JobRecord& record) {
  v1::JobEnd end;
  if (!HasEnded(record)) {
    if (!IsTerminal(record.proposed().state())) return std::nullopt;
    end = record.proposed();
    (void)end.mutable_end_time();
    return end;
  }
  end.set_state(record.job().state());
  *end.mutable_end_time() = record.job().end_time();
  if (record.job().has_error()) *end.mutable_error() = record.job().error();
  *end.mutable_artifacts() = record.job().result().artifacts();
  return end;
}

void SetEnding(v1::JobEnd end, JobRecord& record) {
  Job& job = *record.mutable_job();
  job.set_state(end.state());
  *job.mutable_end_time() = end.end_time();
  SetExpiry(record);
  if (end.has_error()) *job.mutable_error() = std::move(*end.mutable_error());
  if (end.artifacts_size() > 0)
    *job.mutable_result()->mutable_artifacts() = std::move(*end.mutable_artifacts());
}

// Orders ends, the winner first. No time decides between different ones.
auto EndKey(v1::JobEnd end) {
  const google::protobuf::Timestamp time = end.end_time();
  end.clear_end_time();
  return std::tuple(EndRank(end.state()), base::CanonicalBytes(end), FromTimestamp(time));
}

v1::JobEnd JoinEnds(std::optional<v1::JobEnd> a, std::optional<v1::JobEnd> b) {
  if (!a.has_value() || !b.has_value()) return std::move(a.has_value() ? *a : *b);
  return EndKey(*b) < EndKey(*a) ? *std::move(b) : *std::move(a);
}

void JoinEndings(const JobRecord& a, const JobRecord& b, JobRecord& joined) {
  if (HasEnded(a) || HasEnded(b)) {
    return SetEnding(JoinEnds(HasEnded(a) ? EndingOf(a) : std::nullopt,
                              HasEnded(b) ? EndingOf(b) : std::nullopt),
                     joined);
  }
  joined.mutable_job()->set_state(std::max(a.job().state(), b.job().state()));
  const std::optional<v1::JobEnd> end_a = EndingOf(a), end_b = EndingOf(b);
  if (end_a.has_value() || end_b.has_value()) *joined.mutable_proposed() = JoinEnds(end_a, end_b);
}

void JoinTimings(const Job& a, const Job& b, Job& joined) {
  std::map<std::pair<std::string, std::string>, const v1::StageTiming*> timings;
  for (const Job* job : {&a, &b}) {
    for (const v1::StageTiming& timing : job->timings()) {
      const v1::StageTiming*& slot = timings[{timing.stage(), timing.node()}];
      if (slot == nullptr || base::CanonicalBytes(*slot) < base::CanonicalBytes(timing))
        slot = &timing;
    }
  }
  for (const auto& [key, timing] : timings) *joined.add_timings() = *timing;
}

}  // namespace

bool IsTerminal(Job::State state) {
  return state == Job::SUCCEEDED || state == Job::FAILED || state == Job::CANCELLED ||
         state == Job::EXPIRED;
}

bool IsTombstone(const JobRecord& record) {
  return record.deleted() || record.job().result().fetched() || record.job().result().evicted() ||
         record.job().state() == Job::EXPIRED;
}

JobRecord Join(const JobRecord& a, const JobRecord& b) {
  JobRecord joined = JoinOrigins(a, b);
  Job& job = *joined.mutable_job();

  const JobRecord& position = PositionKey(a) < PositionKey(b) ? b : a;
  joined.set_run(position.run());
  joined.set_attempt(position.attempt());
  job.set_stage(position.job().stage());
  job.set_stage_index(position.job().stage_index());
  job.set_step(position.job().step());
  job.set_steps(position.job().steps());

  JoinHolders(a, b, joined);
  JoinLeases(a, b, joined);

  JoinEndings(a, b, joined);
  if (a.job().result().fetched() || b.job().result().fetched()) {
    job.mutable_result()->set_fetched(true);
  }
  if (a.job().result().evicted() || b.job().result().evicted()) {
    job.mutable_result()->set_evicted(true);
  }
  joined.set_deleted(a.deleted() || b.deleted());
  JoinTimings(a.job(), b.job(), job);
  if (joined.deleted()) Shed(joined);
  return joined;
}

void Normalize(JobRecord& record) {
  const auto sorted = [](const auto& items, const auto& key) {
    return std::ranges::adjacent_find(items, [&](const auto& a, const auto& b) {
             return key(a) >= key(b);
           }) == items.end();
  };
  if (!sorted(record.holders(), EdgeOf) || !sorted(record.job().timings(), PlaceOf)) {
    record = Join(record, record);
    return;
  }
  record.clear_has_bytes();
  record.clear_time_left();
  record.clear_stamp();
  if (record.lease().number() == 0) {
    record.clear_lease();
  } else {
    record.mutable_lease()->clear_time_left();
  }
  Job& job = *record.mutable_job();
  const bool fetched = job.result().fetched(), evicted = job.result().evicted();
  if (IsTerminal(job.state())) {
    (void)job.mutable_end_time();  // Joining leaves the epoch where the end time is not known.
    SetExpiry(record);
    record.clear_proposed();
    if (job.result().artifacts().empty()) job.clear_result();
  } else {
    if (!IsTerminal(record.proposed().state())) record.clear_proposed();
    job.clear_error();
    job.clear_end_time();
    job.clear_expire_time();
    job.clear_result();
  }
  if (fetched) job.mutable_result()->set_fetched(true);
  if (evicted) job.mutable_result()->set_evicted(true);
  if (record.deleted()) Shed(record);
}

bool Place(const v1::WorkHolder& holder, int step, int steps, JobRecord& record) {
  if (holder.run() < record.run()) return false;
  bool news = holder.run() > record.run();
  NoteRun(holder.run(), record);
  auto& holders = *record.mutable_holders();
  const auto at = std::ranges::lower_bound(holders, EdgeOf(holder), {}, EdgeOf);
  if (at != holders.end() && EdgeOf(*at) == EdgeOf(holder)) {
    v1::WorkHolder joined = JoinHolder(*at, holder);
    if (!IsSameHolder(*at, joined)) {
      *at = std::move(joined);
      news = true;
    }
  } else if (!record.deleted()) {
    if (holders.size() >= kMaxHolders) return news;
    Insert(holder, static_cast<int>(at - holders.begin()), holders);
    news = true;
  }
  Job& job = *record.mutable_job();
  const std::tuple position(holder.run(), holder.attempt(), holder.stage_index(), step, steps,
                            holder.stage());
  if (!(PositionKey(record) < position)) return news;
  record.set_attempt(holder.attempt());
  job.set_stage(holder.stage());
  job.set_stage_index(holder.stage_index());
  job.set_step(step);
  job.set_steps(steps);
  return true;
}

bool IsFenced(const v1::WorkHolder& holder, const JobRecord& record) {
  if (holder.run() != record.run()) return holder.run() < record.run();
  const auto& holders = record.holders();
  const auto at = std::ranges::lower_bound(holders, EdgeOf(holder), {}, EdgeOf);
  return at != holders.end() && EdgeOf(*at) == EdgeOf(holder) && at->attempt() > holder.attempt();
}

bool AddTiming(const v1::StageTiming& timing, JobRecord& record) {
  if (record.deleted()) return false;
  auto& timings = *record.mutable_job()->mutable_timings();
  const auto at = std::ranges::lower_bound(timings, PlaceOf(timing), {}, PlaceOf);
  if (at != timings.end() && PlaceOf(*at) == PlaceOf(timing)) {
    if (base::CanonicalBytes(*at) >= base::CanonicalBytes(timing)) return false;
    *at = timing;
    return true;
  }
  if (timings.size() >= kMaxTimings) return false;
  Insert(timing, static_cast<int>(at - timings.begin()), timings);
  return true;
}

std::uint64_t NextRun(const JobRecord& record, std::uint32_t random) {
  const std::uint64_t newest = std::max(record.run(), record.lease().number());
  return (std::uint64_t{RunSequence(newest)} + 1) << kRunRandomBits | random;
}

// A larger run replaces what an older one has done.
void NoteRun(std::uint64_t run, JobRecord& record) {
  if (run <= record.run()) return;
  record.set_run(run);
  record.clear_holders();
  record.clear_attempt();
  Job& job = *record.mutable_job();
  job.clear_stage();
  job.clear_stage_index();
  job.clear_step();
  job.clear_steps();
}

std::uint64_t RunToStart(const JobRecord& record) {
  return record.holders().empty() ? record.lease().number() : record.run();
}

void SetTimeLimit(base::Duration limit, base::WallTime now, JobRecord& record) {
  *record.mutable_job()->mutable_deadline() = ToTimestamp(now + limit);
  *record.mutable_time_left() = ToProto(limit);
}

void SetEnd(Job::State state, base::WallTime now, JobRecord& record) {
  record.clear_proposed();
  record.mutable_job()->set_state(state);
  *record.mutable_job()->mutable_end_time() = ToTimestamp(now);
  SetExpiry(record);
}

void SettleEnd(JobRecord& record) {
  if (!record.has_proposed()) return;
  v1::JobEnd end = std::move(*record.mutable_proposed());
  record.clear_proposed();
  if (!HasEnded(record)) SetEnding(std::move(end), record);
}

Job::State EndOf(const JobRecord& record) {
  if (HasEnded(record)) return record.job().state();
  return record.proposed().state();
}

bool SameEnd(const JobRecord& a, const JobRecord& b) {
  const auto end_a = EndingOf(a), end_b = EndingOf(b);
  return end_a.has_value() && end_b.has_value() &&
         base::CanonicalBytes(*end_a) == base::CanonicalBytes(*end_b);
}

std::vector<const v1::WorkHolder*> LiveHolders(const JobRecord& record) {
  std::vector<const v1::WorkHolder*> holders;
  for (const v1::WorkHolder& holder : record.holders()) holders.push_back(&holder);
  // Edges lead to later stages only. In this order the loop knows what a stage was given before it
  // sees what that stage gave.
  std::ranges::stable_sort(holders, {}, &v1::WorkHolder::stage_index);
  std::map<std::string_view, std::uint32_t> given;  // Stage → attempt of the newest work for it.
  std::map<std::string_view, int> handed_on;        // Stage → stages that have work from it.
  std::erase_if(holders, [&](const v1::WorkHolder* holder) {
    const auto source = given.find(holder->from());
    const std::uint32_t wanted = source == given.end() ? 0 : source->second;
    std::uint32_t& attempt = given[holder->stage()];
    attempt = std::max({attempt, holder->attempt(), wanted});
    if (holder->attempt() < wanted) return true;
    ++handed_on[holder->from()];
    return false;
  });
  std::erase_if(holders, [&](const v1::WorkHolder* holder) {
    if (holder->from() == holder->stage()) return false;  // A database hands on to nobody.
    const auto found = handed_on.find(holder->stage());
    return found != handed_on.end() && found->second >= std::max(1, holder->successors());
  });
  return holders;
}

Job::State PublicState(const JobRecord& record) {
  const Job& job = record.job();
  return job.state() == Job::EXPIRED && job.result().fetched() ? Job::SUCCEEDED : job.state();
}

const std::string& TenantOf(const Job& job) {
  static const std::string older(identity::kDefaultTenant);
  return job.tenant().empty() ? older : job.tenant();
}

Job PublicJob(const JobRecord& record) {
  Job job = record.job();
  job.set_state(PublicState(record));
  if (job.state() != Job::SUCCEEDED) job.clear_result();
  return job;
}

google::protobuf::Timestamp ToTimestamp(base::WallTime time) {
  const auto ns = time.time_since_epoch().count();
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(ns / 1'000'000'000);
  timestamp.set_nanos(static_cast<std::int32_t>(ns % 1'000'000'000));
  return timestamp;
}

base::WallTime FromTimestamp(const google::protobuf::Timestamp& timestamp) {
  // The limit is about the years 1748 to 2191. A peer may send any time, and the sum of its
  // nanoseconds and a TTL must not overflow.
  constexpr std::int64_t kMaxSeconds = 7'000'000'000;
  return base::WallTime(
      std::chrono::seconds(std::clamp(timestamp.seconds(), -kMaxSeconds, kMaxSeconds)) +
      std::chrono::nanoseconds(timestamp.nanos()));
}

google::protobuf::Duration ToProto(base::Duration duration) {
  google::protobuf::Duration proto;
  proto.set_seconds(duration.count() / 1'000'000'000);
  proto.set_nanos(static_cast<std::int32_t>(duration.count() % 1'000'000'000));
  return proto;
}

base::Duration FromProto(const google::protobuf::Duration& duration) {
  constexpr std::int64_t kMaxSeconds = std::int64_t{3650} * 24 * 3600;
  return std::chrono::seconds(std::clamp(duration.seconds(), -kMaxSeconds, kMaxSeconds)) +
         std::chrono::nanoseconds(duration.nanos());
}

void SortTimings(const v1::Workflow* workflow, v1::Job& job) {
  if (workflow == nullptr) return;
  const auto rank = [&](const v1::StageTiming& timing) {
    int index = 0;
    while (index < workflow->stages_size() && workflow->stages(index).stage() != timing.stage())
      ++index;
    return index;
  };
  std::stable_sort(
      job.mutable_timings()->begin(), job.mutable_timings()->end(),
      [&](const v1::StageTiming& a, const v1::StageTiming& b) { return rank(a) < rank(b); });
}

}  // namespace onepiece::job
