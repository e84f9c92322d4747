#include "cluster/session/job_table.h"

#include "cluster/base/mutex.h"
#include "cluster/session/feeds.h"

namespace onepiece::session {
namespace {

std::int64_t CreateNs(const v1::Job& job) {
  return job.create_time().seconds() * 1'000'000'000 + job.create_time().nanos();
}

}  // namespace

std::uint64_t JobTable::Mark() {
  const base::MutexLock lock(mutex_);
  return ++mark_;
}

bool JobTable::Told(const std::string& set, google::protobuf::RepeatedPtrField<v1::Job> jobs) {
  const base::MutexLock lock(mutex_);
  bool known = true;
  for (v1::Job& job : jobs) {
    RowKey key{CreateNs(job), job.uid()};
    const auto before = by_uid_.find(key.uid);
    known = before != by_uid_.end();
    if (known && !(before->second->first < key) && !(key < before->second->first)) {
      Row& row = before->second->second;
      row.told = mark_;
      changed_ |= row.entry.certainty != Certainty::kKnown;
      row.entry.certainty = Certainty::kKnown;
      if (Same(*row.entry.job, job)) continue;
      row.entry.job = std::make_shared<const v1::Job>(std::move(job));
      changed_ = true;
      continue;
    }
    if (known) {  // Its time of creation has changed, and so has its place in the list.
      const auto at = before->second;
      // The keys of by_uid_ are views into rows_, so they go first.
      by_uid_.erase(before);
      rows_.erase(at);
    }
    const auto at = rows_.try_emplace(std::move(key)).first;
    at->second.entry.job = std::make_shared<const v1::Job>(std::move(job));
    at->second.set = set;
    at->second.told = mark_;
    by_uid_.emplace(at->first.uid, at);
    changed_ = true;
  }
  Trim();
  return known;
}

// Removes the oldest jobs that have ended first, then the oldest ones.
void JobTable::Trim() {
  for (const bool ended_only : {true, false}) {
    for (auto at = rows_.end(); rows_.size() > max_jobs_ && at != rows_.begin();) {
      --at;
      if (ended_only && !client::IsTerminal(at->second.entry.job->state())) continue;
      // As in Told(), the view goes before the text that it points into.
      by_uid_.erase(at->first.uid);
      at = rows_.erase(at);
      trimmed_ = true;
    }
  }
}

void JobTable::Gone(std::string_view uid) {
  const base::MutexLock lock(mutex_);
  const auto at = by_uid_.find(uid);
  if (at == by_uid_.end()) return;
  const auto row = at->second;
  by_uid_.erase(at);
  rows_.erase(row);
  changed_ = true;
}

void JobTable::Doubt(const std::string& set) {
  const base::MutexLock lock(mutex_);
  for (auto& [key, row] : rows_) {
    if (row.set == set) row.entry.certainty = Certainty::kReconciling;
  }
  changed_ = true;
}

std::vector<std::string> JobTable::Untold(const std::string& set, std::uint64_t mark,
                                          bool active_only) {
  const base::MutexLock lock(mutex_);
  std::vector<std::string> uids;
  for (const auto& [key, row] : rows_) {
    if (row.told >= mark || row.set != set) continue;
    if (active_only && client::IsTerminal(row.entry.job->state())) continue;
    uids.push_back(key.uid);
  }
  return uids;
}

bool JobTable::IsUntold(std::string_view uid, std::uint64_t mark) {
  const base::MutexLock lock(mutex_);
  const auto at = by_uid_.find(uid);
  return at != by_uid_.end() && at->second->second.told < mark;
}

void JobTable::SetState(const std::string& set, bool complete, const std::string& error) {
  const base::MutexLock lock(mutex_);
  SetNews& news = sets_[set];
  changed_ |= news.complete != complete;
  news.complete = complete;
  news.error = error;
  if (error.empty()) news.as_of_ms = NowMs();
}

void JobTable::Forget(const std::string& set) {
  const base::MutexLock lock(mutex_);
  for (auto at = rows_.begin(); at != rows_.end();) {
    if (at->second.set == set) {
      by_uid_.erase(at->first.uid);
      at = rows_.erase(at);
    } else {
      ++at;
    }
  }
  trimmed_ = false;
  changed_ = true;
}

void JobTable::Publish(Board& board) {
  const base::MutexLock lock(mutex_);
  Part<JobList> part;
  bool complete = true;
  for (const auto& [set, news] : sets_) {
    complete &= news.complete;
    if (news.as_of_ms != 0 && (part.as_of_ms == 0 || news.as_of_ms < part.as_of_ms))
      part.as_of_ms = news.as_of_ms;
    if (news.error.empty()) continue;
    part.error += (part.error.empty() ? "workflow set " : "; ") + set + ": " + news.error;
  }
  if (changed_) {
    auto list = std::make_shared<JobList>();
    list->jobs.reserve(rows_.size());
    for (const auto& [key, row] : rows_) list->jobs.push_back(row.entry);
    list->truncated = trimmed_ || !complete;
    list_ = std::move(list);
    changed_ = false;
  }
  // The value stays null until a set has answered, because an empty list would mean that there are
  // no jobs.
  if (part.as_of_ms != 0) part.value = list_;
  board.PutPart(&Snapshot::jobs, std::move(part));
}

}  // namespace onepiece::session
