// The NodeManagers lose their disks at the same time, and the group is made anew from what is left,
// as docs/operation.md tells administrators to do it. All other nodes go on.
#pragma once

#include <memory>

#include "tests/chaos/ledger_faults.h"

namespace onepiece::ledger {

/// All disks are lost. A backup was made a moment before, while the cluster worked.
///
/// Blocking: Strike() for the backup and the restore, Heal() until the group is whole and every
/// node is back under the incarnation that it had. Each has limits of its own.
std::unique_ptr<Fault> MakeAllDisksLost();
/// All disks but one are lost. Injury::dice says whose is left.
std::unique_ptr<Fault> MakeMajorityLost();

}  // namespace onepiece::ledger
