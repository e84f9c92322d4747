// Exports the NodeManager's Prometheus metrics.
#pragma once

#include "cluster/telemetry/metrics.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/node_manager_service.h"

namespace onepiece::nodemanager {

/// Fills the onepiece_nodemanager_… metrics at every scrape.
///
/// Ownership: borrows `controller`, `service` and `log`, which must live until metrics.Stop().
void ExportMetrics(const Controller& controller, const NodeManagerService& service,
                   const ReplicatedLog& log, telemetry::Metrics& metrics);

/// The histogram onepiece_nodemanager_proposal_duration_seconds: the time from a proposal to its
/// result.
prometheus::Histogram& CommitHistogram(telemetry::Metrics& metrics);

/// Put what a log measures into histograms of `metrics`, which must outlive the log.
ReplicatedLogOptions::Observers MakeObservers(telemetry::Metrics& metrics);

}  // namespace onepiece::nodemanager
