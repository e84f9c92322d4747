#include "cluster/proxy/input_budget.h"

#include <string>

#include "cluster/base/mutex.h"
#include "cluster/rpc/status.h"

namespace onepiece::proxy {

absl::StatusOr<std::int64_t> InputBudget::Take(std::int64_t bytes) {
  const base::MutexLock lock(mutex_);
  if (bytes > limit_bytes_ - held_bytes_) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "INPUTS_BUSY",
                           "this proxy handles " + std::to_string(held_bytes_) +
                               " bytes of inputs; its limit is " + std::to_string(limit_bytes_),
                           {{"limit", std::to_string(limit_bytes_)}, {rpc::kRetryAfterMs, "200"}});
  }
  held_bytes_ += bytes;
  return bytes;
}

void InputBudget::Give(std::int64_t bytes) {
  const base::MutexLock lock(mutex_);
  held_bytes_ -= bytes;
}

}  // namespace onepiece::proxy
