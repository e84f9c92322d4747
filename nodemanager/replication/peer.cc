#include "nodemanager/replication/peer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "nodemanager/replication/codec.h"

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

std::size_t BytesOf(const paxos::Message& message) {
  std::size_t bytes = 128;
  if (const auto* accept = std::get_if<paxos::Accept>(&message.body)) {
    for (const paxos::LogEntry& entry : accept->entries) bytes += entry.bytes();
  } else if (const auto* promise = std::get_if<paxos::Promise>(&message.body)) {
    for (const paxos::AcceptedEntry& accepted : promise->accepted) bytes += accepted.entry.bytes();
  } else if (const auto* install = std::get_if<paxos::InstallSnapshot>(&message.body)) {
    bytes += install->snapshot->state->size();
  }
  return bytes;
}

}  // namespace

Peer::Peer(std::string address, v1::ReplicaHello hello, base::Clock& clock)
    : address_(std::move(address)),
      hello_(std::move(hello)),
      clock_(clock),
      stub_(v1::ReplicaService::NewStub(rpc::MakeChannel(address_, kTiming))),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

Peer::~Peer() {
  thread_.request_stop();
  thread_.join();
}

void Peer::Send(paxos::Message message) {
  const std::size_t bytes = BytesOf(message);
  const base::MutexLock lock(mutex_);
  if (queue_.size() >= kMaxMessages || queued_bytes_ + bytes > kMaxBytes) {
    queue_.clear();
    queued_bytes_ = 0;
  }
  queue_.push_back(std::move(message));
  queued_bytes_ += bytes;
  changed_.NotifyOne();
}

std::vector<paxos::Message> Peer::Take(const std::stop_token& stop) {
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
  const auto writer = stub_->Exchange(&context, &response);
  v1::ReplicaEnvelope envelope;
  *envelope.mutable_hello() = hello_;
  const base::MonotonicTime opened = clock_.Now();
  bool open = writer->Write(envelope);
  while (open && !stop.stop_requested()) {
    std::size_t bytes = 0;
    envelope.Clear();
    for (const paxos::Message& message : Take(stop)) {
      *envelope.add_messages() = EncodeMessage(message);
      bytes += BytesOf(message);
      if (bytes < kEnvelopeBytes) continue;
      if (!(open = writer->Write(envelope))) break;
      envelope.Clear();
      bytes = 0;
    }
    if (open && envelope.messages_size() > 0) open = writer->Write(envelope);
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
