// Which databases keep a job. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/node/database_order.h"

namespace onepiece::database {

using Places = std::vector<node::DatabasePlace>;

/// Returns the node ids of the first `copies` of `databases` in the order of
/// Routing::DatabasesFor, or of all when there are no more. The result points into `databases`.
std::vector<const std::string*> KeepersOf(const base::Uid& uid,
                                          std::span<const node::DatabasePlace> databases,
                                          int copies);

/// Returns whether `node_id` is one of the job's keepers.
bool Keeps(const base::Uid& uid, const std::string& node_id,
           std::span<const node::DatabasePlace> databases, int copies);

}  // namespace onepiece::database
