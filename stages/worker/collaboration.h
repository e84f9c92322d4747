// A stage whose jobs several worker processes compute together. Private to stages/worker.
#pragma once

#include <memory>

#include "stages/sdk/stage.h"
#include "stages/worker/workers.h"

namespace onepiece::worker {

/// Returns a stage that is loaded for the devices of a list ("cpu:0,cpu:1"), at least two, each
/// once. See StageInWorkers.
///
/// Errors of Load: INVALID_ARGUMENT (BAD_DEVICES), UNIMPLEMENTED (NO_COLLECTIVES: a CUDA device).
/// Errors of Run: those of the stage; UNAVAILABLE (runtime::kWorkerLost), which names the rank: the
/// first worker that died, or did not come to a collective call in WorkersOptions::rank_timeout and
/// was killed.
std::unique_ptr<sdk::Stage> CollaborativeStage(Workers& workers, StageName name);

}  // namespace onepiece::worker
