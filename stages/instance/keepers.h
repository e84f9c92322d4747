// Says whether work would survive this instance, because others keep its messages.
#pragma once

#include <string>

#include "cluster/message/message.h"
#include "cluster/node/routing.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// Returns whether a living node other than `self` keeps the message with this header
/// (node::KeptWork). When the routing of the message's workflow set shows that this instance is
/// gone, that node gives the message to another one.
bool IsKept(const message::Header& header, const node::Routing& routing, const std::string& self);
/// Returns whether that is so for every message that the item came with.
bool IsKept(const runtime::WorkItem& item, const node::Routing& routing, const std::string& self);

}  // namespace onepiece::instance
