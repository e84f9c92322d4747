// Answers to proposals that wait for what follows a change. Private to this folder.
#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::nodemanager {

/// After a change the assignments are brought up to date and watchers are woken, and only then is
/// the caller answered. Of all changes that are applied while this is done for others, it is done
/// once.
///
/// Ownership: owns its thread.
/// Threading: thread-safe.
/// Bounds: the callers bound how many answers there can be (Controller::kMaxProposals).
class FollowUps {
 public:
  /// `changed` tells whether one of the proposals has changed the state. It may block.
  using Follow = std::function<void(bool changed)>;
  /// Called once, on the thread of this object. It must not block.
  using Answer = std::function<void()>;

  explicit FollowUps(Follow follow);
  ~FollowUps() { Stop(); }
  FollowUps(const FollowUps&) = delete;
  FollowUps& operator=(const FollowUps&) = delete;

  /// Never blocks. After Stop() it answers at once.
  void Add(bool changed, Answer answer);
  /// Answers what was added, and ends the thread. Idempotent.
  void Stop();

 private:
  struct Batch {
    std::vector<Answer> answers;
    bool changed = false;
  };
  void Run(const std::stop_token& stop);
  Batch Take(const std::stop_token& stop);

  const Follow follow_;
  base::Mutex mutex_;
  base::CondVar added_;
  Batch batch_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace onepiece::nodemanager
