#include "cluster/node/cluster_view.h"

#include <utility>

#include "cluster/base/check.h"

namespace onepiece::node {

std::shared_ptr<const Routing> ClusterView::routing() const {
  const base::MutexLock lock(mutex_);
  return routing_;
}

v1::Endpoint ClusterView::self() const {
  const base::MutexLock lock(mutex_);
  return self_;
}

std::uint64_t ClusterView::incarnation() const {
  const base::MutexLock lock(mutex_);
  return self_.incarnation();
}

std::string ClusterView::cluster_id() const {
  const base::MutexLock lock(mutex_);
  return cluster_id_;
}

std::string ClusterView::cluster_secret() const {
  const base::MutexLock lock(mutex_);
  return cluster_secret_;
}

void ClusterView::SetRouting(std::shared_ptr<const Routing> routing) {
  ONEPIECE_CHECK(routing != nullptr);
  const base::MutexLock lock(mutex_);
  // The old table goes after the lock: a large one takes a while to free.
  routing_.swap(routing);
}

void ClusterView::SetSelf(v1::Endpoint self) {
  const base::MutexLock lock(mutex_);
  self_ = std::move(self);
}

void ClusterView::SetCluster(std::string cluster_id, std::string cluster_secret) {
  const base::MutexLock lock(mutex_);
  cluster_id_ = std::move(cluster_id);
  cluster_secret_ = std::move(cluster_secret);
}

}  // namespace onepiece::node
