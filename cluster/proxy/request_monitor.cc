#include "cluster/proxy/request_monitor.h"

#include <algorithm>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::proxy {
namespace {

constexpr char kRetryAfter[] = "1000";

}  // namespace

RequestMonitor::RequestMonitor(int max_jobs_in_flight, base::Clock& clock)
    : max_jobs_(static_cast<std::size_t>(std::max(1, max_jobs_in_flight))), clock_(clock) {}

absl::Status RequestMonitor::Admit(const base::Uid& uid, base::WallTime deadline) {
  const std::lock_guard lock(mutex_);
  if (jobs_.contains(uid)) return absl::OkStatus();
  if (jobs_.size() >= max_jobs_) ForgetOverdue();
  if (jobs_.size() >= max_jobs_) {
    return base::MakeError(
        absl::StatusCode::kResourceExhausted, "QUOTA",
        "this proxy has " + std::to_string(max_jobs_) + " jobs in flight, its limit",
        {{"limit", std::to_string(max_jobs_)}, {"retry_after_ms", kRetryAfter}});
  }
  const std::uint64_t turn = next_turn_++;
  jobs_.emplace(uid, Job{deadline, turn});
  turns_.emplace(turn, uid);
  return absl::OkStatus();
}

void RequestMonitor::End(const base::Uid& uid) {
  const std::lock_guard lock(mutex_);
  if (const auto job = jobs_.find(uid); job != jobs_.end()) Remove(job);
}

std::vector<base::Uid> RequestMonitor::NextToCheck(std::size_t count) {
  const std::lock_guard lock(mutex_);
  ForgetOverdue();
  std::vector<base::Uid> uids;
  for (count = std::min(count, jobs_.size()); count > 0; --count) {
    const base::Uid uid = turns_.begin()->second;
    turns_.erase(turns_.begin());
    jobs_.at(uid).turn = next_turn_;
    turns_.emplace(next_turn_++, uid);
    uids.push_back(uid);
  }
  return uids;
}

int RequestMonitor::in_flight() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(jobs_.size());
}

void RequestMonitor::ForgetOverdue() {
  const base::WallTime now = clock_.WallNow();
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto next = std::next(job);
    if (job->second.deadline <= now) Remove(job);
    job = next;
  }
}

void RequestMonitor::Remove(std::map<base::Uid, Job>::iterator job) {
  turns_.erase(job->second.turn);
  jobs_.erase(job);
}

}  // namespace onepiece::proxy
