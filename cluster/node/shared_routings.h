// Routing tables that the nodes of one process share.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// Returns the table that `delta` leads to of `base`.
/// Errors: those of ApplyRoutingDelta().
absl::StatusOr<std::shared_ptr<const Routing>> ChangedRouting(const Routing& base,
                                                              const v1::RoutingTable& delta);

/// A process with hundreds of light nodes gets each change hundreds of times. The first of its
/// nodes makes the new table, and the others that have the same table and get the same bytes take
/// that one. A process with one node needs no such object.
///
/// Threading: thread-safe.
/// Blocking: while another node makes a table.
/// Bounds: it keeps kKept tables at most.
class SharedRoutings {
 public:
  static constexpr std::size_t kKept = 4;

  /// `base` is not null.
  /// Errors: those of ChangedRouting().
  absl::StatusOr<std::shared_ptr<const Routing>> Changed(const std::shared_ptr<const Routing>& base,
                                                         const v1::RoutingTable& delta);
  std::shared_ptr<const Routing> Whole(v1::RoutingTable table);
  /// How many tables were made.
  [[nodiscard]] std::size_t made() const;

 private:
  struct Made {
    std::weak_ptr<const Routing> base;  // Empty: the message was a whole table.
    std::string message;                // Serialised.
    std::shared_ptr<const Routing> result;
  };
  std::shared_ptr<const Routing> Find(const Routing* base, const std::string& message) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(Made made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::deque<Made> kept_ ABSL_GUARDED_BY(mutex_);  // Newest first.
  std::size_t made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::node
