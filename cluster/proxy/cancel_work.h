// Calls back the work of a job that has ended early.
#pragma once

#include "cluster/node/routing.h"
#include "cluster/proxy/channel_cache.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::proxy {

/// Tells every instance of the job's workflow that nobody waits for the job any more. Best effort:
/// an instance that does not hear of it computes for nothing.
///
/// Blocking: half a second (scaled) for each 16 instances, at most.
void CancelWork(const v1::Job& job, const node::Routing& routing, ChannelCache& channels);

}  // namespace onepiece::proxy
