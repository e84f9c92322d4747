// States that nodes have reported and that wait to be committed. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// While one batch is being committed the next one gathers. So a thousand nodes that report at once
/// cost a few commits, and a node that reports again meanwhile costs none.
///
/// Ownership: owns its thread.
/// Threading: thread-safe.
/// Bounds: kMaxAnswers calls wait at most, and a batch has kMaxBatch nodes at most.
class ReportedStates {
 public:
  static constexpr std::size_t kMaxAnswers = 16384, kMaxBatch = 256;
  /// Called once, on the thread of this object or of Add(). It must not block.
  using Answer = std::function<void(const absl::Status&)>;
  struct Waiting {
    v1::SetNodeState change;
    std::vector<Answer> answers;
  };
  /// Commits the changes, and calls the answers of each. No incarnation comes twice. It may block.
  using Commit = std::function<void(const std::vector<Waiting>&)>;

  explicit ReportedStates(Commit commit);
  ~ReportedStates() { Stop(); }
  ReportedStates(const ReportedStates&) = delete;
  ReportedStates& operator=(const ReportedStates&) = delete;

  /// The newest state that an incarnation reports is committed, and all calls for it get its
  /// answer. Answers RESOURCE_EXHAUSTED (REPORTS_BUSY) when too many wait, and UNAVAILABLE
  /// (SHUTTING_DOWN) after Stop().
  void Add(v1::SetNodeState change, Answer answer);
  /// Ends the thread. Whoever waits is told. Idempotent.
  void Stop();

 private:
  void Run(const std::stop_token& stop);
  std::vector<Waiting> Take(const std::stop_token& stop);

  const Commit commit_;
  base::Mutex mutex_;
  base::CondVar added_;
  // By node id and incarnation.
  std::map<std::pair<std::string, std::uint64_t>, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::size_t answers_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace onepiece::nodemanager
