// When dead nodes are forgotten.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// A node with this label, "true", is forgotten as soon as it is dead.
inline constexpr char kEphemeralLabel[] = "onepiece.ephemeral";

/// Remembers since when each dead node is known to be dead. It counts from the first look at the
/// record, by the monotonic clock of this leader: no wall clock decides, and under a new leader the
/// time begins anew.
///
/// Threading: thread-confined.
class Forgetting {
 public:
  /// The most nodes that one look names, so that their removal does not hold up the caller's other
  /// duties.
  static constexpr std::size_t kAtOnce = 16;

  explicit Forgetting(base::Duration after) : after_(after) {}

  /// Returns the nodes of `state` that have been dead for long enough, longest first. Until the
  /// cluster's feature level knows RemoveNode, there are none.
  std::vector<v1::RemoveNode> Due(const StateMachine& state, base::MonotonicTime now);
  void SetAfter(base::Duration after) { after_ = after; }
  /// Forgets all times. Call it when this replica begins to lead.
  void Clear() { dead_.clear(); }

 private:
  struct Dead {
    std::uint64_t incarnation = 0;
    base::MonotonicTime since{};
  };
  base::Duration after_;
  std::map<std::string, Dead> dead_;  // At most StateMachine::kMaxNodes.
};

}  // namespace onepiece::nodemanager
