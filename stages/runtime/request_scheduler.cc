#include "stages/runtime/request_scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::runtime {
namespace {

// Makes `key`, which was just added to a set or map, its newest member. Forgets the oldest one
// beyond `limit`.
template <typename Container, typename Key>
void ForgetOldest(Container& container, std::deque<Key>& order, const Key& key, std::size_t limit) {
  order.push_back(key);
  if (order.size() <= limit) return;
  container.erase(order.front());
  order.pop_front();
}

}  // namespace

// Returns the virtual time with which an application that comes now starts level.
base::Duration IndividualMode::Least() const {
  base::Duration least{};
  bool first = true;
  for (const auto& [name, app] : apps_) {
    least = first ? app.Expected() : std::min(least, app.Expected());
    first = false;
  }
  return least;
}

void IndividualMode::Forget(const std::string& name) {
  const auto app = apps_.find(name);
  if (app->second.queued > 0 || app->second.running > 0) return;
  // An application that is ahead of the others is kept: it must not get level with them by being
  // away for a moment.
  const base::Duration spent = app->second.spent;
  const bool ahead = std::ranges::any_of(apps_, [&](const auto& other) {
    return other.second.queued + static_cast<std::size_t>(other.second.running) > 0 &&
           other.second.Expected() < spent;
  });
  if (!ahead) apps_.erase(app);
}

void IndividualMode::Push(WorkItem item) {
  const message::Header& header = item.message.header;
  const std::string name = header.app;
  const std::int64_t rank = -static_cast<std::int64_t>(header.priority);
  // Forget kept idle applications that were ahead. The others may have caught up since, and nothing
  // else would remove those entries.
  for (auto app = apps_.begin(); app != apps_.end();) Forget((app++)->first);
  // This comes before the application is added, because a new one would be the least itself.
  const base::Duration least = Least();
  App& app = apps_[name];
  if (app.queued == 0) app.spent += std::max(base::Duration::zero(), least - app.Expected());
  ++app.queued;
  ++size_;
  queue_[rank][name].emplace(next_number_++, std::move(item));
}

std::optional<WorkItem> IndividualMode::Pop() {
  if (queue_.empty()) return std::nullopt;
  auto& fifos = queue_.begin()->second;
  // No fifo is empty here: Pop and Remove erase those that they have emptied.
  const auto key = [this](const auto& entry) {
    return std::pair(apps_.at(entry.first).Expected(), entry.second.begin()->first);
  };
  const auto next = std::ranges::min_element(fifos, {}, key);
  App& app = apps_.at(next->first);
  ++app.running;
  --app.queued;
  --size_;
  auto node = next->second.extract(next->second.begin());
  if (next->second.empty()) fifos.erase(next);
  if (fifos.empty()) queue_.erase(queue_.begin());
  return std::move(node.mapped());
}

void IndividualMode::Done(const std::string& name, std::optional<base::Duration> compute) {
  const auto app = apps_.find(name);
  if (app == apps_.end()) return;
  --app->second.running;
  if (compute) {
    app->second.spent += *compute;
    app->second.computed += *compute;
    ++app->second.jobs;
  }
  Forget(name);
}

std::size_t IndividualMode::Remove(const Which& which) {
  std::size_t removed = 0;
  for (auto& [rank, fifos] : queue_) {
    for (auto& [name, fifo] : fifos) {
      const std::size_t of_app =
          std::erase_if(fifo, [&](const auto& entry) { return which(entry.second); });
      apps_.at(name).queued -= of_app;
      removed += of_app;
    }
    std::erase_if(fifos, [](const auto& entry) { return entry.second.empty(); });
  }
  std::erase_if(queue_, [](const auto& entry) { return entry.second.empty(); });
  size_ -= removed;
  return removed;
}

std::size_t IndividualMode::bytes() const {
  std::size_t sum = 0;
  for (const auto& [rank, fifos] : queue_) {
    for (const auto& [name, fifo] : fifos) {
      for (const auto& [number, item] : fifo) sum += BytesOf(item);
    }
  }
  return sum;
}

