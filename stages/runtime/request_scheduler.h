// RequestScheduler: the queue between an instance's ring and its task workers
// (docs/architecture.md, "Life of a job", 4).
//
// Work is copied out of the ring into this bounded queue, so the ring's bytes are free again before
// the computation begins. When the queue is full, the ring fills up behind it and senders see BUSY.
// Branches of a job wait here for each other (JoinTable) before the job is queued. Waiting branches
// do not count as queued, because a full queue would keep out the branches that they wait for.
//
// JoinLimits bounds them. A branch that begins a new join must not be refused, because its job was
// accepted; and the instance must not simply stop taking messages when many joins wait, because the
// branches that would complete them come through the same ring, behind the new ones. So the bounds
// have two steps. Above the first, half of the limits, there is no room (WaitForRoom), and the ring
// holds the senders back; but there is a reserve (HasReserve), from which the instance goes on
// taking single messages, slowly. A branch of an older join completes it, which makes room. A new
// one takes some of the reserve. Joins end with their jobs at the latest, so the reserve is used up
// only if a job's deadline is longer than it lasts: 2048 joins at 50 messages a second last for 40
// s without a single completion. Only then does the instance wait, until a join ends.
//
// A few large branches would use that reserve up at once. They come as values, so the instance
// knows of them before they come: it is asked for room (Admit). They have bounds of their own, and
// never keep the instance from taking messages. Every join can be completed, for these reasons:
//
//   - A large branch that waits takes no memory for values. Push copies it to the heap. So that
//     memory has only what is written, lies in the ring, is queued or is computed, and all of that
//     goes on without any other branch.
//   - A branch that begins a join gets room while the large ones that wait or come have less than
//     half of max_large_bytes. A branch of a join that has begun gets room while they have less
//     than all of it. So those who begin joins stop asking for memory for values, and what they
//     have of it is copied out.
//   - A branch that completes its join, and any branch of the oldest join, always may come. So the
//     oldest join can be completed, and then the next one is the oldest.
//
// An instance cannot see the order in which its senders compute. If they make branches of new joins
// only, and wait with them, the deadlines of the older jobs end that.
//
// The heap has at most max_large_bytes, two branches more, and the branches of the oldest join.
// These may have max_large_bytes too; a branch that would make them more is refused for good.
#pragma once

#include <algorithm>
#include <atomic>
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
  /// Notes how long an item of this application was computed; nullopt when it was not. Called once
  /// for each item that Pop returned.
  virtual void Done(const std::string& app, std::optional<base::Duration> compute) = 0;
  /// Removes such items and returns how many there were.
  using Which = std::function<bool(const WorkItem&)>;
  virtual std::size_t Remove(const Which& which) = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Returns the size of the artifacts of all queued items.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

/// Individual mode: one shared queue that idle workers pull from. Higher priority comes first.
/// Among equals the application with the least compute time comes first, and its items in arrival
/// order (virtual time fair queueing). An application that had nothing queued starts at least level
/// with the one that has had the least compute time, so idle time gives no credit.
class IndividualMode final : public SchedulingStrategy {
 public:
  void Push(WorkItem item) override;
  std::optional<WorkItem> Pop() override;
  std::size_t Remove(const Which& which) override;
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
  /// There is room while the queue holds fewer bytes than this, or nothing.
  std::size_t max_queued_bytes = std::size_t{512} << 20;
  /// So many of the last edges that items were pushed for, of the last cancelled jobs, and of the
  /// runs of the last jobs are recognised.
  std::size_t remembered = 4096;
  /// How long a cancelled job is recognised at most. It is shorter than a tombstone's life, so that
  /// a request id that is used again is not taken for the job that was cancelled.
  base::Duration cancelled_for = std::chrono::minutes(10);
  JoinLimits joins = {};
  /// Returns whether work is to end at its next step boundary and go on elsewhere. An empty
  /// function means false. The workers call it at step boundaries, so it must be thread-safe and
  /// quick.
  std::function<bool()> hand_over = {};
};

/// What became of an item that was pushed.
enum class PushResult : std::uint8_t {
  kQueued,
  kHeld,       ///< It waits for the job's other branches.
  kDuplicate,  ///< Its attempt or a later one was here or is elsewhere, and it is dropped.
  kCancelled,  ///< Its job was cancelled, and it is dropped.
  kFenced,     ///< A larger run of its job has come here, and it is dropped.
  kClosed      ///< It was not taken, because the scheduler is closed.
};

