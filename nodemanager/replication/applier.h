// The thread of a ReplicatedLog that owns the state machine. Private to this folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/replica.h"
#include "nodemanager/replication/log_queue.h"
#include "nodemanager/replication/state_hashes.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// Applies what is chosen, in the order of the slots, and answers the requests that waited for it.
/// So a slow command, a large snapshot or a reader of the state never delays a heartbeat or a vote,
/// which are the driver's.
///
/// Ownership: owns the state machine, its queue and its thread. Payloads are shared with the log.
/// Threading: Read(), applied(), version_limit(), Await() and HasRoom() are thread-safe. Open(),
/// Start() and Stop() belong to the log's owner, the rest to the driver's thread. `wake` and the
/// answers of requests are called on the Applier's thread, while it holds no lock.
/// Blocking: Read() waits while commands are applied, Await() as it says. The rest never blocks.
/// Bounds: the driver stops feeding when HasRoom() is false. What is chosen already still comes,
/// and the log holds it anyway.
/// Invariants: applied() never falls. A slot is applied once, after all slots before it. No lock of
/// the driver is taken here, and the Applier's two mutexes are never held at the same time.
class Applier {
 public:
  /// One thing to do: a snapshot that replaces the state, or a chosen entry.
  struct Task {
    std::shared_ptr<const paxos::Snapshot> restore;
    paxos::ChosenEntry chosen;
    /// To answer with what the entry did.
    std::vector<std::shared_ptr<LogRequest>> requests;
  };
  struct StateAt {
    paxos::Slot slot;
    std::shared_ptr<const std::string> bytes;
  };
  /// What the driver has to know.
  struct Report {
    std::optional<StateAt> state;  ///< The answer to AskForState().
    /// Describes the entry or snapshot that this program cannot apply. Nothing is applied any more.
    std::string newer;
  };

  /// Who else learns what is applied. Called on the Applier's thread.
  struct Observers {
    StateHashes* hashes;  ///< Borrowed. Gets the hashes of the state. May be null.
    std::function<void(base::Duration)> applied;  ///< How long a batch took. May be null.
  };

  /// Applies entries up to `version`. `wake` makes the driver call TakeReport(), and look again at
  /// HasRoom() and at the slot of WakeAt().
  Applier(std::uint32_t version, std::function<void()> wake, Observers observers = {})
      : version_(version), wake_(std::move(wake)), observers_(std::move(observers)) {}
  ~Applier() { Stop(); }
  Applier(const Applier&) = delete;
  Applier& operator=(const Applier&) = delete;

  /// Begins with the state of `snapshot`.
  /// REQUIRES: Start() was not called.
  /// Errors: those of StateMachine::Restore().
  absl::Status Open(const paxos::Snapshot& snapshot);
  void Start();
  /// Applies and answers what is queued, and ends the thread. Idempotent.
  void Stop();

  void Push(std::vector<Task> tasks);
  /// False while so much waits to be applied that no more should be accepted.
  [[nodiscard]] bool HasRoom() const { return has_room_.load(); }
  /// True when `slot` is applied. Otherwise the driver is woken when it is.
  bool WakeAt(paxos::Slot slot);
  /// Asks for the state after a slot that is not applied yet, or was applied last.
  void AskForState();
  Report TakeReport();

  /// Calls `read` with the state machine after slot `applied`.
  void Read(absl::FunctionRef<void(const StateMachine&, paxos::Slot applied)> read) const;
  /// The last slot that is part of the state. A Read() that begins afterwards sees it.
  [[nodiscard]] paxos::Slot applied() const { return applied_.load(); }
  /// StateMachine::VersionLimit() of a command that does not raise the level itself. Readers of the
  /// state do not hold it up.
  [[nodiscard]] std::uint32_t version_limit() const { return version_limit_.load(); }
  /// Waits until applied() >= slot. Returns false when `limit` passes first, or nothing is applied
  /// any more.
  bool Await(paxos::Slot slot, base::Duration limit) const;

 private:
  using Answer = std::pair<std::shared_ptr<LogRequest>, absl::StatusOr<v1::CommandResult>>;
  struct Work {
    std::vector<Task> tasks;
    bool state = false;
  };

  void Run(const std::stop_token& stop);
  // Waits for work. Returns none when `stop` is requested and nothing is queued.
  Work Take(const std::stop_token& stop);
  void Apply(std::vector<Task> tasks);
  // Returns a description when this program is too old for the task, else nothing.
  std::string ApplyTask(Task& task, std::vector<Answer>& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(machine_mutex_);
  // Returns false when this program cannot apply the entry.
  bool ApplyEntry(const Task& task, v1::CommandResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(machine_mutex_);
  void SetApplied(paxos::Slot slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(machine_mutex_);
  void HashState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(machine_mutex_);
  void MakeState();
  // Tells those who wait for progress.
  void Tell(const std::vector<Task>& done);
  static std::size_t BytesOf(const Task& task);

  const std::uint32_t version_;
  const std::function<void()> wake_;
  const Observers observers_;

  mutable base::Mutex machine_mutex_;
  StateMachine machine_ ABSL_GUARDED_BY(machine_mutex_);
  // The last slot that is part of machine_. It is stored under machine_mutex_, so whoever sees it
  // and then takes that mutex finds the slot in machine_.
  std::atomic<paxos::Slot> applied_{};
  // That of machine_, stored before applied_.
  std::atomic<std::uint32_t> version_limit_{StateMachine::kAnyVersion};

  mutable base::Mutex mutex_;
  base::CondVar pushed_;
  mutable base::CondVar progressed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  // Of the tasks that are not done, those under way included.
  std::size_t open_tasks_ ABSL_GUARDED_BY(mutex_) = 0, open_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> has_room_{true};
  bool wants_state_ ABSL_GUARDED_BY(mutex_) = false;
  paxos::Slot wake_at_ ABSL_GUARDED_BY(mutex_);  // None: nobody waits.
  Report report_ ABSL_GUARDED_BY(mutex_);
  mutable int waiters_ ABSL_GUARDED_BY(mutex_) = 0;  // In Await().
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;       // Nothing is applied any more.

  bool halted_ = false;  // The thread's own: an entry or a snapshot was of a newer version.
  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