RequestScheduler::RequestScheduler(RequestSchedulerOptions options,
                                   std::unique_ptr<SchedulingStrategy> strategy, base::Clock& clock)
    : options_(options), clock_(clock), strategy_(std::move(strategy)), joins_(options.joins) {}

bool RequestScheduler::WaitForRoom(const std::stop_token& stop, base::MonotonicTime deadline) {
  base::MutexLock lock(mutex_);
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return QueueHasRoom() && !joins_.scarce();
  };
  return clock_.WaitUntil(changed_, lock, stop, deadline, has_room);
}

bool RequestScheduler::HasReserve() const {
  const base::MutexLock lock(mutex_);
  return QueueHasRoom() && !joins_.full();
}

bool RequestScheduler::QueueHasRoom() const {
  return strategy_->size() == 0 || (strategy_->size() < options_.max_queued &&
                                    strategy_->bytes() < options_.max_queued_bytes);
}

absl::StatusOr<RequestScheduler::Coming> RequestScheduler::Admit(
    const message::Header& branch, std::span<const std::string> predecessors, std::uint64_t bytes) {
  if (predecessors.size() < 2) return Coming();
  const base::MutexLock lock(mutex_);
  ONEPIECE_ASSIGN_OR_RETURN(const bool waits,
                            joins_.MayCome(branch, predecessors, bytes, *coming_));
  if (!waits) return Coming();
  *coming_ += bytes;
  return Coming(coming_.get(), [coming = coming_, bytes](const void*) { *coming -= bytes; });
}

absl::StatusOr<PushResult> RequestScheduler::Push(WorkItem item,
                                                  std::span<const std::string> predecessors) {
  std::optional<message::Message> large;
  if (item.by_value) large = item.message;  // Shares the bytes.
  absl::StatusOr<PushResult> pushed = PushNew(std::move(item), predecessors);
  if (large.has_value() && pushed.ok() && *pushed == PushResult::kHeld)
    CopyToHeap(*std::move(large));
  return pushed;
}

// Copies without the lock, because a copy of gigabytes takes a second. The memory for values is
// given back without it too, when the caller's copy goes.
void RequestScheduler::CopyToHeap(message::Message branch) {
  for (message::Artifact& artifact : branch.artifacts) {
    const std::size_t bytes = artifact.data.size();
    if (bytes == 0) continue;
    const std::shared_ptr<std::byte[]> memory = message::AllocateAligned(bytes);
    std::ranges::copy(artifact.data.bytes(), memory.get());
    artifact.data = message::Buffer(memory, {memory.get(), bytes});
  }
  const base::MutexLock lock(mutex_);
  joins_.SwapArtifacts(branch);
}

absl::StatusOr<PushResult> RequestScheduler::PushNew(WorkItem item,
                                                     std::span<const std::string> predecessors) {
  const auto& header = item.message.header;
  const base::MutexLock lock(mutex_);
  if (CancelledLocked(header.uid)) return PushResult::kCancelled;
  if (!TakeRun(header)) return PushResult::kFenced;
  if (!Raise(header, header.attempt)) {
    ++duplicates_;
    return PushResult::kDuplicate;
  }
  // Duplicates are dropped even after Close. The caller sends on what is refused as kClosed, and a
  // second copy must not be sent on.
  if (closed_) return PushResult::kClosed;
  return Enqueue(std::move(item), predecessors);
}

bool RequestScheduler::TakeRun(const message::Header& header) {
  if (FencedLocked(header)) {
    ++fenced_;
    return false;
  }
  const auto [known, is_new] = runs_.try_emplace(header.uid, Newest{header.run, header.deadline});
  Newest& newest = known->second;
  if (is_new) {
    ForgetOldest(runs_, runs_order_, header.uid, options_.remembered);
  } else if (newest.run == header.run) {
    newest.until = std::max(newest.until, header.deadline);
  } else {
    // A smaller run is here when its job's request id was used again after the job's deadline.
    newest = {header.run, header.deadline};
    DropSmallerRuns(header.uid);
  }
  return true;
}

