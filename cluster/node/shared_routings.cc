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

std::shared_ptr<const Routing> SharedRoutings::Find(const Routing* base,
                                                    const std::string& message) const {
  for (const Made& made : kept_) {
    // A base that is gone equals none, because the caller holds its own.
    if (made.base.lock().get() == base && made.message == message) return made.result;
  }
  return nullptr;
}

void SharedRoutings::Keep(Made made) {
  ++made_;
  kept_.push_front(std::move(made));
  if (kept_.size() > kKept) kept_.pop_back();
}

absl::StatusOr<std::shared_ptr<const Routing>> SharedRoutings::Changed(
    const std::shared_ptr<const Routing>& base, const v1::RoutingTable& delta) {
  std::string message = delta.SerializeAsString();
  // The lock is held while the table is made, so that the others find it.
  const base::MutexLock lock(mutex_);
  if (auto found = Find(base.get(), message); found != nullptr) return found;
  ONEPIECE_ASSIGN_OR_RETURN(std::shared_ptr<const Routing> result, ChangedRouting(*base, delta));
  Keep({.base = base, .message = std::move(message), .result = result});
  return result;
}

std::shared_ptr<const Routing> SharedRoutings::Whole(v1::RoutingTable table) {
  std::string message = table.SerializeAsString();
  const base::MutexLock lock(mutex_);
  if (auto found = Find(nullptr, message); found != nullptr) return found;
  auto result = std::make_shared<const Routing>(std::move(table));
  Keep({.base = {}, .message = std::move(message), .result = result});
  return result;
}

std::size_t SharedRoutings::made() const {
  const base::MutexLock lock(mutex_);
  return made_;
}

}  // namespace onepiece::node
