// Who holds a job's work, as records name it.
#pragma once

#include <cstdint>

#include "cluster/message/message.h"
#include "cluster/node/delivered.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::node {

/// Returns the record's entry for the node at `endpoint`, which has the message with this header
/// under `attempt`: an instance that was given the work of a stage, or a database that was given a
/// result (message::Kind::kResult). The `table` says how the application's stages follow each
/// other.
v1::WorkHolder HolderAt(const Routing& table, const message::Header& header,
                        const v1::Endpoint& endpoint, std::uint32_t attempt);
/// Returns the entry for the node that took the message. Whether it is dead is judged from the
/// table by which it was chosen.
v1::WorkHolder HolderAt(const Routing& table, const message::Header& header,
                        const Delivered& delivered);

}  // namespace onepiece::node
