// Which process has a node id. Without this rule two processes of one id would take each other's
// place for ever, and the whole cluster would get a new routing table each time.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "nodemanager/service/addresses.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// Returns the live node that has the id of `node` but is another process, as far as `state` says.
std::optional<v1::Node> FindOtherHolder(const StateMachine& state, const v1::Node& node);

struct HolderSigns {
  /// A connection to the holder's address that is being made. Null: it is not dialled.
  const Dialling* dialling = nullptr;
  /// The time since its last report; nullopt when this leader has heard none.
  std::optional<base::Duration> silent;
  base::Duration silence_limit{};  ///< A process that has been silent for longer is gone.
};

/// Refuses `node` while the process that has its id runs.
///
/// A holder at another address runs when that address answers. So a process that crashed and starts
/// again at another port is let in at once, and one whose holder stands still soon. When both have
/// one address, a connection tells nothing. Then the holder runs while its reports come.
///
/// Blocking: for the limit of the dialling at most.
/// Errors: ALREADY_EXISTS (NODE_ID_IN_USE) with the metadata `node_id`, `address` and
/// `holder_address`.
absl::Status CheckHolder(const v1::Node& holder, const v1::Node& node, const HolderSigns& signs);

}  // namespace onepiece::nodemanager
