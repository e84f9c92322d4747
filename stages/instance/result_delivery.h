// Helpers that send the last stage's outputs to the job's database.
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

/// Computes the SHA-256 of each byte artifact that has none. It is computed only here, where the
/// result is made. Reads the bytes.
void AddSha256(std::vector<message::Artifact>& artifacts);

/// Writes a large result (values::IsForPut) straight into the memory of its first database, and
/// records a span "send". Returns nullopt when the result must be sent by message.
std::optional<node::Delivered> PutResult(const message::Message& message,
                                         const node::Routing& routing, values::ValuePeers& peers,
                                         telemetry::Spans& spans, base::Clock& clock,
                                         base::MonotonicTime deadline);

}  // namespace onepiece::instance
