// Routing tables that the nodes of one process share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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

/// A process with hundreds of light nodes is told of each change hundreds of times, and its nodes
/// come to the new table from different ones. The first of them makes it, and the others take that
/// one: a cluster has one table for a set and an epoch. A process with one node needs no such
/// object.
///
/// REQUIRES: the nodes belong to one cluster.
/// Threading: thread-safe.
/// Blocking: while another node makes a table.
/// Bounds: it keeps kKept tables at most.
class SharedRoutings {
 public:
  static constexpr std::size_t kKept = 64;
  using Make = std::function<std::shared_ptr<const Routing>()>;

  /// Returns the table of this set and epoch. If no node has made it yet, `make` does. What `make`
  /// returns is returned, and a null pointer is not kept.
  std::shared_ptr<const Routing> Get(const std::string& workflow_set, std::uint64_t epoch,
                                     const Make& make);

 private:
  base::Mutex mutex_;
  std::deque<std::shared_ptr<const Routing>> kept_ ABSL_GUARDED_BY(mutex_);  // Newest first.
};

}  // namespace onepiece::node
