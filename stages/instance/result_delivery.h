// The last stage's outputs on their way to the job's database.
#pragma once

#include <optional>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "cluster/node/outbox.h"
#include "cluster/node/routing.h"
#include "cluster/telemetry/spans.h"
#include "cluster/values/remote_values.h"

namespace onepiece::instance {

/// Computes the SHA-256 of each artifact of bytes that has none: here, where the result is made,
/// and nowhere after. Reads the bytes.
void AddSha256(std::vector<message::Artifact>& artifacts);

/// Writes a result that is large enough (values::IsForPut) straight into the memory of its first
/// database. nullopt: it has to go by message. A span "send" tells of it.
std::optional<node::Delivered> PutResult(const message::Message& message,
                                         const node::Routing& routing, values::ValuePeers& peers,
                                         telemetry::Spans& spans, base::Clock& clock,
                                         base::MonotonicTime deadline);

}  // namespace onepiece::instance
