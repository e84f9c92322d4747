// What a node knows of itself and of its cluster. It exists before everything that reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// A node's services need its view of the cluster, and its NodeAgent, which learns that view, needs
/// the services' address. The view breaks this circle: make it first, hand it to the services as
/// `const ClusterView&`, and then give it to the NodeAgent, which fills it:
///
///     ClusterView view;
///     Outbox::Create(fabric, view, …);            // Reads it.
///     host.Serve(…);
///     NodeAgent agent({.address = host.address(), …}, view);  // Fills it from here on.
///
/// Until the agent has learned something the readers see empty values.
///
/// Ownership: The agent and all readers borrow it; it outlives them.
///
/// Threading: Thread-safe. Each getter answers for itself: two calls may see two states.
///
/// Blocking: Never.
///
/// Invariants: Only one NodeAgent writes; tests write where there is no agent.
class ClusterView {
 public:
  ClusterView() = default;
  ClusterView(const ClusterView&) = delete;
  ClusterView& operator=(const ClusterView&) = delete;

  /// The newest table; never null, and empty (epoch 0) before the first.
  [[nodiscard]] std::shared_ptr<const Routing> routing() const;
  /// This node as others name it: its id, its address and its incarnation.
  [[nodiscard]] v1::Endpoint self() const;
  /// The incarnation in self(); 0 before there is an agent. It may grow during the life of a
  /// process.
  [[nodiscard]] std::uint64_t incarnation() const;
  /// Both are empty before the first registration.
  [[nodiscard]] std::string cluster_id() const;
  [[nodiscard]] std::string cluster_secret() const;

  /// `routing` is not null.
  void SetRouting(std::shared_ptr<const Routing> routing);
  void SetSelf(v1::Endpoint self);
  void SetCluster(std::string cluster_id, std::string cluster_secret);

 private:
  mutable base::Mutex mutex_;
  std::shared_ptr<const Routing> routing_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const Routing>();
  v1::Endpoint self_ ABSL_GUARDED_BY(mutex_);
  std::string cluster_id_ ABSL_GUARDED_BY(mutex_);
  std::string cluster_secret_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::node
