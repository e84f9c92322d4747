#include "tests/bench/consensus/load.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <utility>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"

namespace onepiece::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kMaxConnections = 16;
constexpr auto kCallLimit = std::chrono::seconds(20);
constexpr auto kConnectLimit = std::chrono::seconds(10);
constexpr auto kFailoverLimit = std::chrono::seconds(60);
constexpr auto kRetryEvery = std::chrono::milliseconds(20);

struct Call {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
  SteadyClock::time_point start;
  int client = 0;
  std::uint64_t sequence = 0;
};

void Begin(grpc::GenericStub& stub, const WriteCall& write, grpc::CompletionQueue& done,
           Call& call) {
  const std::string bytes = write.request(call.client, call.sequence);
  const grpc::Slice slice(bytes);
  call.context = std::make_unique<grpc::ClientContext>();
  call.context->set_deadline(std::chrono::system_clock::now() + kCallLimit);
  call.reader =
      stub.PrepareUnaryCall(call.context.get(), write.method, grpc::ByteBuffer(&slice, 1), &done);
  call.reader->StartCall();
  call.reader->Finish(&call.reply, &call.status, &call);
}

// Cancels the calls under way and collects their answers.
template <typename Calls>
void End(Calls& calls, grpc::CompletionQueue& done) {
  for (auto& call : calls) call.context->TryCancel();
  done.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (done.Next(&tag, &ok)) {
  }
}

absl::StatusOr<std::vector<std::unique_ptr<grpc::GenericStub>>> Connect(
    const std::vector<std::string>& addresses) {
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (const std::string& address : addresses) {
    const auto channel = rpc::MakeChannel(address);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + kConnectLimit))
      return absl::UnavailableError("cannot connect to " + address);
    stubs.push_back(std::make_unique<grpc::GenericStub>(channel));
  }
  return stubs;
}

double Milliseconds(SteadyClock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

absl::StatusOr<Load> RunLoad(const std::string& address, const WriteCall& write, int clients,
                             base::Duration warm_up, base::Duration window) {
  const auto connections = static_cast<std::size_t>(std::min(clients, kMaxConnections));
  auto stubs = Connect(std::vector<std::string>(connections, address));
  if (!stubs.ok()) return stubs.status();
  grpc::CompletionQueue done;
  std::vector<Call> calls(static_cast<std::size_t>(clients));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].client = static_cast<int>(i);
    calls[i].start = SteadyClock::now();
    Begin(*(*stubs)[i % connections], write, done, calls[i]);
  }
  const auto from = SteadyClock::now() + warm_up, until = from + window;
  std::vector<double> times;
  absl::Status failed;
  for (;;) {
    void* tag = nullptr;
    bool ok = false;
    done.Next(&tag, &ok);
    const auto now = SteadyClock::now();
    Call& call = *static_cast<Call*>(tag);
    const bool refused = call.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    if (!call.status.ok() && !refused) failed = rpc::FromGrpc(call.status);
    if (now >= until || !failed.ok()) break;
    if (!refused) {
      if (now >= from) times.push_back(Milliseconds(now - call.start));
      ++call.sequence;
      call.start = now;
    }
    Begin(*(*stubs)[static_cast<std::size_t>(call.client) % connections], write, done, call);
  }
  End(calls, done);
  if (!failed.ok()) return failed;
  if (times.empty()) return absl::DeadlineExceededError("no write was answered in the window");
  std::ranges::sort(times);
  return Load{static_cast<double>(times.size()) / std::chrono::duration<double>(window).count(),
              times[times.size() / 2], times[times.size() * 99 / 100]};
}

absl::StatusOr<base::Duration> TimeToFirstWrite(const std::vector<std::string>& addresses,
                                                const WriteCall& write,
                                                const std::function<void()>& begin) {
  auto stubs = Connect(addresses);
  if (!stubs.ok()) return stubs.status();
  grpc::CompletionQueue done;
  std::list<Call> calls;
  begin();
  const auto start = SteadyClock::now();
  auto next = std::chrono::system_clock::now();
  absl::StatusOr<base::Duration> result =
      absl::DeadlineExceededError("no write succeeded after the leader was killed");
  while (!result.ok() && SteadyClock::now() < start + kFailoverLimit) {
    void* tag = nullptr;
    bool ok = false;
    if (done.AsyncNext(&tag, &ok, next) == grpc::CompletionQueue::GOT_EVENT) {
      if (static_cast<Call*>(tag)->status.ok()) result = SteadyClock::now() - start;
      continue;
    }
    for (const auto& stub : *stubs) {
      Call& call = calls.emplace_back();
      call.client = static_cast<int>(calls.size());
      Begin(*stub, write, done, call);
    }
    next += kRetryEvery;
  }
  End(calls, done);
  return result;
}

}  // namespace onepiece::bench
