// Bounds the streams to clients that may stop reading, and ends each stream that stalls.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "grpcpp/server_context.h"

namespace onepiece::rpc {

struct StreamGuardOptions {
  std::size_t max_streams = 256;
  /// The guard cancels the call of a client that takes nothing for this long (scaled).
  base::Duration stall_limit = std::chrono::seconds(30);
};

/// A client that does not read blocks its handler's Write, and with it a thread and a part of the
/// answer. The guard refuses streams beyond the limit, and cancels streams that do not move.
///
/// Threading: may be used from any thread. It has one thread of its own.
class StreamGuard {
 public:
  explicit StreamGuard(StreamGuardOptions options = {}, base::Clock& clock = base::SystemClock());
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  /// One stream, for as long as its handler runs.
  ///
  /// Threading: only that handler uses it.
  class Stream {
   public:
    Stream(StreamGuard& guard, grpc::ServerContext& context);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    /// False when there are too many streams. The handler then answers TooManyStreams().
    [[nodiscard]] bool admitted() const { return admitted_; }
    /// Says that the client has taken something.
    void Moved();

   private:
    friend class StreamGuard;
    StreamGuard& guard_;
    grpc::ServerContext& context_;
    bool admitted_ = false;
  };
  [[nodiscard]] std::size_t streams() const;

 private:
  void CancelStalled(const std::stop_token& stop);

  const StreamGuardOptions options_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  // The admitted streams, and when each moved last.
  std::map<Stream*, base::MonotonicTime> streams_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;  // Last: ends before what it uses.
};

/// Returns RESOURCE_EXHAUSTED (TOO_MANY_FETCHES), the answer to a stream that was not admitted.
grpc::Status TooManyStreams();

}  // namespace onepiece::rpc
