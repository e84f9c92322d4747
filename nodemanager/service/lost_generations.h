// Finds out from reports that the state is behind what its nodes have seen: one backup was restored
// twice, with a life of the group in between, or a copy of a database was put back by hand.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Nodes refuse tables that are older than one that they have seen, so a state that is behind
/// reaches them no more. A greater generation does.
///
/// A node may lie or be broken. Under one leader each node is believed once, all nodes together are
/// believed once in kInterval, and nobody is believed about more than kMaxStep generations. So one
/// bad node costs kMaxStep of the 2^24 generations at most.
///
/// Threading: thread-safe. It takes no other lock while it holds its own.
class LostGenerations {
 public:
  static constexpr std::uint32_t kMaxStep = 1000;
  static constexpr base::Duration kInterval = std::chrono::seconds(10);  ///< Scaled.
  /// So many nodes are remembered. When there are as many, nobody else is believed.
  static constexpr std::size_t kMaxNodes = 4096;

  explicit LostGenerations(base::Clock& clock) : clock_(clock) {}

  /// Forgets whom it has believed. Call it when this replica begins to lead.
  void Clear();
  /// Looks at a report of a registered node. `epoch` and `cluster_id` are those of the state.
  /// Errors: INVALID_ARGUMENT (BAD_EPOCH), for an epoch that this cluster cannot have had. The
  /// first one of each node is logged.
  absl::Status Look(const v1::ReportNodeRequest& report, std::uint64_t epoch,
                    const std::string& cluster_id);
  /// Returns the generation that must begin because of what nodes have seen, once. The caller makes
  /// sure that the newest state is still behind (IsBehind), and proposes it.
  std::optional<v1::BeginGeneration> Due();
  /// Says that the generation of Due() could not begin. Nodes are believed again after kInterval.
  void TryAgain();
  /// True when a state of this epoch is older than the generation, so that it may begin.
  static bool IsBehind(std::uint64_t epoch, const v1::BeginGeneration& due);

 private:
  base::Clock& clock_;
  base::Mutex mutex_;
  std::set<std::string> believed_ ABSL_GUARDED_BY(mutex_), refused_ ABSL_GUARDED_BY(mutex_);
  std::optional<base::MonotonicTime> last_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::BeginGeneration> due_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