void RequestScheduler::FenceRun(const base::Uid& uid, std::uint64_t run) {
  const base::MutexLock lock(mutex_);
  const auto known = runs_.find(uid);
  // Only what was here can be out of date.
  if (known == runs_.end() || run <= known->second.run || clock_.Now() >= known->second.until)
    return;
  known->second.run = run;
  DropSmallerRuns(uid);
}

void RequestScheduler::DropSmallerRuns(const base::Uid& uid) {
  fenced_ += RemoveQueued(uid) + joins_.Remove(uid);
  changed_.NotifyAll();
}

bool RequestScheduler::FencedLocked(const message::Header& header) const {
  const auto newest = runs_.find(header.uid);
  return newest != runs_.end() && header.run < newest->second.run &&
         clock_.Now() < newest->second.until;
}

bool RequestScheduler::IsFenced(const message::Header& header) const {
  const base::MutexLock lock(mutex_);
  return FencedLocked(header);
}

absl::StatusOr<PushResult> RequestScheduler::Enqueue(WorkItem item,
                                                     std::span<const std::string> predecessors) {
  if (predecessors.size() > 1 && item.parts.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(auto joined, joins_.Add(std::move(item), predecessors));
    if (!joined.has_value()) return PushResult::kHeld;
    item = *std::move(joined);
  }
  strategy_->Push(std::move(item));
  changed_.NotifyAll();
  return PushResult::kQueued;
}

bool RequestScheduler::Raise(const message::Header& edge, std::uint32_t attempt) {
  const EdgeKey key = KeyOf(edge);
  const auto [known, is_new] = newest_.try_emplace(key, attempt);
  if (!is_new && attempt <= known->second) return false;
  known->second = attempt;
  if (is_new) {
    ForgetOldest(newest_, newest_order_, key, options_.remembered);
    return true;
  }
  strategy_->Remove([&](const WorkItem& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return item.message.header.uid == edge.uid && IsOld(item);
  });
  return true;
}

bool RequestScheduler::IsOld(const WorkItem& item) const {
  const auto is_old = [this](const message::Header& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto known = newest_.find(KeyOf(header));
    return known != newest_.end() && known->second > header.attempt;
  };
  if (item.parts.empty()) return is_old(item.message.header);
  return std::ranges::all_of(item.parts, is_old, &message::Message::header);
}

void RequestScheduler::Fence(const message::Header& edge, std::uint32_t attempt) {
  const base::MutexLock lock(mutex_);
  // Only what was here can be out of date.
  if (!newest_.contains(KeyOf(edge)) || !Raise(edge, attempt)) return;
  joins_.RemovePart(edge, attempt);
  changed_.NotifyAll();
}

bool RequestScheduler::IsFenced(const WorkItem& item) const {
  const base::MutexLock lock(mutex_);
  return FencedLocked(item.message.header) || IsOld(item);
}

std::size_t RequestScheduler::RemoveQueued(const base::Uid& uid) {
  return strategy_->Remove([&uid](const WorkItem& item) { return item.message.header.uid == uid; });
}

std::optional<WorkItem> RequestScheduler::Pop(const std::stop_token& stop,
                                              base::MonotonicTime deadline) {
  base::MutexLock lock(mutex_);
  const auto has_item = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return strategy_->size() > 0; };
  if (!clock_.WaitUntil(changed_, lock, stop, deadline, has_item)) return std::nullopt;
  auto item = strategy_->Pop();
  ++given_out_;
  // Waiters for room and waiters for items share one condition, so all of them are woken.
  changed_.NotifyAll();
  return item;
}

void RequestScheduler::Done(const std::string& app, std::optional<base::Duration> compute) {
  const base::MutexLock lock(mutex_);
  --given_out_;
  strategy_->Done(app, compute);
}

