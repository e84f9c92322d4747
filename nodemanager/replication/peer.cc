#include "nodemanager/replication/peer.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

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
// An envelope takes messages until it has this many bytes. The last message may exceed it.
constexpr std::size_t kEnvelopeBytes = std::size_t{4} << 20;

constexpr const char* kExchange = "/onepiece.v1.ReplicaService/Exchange";

// A stream of bytes, because the messages in them are shared with other streams.
std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> OpenStream(
    const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context,
    google::protobuf::Empty& response) {
  const grpc::internal::RpcMethod method(kExchange, grpc::internal::RpcMethod::CLIENT_STREAMING);
  return std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>>(
      grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(channel.get(), method, &context,
                                                                    &response));
}

}  // namespace

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
  bool first = false;
  {
    const base::MutexLock lock(mutex_);
    if (queue_.size() >= kMaxMessages || queued_bytes_ + bytes > kMaxBytes) {
      queue_.clear();
      queued_bytes_ = 0;
    }
    first = queue_.empty();
    queue_.push_back(std::move(message));
    queued_bytes_ += bytes;
  }
  // The thread takes all that is there.
  if (first) changed_.NotifyOne();
}

std::vector<std::shared_ptr<const EncodedMessage>> Peer::Take(const std::stop_token& stop) {
  base::MutexLock lock(mutex_);
  changed_.Wait(lock, stop,
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty(); });
  queued_bytes_ = 0;
  return std::exchange(queue_, {});
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
  grpc::ClientContext context;
  // Write() and Finish() may block for as long as the peer reads nothing. Only the cancellation
  // lets the destructor join.
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  google::protobuf::Empty response;
  const auto writer = OpenStream(channel_, context, response);
  v1::ReplicaEnvelope envelope;
  *envelope.mutable_hello() = hello_;
  const grpc::Slice hello(envelope.SerializeAsString());
  const base::MonotonicTime opened = clock_.Now();
  bool open = writer->Write(grpc::ByteBuffer(&hello, 1));
  while (open && !stop.stop_requested()) {
    std::size_t bytes = 0;
    std::vector<grpc::Slice> slices;
    const auto write = [&] {
      open = writer->Write(grpc::ByteBuffer(slices.data(), slices.size()));
      slices.clear();
      bytes = 0;
    };
    for (const auto& message : Take(stop)) {
      slices.push_back(message->bytes());
      bytes += message->size();
      if (bytes >= kEnvelopeBytes) write();
      if (!open) break;
    }
    if (open && !slices.empty()) write();
    if (open && !told_.empty() && clock_.Now() - opened > kSettled) {
      spdlog::info("op=peer_connected address={}", address_);
      told_.clear();
    }
  }
  return rpc::FromGrpc(writer->Finish());
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
