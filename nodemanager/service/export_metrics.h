// The NodeManager's Prometheus metrics.
#pragma once

#include "cluster/telemetry/metrics.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/node_manager_service.h"

namespace onepiece::nodemanager {

/// Fills the onepiece_nodemanager_… metrics at every scrape. `controller` and `service` outlive
/// metrics.Stop().
void ExportMetrics(const Controller& controller, const NodeManagerService& service,
                   telemetry::Metrics& metrics);

}  // namespace onepiece::nodemanager
