// Keeps a limit of the configuration from falling below what its nodes use.
#pragma once

#include "nodemanager/plans/plans.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::nodemanager {

/// Checks what nodes report: the jobs in flight of proxies, and the bytes of results of databases.
/// Only limits that `next` lowers are looked at. Nobody reports the other numbers, so those limits
/// are taken, and nodes that are above one keep what they have.
///
/// Errors: FAILED_PRECONDITION (BELOW_USE with metadata "field", "in_use" and "node_id").
absl::Status CheckLimitsInUse(const StateMachine& state, const Telemetry& telemetry,
                              const v1::LimitsConfig& next);

}  // namespace onepiece::nodemanager
