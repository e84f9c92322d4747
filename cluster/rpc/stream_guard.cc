#include "cluster/rpc/stream_guard.h"

#include "cluster/base/mutex.h"

namespace onepiece::rpc {

StreamGuard::Stream::Stream(StreamGuard& guard, grpc::ServerContextBase& context)
    : guard_(guard), context_(context), place_(guard.shares_.Take(ShareHolder::Of(context))) {
  if (!place_.ok()) return;
  const base::MutexLock lock(guard_.mutex_);
  guard_.streams_[this] = guard_.clock_.Now();
}

StreamGuard::Stream::~Stream() {
  const base::MutexLock lock(guard_.mutex_);
  guard_.streams_.erase(this);
}

void StreamGuard::Stream::Moved() {
  const base::MutexLock lock(guard_.mutex_);
  if (const auto self = guard_.streams_.find(this); self != guard_.streams_.end())
    self->second = guard_.clock_.Now();
}

StreamGuard::StreamGuard(StreamGuardOptions options, base::Clock& clock)
    : options_(options),
      clock_(clock),
      shares_({.places = options.max_streams,
               .reason = "TOO_MANY_FETCHES",
               .what = "fetches of results",
               .advice = "let a fetch end first, or ask again later"}),
      thread_([this](const std::stop_token& stop) { CancelStalled(stop); }) {}

std::size_t StreamGuard::streams() const {
  const base::MutexLock lock(mutex_);
  return streams_.size();
}

void StreamGuard::CancelStalled(const std::stop_token& stop) {
  const base::Duration limit = base::Scaled(options_.stall_limit);
  // A stall is noticed at most an eighth of the limit late.
  while (clock_.Pause(stop, limit / 8)) {
    const base::MonotonicTime now = clock_.Now();
    const base::MutexLock lock(mutex_);
    for (const auto& [stream, moved] : streams_) {
      // The context is alive: ~Stream() takes this lock before the context goes.
      if (now - moved >= limit) stream->context_.TryCancel();
    }
  }
}

}  // namespace onepiece::rpc
