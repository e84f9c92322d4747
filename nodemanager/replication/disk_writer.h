// Writes a leader's batches while the driver goes on. Private to this folder.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/types.h"
#include "nodemanager/replication/store.h"

namespace onepiece::nodemanager {

/// Commits one batch at a time, on a thread of its own if that is asked for.
///
/// Ownership: owns its thread. Borrows the store while it is busy; nobody else may touch it then.
/// Threading: belongs to the driver's thread. `done` is called on the writer's thread.
/// Blocking: Wait(), the destructor and Begin() on the caller's thread block for the disk.
class DiskWriter {
 public:
  /// `done` tells the driver to call TakeResult(). `synced` is told how long each batch that had to
  /// be durable took, on the thread that wrote it. It may be null.
  explicit DiskWriter(std::function<void()> done,
                      std::function<void(base::Duration)> synced = nullptr);
  ~DiskWriter();
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;

  /// True from Begin() until TakeResult() or Wait() has returned the outcome.
  [[nodiscard]] bool busy() const { return busy_; }
  /// Commits the batch: on the writer's thread, or before it returns.
  /// REQUIRES: not busy().
  void Begin(Store& store, paxos::Writes writes, bool on_own_thread);
  /// Returns what Store::Commit() returned, or nothing while it runs.
  std::optional<absl::Status> TakeResult();
  /// Waits for the outcome.
  /// REQUIRES: busy().
  absl::Status Wait();

 private:
  void Run(const std::stop_token& stop);
  absl::Status Commit(Store& store, const paxos::Writes& writes) const;

  const std::function<void()> done_;
  const std::function<void(base::Duration)> synced_;
  bool busy_ = false;  // The driver's own.
  base::Mutex mutex_;
  base::CondVar changed_;
  Store* store_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null: there is nothing to write.
  paxos::Writes writes_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
