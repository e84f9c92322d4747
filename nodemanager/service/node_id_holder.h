// Which process has a node id. Without this rule two processes of one id would take each other's
// place for ever, and the whole cluster would get a new routing table each time.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// Returns the live node that has the id of `node` but is another process, as far as `state` says.
std::optional<v1::Node> FindOtherHolder(const StateMachine& state, const v1::Node& node);

struct HolderLimits {
  base::Duration dial{};     ///< How long the holder's address may take to answer. 0: not dialled.
  base::Duration silence{};  ///< A process that has been silent for longer is gone.
};

/// Refuses `node` while the process that has its id runs.
///
/// A holder at another address runs when that address answers. So a process that crashed and starts
/// again at another port is let in at once, and one whose holder stands still soon. When both have
/// one address, a connection tells nothing. Then the holder runs while its reports come: `silent`
/// is the time since the last one, nullopt when this leader has heard none.
///
/// Blocking: for the limit of a dial at most.
/// Errors: ALREADY_EXISTS (NODE_ID_IN_USE) with the metadata `node_id`, `address` and
/// `holder_address`.
absl::Status CheckHolder(const v1::Node& holder, const v1::Node& node,
                         std::optional<base::Duration> silent, const HolderLimits& limits);

}  // namespace onepiece::nodemanager