/// The queue between the ring and the task workers.
///
/// Ownership: borrows the clock.
/// Threading: thread-safe.
/// Blocking: WaitForRoom and Pop wait, until their deadline or until `stop` is requested.
class RequestScheduler {
 public:
  RequestScheduler(RequestSchedulerOptions options, std::unique_ptr<SchedulingStrategy> strategy,
                   base::Clock& clock);

  /// Waits until the queue is empty or below both bounds, and the joins take no more than half of
  /// their limits. Returns false when that is not so by the deadline, or on stop. Push itself never
  /// waits and checks no bound.
  bool WaitForRoom(const std::stop_token& stop, base::MonotonicTime deadline);
  /// Returns whether a single message may be taken without room: the queue has room, and the joins
  /// are below their limits.
  [[nodiscard]] bool HasReserve() const;
  /// Queues an item. An item whose attempt is not larger than one that was seen for its edge (uid,
  /// run, stage, `from`) is dropped, and so is an item of a cancelled job. A larger attempt fences
  /// the smaller ones (Fence). The first item of a larger run drops what is queued and held of the
  /// job's smaller runs, fences what is being computed of them, and fences what still comes of them
  /// until the job's deadline. If its stage has several `predecessors` and the item has no `parts`,
  /// it is one branch of a join. It is held until all branches are here, and then the join is
  /// queued.
  ///
  /// The artifacts of a branch that came as a value and is held are copied to the heap before Push
  /// returns.
  ///
  /// Errors: those of JoinTable::Add. The caller then fails the job.
  absl::StatusOr<PushResult> Push(WorkItem item, std::span<const std::string> predecessors = {});
  /// A large branch that was admitted. Its owner drops it when the branch is pushed, or will not
  /// come. It may outlive the scheduler. Null when the branch does not count.
  using Coming = std::shared_ptr<const void>;
  /// Whether a branch of `bytes` may come as a value, to a stage with these predecessors.
  ///
  /// Errors: those of JoinTable::MayCome.
  absl::StatusOr<Coming> Admit(const message::Header& branch,
                               std::span<const std::string> predecessors, std::uint64_t bytes);
  /// Waits for an item. Returns nullopt at the deadline or on stop. The caller calls Done once for
  /// each item.
  std::optional<WorkItem> Pop(const std::stop_token& stop, base::MonotonicTime deadline);
  /// Notes how long an item of this application was computed; nullopt when it was not.
  void Done(const std::string& app, std::optional<base::Duration> compute);
  /// Removes and returns the next item, which is to be sent elsewhere; nullopt when nothing is
  /// queued. It does not wait, and needs no Done.
  std::optional<WorkItem> Take();
  /// Queues an item again that was here before, and so does not look for duplicates. If its stage
  /// has several `predecessors` and the item is a single branch, it waits for the others. Returns
  /// false after Close, when it drops the item, and true for an item of a cancelled job, which it
  /// drops too.
  ///
  /// Errors: those of Push.
  absl::StatusOr<bool> Return(WorkItem item, std::span<const std::string> predecessors = {});
  /// Gives up joins that will not be complete in time (JoinTable::Expire).
  std::vector<JoinTable::Lost> ExpireJoins();
  /// Returns whom to ask about: joins that have waited for long (JoinTable::Waiting).
  std::vector<message::Header> WaitingJoins(base::Duration pause, std::size_t most);
  /// Drops the branches of a job that has ended, of runs up to this one: nobody needs them.
  void DropJoins(const base::Uid& uid, std::uint64_t run);
  /// Removes the parts of joins that are wanted elsewhere (JoinTable::Take).
  std::vector<WorkItem> TakeJoins(const std::function<bool(const message::Header&)>& wanted);
  /// Closes the scheduler and returns the queued items. From now on IsCancelled is true for every
  /// job, Push and Return take nothing, and Pop returns nullopt at its deadline. Parts of joins
  /// stay until TakeJoins takes them.
  std::vector<WorkItem> Close();
  /// Somebody else has this attempt of an edge's work. If a smaller one was here, it is dropped
  /// where it is queued or waits for other branches, and IsFenced is true for it while the edge is
  /// among the last `remembered`.
  void Fence(const message::Header& edge, std::uint32_t attempt);
  /// The job has a run as large as this. If work of a smaller one was here and the job's deadline
  /// is not over, that run is fenced as by the first item of the larger one (Push).
  void FenceRun(const base::Uid& uid, std::uint64_t run);
  /// Returns whether a larger run of the item's job is known here, or a larger attempt than the
  /// item's is known for its edge. A joined item is fenced by attempts only when all its parts are,
  /// because the others would not come again.
  [[nodiscard]] bool IsFenced(const WorkItem& item) const;
  /// Drops the job's queued items and parts. IsCancelled is true for it for `cancelled_for`, while
  /// it is among the last `remembered` cancelled jobs.
  void Cancel(const base::Uid& uid);
  [[nodiscard]] bool IsCancelled(const base::Uid& uid) const;
  /// Returns whether a larger run of the job is known here than this message's: whatever becomes of
  /// its work, nobody wants to hear of it.
  [[nodiscard]] bool IsFenced(const message::Header& header) const;
  /// Returns whether what is being computed of this job should stop at a checkpoint and go on
  /// elsewhere: after Close, or while RequestSchedulerOptions::hand_over says so. Never for a job
  /// that Cancel names.
  [[nodiscard]] bool HandsOver(const base::Uid& uid) const;
  [[nodiscard]] std::size_t queued() const;
  /// Returns the number of items that are queued or given out and not done, plus joins().
  [[nodiscard]] std::size_t held() const;
  /// Returns the number of joins that wait for a branch. A job may have several.
  [[nodiscard]] std::size_t joins() const;
  /// Returns how many items were dropped as duplicates so far.
  [[nodiscard]] std::uint64_t duplicates() const;
  /// Returns how many items and joins were dropped so far because of a larger run.
  [[nodiscard]] std::uint64_t fenced() const;

