#include "cluster/node/refusals.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "cluster/base/status.h"
#include "cluster/node/backoff.h"
#include "cluster/rpc/status.h"

namespace onepiece::node {

base::Duration RetryAfter(const absl::Status& refusal, base::Duration most) {
  const auto metadata = base::GetReason(refusal).metadata;
  const auto said = metadata.find(rpc::kRetryAfterMs);
  std::int64_t ms = 0;
  if (said == metadata.end() || !absl::SimpleAtoi(said->second, &ms)) return {};
  const base::Duration pause = std::min<base::Duration>(
      std::chrono::milliseconds(std::clamp<std::int64_t>(ms, 0, 60'000)), most);
  return pause / 2 + RandomPart(pause);
}

std::uint64_t KnownIncarnation(const absl::Status& stale) {
  const auto metadata = base::GetReason(stale).metadata;
  const auto known = metadata.find("incarnation");
  std::uint64_t value = 0;
  const bool good = known != metadata.end() && absl::SimpleAtoi(known->second, &value);
  return good && value < std::numeric_limits<std::uint64_t>::max() ? value : 0;
}

}  // namespace onepiece::node
