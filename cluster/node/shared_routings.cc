#include "cluster/node/shared_routings.h"

#include <utility>

#include "cluster/base/status.h"
#include "cluster/node/routing_delta.h"

namespace onepiece::node {

absl::StatusOr<std::shared_ptr<const Routing>> ChangedRouting(const Routing& base,
                                                              const v1::RoutingTable& delta) {
  v1::RoutingTable whole = base.table();
  ONEPIECE_RETURN_IF_ERROR(ApplyRoutingDelta(delta, whole));
  return std::make_shared<const Routing>(std::move(whole));
}

std::shared_ptr<const Routing> SharedRoutings::Get(const std::string& workflow_set,
                                                   std::uint64_t epoch, const Make& make) {
  // The lock is held while the table is made, so that the others find it.
  const base::MutexLock lock(mutex_);
  for (const auto& kept : kept_) {
    if (kept->epoch() == epoch && kept->table().workflow_set() == workflow_set) return kept;
  }
  std::shared_ptr<const Routing> made = make();
  if (made == nullptr) return nullptr;
  kept_.push_front(made);
  if (kept_.size() > kKept) kept_.pop_back();
  return made;
}

}  // namespace onepiece::node
