#include "cluster/rpc/part_stream.h"

#include <utility>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"

namespace onepiece::rpc {

PartStream::PartStream(std::unique_ptr<StreamGuard::Stream> place,
                       std::shared_ptr<PartFeeder> feeder)
    : place_(std::move(place)), feeder_(std::move(feeder)) {}

std::shared_ptr<PartStream> PartStream::Begin(std::unique_ptr<StreamGuard::Stream> place,
                                              std::shared_ptr<PartFeeder> feeder) {
  ONEPIECE_CHECK(place->admitted().ok());
  const std::shared_ptr<PartStream> stream(new PartStream(std::move(place), std::move(feeder)));
  stream->self_ = stream;
  return stream;
}

// Returns what gRPC is to send, or nullptr when the stream has ended. gRPC is called without the
// lock, here and below. It reads `in_flight_` until OnWriteDone or OnDone, and nothing touches that
// before, because `writing_` or `finished_` is set.
const grpc::ByteBuffer* PartStream::Load(const ResultPart& part, bool last) {
  const base::MutexLock lock(mutex_);
  if (end_.has_value()) return nullptr;
  ONEPIECE_CHECK(!writing_);
  in_flight_ = EncodePart(part);
  (last ? finished_ : writing_) = true;
  last_sent_ = last;
  if (last) end_ = grpc::Status::OK;
  return &in_flight_;
}

void PartStream::Send(const ResultPart& part) {
  if (const grpc::ByteBuffer* const bytes = Load(part, /*last=*/false)) StartWrite(bytes);
}

// Not a StartWrite with WriteOptions::set_last_message() and then Finish(): gRPC keeps such a
// message until Finish(), and OnWriteDone comes when it is written. Who waits for OnWriteDone
// before Finish() waits until something else makes the connection write. For small parts that was
// the next keepalive, 10 s later.
void PartStream::SendLast(const ResultPart& part) {
  if (const grpc::ByteBuffer* const bytes = Load(part, /*last=*/true)) {
    StartWriteAndFinish(bytes, grpc::WriteOptions(), grpc::Status::OK);
  }
}

void PartStream::End(const absl::Status& status) {
  {
    const base::MutexLock lock(mutex_);
    if (!end_.has_value()) end_ = ToGrpc(status);
  }
  FinishIfIdle();
}

void PartStream::FinishIfIdle() {
  grpc::Status status;
  {
    const base::MutexLock lock(mutex_);
    if (writing_ || finished_ || !end_.has_value()) return;
    finished_ = true;
    status = *end_;
  }
  Finish(status);
}

void PartStream::OnWriteDone(bool ok) {
  // A broken stream is not always cancelled too.
  if (!ok) feeder_->OnGone();
  bool next = false;
  {
    const base::MutexLock lock(mutex_);
    writing_ = false;
    in_flight_.Clear();
    if (!ok && !end_.has_value()) {
      end_ = ToGrpc(base::MakeError(absl::StatusCode::kUnavailable, "STREAM_BROKEN",
                                    "the stream ended before the artifact did"));
    }
    next = !end_.has_value();
  }
  if (!next) return FinishIfIdle();
  place_->Moved();
  feeder_->OnTaken();
}

void PartStream::OnCancel() {
  {
    const base::MutexLock lock(mutex_);
    gone_ = true;
  }
  feeder_->OnGone();
  End(absl::CancelledError("the client has gone"));
}

// gRPC calls it last, after OnCancel.
void PartStream::OnDone() {
  bool complete = false;
  {
    const base::MutexLock lock(mutex_);
    complete = last_sent_ && !gone_;
  }
  if (complete) feeder_->OnComplete();
  place_.reset();  // Before the context, which it borrows, goes.
  self_.reset();   // Last: this may destroy the stream.
}

}  // namespace onepiece::rpc
