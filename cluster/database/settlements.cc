#include "cluster/database/settlements.h"

#include <algorithm>

#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

/// A thread that means to look every second looks at least so often, unless its process is stopped.
constexpr base::Duration kStopped = std::chrono::milliseconds(1500);

}  // namespace

bool Agrees(const v1::JobRecord& ours, const v1::JobRecord& theirs, bool bytes_needed) {
  if (!job::SameEnd(ours, theirs)) return false;
  return !bytes_needed || theirs.has_bytes() || job::EndOf(theirs) != v1::Job::SUCCEEDED;
}

bool IsAnswered(const v1::JobRecord& ours, const v1::JobRecord& theirs) {
  return job::EndOf(ours) != v1::Job::STATE_UNSPECIFIED && !job::IsTerminal(theirs.job().state());
}

void Settlements::Begin(const base::Uid& uid, std::set<std::string> keepers,
                        base::MonotonicTime now) {
  const base::MonotonicTime until = keepers.empty() ? now : now + patience_;
  if (keepers.empty()) {
    due_.emplace_front(until, uid);
  } else {
    due_.emplace_back(until, uid);
  }
  waiting_[uid] = {.keepers = std::move(keepers), .since = now, .until = until};
}

bool Settlements::WaitsFor(const std::string& keeper, const base::Uid& uid) const {
  const auto found = waiting_.find(uid);
  return found != waiting_.end() && found->second.keepers.contains(keeper);
}

bool Settlements::Resolve(const std::string& keeper, const base::Uid& uid) {
  const auto found = waiting_.find(uid);
  if (found == waiting_.end() || found->second.keepers.erase(keeper) == 0) return false;
  if (!found->second.keepers.empty()) return false;
  waiting_.erase(found);
  return true;
}

std::vector<Settlements::Overdue> Settlements::TakeOverdue(base::MonotonicTime now,
                                                           const IsSending& is_sending) {
  if (last_look_.has_value() && now - *last_look_ > base::Scaled(kStopped)) {
    due_.clear();
    for (auto& [uid, waiting] : waiting_) {
      if (!waiting.keepers.empty()) waiting.until = std::max(waiting.until, now + patience_);
      due_.emplace_back(waiting.until, uid);
    }
    std::ranges::sort(due_, {}, &std::pair<base::MonotonicTime, base::Uid>::first);
  }
  last_look_ = now;
  std::vector<Overdue> overdue;
  while (!due_.empty() && due_.front().first <= now) {
    const auto [until, uid] = due_.front();
    due_.pop_front();
    const auto found = waiting_.find(uid);
    if (found == waiting_.end() || found->second.until != until) continue;
    if (MayWaitLonger(uid, now, is_sending, found->second)) {
      due_.emplace_back(found->second.until, uid);
      continue;
    }
    overdue.push_back({uid, std::move(found->second.keepers)});
    waiting_.erase(found);
  }
  return overdue;
}

// A large copy over a slow network takes longer than a keeper may take to agree. The copy has
// `patience` more once it is sent.
bool Settlements::MayWaitLonger(const base::Uid& uid, base::MonotonicTime now,
                                const IsSending& is_sending, Waiting& waiting) const {
  const bool sending = std::ranges::any_of(
      waiting.keepers, [&](const std::string& keeper) { return is_sending(keeper, uid); });
  const bool was_sending = std::exchange(waiting.sending, sending);
  waiting.until = now + patience_;
  return (sending || was_sending) && waiting.until <= waiting.since + limit_;
}

std::optional<base::MonotonicTime> Settlements::next_due() const {
  return due_.empty() ? std::nullopt : std::optional(due_.front().first);
}

}  // namespace onepiece::database
