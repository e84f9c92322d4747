// An entry of the audit log as scripts read it, of the command line and of the NodeManagers' files.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::telemetry {

/// Threading: thread-safe.
nlohmann::ordered_json AuditDocument(const v1::AuditEntry& entry);

}  // namespace onepiece::telemetry
