// A server's stream of a result's parts. It costs no thread, however slowly the client reads.
//
//   const auto stream = rpc::PartStream::Begin(std::move(admitted), feeder);
//   feeder->Start(*stream);                   // It sends the first part, or will later.
//   return stream->reactor();                 // gRPC's handler returns the reactor.
#pragma once

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/result_part.h"
#include "cluster/rpc/stream_guard.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace onepiece::rpc {

/// Has the parts that a PartStream sends.
///
/// Threading: called by gRPC's threads, OnTaken one call at a time. OnGone may come from another
/// thread at the same time. Neither may block, because a few threads serve all streams.
class PartFeeder {
 public:
  virtual ~PartFeeder() = default;
  /// The client's transport has taken the part: send the next one, or end the stream.
  virtual void OnTaken() = 0;
  /// The client has gone, or was cancelled because it took nothing. Nothing more is sent. May come
  /// twice.
  virtual void OnGone() {}
  /// The stream is over, and the client's transport has taken all of it, the last part included.
  virtual void OnComplete() {}
};

/// One stream. At most one part is in flight, and a client that does not read stops its feeder.
///
/// Ownership: shared by itself until gRPC is done with the call, and by whoever sends. It keeps the
/// feeder until then.
/// Threading: thread-safe.
/// Blocking: never.
class PartStream final : private grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  /// REQUIRES: `place` is admitted.
  static std::shared_ptr<PartStream> Begin(std::unique_ptr<StreamGuard::Stream> place,
                                           std::shared_ptr<PartFeeder> feeder);
  /// gRPC owns it from here.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* reactor() { return this; }

  /// Sends a part. REQUIRES: the part before it has been taken. Has no effect after End().
  void Send(const ResultPart& part);
  /// Sends the last part and ends the stream with OK, all in one write. OnTaken does not follow.
  /// REQUIRES: as Send.
  void SendLast(const ResultPart& part);
  /// Ends the stream after the part that is in flight. The first call counts.
  void End(const absl::Status& status);

 private:
  PartStream(std::unique_ptr<StreamGuard::Stream> place, std::shared_ptr<PartFeeder> feeder);

  const grpc::ByteBuffer* Load(const ResultPart& part, bool last);
  void FinishIfIdle();
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  std::shared_ptr<PartStream> self_;
  std::unique_ptr<StreamGuard::Stream> place_;
  const std::shared_ptr<PartFeeder> feeder_;
  base::Mutex mutex_;
  grpc::ByteBuffer in_flight_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_sent_ ABSL_GUARDED_BY(mutex_) = false;  // SendLast ended the stream.
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has been told the status.
};

}  // namespace onepiece::rpc
