// The identifier of a group of replicas.
#pragma once

#include "cluster/base/ids.h"

namespace onepiece::nodemanager {

/// A random number, drawn when the group began. It tells two groups of one cluster id apart. The
/// default, 0, means no group.
using GroupId = base::StrongId<struct GroupIdTag>;

}  // namespace onepiece::nodemanager
