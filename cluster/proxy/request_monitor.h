// The request monitor: says yes or no to a job before anything of it is decoded (DESIGN §3, §4.2).
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"

namespace onepiece::proxy {

/// Counts the jobs that this proxy admitted and that have not ended as far as it knows. Every job
/// costs one unit.
///
/// Ownership  Borrows `clock`.
/// Threading  Thread-safe. Never waits.
/// Invariant  in_flight() <= max_jobs_in_flight.
class RequestMonitor {
 public:
  RequestMonitor(int max_jobs_in_flight, base::Clock& clock);

  /// Takes the job in until End(), or until `deadline` has passed. A job that is in already is
  /// taken at no cost. Errors: RESOURCE_EXHAUSTED (QUOTA, with retry_after_ms).
  absl::Status Admit(const base::Uid& uid, base::WallTime deadline);
  /// The job has ended, or never began. Idempotent.
  void End(const base::Uid& uid);
  /// Up to `count` jobs whose state was asked for longest ago; counts as asking now. Forgets jobs
  /// past their deadline.
  std::vector<base::Uid> NextToCheck(std::size_t count);
  [[nodiscard]] int in_flight() const;

 private:
  struct Job {
    base::WallTime deadline;
    std::uint64_t turn = 0;  ///< Key in turns_.
  };
  void ForgetOverdue();
  void Remove(std::map<base::Uid, Job>::iterator job);

  const std::size_t max_jobs_;
  base::Clock& clock_;
  mutable std::mutex mutex_;  // Guards the rest.
  std::map<base::Uid, Job> jobs_;
  std::map<std::uint64_t, base::Uid> turns_;
  std::uint64_t next_turn_ = 0;
};

}  // namespace onepiece::proxy
