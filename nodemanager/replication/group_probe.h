// Asks the other seats of a new group whether there is a group already. Private to this folder.
#pragma once

#include <string>

#include "nodemanager/replication/log_options.h"

namespace onepiece::nodemanager {

/// What the others said: that there is a group to join, or else for whom a new group has to wait.
struct GroupProbe {
  bool have_group = false;  ///< There is a group to join.
  std::string waits_for;    ///< The seats for which a new group has to wait, and why.
};

/// Asks every other seat of `options` at the same time.
///
/// Threading: thread-safe.
/// Blocking: for one second at most, because it asks all seats at the same time.
GroupProbe ProbeGroup(const ReplicatedLogOptions& options);

}  // namespace onepiece::nodemanager
