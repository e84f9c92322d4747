#include "cluster/rpc/stream_shares.h"

#include "cluster/base/status.h"
#include "cluster/rpc/status.h"

namespace onepiece::rpc {

absl::StatusOr<StreamShares::Place> StreamShares::Take(const ShareHolder& caller) {
  const base::MutexLock lock(mutex_);
  const auto found = held_.find(caller.name());
  const std::size_t held = found == held_.end() ? 0 : found->second;
  const std::size_t free = options_.places - taken_;
  if (held < free) {
    ++taken_;
    ++held_[caller.name()];
    return Place(*this, caller.name());
  }
  const std::string all = std::to_string(options_.places);
  const std::string why = free == 0 ? "all " + all + " places for " + options_.what + " are taken"
                                    : "this client has its share, " + std::to_string(held) +
                                          " of the " + all + " places for " + options_.what;
  return base::MakeError(absl::StatusCode::kResourceExhausted, options_.reason,
                         why + ": " + options_.advice, {{kRetryAfterMs, "1000"}});
}

std::size_t StreamShares::taken() const {
  const base::MutexLock lock(mutex_);
  return taken_;
}

void StreamShares::GiveBack(const std::string& caller) {
  const base::MutexLock lock(mutex_);
  --taken_;
  const auto found = held_.find(caller);
  if (--found->second == 0) held_.erase(found);
}

}  // namespace onepiece::rpc
