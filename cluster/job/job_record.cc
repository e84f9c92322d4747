#include "cluster/job/job_record.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace onepiece::job {
namespace {

using v1::Job;
using v1::JobRecord;

// What creation fixed; everything else is cleared.
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
  origin.clear_attempt();
  origin.clear_deleted();
  origin.clear_has_bytes();
  return origin;
}

JobRecord JoinOrigins(const JobRecord& a, const JobRecord& b) {
  JobRecord origin_a = Origin(a);
  JobRecord origin_b = Origin(b);
  const auto key = [](const JobRecord& origin) {
    return std::tuple(origin.fingerprint().empty(), FromTimestamp(origin.job().create_time()),
                      CanonicalBytes(origin));
  };
  return key(origin_b) < key(origin_a) ? std::move(origin_b) : std::move(origin_a);
}

auto PositionKey(const JobRecord& record) {
  const Job& job = record.job();
  return std::tuple(record.attempt(), job.stage_index(), job.step(), job.steps(), job.stage());
}

// The larger attempt of each (stage, from), in that order.
void JoinHolders(const JobRecord& a, const JobRecord& b, JobRecord& joined) {
  std::map<std::pair<std::string, std::string>, const v1::WorkHolder*> holders;
  const auto key = [](const v1::WorkHolder& holder) {
    return std::pair(holder.attempt(), CanonicalBytes(holder));
  };
  for (const JobRecord* record : {&a, &b}) {
    for (const v1::WorkHolder& holder : record->holders()) {
      const v1::WorkHolder*& slot = holders[{holder.stage(), holder.from()}];
      if (slot == nullptr || key(*slot) < key(holder)) slot = &holder;
    }
  }
  for (const auto& [edge, holder] : holders) *joined.add_holders() = *holder;
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

// How a job ended, without `fetched`, which is joined by itself.
Job Ending(const JobRecord& record) {
  Job ending;
  ending.set_state(record.job().state());
  *ending.mutable_end_time() = record.job().end_time();
  if (record.job().has_error()) *ending.mutable_error() = record.job().error();
  *ending.mutable_result()->mutable_artifacts() = record.job().result().artifacts();
  return ending;
}

Job JoinEndings(const JobRecord& a, const JobRecord& b) {
  const bool a_ended = IsTerminal(a.job().state());
  const bool b_ended = IsTerminal(b.job().state());
  if (!a_ended && !b_ended) {
    Job running;
    running.set_state(std::max(a.job().state(), b.job().state()));
    return running;
  }
  if (a_ended != b_ended) return Ending(a_ended ? a : b);
  Job ending_a = Ending(a);
  Job ending_b = Ending(b);
  const auto key = [](const Job& ending) {
    return std::tuple(FromTimestamp(ending.end_time()), EndRank(ending.state()),
                      CanonicalBytes(ending));
  };
  return key(ending_b) < key(ending_a) ? std::move(ending_b) : std::move(ending_a);
}

void JoinTimings(const Job& a, const Job& b, Job& joined) {
  std::map<std::pair<std::string, std::string>, const v1::StageTiming*> timings;
  for (const Job* job : {&a, &b}) {
    for (const v1::StageTiming& timing : job->timings()) {
      const v1::StageTiming*& slot = timings[{timing.stage(), timing.node()}];
      if (slot == nullptr || CanonicalBytes(*slot) < CanonicalBytes(timing)) slot = &timing;
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
  return record.deleted() || record.job().result().fetched() ||
         record.job().state() == Job::EXPIRED;
}

JobRecord Join(const JobRecord& a, const JobRecord& b) {
  JobRecord joined = JoinOrigins(a, b);
  Job& job = *joined.mutable_job();

  const JobRecord& position = PositionKey(a) < PositionKey(b) ? b : a;
  joined.set_attempt(position.attempt());
  job.set_stage(position.job().stage());
  job.set_stage_index(position.job().stage_index());
  job.set_step(position.job().step());
  job.set_steps(position.job().steps());

  JoinHolders(a, b, joined);

  Job ending = JoinEndings(a, b);
  job.set_state(ending.state());
  if (IsTerminal(ending.state())) {
    *job.mutable_end_time() = ending.end_time();
    *job.mutable_expire_time() =
        ToTimestamp(FromTimestamp(ending.end_time()) + std::chrono::seconds(joined.result_ttl_s()));
    if (ending.has_error()) *job.mutable_error() = std::move(*ending.mutable_error());
    if (ending.result().artifacts_size() > 0) {
      *job.mutable_result()->mutable_artifacts() = ending.result().artifacts();
    }
  }
  if (a.job().result().fetched() || b.job().result().fetched()) {
    job.mutable_result()->set_fetched(true);
  }
  joined.set_deleted(a.deleted() || b.deleted());
  JoinTimings(a.job(), b.job(), job);
  return joined;
}

void Place(const v1::WorkHolder& holder, int step, int steps, JobRecord& record) {
  JobRecord moved = record;
  const auto same = [&](const v1::WorkHolder& known) {
    return known.stage() == holder.stage() && known.from() == holder.from();
  };
  if (std::ranges::none_of(record.holders(), same) && record.holders_size() >= kMaxHolders) return;
  moved.clear_holders();
  *moved.add_holders() = holder;
  Job& job = *moved.mutable_job();
  moved.set_attempt(holder.attempt());
  job.set_stage(holder.stage());
  job.set_stage_index(holder.stage_index());
  job.set_step(step);
  job.set_steps(steps);
  record = Join(record, moved);
}

std::vector<const v1::WorkHolder*> LiveHolders(const JobRecord& record) {
  std::vector<const v1::WorkHolder*> holders;
  for (const v1::WorkHolder& holder : record.holders()) holders.push_back(&holder);
  // Edges lead to later stages, so what a stage is given is known before what it gives.
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
    if (holder->from() == holder->stage()) return false;  // A database: nobody comes after it.
    const auto found = handed_on.find(holder->stage());
    return found != handed_on.end() && found->second >= std::max(1, holder->successors());
  });
  return holders;
}

Job::State PublicState(const JobRecord& record) {
  const Job& job = record.job();
  return job.state() == Job::EXPIRED && job.result().fetched() ? Job::SUCCEEDED : job.state();
}

Job PublicJob(const JobRecord& record) {
  Job job = record.job();
  job.set_state(PublicState(record));
  if (job.state() != Job::SUCCEEDED) job.clear_result();
  return job;
}

std::string CanonicalBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

google::protobuf::Timestamp ToTimestamp(base::WallTime time) {
  const auto ns = time.time_since_epoch().count();
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(ns / 1'000'000'000);
  timestamp.set_nanos(static_cast<std::int32_t>(ns % 1'000'000'000));
  return timestamp;
}

base::WallTime FromTimestamp(const google::protobuf::Timestamp& timestamp) {
  return base::WallTime(std::chrono::seconds(timestamp.seconds()) +
                        std::chrono::nanoseconds(timestamp.nanos()));
}

}  // namespace onepiece::job
