// Streams to clients that may stop reading: a bounded number of them, each ended when it stalls.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "cluster/base/clock.h"
#include "grpcpp/server_context.h"

namespace onepiece::rpc {

struct StreamGuardOptions {
  std::size_t max_streams = 256;
  /// A client that takes nothing for so long has its call cancelled; scaled.
  base::Duration stall_limit = std::chrono::seconds(30);
};

/// A client that does not read blocks its handler's Write, and with it a thread and a part of the
/// answer. The guard says no to one stream too many, and cancels those that do not move.
///
/// Threading  Thread-safe. One thread of its own.
class StreamGuard {
 public:
  explicit StreamGuard(StreamGuardOptions options = {}, base::Clock& clock = base::SystemClock());
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

  /// One stream, for as long as its handler runs. Used by that handler alone.
  class Stream {
   public:
    Stream(StreamGuard& guard, grpc::ServerContext& context);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    /// False: there are as many as may be (RESOURCE_EXHAUSTED TOO_MANY_FETCHES is due).
    [[nodiscard]] bool admitted() const { return admitted_; }
    /// Its client has taken something.
    void Moved();

   private:
    friend class StreamGuard;
    StreamGuard& guard_;
    grpc::ServerContext& context_;
    bool admitted_ = false;
    base::MonotonicTime moved_{};  // Guarded by guard_.mutex_.
  };
  [[nodiscard]] std::size_t streams() const;

 private:
  void CancelStalled(const std::stop_token& stop);

  const StreamGuardOptions options_;
  base::Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable_any ended_;
  std::set<Stream*> streams_;
  std::jthread thread_;  // Last: ends before what it uses.
};

/// What a stream that was not admitted is answered with.
grpc::Status TooManyStreams();

}  // namespace onepiece::rpc
