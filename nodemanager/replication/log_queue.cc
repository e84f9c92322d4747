#include "nodemanager/replication/log_queue.h"

#include <utility>

#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kMaxQueuedMessages = 16384, kMaxQueuedRequests = 4096;

}  // namespace

void LogQueue::Open() {
  const base::MutexLock lock(mutex_);
  // The driver's thread may open the queue after Stop() has closed it. A request that came in after
  // that thread's last look would get no answer.
  open_ = !ended_;
}

void LogQueue::Close() {
  const base::MutexLock lock(mutex_);
  open_ = false;
  ended_ = true;
}

bool LogQueue::IsEmpty() const {
  return !inputs_.woken && inputs_.messages.empty() && inputs_.requests.empty() &&
         inputs_.group == GroupId{};
}

// The thread that takes is notified of the first input only, because it takes all that is there,
// and after the lock is released, so that it need not wait for that.
void LogQueue::PushMessage(paxos::Message message) {
  bool first = false;
  {
    const base::MutexLock lock(mutex_);
    if (!open_ || inputs_.messages.size() >= kMaxQueuedMessages) return;
    first = IsEmpty();
    inputs_.messages.push_back(std::move(message));
  }
  if (first) pushed_.NotifyOne();
}

void LogQueue::PushInvitation(const std::string& cluster_id, GroupId group) {
  {
    const base::MutexLock lock(mutex_);
    inputs_.cluster_id = cluster_id;
    inputs_.group = group;
  }
  pushed_.NotifyOne();
}

absl::Status LogQueue::PushRequest(std::shared_ptr<LogRequest> request) {
  bool first = false;
  {
    const base::MutexLock lock(mutex_);
    ONEPIECE_RETURN_IF_ERROR(CheckRoom());
    first = IsEmpty();
    inputs_.requests.push_back(std::move(request));
  }
  if (first) pushed_.NotifyOne();
  return absl::OkStatus();
}

absl::Status LogQueue::CheckRoom() const {
  if (!open_) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                           "this NodeManager is starting or ending");
  }
  if (inputs_.requests.size() >= kMaxQueuedRequests) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                           "too many commands are waiting");
  }
  return absl::OkStatus();
}

void LogQueue::Wake() {
  {
    const base::MutexLock lock(mutex_);
    inputs_.woken = true;
  }
  pushed_.NotifyOne();
}

LogInputs LogQueue::Take() {
  const base::MutexLock lock(mutex_);
  return std::exchange(inputs_, {});
}

LogInputs LogQueue::WaitAndTake(const std::stop_token& stop, base::Duration limit) {
  base::MutexLock lock(mutex_);
  pushed_.WaitFor(lock, stop, limit,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !IsEmpty(); });
  return std::exchange(inputs_, {});
}

}  // namespace onepiece::nodemanager
