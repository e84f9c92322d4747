// Tells subscribers when jobs change, without a thread for each.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store_types.h"

namespace onepiece::database {

/// The subscriptions of one store. A thread of its own reads each job that has changed and tells
/// the job's subscribers, so a burst of changes reaches them as the latest state only. It tells
/// them an unchanged state again every kRepeat: they then know that this database is alive.
///
/// Ownership: borrows the clock, which must outlive it.
/// Threading: thread-safe. Subscribers are called by one thread, one after the other.
/// Blocking: Stop() waits for the subscribers that are being called. Subscribers must not block.
class Watches {
 public:
  static constexpr base::Duration kRepeat = std::chrono::seconds(20);  ///< Scaled.

  explicit Watches(base::Clock& clock) : clock_(clock) {}
  ~Watches() { Stop(); }
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  /// Reads a job as clients see it now. NOT_FOUND: it is forgotten or deleted.
  using Read = std::function<absl::StatusOr<JobRevision>(const base::Uid&)>;
  void Start(Read read);
  /// Tells nobody any more. Idempotent.
  void Stop();

  /// Ends a subscription when it is destroyed. Its subscriber may still be called once by then.
  class Subscription {
   public:
    ~Subscription();
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

   private:
    friend class Watches;
    using Subscribers = std::list<std::shared_ptr<const JobSubscriber>>;
    Subscription(Watches& watches, const base::Uid& uid, Subscribers::iterator at)
        : watches_(watches), uid_(uid), at_(at) {}
    Watches& watches_;
    const base::Uid uid_;
    const Subscribers::iterator at_;
  };
  /// The subscription must end before the watches do.
  std::unique_ptr<Subscription> Add(const base::Uid& uid, JobSubscriber subscriber);
  /// Says that the job has changed or is gone. May be called under a shard's lock.
  void Changed(const base::Uid& uid);

 private:
  struct Job {
    Subscription::Subscribers subscribers;  ///< Never empty.
    base::MonotonicTime told;
  };
  void Run(const std::stop_token& stop);
  std::vector<base::Uid> Silent(base::MonotonicTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const base::Uid& uid, bool repeat);

  base::Clock& clock_;
  Read read_;  // Set before the thread starts.
  base::Mutex mutex_;
  base::CondVar woken_;
  std::unordered_map<base::Uid, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<base::Uid> changed_ ABSL_GUARDED_BY(mutex_);  ///< Only jobs of jobs_.
  std::jthread thread_;  // Last: ends before what it uses.
};

}  // namespace onepiece::database
