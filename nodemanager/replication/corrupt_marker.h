// The mark in the data folder of a replica whose state differs from that of the majority.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "nodemanager/paxos/types.h"

namespace onepiece::nodemanager {

/// DIR/nodemanager.corrupt: "replica ID", and why in words. It is for one replica id, so a new
/// replica in the same folder begins without it.
///
/// Blocking: waits for the disk.
/// Errors: UNAVAILABLE (MARKER_NOT_WRITTEN).
absl::Status WriteCorruptMarker(const std::string& dir, paxos::ReplicaId replica,
                                const std::string& why);
/// Why `replica`, which has this folder, is corrupt. nullopt: it is not. A mark that cannot be read
/// counts, because somebody wrote it.
std::optional<std::string> ReadCorruptMarker(const std::string& dir, paxos::ReplicaId replica);

}  // namespace onepiece::nodemanager
