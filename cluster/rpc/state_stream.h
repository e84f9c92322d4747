// A server's stream that shows the latest state of something. It costs no thread.
//
//   const auto stream = rpc::StateStream<v1::Job>::Begin(stopping);
//   stream->Keep(subscription);               // Released when the stream has ended.
//   stream->Offer(first_state, 1);            // Later states come from the subscription.
//   return stream.get();                      // gRPC's handler returns the reactor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "grpcpp/support/server_callback.h"

namespace onepiece::rpc {

/// Ends a stream that a handler does not want, with its status.
///
/// Ownership: gRPC's. It frees itself.
template <typename T>
grpc::ServerWriteReactor<T>* RefuseStream(const absl::Status& status) {
  class Refusal final : public grpc::ServerWriteReactor<T> {
   public:
    explicit Refusal(const absl::Status& why) { this->Finish(ToGrpc(why)); }

   private:
    void OnDone() override { delete this; }
  };
  return new Refusal(status);
}

/// One stream. A client that reads slowly skips states: the stream holds the state that is being
/// sent and the latest one, however many are offered.
///
/// Ownership: shared by itself until gRPC is done with the call, and by whoever offers states.
/// Threading: thread-safe.
/// Blocking: never.
template <typename T>
class StateStream final : public grpc::ServerWriteReactor<T> {
 public:
  /// The stream ends with UNAVAILABLE (STOPPING) when a stop of `stopping` is requested.
  static std::shared_ptr<StateStream> Begin(const std::stop_token& stopping) {
    const std::shared_ptr<StateStream> stream(new StateStream);
    stream->self_ = stream;
    stream->stop_.emplace(stopping, [self = stream.get()] {
      self->End(base::MakeError(absl::StatusCode::kUnavailable, "STOPPING",
                                "this server is stopping: ask another one"));
    });
    return stream;
  }

  /// Keeps `held` until the stream has ended. Call it before the handler returns.
  void Keep(std::shared_ptr<void> held) { held_ = std::move(held); }

  /// Shows a state. States that come late are left out: those with a version that is not above all
  /// earlier ones, unless `repeat` says to send the latest one again.
  void Offer(std::shared_ptr<const T> state, std::uint64_t version, bool repeat = false) {
    {
      const base::MutexLock lock(mutex_);
      if (end_.has_value() || version < version_ || (version == version_ && !repeat)) return;
      version_ = version;
      next_ = std::move(state);
    }
    Advance();
  }

  /// Ends the stream after the state that was offered last. The first call counts.
  void End(const absl::Status& status) {
    {
      const base::MutexLock lock(mutex_);
      if (!end_.has_value()) end_ = ToGrpc(status);
    }
    Advance();
  }

 private:
  StateStream() = default;

  // gRPC is called without the lock. The stream lives on meanwhile, because it only finishes, and
  // so is only released, when no state is in flight.
  void Advance() {
    const T* state = nullptr;
    grpc::Status status;
    {
      const base::MutexLock lock(mutex_);
      if (in_flight_ != nullptr || finished_) return;
      if (next_ != nullptr) {
        in_flight_ = std::move(next_);
        next_ = nullptr;
        state = in_flight_.get();
      } else if (end_.has_value()) {
        finished_ = true;
        status = *end_;
      } else {
        return;
      }
    }
    if (state != nullptr) {
      this->StartWrite(state);
    } else {
      this->Finish(status);
    }
  }

  void OnWriteDone(bool ok) override {
    {
      const base::MutexLock lock(mutex_);
      in_flight_ = nullptr;
      if (!ok) AbandonLocked();
    }
    Advance();
  }

  void OnCancel() override {
    {
      const base::MutexLock lock(mutex_);
      AbandonLocked();
    }
    Advance();
  }

  void OnDone() override {
    stop_.reset();
    held_.reset();
    self_.reset();  // Last: this may destroy the stream.
  }

  void AbandonLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    next_ = nullptr;
    if (!end_.has_value()) end_ = grpc::Status::CANCELLED;
  }

  std::shared_ptr<StateStream> self_;
  std::shared_ptr<void> held_;
  std::optional<std::stop_callback<std::function<void()>>> stop_;
  base::Mutex mutex_;
  std::shared_ptr<const T> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const T> next_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace onepiece::rpc
