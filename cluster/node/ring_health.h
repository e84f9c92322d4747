// A ring's health on the wire and as metrics. Internal to cluster/node.
#pragma once

#include <string>

#include "cluster/base/clock.h"
#include "cluster/ring/health.h"
#include "onepiece/v1/ring.pb.h"

namespace onepiece::telemetry {
class Metrics;
}  // namespace onepiece::telemetry

namespace onepiece::node {

/// `now` is the time of the clock that made `health`.
v1::RingHealth ToProto(const ring::RingHealth& health, const std::string& label,
                       base::MonotonicTime now);
/// `malformed` is the number of messages that arrived intact and made no sense.
void ExportRing(const ring::RingHealth& health, std::uint64_t malformed,
                telemetry::Metrics& metrics);

}  // namespace onepiece::node
