// Which databases keep a job. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/base/ids.h"

namespace onepiece::database {

/// Returns the first `copies` of `databases` (node ids) in the order of Routing::DatabasesFor, or
/// all of them when there are no more. The result has no order and points into `databases`.
std::vector<const std::string*> KeepersOf(const base::Uid& uid,
                                          std::span<const std::string> databases, int copies);

/// Returns whether `node_id` is one of the job's keepers.
bool Keeps(const base::Uid& uid, const std::string& node_id, std::span<const std::string> databases,
           int copies);

}  // namespace onepiece::database
