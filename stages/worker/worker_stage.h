// Stages that run in worker processes.
#pragma once

#include <memory>

#include "stages/sdk/stage.h"
#include "stages/worker/workers.h"

namespace onepiece::worker {

/// Returns a stage that runs in the worker process of the device that it is loaded for, or in those
/// of several devices ("cpu:0,cpu:1"), which then compute each job together: every worker gets
/// the inputs, and the first one's outputs are the stage's.
///
/// A run whose process ends or stops answering fails with UNAVAILABLE (runtime::kWorkerLost); the
/// next run starts a process and loads the stage again.
std::unique_ptr<sdk::Stage> StageInWorkers(Workers& workers, StageName name);

}  // namespace onepiece::worker
