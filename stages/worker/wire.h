// Statuses, stage descriptions and metrics in the messages of a worker's sockets. Private to
// stages/worker.
#pragma once

#include "absl/status/status.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/sdk/stage.h"

namespace onepiece::worker {

/// Long messages are cut, so that they fit into a packet.
v1::WorkerStatus ToWire(const absl::Status& status);
absl::Status FromWire(const v1::WorkerStatus& status);

v1::WorkerPlan ToWire(const sdk::ParallelPlan& plan);
sdk::ParallelPlan FromWire(const v1::WorkerPlan& plan);

void ToWire(const sdk::StageInfo& info, v1::StageLoaded& loaded);
sdk::StageInfo InfoFromWire(const v1::StageLoaded& loaded);

void ToWire(const std::vector<sdk::StageMetric>& metrics, v1::FromWorker& packet);
std::vector<sdk::StageMetric> MetricsFromWire(const v1::FromWorker& packet);

}  // namespace onepiece::worker
