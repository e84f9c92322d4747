// RequestScheduler: the queue between an instance's ring and its task workers
// (docs/architecture.md, "Life of a job", 4).
//
// Work is copied out of the ring into this bounded queue, so that ring bytes are never held for a
// computation; when the queue is full the ring fills up behind it and senders see BUSY. Branches of
// a job wait here for each other (JoinTable) before the job is queued. They do not count as queued:
// what they wait for must still get in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/runtime/join.h"
#include "stages/runtime/work_item.h"

namespace onepiece::runtime {

/// Decides which item a free worker gets.
///
/// Threading: externally synchronised (by RequestScheduler).
class SchedulingStrategy {
 public:
  virtual ~SchedulingStrategy() = default;
  virtual void Push(WorkItem item) = 0;
  /// Returns the next item, or nullopt when there is none.
  virtual std::optional<WorkItem> Pop() = 0;
  /// Notes how long an item of this application, which Pop returned, was computed; nullopt when it
  /// was not computed at all.
  virtual void Done(const std::string& app, std::optional<base::Duration> compute) = 0;
  /// Removes the job's items and returns how many there were.
  virtual std::size_t Remove(const base::Uid& uid) = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Returns the size of the artifacts of all queued items.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// Individual mode: one shared queue that idle workers pull from. Higher priority comes first.
/// Among equals the application with the least compute time comes first, and its items in arrival
/// order (virtual time fair queueing). An application that had nothing queued starts level with the
/// one that has had the least compute time, so idle time gives no credit.
class IndividualMode final : public SchedulingStrategy {
 public:
  void Push(WorkItem item) override;
  std::optional<WorkItem> Pop() override;
  std::size_t Remove(const base::Uid& uid) override;
  void Done(const std::string& app, std::optional<base::Duration> compute) override;
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::size_t bytes() const override;

 private:
  using Fifo = std::map<std::uint64_t, WorkItem>;  // Keyed by arrival number.
  // An application with items that are queued or being computed.
  struct App {
    base::Duration spent{};     // Virtual time: the compute time that it counts as having had.
    base::Duration computed{};  // The compute time of `jobs` items.
    std::int64_t jobs = 0;
    std::int64_t running = 0;
    std::size_t queued = 0;
    // Running items count with the mean time of those that have ended.
    base::Duration Expected() const {
      return spent + computed / std::max<std::int64_t>(jobs, 1) * running;
    }
  };

  base::Duration Least() const;
  void Forget(const std::string& name);

  // Keyed by the negated priority, and then by application.
  std::map<std::int64_t, std::map<std::string, Fifo>> queue_;
  std::map<std::string, App> apps_;
  std::size_t size_ = 0;
  std::uint64_t next_number_ = 0;
};

struct RequestSchedulerOptions {
  std::size_t max_queued = 64;
  std::size_t max_queued_bytes = std::size_t{512} << 20;  ///< One item is always let in.
  std::size_t remembered = 4096;  ///< Items and cancelled jobs that are recognised later.
  JoinLimits joins = {};
  /// Returns whether work is to end at its next step boundary and go on elsewhere; empty: no.
  /// Called at step boundaries, on the workers' threads.
  std::function<bool()> hand_over = {};
};

/// What became of an item that was pushed.
enum class PushResult : std::uint8_t {
  kQueued,
  kHeld,       ///< It waits for the job's other branches.
  kDuplicate,  ///< It was pushed before, and is dropped.
  kCancelled,  ///< Its job was cancelled, and it is dropped.
  kClosed      ///< It was not taken, because the scheduler is closed.
};

/// The queue between the ring and the task workers.
///
/// Threading: thread-safe.
/// Blocking: waiting calls end at their deadline or when their stop is requested.
class RequestScheduler {
 public:
  RequestScheduler(RequestSchedulerOptions options, std::unique_ptr<SchedulingStrategy> strategy,
                   base::Clock& clock);

  /// Waits until Push would stay within the bounds.
  bool WaitForRoom(const std::stop_token& stop, base::MonotonicTime deadline);
  /// Queues an item. A second item with the same uid, stage, `from` and attempt is dropped, and so
  /// is an item of a cancelled job. If its stage has several `predecessors`, the item is one
  /// branch, and the join of all branches is queued.
  ///
  /// Errors: those of JoinTable::Add, which fail the job.
  absl::StatusOr<PushResult> Push(WorkItem item, std::span<const std::string> predecessors = {});
  /// Waits for an item. The caller must call Done when it has finished with it.
  std::optional<WorkItem> Pop(const std::stop_token& stop, base::MonotonicTime deadline);
  /// Notes how long an item of this application was computed; nullopt when it was not.
  void Done(const std::string& app, std::optional<base::Duration> compute);
  /// Removes and returns the next item, which is to be sent elsewhere; nullopt when nothing is
  /// queued.
  std::optional<WorkItem> Take();
  /// Queues an item again that was here before. If its stage has several `predecessors` and the
  /// item is a single branch, it waits for the others. Returns false after Close, when the item is
  /// not taken.
  ///
  /// Errors: those of Push.
  absl::StatusOr<bool> Return(WorkItem item, std::span<const std::string> predecessors = {});
  /// Gives up joins that will not be complete in time (JoinTable::Expire).
  std::vector<JoinTable::Lost> ExpireJoins();
  /// Removes the parts of joins that are wanted elsewhere (JoinTable::Take).
  std::vector<WorkItem> TakeJoins(const std::function<bool(const message::Header&)>& wanted);
  /// Closes the scheduler: every job counts as cancelled, and Pop finds nothing. Returns the queued
  /// items. Parts of joins stay until TakeJoins takes them.
  std::vector<WorkItem> Close();
  /// Drops the job's queued items and parts. IsCancelled returns true for the job from now on.
  void Cancel(const base::Uid& uid);
  [[nodiscard]] bool IsCancelled(const base::Uid& uid) const;
  /// Returns whether the job's work is to go on elsewhere if it can: after Close, or while
  /// RequestSchedulerOptions::hand_over says so, unless the job was cancelled.
  [[nodiscard]] bool HandsOver(const base::Uid& uid) const;
  [[nodiscard]] std::size_t queued() const;
  /// Items queued, or given out and not yet done, and jobs that wait for a branch.
  [[nodiscard]] std::size_t held() const;
  /// Jobs that wait for a branch.
  [[nodiscard]] std::size_t joins() const;
  [[nodiscard]] std::uint64_t duplicates() const;

 private:
  using ItemKey = std::tuple<base::Uid, std::string, std::string, std::uint32_t>;

  // Puts the item into the queue, or to the other branches of its job.
  absl::StatusOr<PushResult> Enqueue(WorkItem item, std::span<const std::string> predecessors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RequestSchedulerOptions options_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  const std::unique_ptr<SchedulingStrategy> strategy_ ABSL_PT_GUARDED_BY(mutex_);
  JoinTable joins_ ABSL_GUARDED_BY(mutex_);
  std::set<ItemKey> seen_ ABSL_GUARDED_BY(mutex_);
  std::deque<ItemKey> seen_order_ ABSL_GUARDED_BY(mutex_);
  std::set<base::Uid> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::deque<base::Uid> cancelled_order_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t given_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace onepiece::runtime
