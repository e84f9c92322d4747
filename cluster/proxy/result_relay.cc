#include "cluster/proxy/result_relay.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::proxy {
namespace {

/// The bytes of one part of a value.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

ResultRelay::ResultRelay(Sources sources, node::ResultFetches::Wanted wanted)
    : sources_(std::move(sources)), wanted_(std::move(wanted)) {}

void ResultRelay::Start(std::shared_ptr<rpc::PartStream> stream, const std::stop_token& stopping) {
  const bool whole = wanted_.offset_bytes == 0 && wanted_.limit_bytes == 0;
  const bool direct = whole && sources_.direct != nullptr;
  {
    const base::MutexLock lock(mutex_);
    stream_ = std::move(stream);
    span_.emplace(sources_.spans, wanted_.uid, "fetch");
    if (direct) span_->Set("direct", "false");
  }
  stop_.emplace(stopping, [this] { Cancel(); });
  if (direct && sources_.direct->Knows(wanted_.uid, wanted_.artifact)) {
    const bool reads = sources_.read_threads.Run([self = shared_from_this()] {
      self->Go(self->sources_.direct->Get(self->wanted_.uid, self->wanted_.artifact));
    });
    if (reads) return;
  }
  Go(std::nullopt);
}

void ResultRelay::Go(std::optional<DirectFetch::Value> value) {
  if (!value.has_value()) return Fetch(wanted_.offset_bytes, wanted_.limit_bytes);
  const auto kept = std::make_shared<const DirectFetch::Value>(*std::move(value));
  {
    const base::MutexLock lock(mutex_);
    if (stream_ == nullptr) return;
    span_->Set("direct", "true");
    phase_ = Phase::kDirect;
    value_ = kept;
    info_ = kept->info;
    rest_ = kept->bytes.bytes();
  }
  SendPiece(kept->info);
}

void ResultRelay::Fetch(std::int64_t offset_bytes, std::int64_t limit_bytes) {
  node::ResultFetches::Wanted wanted = wanted_;
  wanted.offset_bytes = offset_bytes;
  wanted.limit_bytes = limit_bytes;
  std::shared_ptr<node::ResultFetch> fetch;
  {
    const base::MutexLock lock(mutex_);
    if (stream_ == nullptr) return;
    if (phase_ == Phase::kCheck) wanted.artifact = info_.artifact();
    fetch = sources_.fetches.Make(std::move(wanted), shared_from_this());
    fetch_ = fetch;
    if (cancelled_) fetch->Cancel();
  }
  fetch->Begin();
}

void ResultRelay::OnPart(rpc::ResultPart part) {
  std::shared_ptr<rpc::PartStream> stream;
  std::shared_ptr<node::ResultFetch> fetch;
  {
    const base::MutexLock lock(mutex_);
    if (stream_ == nullptr) return;
    if (phase_ == Phase::kCheck) {
      const bool same = part.artifact.has_value() && part.artifact->sha256() == info_.sha256();
      changed_ = changed_ || !same;
    } else if (sending_) {
      next_ = std::move(part);
      return;
    } else {
      sending_ = true;
      stream = stream_;
    }
    fetch = fetch_;
  }
  if (stream != nullptr) stream->Send(part);
  fetch->Next();
}

void ResultRelay::OnEnd(const absl::Status& status) {
  absl::Status end = status;
  {
    const base::MutexLock lock(mutex_);
    fetch_ = nullptr;
    if (phase_ == Phase::kCheck) {
      end = absl::OkStatus();
      if (changed_) {
        sources_.direct->Forget(wanted_.uid);
        end = base::MakeError(absl::StatusCode::kAborted, "RESULT_CHANGED",
                              "the result changed during the fetch");
      }
    } else if (sending_) {
      end_ = std::move(end);
      return;
    }
  }
  Close(end);
}

void ResultRelay::OnTaken() {
  bool direct = false;
  {
    const base::MutexLock lock(mutex_);
    direct = phase_ == Phase::kDirect;
  }
  direct ? SendPiece(std::nullopt) : PassOn();
}

void ResultRelay::PassOn() {
  std::optional<rpc::ResultPart> part;
  std::optional<absl::Status> end;
  std::shared_ptr<rpc::PartStream> stream;
  std::shared_ptr<node::ResultFetch> fetch;
  {
    const base::MutexLock lock(mutex_);
    if (stream_ == nullptr) return;
    part = std::exchange(next_, std::nullopt);
    sending_ = part.has_value();
    if (!sending_) end = end_;
    stream = stream_;
    fetch = fetch_;
  }
  if (end.has_value()) return Close(*end);
  if (!part.has_value()) return;
  stream->Send(*part);
  if (fetch != nullptr) fetch->Next();
}

void ResultRelay::SendPiece(std::optional<v1::ResultArtifact> artifact) {
  rpc::ResultPart part{.artifact = std::move(artifact), .chunk = {}};
  std::shared_ptr<rpc::PartStream> stream;
  std::int64_t end = 0;
  bool cancelled = false;
  {
    const base::MutexLock lock(mutex_);
    if (stream_ == nullptr) return;
    cancelled = cancelled_;
    if (cancelled || rest_.empty()) {
      phase_ = Phase::kCheck;
      value_ = nullptr;
      end = info_.size_bytes();
    } else {
      const auto chunk = rest_.first(std::min(kPieceBytes, rest_.size()));
      rest_ = rest_.subspan(chunk.size());
      part.chunk.push_back(rpc::BorrowedSlice(value_, chunk));
      stream = stream_;
    }
  }
  if (cancelled) {
    return Close(base::MakeError(absl::StatusCode::kCancelled, "STREAM_BROKEN",
                                 "the stream ended before the artifact did"));
  }
  if (stream != nullptr) return stream->Send(part);
  // The database does not see the direct reads. Fetching the empty rest tells it that the client
  // has the artifact.
  Fetch(end, 0);
}

void ResultRelay::Cancel() {
  std::shared_ptr<node::ResultFetch> fetch;
  {
    const base::MutexLock lock(mutex_);
    cancelled_ = true;
    fetch = fetch_;
  }
  if (fetch != nullptr) fetch->Cancel();
}

void ResultRelay::OnGone() {
  // Destroyed without the lock.
  std::shared_ptr<rpc::PartStream> stream;
  std::shared_ptr<const DirectFetch::Value> value;
  {
    const base::MutexLock lock(mutex_);
    stream = std::exchange(stream_, nullptr);
    value = std::exchange(value_, nullptr);
    next_.reset();
    span_.reset();
  }
  Cancel();
}

void ResultRelay::Close(const absl::Status& status) {
  std::shared_ptr<rpc::PartStream> stream;
  {
    const base::MutexLock lock(mutex_);
    stream = std::exchange(stream_, nullptr);
    span_.reset();
  }
  if (stream != nullptr) stream->End(sources_.present(status));
}

}  // namespace onepiece::proxy
