// Bounds the streams to clients that may stop reading, and ends each stream that stalls.
#pragma once

#include <chrono>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/stream_shares.h"
#include "grpcpp/server_context.h"

namespace onepiece::rpc {

struct StreamGuardOptions {
  /// Places, shared out among the callers (StreamShares). A stream that holds a thread should leave
  /// some of ServerOptions::max_threads for unary calls. Fetches (PartStream) hold none.
  std::size_t max_streams = 192;
  /// The guard cancels the call of a client that takes nothing for this long (scaled).
  base::Duration stall_limit = std::chrono::seconds(30);
};

/// A client that does not read holds its place and a part of the answer, and in a synchronous
/// handler also the thread, which waits in Write. The guard shares the places out, and cancels
/// streams that do not move.
///
/// Threading: may be used from any thread. It has one thread of its own.
class StreamGuard {
 public:
  explicit StreamGuard(StreamGuardOptions options = {}, base::Clock& clock = base::SystemClock());
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  /// One stream. It borrows the call's context and must go before it: at the end of a synchronous
  /// handler, or in OnDone of a reactor.
  ///
  /// Threading: used by one thread at a time.
  class Stream {
   public:
    Stream(StreamGuard& guard, grpc::ServerContextBase& context);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    /// OK, or RESOURCE_EXHAUSTED (TOO_MANY_FETCHES): the answer to a call that has no place.
    [[nodiscard]] const absl::Status& admitted() const { return place_.status(); }
    /// Says that the client has taken something.
    void Moved();

   private:
    friend class StreamGuard;
    StreamGuard& guard_;
    grpc::ServerContextBase& context_;
    const absl::StatusOr<StreamShares::Place> place_;
  };
  [[nodiscard]] std::size_t streams() const;

 private:
  void CancelStalled(const std::stop_token& stop);

  const StreamGuardOptions options_;
  base::Clock& clock_;
  StreamShares shares_;
  mutable base::Mutex mutex_;
  // The admitted streams, and when each moved last.
  std::map<Stream*, base::MonotonicTime> streams_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // Last: ends before what it uses.
};

}  // namespace onepiece::rpc
