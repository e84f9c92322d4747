// One stream of messages that are serialised already, to one client.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "cluster/rpc/stream_shares.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace onepiece::nodemanager {

/// It holds one message at most, the one that is on its way. Whoever sends makes the next message
/// when this one has gone, and so leaves out what a slow client has missed. A stream costs no
/// thread.
///
/// Ownership: shared by itself until gRPC is done with the call, and by whoever sends.
/// Threading: thread-safe. Only one thread sends.
/// Blocking: never.
class WatchStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  /// `wake` is called, on one of gRPC's threads, when a sender that found the stream busy can send
  /// again, and when the client has left. It must not block. The stream gives `place` back when it
  /// has ended.
  static std::shared_ptr<WatchStream> Begin(rpc::StreamShares::Place place,
                                            std::function<void()> wake) {
    const std::shared_ptr<WatchStream> stream(new WatchStream(std::move(place), std::move(wake)));
    stream->self_ = stream;
    return stream;
  }

  /// Returns true when the stream takes a message now. Otherwise it will call `wake`.
  [[nodiscard]] bool CanSend() {
    const base::MutexLock lock(mutex_);
    if (!busy_ && !end_) return true;
    awaited_ = true;
    return false;
  }

  /// REQUIRES: CanSend() was true since the last call.
  void Send(grpc::ByteBuffer message) {
    {
      const base::MutexLock lock(mutex_);
      if (end_) return;  // The client has left since.
      message_ = std::move(message);
      busy_ = true;
    }
    StartWrite(&message_);
  }

  /// Ends the stream after the message that is on its way. The first call counts.
  void End(const absl::Status& status) {
    {
      const base::MutexLock lock(mutex_);
      if (!end_) end_ = rpc::ToGrpc(status);
    }
    FinishIfIdle();
  }

  /// True when nothing can be sent any more.
  [[nodiscard]] bool ended() const {
    const base::MutexLock lock(mutex_);
    return end_.has_value();
  }

 private:
  WatchStream(rpc::StreamShares::Place place, std::function<void()> wake)
      : place_(std::move(place)), wake_(std::move(wake)) {}

  // gRPC is called without the lock. The stream lives on meanwhile: gRPC is done with it only after
  // Finish(), which one thread alone calls.
  void FinishIfIdle() {
    grpc::Status status;
    {
      const base::MutexLock lock(mutex_);
      if (busy_ || !end_ || finished_) return;
      finished_ = true;
      status = *end_;
    }
    Finish(status);
  }

  void OnWriteDone(bool ok) override {
    bool awaited = false;
    {
      const base::MutexLock lock(mutex_);
      busy_ = false;
      message_.Clear();
      if (!ok && !end_) end_ = grpc::Status::CANCELLED;
      awaited = std::exchange(awaited_, false) || !ok;
    }
    if (awaited) wake_();
    FinishIfIdle();
  }

  void OnCancel() override {
    {
      const base::MutexLock lock(mutex_);
      if (!end_) end_ = grpc::Status::CANCELLED;
    }
    wake_();
    FinishIfIdle();
  }

  void OnDone() override {
    place_ = {};
    self_.reset();  // Last: this may destroy the stream.
  }

  std::shared_ptr<WatchStream> self_;
  rpc::StreamShares::Place place_;
  const std::function<void()> wake_;
  // Written while nothing is on its way, and read by gRPC while `busy_`.
  grpc::ByteBuffer message_;
  mutable base::Mutex mutex_;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool awaited_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace onepiece::nodemanager
