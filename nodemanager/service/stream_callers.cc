#include "nodemanager/service/stream_callers.h"

#include "cluster/rpc/door.h"
#include "nodemanager/service/command_caller.h"

namespace onepiece::nodemanager {

StreamCallers::ShownCredentials StreamCallers::ShownBy(
    const grpc::CallbackServerContext& context) const {
  if (door_ == nullptr) return {};
  return {.certificate = ShownCertificate(context), .authorization = ShownAuthorization(context)};
}

absl::Status StreamCallers::Judge(const ShownCredentials& shown) const {
  return door_->Identify(shown.certificate, shown.authorization).status();
}

void StreamCallers::Add(const std::shared_ptr<WatchStream>& stream, ShownCredentials shown) {
  if (door_ == nullptr) return;
  // The table may have changed, and been looked at here, since the door let the call in.
  if (const absl::Status allowed = Judge(shown); !allowed.ok()) return stream->End(allowed);
  // Clients that come and go all the time must not fill the list between two looks.
  if (streams_.size() >= most_) {
    std::erase_if(streams_, [](const Stream& entry) { return entry.stream.expired(); });
    most_ = 2 * streams_.size() + kLeast;
  }
  streams_.push_back({.stream = stream, .shown = std::move(shown)});
}

void StreamCallers::Look(base::MonotonicTime now) {
  if (door_ == nullptr) return;
  // Read before the looks: a table that comes meanwhile is looked at in the next round.
  const std::uint64_t epoch = door_->epoch();
  if (epoch == epoch_ && now < next_) return;
  epoch_ = epoch;
  next_ = now + kPeriod;
  std::erase_if(streams_, [this](const Stream& entry) {
    const std::shared_ptr<WatchStream> stream = entry.stream.lock();
    if (stream == nullptr || stream->ended()) return true;
    const absl::Status allowed = Judge(entry.shown);
    if (!allowed.ok()) stream->End(allowed);
    return !allowed.ok();
  });
}

base::Duration StreamCallers::Period() const {
  return door_ == nullptr ? base::Duration::max() : kPeriod;
}

}  // namespace onepiece::nodemanager