std::optional<WorkItem> RequestScheduler::Take() {
  const base::MutexLock lock(mutex_);
  auto item = strategy_->Pop();
  if (item) strategy_->Done(item->message.header.app, std::nullopt);
  changed_.NotifyAll();
  return item;
}

absl::StatusOr<bool> RequestScheduler::Return(WorkItem item,
                                              std::span<const std::string> predecessors) {
  std::optional<message::Message> large;
  if (item.by_value) large = item.message;  // Shares the bytes.
  {
    const base::MutexLock lock(mutex_);
    if (closed_) return false;
    if (CancelledLocked(item.message.header.uid)) return true;
    if (!TakeRun(item.message.header)) return true;
    ONEPIECE_ASSIGN_OR_RETURN(const PushResult result, Enqueue(std::move(item), predecessors));
    if (result != PushResult::kHeld) return true;
  }
  if (large.has_value()) CopyToHeap(*std::move(large));
  return true;
}

std::vector<JoinTable::Lost> RequestScheduler::ExpireJoins() {
  const base::MutexLock lock(mutex_);
  changed_.NotifyAll();
  return joins_.Expire(clock_.Now());
}

std::vector<message::Header> RequestScheduler::WaitingJoins(base::Duration pause,
                                                            std::size_t most) {
  const base::MutexLock lock(mutex_);
  return joins_.Waiting(clock_.Now(), pause, most);
}

void RequestScheduler::DropJoins(const base::Uid& uid, std::uint64_t run) {
  const base::MutexLock lock(mutex_);
  joins_.Remove(uid, run);
  changed_.NotifyAll();
}

std::vector<WorkItem> RequestScheduler::TakeJoins(
    const std::function<bool(const message::Header&)>& wanted) {
  const base::MutexLock lock(mutex_);
  changed_.NotifyAll();
  return joins_.Take(wanted);
}

std::vector<WorkItem> RequestScheduler::Close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  std::vector<WorkItem> left;
  while (auto item = strategy_->Pop()) {
    strategy_->Done(item->message.header.app, std::nullopt);
    left.push_back(*std::move(item));
  }
  changed_.NotifyAll();
  return left;
}

void RequestScheduler::Cancel(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  const base::MonotonicTime until = clock_.Now() + options_.cancelled_for;
  if (cancelled_.insert_or_assign(uid, until).second)
    ForgetOldest(cancelled_, cancelled_order_, uid, options_.remembered);
  RemoveQueued(uid);
  joins_.Remove(uid);
  changed_.NotifyAll();
}

bool RequestScheduler::IsCancelled(const base::Uid& uid) const {
  const base::MutexLock lock(mutex_);
  return closed_ || CancelledLocked(uid);
}

bool RequestScheduler::CancelledLocked(const base::Uid& uid) const {
  const auto cancelled = cancelled_.find(uid);
  return cancelled != cancelled_.end() && clock_.Now() < cancelled->second;
}

bool RequestScheduler::HandsOver(const base::Uid& uid) const {
  // The hook takes locks of its own, so it is not called under this one.
  const bool wanted = options_.hand_over && options_.hand_over();
  const base::MutexLock lock(mutex_);
  return (closed_ || wanted) && !CancelledLocked(uid);
}

std::size_t RequestScheduler::queued() const {
  const base::MutexLock lock(mutex_);
  return strategy_->size();
}

std::size_t RequestScheduler::held() const {
  const base::MutexLock lock(mutex_);
  return strategy_->size() + joins_.joins() + given_out_;
}

std::size_t RequestScheduler::joins() const {
  const base::MutexLock lock(mutex_);
  return joins_.joins();
}

std::uint64_t RequestScheduler::duplicates() const {
  const base::MutexLock lock(mutex_);
  return duplicates_ + joins_.duplicates();
}

std::uint64_t RequestScheduler::fenced() const {
  const base::MutexLock lock(mutex_);
  return fenced_ + joins_.fenced();
}

}  // namespace onepiece::runtime
