// Which databases keep a job. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/base/ids.h"

namespace onepiece::database {

/// The first `copies` of `databases` (node ids) in the order of Routing::DatabasesFor; all of them
/// when there are no more. In no order; points into `databases`.
std::vector<const std::string*> KeepersOf(const base::Uid& uid,
                                          std::span<const std::string> databases, int copies);

/// Whether `node_id` is one of them.
bool Keeps(const base::Uid& uid, const std::string& node_id, std::span<const std::string> databases,
           int copies);

}  // namespace onepiece::database
