#include "nodemanager/plans/stamp_ages.h"

#include <utility>

namespace onepiece::nodemanager {

void StampAges::Note(const StateMachine& state, base::MonotonicTime now) {
  if (state.revision() == revision_) return;
  revision_ = state.revision();
  std::map<Key, base::MonotonicTime> seen;
  const auto keep = [&](Key key) {
    const auto known = seen_.find(key);
    seen.emplace(std::move(key), known == seen_.end() ? now : known->second);
  };
  for (const v1::Plan& plan : state.plans()) {
    keep(KeyOf(plan));
    for (const v1::Move& move : plan.moves()) keep(KeyOf(plan, move));
  }
  keep(KeyOf(state.hold()));
  seen_ = std::move(seen);
}

base::Duration StampAges::AgeOf(const v1::Plan& plan, base::MonotonicTime now) const {
  return AgeOf(KeyOf(plan), now);
}

base::Duration StampAges::AgeOf(const v1::Plan& plan, const v1::Move& move,
                                base::MonotonicTime now) const {
  return AgeOf(KeyOf(plan, move), now);
}

base::Duration StampAges::AgeOf(const v1::Hold& hold, base::MonotonicTime now) const {
  return AgeOf(KeyOf(hold), now);
}

base::Duration StampAges::AgeOf(const Key& key, base::MonotonicTime now) const {
  const auto known = seen_.find(key);
  return known == seen_.end() ? base::Duration::zero() : now - known->second;
}

}  // namespace onepiece::nodemanager
