// What a delivery has come to.
#pragma once

#include <cstdint>

#include "cluster/base/clock.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// The outcome of a delivery.
struct Delivered {
  v1::Endpoint endpoint;            ///< The node that has the message.
  std::uint32_t attempt = 0;        ///< The attempt in the message, and in the record's holder.
  std::uint64_t routing_epoch = 0;  ///< Of the routing table by which `endpoint` was chosen.
  base::Duration encode{};          ///< Time spent on encoding, checksums included.
};

}  // namespace onepiece::node