 private:
  /// Uid, run, stage and `from` of work.
  using EdgeKey = std::tuple<base::Uid, std::uint64_t, std::string, std::string>;
  static EdgeKey KeyOf(const message::Header& header) {
    return {header.uid, header.run, header.stage, header.from};
  }
  /// The largest run of a job.
  struct Newest {
    std::uint64_t run = 0;
    base::MonotonicTime until;  ///< The job's deadline. Its request id may be used again later.
  };

  std::size_t RemoveQueued(const base::Uid& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns false for a message of a smaller run than the job's largest one.
  bool TakeRun(const message::Header& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops what is queued and held of a job's smaller runs.
  void DropSmallerRuns(const base::Uid& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool FencedLocked(const message::Header& header) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool CancelledLocked(const base::Uid& uid) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] bool QueueHasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns false when this attempt, or a larger one, is known already.
  bool Raise(const message::Header& edge, std::uint32_t attempt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOld(const WorkItem& item) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<PushResult> PushNew(WorkItem item, std::span<const std::string> predecessors);
  void CopyToHeap(message::Message branch);
  // Puts the item into the queue, or to the other branches of its job.
  absl::StatusOr<PushResult> Enqueue(WorkItem item, std::span<const std::string> predecessors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RequestSchedulerOptions options_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  const std::unique_ptr<SchedulingStrategy> strategy_ ABSL_PT_GUARDED_BY(mutex_);
  JoinTable joins_ ABSL_GUARDED_BY(mutex_);
  // The bytes of the branches that are admitted and will wait here.
  const std::shared_ptr<std::atomic<std::uint64_t>> coming_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  std::map<EdgeKey, std::uint32_t> newest_ ABSL_GUARDED_BY(mutex_);  // The largest attempts.
  std::deque<EdgeKey> newest_order_ ABSL_GUARDED_BY(mutex_);
  // The jobs that were cancelled, and until when that counts.
  std::map<base::Uid, base::MonotonicTime> cancelled_ ABSL_GUARDED_BY(mutex_);
  std::deque<base::Uid> cancelled_order_ ABSL_GUARDED_BY(mutex_);
  std::map<base::Uid, Newest> runs_ ABSL_GUARDED_BY(mutex_);
  std::deque<base::Uid> runs_order_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t fenced_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::size_t given_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace onepiece::runtime
