// Log entries in words.
#pragma once

#include "nodemanager/paxos/types.h"
#include "onepiece/v1/consensus.pb.h"

namespace onepiece::nodemanager {

/// The entry for people, without Line::chosen.
v1::ListLogResponse::Line DescribeEntry(const paxos::AcceptedEntry& accepted);

}  // namespace onepiece::nodemanager
