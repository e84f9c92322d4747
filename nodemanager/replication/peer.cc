#include "nodemanager/replication/peer.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::milliseconds;

// An election takes less than a second. So a broken connection must be noticed, and a peer that is
// back be reached, in less than that.
constexpr rpc::ChannelTiming kTiming = {.backoff_min = milliseconds(20),
                                        .backoff_max = milliseconds(200),
                                        .connect = milliseconds(1000),
                                        .keepalive = milliseconds(1000),
                                        .keepalive_timeout = milliseconds(2000)};
constexpr auto kRetry = milliseconds(50);
// A stream that has lasted this long was not refused.
constexpr auto kSettled = milliseconds(2000);
constexpr auto kRetryRefused = milliseconds(500);
// How long the thread of a stream that works sleeps at most.
constexpr base::Duration kLongRest = std::chrono::hours(1);
// An envelope takes messages until it has this many bytes. The last message may exceed it.
constexpr std::size_t kEnvelopeBytes = std::size_t{4} << 20;

constexpr const char* kExchange = "/onepiece.v1.ReplicaService/Exchange";

}  // namespace

// A stream of bytes, because the messages in them are shared with other streams. At most one
// operation is under way, so its end is always the next one of `done`. The queue is the stream's
// own: who begins an operation that ends at once finds it there, without waking a thread.
struct Peer::Stream {
  explicit Stream(grpc::Channel& channel)
      : writer(grpc::internal::ClientAsyncWriterFactory<grpc::ByteBuffer>::Create(
            &channel, &done,
            grpc::internal::RpcMethod(kExchange, grpc::internal::RpcMethod::CLIENT_STREAMING),
            &context, &response, /*start=*/true, this)) {}
  // REQUIRES: no operation is under way.
  ~Stream() {
    writer.reset();
    done.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (done.Next(&tag, &ok)) continue;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits for the end of the operation under way. A cancelled one ends soon.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return done.Next(&tag, &ok) && ok;
  }
  // Whether the operation succeeded, or nothing while it is under way.
  std::optional<bool> Look() {
    void* tag = nullptr;
    bool ok = false;
    const auto event = done.AsyncNext(&tag, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (event == grpc::CompletionQueue::TIMEOUT) return std::nullopt;
    return event == grpc::CompletionQueue::GOT_EVENT && ok;
  }

  grpc::CompletionQueue done;
  grpc::ClientContext context;
  google::protobuf::Empty response;
  std::unique_ptr<grpc::ClientAsyncWriter<grpc::ByteBuffer>> writer;
};

Peer::Peer(std::string address, v1::ReplicaHello hello, base::Clock& clock)
    : address_(std::move(address)),
      hello_(std::move(hello)),
      clock_(clock),
      channel_(rpc::MakeChannel(address_, kTiming)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

Peer::~Peer() {
  thread_.request_stop();
  thread_.join();
}

void Peer::Send(std::shared_ptr<const EncodedMessage> message) {
  const std::size_t bytes = message->size();
  const base::MutexLock lock(mutex_);
  if (queue_.size() >= kMaxMessages || queued_bytes_ + bytes > kMaxBytes) {
    queue_.clear();
    queued_bytes_ = 0;
  }
  const bool first = queue_.empty();
  queue_.push_back(std::move(message));
  queued_bytes_ += bytes;
  if (turn_ == Turn::kSender) {
    WriteQueued();
  } else if (turn_ == Turn::kNobody && first) {
    changed_.NotifyOne();
  }
}

void Peer::WriteQueued() {
  while (turn_ == Turn::kSender && !queue_.empty()) {
    BeginWrite();
    const std::optional<bool> ok = stream_->Look();
    if (ok.value_or(false)) continue;
    // The thread waits for the end of the write, or ends the stream.
    turn_ = ok ? Turn::kNobody : Turn::kWaiting;
    if (ok) stream_ = nullptr;
    changed_.NotifyOne();
  }
}

void Peer::BeginWrite() {
  std::vector<grpc::Slice> slices;
  for (std::size_t bytes = 0; bytes < kEnvelopeBytes && !queue_.empty(); queue_.pop_front()) {
    slices.push_back(queue_.front()->bytes());
    bytes += queue_.front()->size();
    queued_bytes_ -= queue_.front()->size();
  }
  stream_->writer->Write(grpc::ByteBuffer(slices.data(), slices.size()), stream_);
}

void Peer::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      base::MutexLock lock(mutex_);
      if (!changed_.Wait(lock, stop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            return !queue_.empty();
          }))
        return;
    }
    const absl::Status why = Speak(stop);
    if (stop.stop_requested()) return;
    Tell(why);
    const bool refused = why.code() == absl::StatusCode::kFailedPrecondition;
    clock_.Pause(stop, refused ? kRetryRefused : kRetry);
  }
}

absl::Status Peer::Speak(const std::stop_token& stop) {
  Stream stream(*channel_);
  // An operation may take for as long as the peer reads nothing. Only the cancellation lets the
  // destructor join.
  const std::stop_callback cancel(stop, [&stream] { stream.context.TryCancel(); });
  v1::ReplicaEnvelope envelope;
  *envelope.mutable_hello() = hello_;
  const grpc::Slice hello(envelope.SerializeAsString());
  bool open = stream.Wait();
  if (open) {
    stream.writer->Write(grpc::ByteBuffer(&hello, 1), &stream);
    open = stream.Wait();
  }
  if (open) Serve(stream, stop);
  grpc::Status status;
  stream.writer->Finish(&status, &stream);
  (void)stream.Wait();
  return rpc::FromGrpc(status);
}

void Peer::Serve(Stream& stream, const std::stop_token& stop) {
  const base::MonotonicTime opened = clock_.Now();
  base::MutexLock lock(mutex_);
  stream_ = &stream;
  turn_ = Turn::kSender;
  WriteQueued();
  while (turn_ != Turn::kNobody) {
    if (turn_ == Turn::kWaiting) {
      lock.Unlock();
      const bool ok = stream.Wait();
      lock.Lock();
      turn_ = ok ? Turn::kSender : Turn::kNobody;
      WriteQueued();
      continue;
    }
    if (stop.stop_requested()) break;
    // It wakes without being notified only to tell that the peer is back.
    changed_.WaitFor(lock, stop, told_.empty() ? kLongRest : kSettled,
                     [this]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return turn_ != Turn::kSender; });
    if (told_.empty() || turn_ == Turn::kNobody || clock_.Now() - opened <= kSettled) continue;
    spdlog::info("op=peer_connected address={}", address_);
    told_.clear();
  }
  turn_ = Turn::kNobody;
  stream_ = nullptr;
}

void Peer::Tell(const absl::Status& why) {
  std::string reason = base::GetReason(why).reason;
  if (reason.empty()) reason = why.ok() ? "ended" : "unreachable";
  if (reason == told_) return;
  told_ = reason;
  if (why.code() == absl::StatusCode::kFailedPrecondition) {
    spdlog::error("op=peer_refused address={} reason={} error=\"{}\"", address_, reason,
                  base::Message(why));
  } else {
    spdlog::info("op=peer_lost address={} error=\"{}\"", address_, base::Message(why));
  }
}

}  // namespace onepiece::nodemanager
