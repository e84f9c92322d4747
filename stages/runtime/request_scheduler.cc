#include "stages/runtime/request_scheduler.h"

#include <utility>

#include "cluster/base/status.h"

namespace onepiece::runtime {
namespace {

// Adds `key` to a set that forgets its oldest members beyond `limit`. False when it was there.
template <typename Key>
bool Remember(std::set<Key>& set, std::deque<Key>& order, const Key& key, std::size_t limit) {
  if (!set.insert(key).second) return false;
  order.push_back(key);
  if (order.size() > limit) {
    set.erase(order.front());
    order.pop_front();
  }
  return true;
}

}  // namespace

void IndividualMode::Push(WorkItem item) {
  const std::int64_t rank = -static_cast<std::int64_t>(item.message.header.priority);
  queue_.emplace(Key(rank, next_number_++), std::move(item));
}

std::optional<WorkItem> IndividualMode::Pop() {
  if (queue_.empty()) return std::nullopt;
  auto node = queue_.extract(queue_.begin());
  return std::move(node.mapped());
}

std::size_t IndividualMode::Remove(const base::Uid& uid) {
  return std::erase_if(queue_,
                       [&](const auto& entry) { return entry.second.message.header.uid == uid; });
}

std::size_t IndividualMode::bytes() const {
  std::size_t sum = 0;
  for (const auto& [key, item] : queue_) sum += BytesOf(item);
  return sum;
}

RequestScheduler::RequestScheduler(Options options, std::unique_ptr<SchedulingStrategy> strategy,
                                   base::Clock& clock)
    : options_(options), clock_(clock), strategy_(std::move(strategy)), joins_(options.joins) {}

bool RequestScheduler::WaitForRoom(const std::stop_token& stop, base::MonotonicTime deadline) {
  std::unique_lock lock(mutex_);
  return clock_.WaitUntil(changed_, lock, stop, deadline, [this] {
    return strategy_->size() == 0 || (strategy_->size() < options_.max_queued &&
                                      strategy_->bytes() < options_.max_queued_bytes);
  });
}

absl::StatusOr<RequestScheduler::Admission> RequestScheduler::Push(
    WorkItem item, std::span<const std::string> predecessors) {
  const auto& header = item.message.header;
  const std::lock_guard lock(mutex_);
  if (cancelled_.contains(header.uid)) return Admission::kCancelled;
  if (!Remember(seen_, seen_order_, ItemKey(header.uid, header.stage, header.from, header.attempt),
                options_.remembered)) {
    ++duplicates_;
    return Admission::kDuplicate;
  }
  if (closed_) return Admission::kClosed;
  if (predecessors.size() > 1) {
    ONEPIECE_ASSIGN_OR_RETURN(auto joined, joins_.Add(std::move(item), predecessors));
    if (!joined.has_value()) return Admission::kHeld;
    item = *std::move(joined);
  }
  strategy_->Push(std::move(item));
  changed_.notify_all();
  return Admission::kQueued;
}

std::optional<WorkItem> RequestScheduler::Pop(const std::stop_token& stop,
                                              base::MonotonicTime deadline) {
  std::unique_lock lock(mutex_);
  if (!clock_.WaitUntil(changed_, lock, stop, deadline, [this] { return strategy_->size() > 0; })) {
    return std::nullopt;
  }
  auto item = strategy_->Pop();
  changed_.notify_all();
  return item;
}

std::vector<JoinTable::Lost> RequestScheduler::ExpireJoins() {
  const std::lock_guard lock(mutex_);
  return joins_.Expire(clock_.WallNow());
}

std::vector<WorkItem> RequestScheduler::TakeJoins(
    const std::function<bool(const message::Header&)>& wanted) {
  const std::lock_guard lock(mutex_);
  return joins_.Take(wanted);
}

std::vector<WorkItem> RequestScheduler::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  std::vector<WorkItem> left;
  while (auto item = strategy_->Pop()) left.push_back(*std::move(item));
  changed_.notify_all();
  return left;
}

void RequestScheduler::Cancel(const base::Uid& uid) {
  const std::lock_guard lock(mutex_);
  Remember(cancelled_, cancelled_order_, uid, options_.remembered);
  strategy_->Remove(uid);
  joins_.Remove(uid);
  changed_.notify_all();
}

bool RequestScheduler::IsCancelled(const base::Uid& uid) const {
  const std::lock_guard lock(mutex_);
  return closed_ || cancelled_.contains(uid);
}

bool RequestScheduler::HandsOver(const base::Uid& uid) const {
  const std::lock_guard lock(mutex_);
  return closed_ && !cancelled_.contains(uid);
}

std::size_t RequestScheduler::queued() const {
  const std::lock_guard lock(mutex_);
  return strategy_->size();
}

std::size_t RequestScheduler::joins() const {
  const std::lock_guard lock(mutex_);
  return joins_.joins();
}

std::uint64_t RequestScheduler::duplicates() const {
  const std::lock_guard lock(mutex_);
  return duplicates_ + joins_.duplicates();
}

}  // namespace onepiece::runtime
