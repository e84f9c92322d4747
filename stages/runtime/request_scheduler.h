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

/// Which item a free worker gets. Externally synchronised by RequestScheduler.
class SchedulingStrategy {
 public:
  virtual ~SchedulingStrategy() = default;
  virtual void Push(WorkItem item) = 0;
  /// The next item, or nullopt when there is none.
  virtual std::optional<WorkItem> Pop() = 0;
  /// An item of this application that Pop gave out was computed for so long; nullopt: not at all.
  virtual void Done(const std::string& app, std::optional<base::Duration> compute) = 0;
  /// Removes the job's items and returns how many there were.
  virtual std::size_t Remove(const base::Uid& uid) = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Sum of the queued items' artifacts.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// Individual mode: one shared queue that idle workers pull from. Higher priority first; among
/// equals the application that has had least compute time, and its items in arrival order (virtual
/// time fair queueing). An application that had nothing here begins level with the one that has had
/// least: time in which it was idle gives it no credit.
class IndividualMode final : public SchedulingStrategy {
 public:
  void Push(WorkItem item) override;
  std::optional<WorkItem> Pop() override;
  std::size_t Remove(const base::Uid& uid) override;
  void Done(const std::string& app, std::optional<base::Duration> compute) override;
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::size_t bytes() const override;

 private:
  using Fifo = std::map<std::uint64_t, WorkItem>;  // By arrival number.
  // An application that has items here, or being computed.
  struct App {
    base::Duration spent{};  // Virtual: the compute time that it is taken to have had.
    base::Duration computed{};
    std::int64_t jobs = 0;  // That `computed` is of.
    std::int64_t running = 0;
    std::size_t queued = 0;
    // With what runs counted at the mean of what has ended.
    base::Duration Expected() const {
      return spent + computed / std::max<std::int64_t>(jobs, 1) * running;
    }
  };

  base::Duration Least() const;
  void Forget(const std::string& name);

  std::map<std::int64_t, std::map<std::string, Fifo>> queue_;  // By −priority and application.
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

/// Thread-safe. Waiting calls end at their deadline or when their stop token is triggered.
class RequestScheduler {
 public:
  RequestScheduler(RequestSchedulerOptions options, std::unique_ptr<SchedulingStrategy> strategy,
                   base::Clock& clock);

  /// Waits until Push would stay within the bounds.
  bool WaitForRoom(const std::stop_token& stop, base::MonotonicTime deadline);
  /// Queues an item; a second item of the same (uid, stage, from, attempt) and those of cancelled
  /// jobs are dropped and counted. With several `predecessors` of its stage the item is one branch,
  /// and what is queued is the join of all. Errors, of the job: those of JoinTable::Add.
  absl::StatusOr<PushResult> Push(WorkItem item, std::span<const std::string> predecessors = {});
  /// Waits for an item; whoever gets it says Done when he has let go of it.
  std::optional<WorkItem> Pop(const std::stop_token& stop, base::MonotonicTime deadline);
  /// An item of this application was computed for so long; nullopt: not at all.
  void Done(const std::string& app, std::optional<base::Duration> compute);
  /// The next item, to be sent elsewhere; nullopt when nothing is queued.
  std::optional<WorkItem> Take();
  /// Takes an item again that was here before; with several `predecessors` of its stage one that is
  /// a single branch waits for the others. False after Close: not taken.
  /// Errors: as Push.
  absl::StatusOr<bool> Return(WorkItem item, std::span<const std::string> predecessors = {});
  /// Joins that will not be complete in time (JoinTable::Expire).
  std::vector<JoinTable::Lost> ExpireJoins();
  /// Takes out the parts of joins that are wanted elsewhere (JoinTable::Take).
  std::vector<WorkItem> TakeJoins(const std::function<bool(const message::Header&)>& wanted);
  /// The end: every job counts as cancelled, Pop finds nothing. Returns what was queued; parts of
  /// joins stay until they are taken.
  std::vector<WorkItem> Close();
  /// Drops the job's queued items and parts and lets IsCancelled answer true from now on.
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

  // Into the queue, or to the other branches.
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
