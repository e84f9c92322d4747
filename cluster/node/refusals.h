// What the NodeManager's refusals say beside their reason. Internal to cluster/node.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "cluster/base/clock.h"

namespace onepiece::node {

/// Returns about the time after which a refusal says that it is worth asking again, at most `most`;
/// 0 when it does not say.
///
/// Threading: may be called from any thread.
base::Duration RetryAfter(const absl::Status& refusal, base::Duration most);

/// Returns the incarnation that a refusal names, or 0. It is greater than ours when the clock was
/// ahead in an earlier life of this node.
///
/// Threading: may be called from any thread.
std::uint64_t KnownIncarnation(const absl::Status& stale);

}  // namespace onepiece::node
