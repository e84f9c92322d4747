// Says what a cluster has not yet brought about of its configuration, for `onepiece apply --wait`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::cli {

/// Returns a sentence for each thing that is missing. Empty: every stage of every application is
/// served, no plan moves instances, and every instance serves what it is assigned, as the present
/// configuration has it.
///
/// `revision` is the configuration that is waited for.
std::vector<std::string> WhatIsMissing(const v1::Cluster& cluster, const v1::Elasticity& elasticity,
                                       std::uint64_t revision);

}  // namespace onepiece::cli
