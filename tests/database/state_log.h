// A subscriber of a store that remembers what it was told.
#pragma once

#include <QtTest>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "tests/eventually.h"

namespace onepiece::database {

class StateLog {
 public:
  /// Returns the revision of the first state.
  std::uint64_t Subscribe(JobStore& store, const std::string& uid) {
    auto subscribed =
        store.Subscribe(uid, [this](const absl::StatusOr<JobRevision>& now, bool repeat) {
          const base::MutexLock lock(mutex_);
          if (!now.ok()) status_ = now.status();
          if (now.ok() && (told_.empty() || told_.back().revision <= now->revision)) {
            told_.push_back(*now);
          }
          repeats_ += repeat ? 1 : 0;
        });
    if (!subscribed.ok()) qFatal("%s", subscribed.status().ToString().c_str());
    subscription_ = std::move(subscribed->subscription);
    return subscribed->now.revision;
  }
  void End() { subscription_.reset(); }
  /// Waits for a state above `revision`, and returns the latest.
  v1::Job After(std::uint64_t revision) {
    if (!testing::Eventually([&] {
          const std::vector<JobRevision> all = told();
          return !all.empty() && all.back().revision > revision;
        })) {
      qFatal("the subscriber was told nothing");
    }
    return *told().back().job;
  }
  std::vector<JobRevision> told() {
    const base::MutexLock lock(mutex_);
    return told_;
  }
  absl::Status status() {
    const base::MutexLock lock(mutex_);
    return status_;
  }
  int repeats() {
    const base::MutexLock lock(mutex_);
    return repeats_;
  }

 private:
  base::Mutex mutex_;
  std::vector<JobRevision> told_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  int repeats_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Watches::Subscription> subscription_;
};

}  // namespace onepiece::database
