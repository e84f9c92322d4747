#include "tests/bench/consensus/watchers.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cluster/rpc/channel.h"
#include "tests/eventually.h"

namespace onepiece::bench {
namespace {

constexpr auto kOpenLimit = std::chrono::seconds(20);

// A stream that has at most one operation under way. Its thread is that of the queue.
class WatchingStream {
 public:
  WatchingStream(const std::string& address, const WatchCall& call, grpc::CompletionQueue& done)
      : call_(call), stub_(rpc::MakeChannel(address)) {
    stream_ = stub_.PrepareCall(&context_, call.method, &done);
    stream_->StartCall(this);
  }

  // Called when the operation under way has ended. Begins the next one, and returns false when the
  // stream has ended.
  bool Go(bool ok) {
    if (!ok) return false;
    if (phase_ == Phase::kRead) ++messages_;
    if (phase_ == Phase::kOpen) {
      phase_ = Phase::kAsk;
      const grpc::Slice slice(call_.request);
      const grpc::ByteBuffer request(&slice, 1);
      if (call_.only_server_streams) {
        stream_->WriteLast(request, {}, this);
      } else {
        stream_->Write(request, this);
      }
      return true;
    }
    phase_ = Phase::kRead;
    stream_->Read(&message_, this);
    return true;
  }
  void Cancel() { context_.TryCancel(); }
  [[nodiscard]] std::uint64_t messages() const { return messages_; }

 private:
  enum class Phase { kOpen, kAsk, kRead };

  const WatchCall call_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer message_;
  Phase phase_ = Phase::kOpen;
  std::atomic<std::uint64_t> messages_{0};
};

class StreamsOfBytes final : public Watchers {
 public:
  StreamsOfBytes(const std::string& address, const WatchCall& call, int count) {
    for (int i = 0; i < count; ++i)
      streams_.push_back(std::make_unique<WatchingStream>(address, call, done_));
    thread_ = std::thread([this] {
      void* tag = nullptr;
      bool ok = false;
      for (std::size_t open = streams_.size(); open > 0 && done_.Next(&tag, &ok);) {
        if (!static_cast<WatchingStream*>(tag)->Go(ok)) --open;
      }
    });
  }
  // The queue is shut down when every stream has ended, because nothing may begin after that.
  ~StreamsOfBytes() override {
    for (const auto& stream : streams_) stream->Cancel();
    thread_.join();
    done_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (done_.Next(&tag, &ok)) continue;
  }

  [[nodiscard]] std::uint64_t least_messages() const override {
    std::uint64_t least = streams_.empty() ? 0 : streams_.front()->messages();
    for (const auto& stream : streams_) least = std::min(least, stream->messages());
    return least;
  }

 private:
  grpc::CompletionQueue done_;
  std::vector<std::unique_ptr<WatchingStream>> streams_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Watchers>> Watchers::Open(const std::string& address,
                                                         const WatchCall& call, int count) {
  auto watchers = std::make_unique<StreamsOfBytes>(address, call, count);
  if (count > 0 && !testing::Eventually(kOpenLimit, [&] { return watchers->least_messages() > 0; }))
    return absl::DeadlineExceededError("not every watcher got a message from " + address);
  return watchers;
}

}  // namespace onepiece::bench
