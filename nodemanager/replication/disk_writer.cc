#include "nodemanager/replication/disk_writer.h"

#include <utility>

#include "cluster/base/check.h"
#include "nodemanager/replication/boot_clock.h"

namespace onepiece::nodemanager {

DiskWriter::DiskWriter(std::function<void()> done, std::function<void(base::Duration)> synced)
    : done_(std::move(done)),
      synced_(std::move(synced)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

DiskWriter::~DiskWriter() {
  thread_.request_stop();
  thread_.join();
}

void DiskWriter::Begin(Store& store, paxos::Writes writes, bool on_own_thread) {
  ONEPIECE_CHECK(!busy_);
  busy_ = true;
  if (!on_own_thread) {
    absl::Status result = Commit(store, writes);
    const base::MutexLock lock(mutex_);
    result_ = std::move(result);
    return;
  }
  {
    const base::MutexLock lock(mutex_);
    store_ = &store;
    writes_ = std::move(writes);
    result_.reset();
  }
  changed_.NotifyAll();
}

std::optional<absl::Status> DiskWriter::TakeResult() {
  if (!busy_) return std::nullopt;
  const base::MutexLock lock(mutex_);
  if (result_) busy_ = false;
  return std::exchange(result_, std::nullopt);
}

absl::Status DiskWriter::Wait() {
  ONEPIECE_CHECK(busy_);
  base::MutexLock lock(mutex_);
  changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !!result_; });
  busy_ = false;
  return *std::exchange(result_, std::nullopt);
}

absl::Status DiskWriter::Commit(Store& store, const paxos::Writes& writes) const {
  const paxos::Time begun = BootNow();
  const absl::Status result = store.Commit(writes);
  if (result.ok() && writes.urgent() && synced_) synced_(BootNow() - begun);
  return result;
}

void DiskWriter::Run(const std::stop_token& stop) {
  for (;;) {
    Store* store = nullptr;
    paxos::Writes writes;
    {
      base::MutexLock lock(mutex_);
      changed_.Wait(lock, stop,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return store_ != nullptr; });
      store = std::exchange(store_, nullptr);
      writes = std::exchange(writes_, {});
    }
    if (store == nullptr) return;
    absl::Status result = Commit(*store, writes);
    {
      const base::MutexLock lock(mutex_);
      result_ = std::move(result);
    }
    changed_.NotifyAll();
    done_();
  }
}

}  // namespace onepiece::nodemanager
