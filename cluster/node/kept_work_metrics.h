// Shows what KeptWork keeps and counts as metrics.
#pragma once

#include <functional>
#include <string>

#include "cluster/node/kept_work.h"
#include "cluster/node/scrape.h"
#include "cluster/telemetry/metrics.h"

namespace onepiece::node {

/// Returns KeptWorkOptions::count that counts in `metrics`, which it borrows.
std::function<void(KeptWorkEvent, const std::string& stage)> CountIn(telemetry::Metrics& metrics);

/// Shows how much is kept, for as long as the hook lives. It borrows both.
[[nodiscard]] ScrapeHook ShowKept(const KeptWork& kept, telemetry::Metrics& metrics);

}  // namespace onepiece::node
