// A gRPC stream over a Unix socket. Raw byte buffers: no protobuf message is encoded or copied.
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/bench/port.h"

namespace onepiece::bench {
namespace {

constexpr std::size_t kSmall =
    4096;  // The bytes that a receiver looks at. The rest stays in gRPC's memory.

/// The state of one operation. `ok` is that of the last completion.
struct Completion {
  bool done = false;
  bool ok = false;
  void Reset() { done = false; }
};

std::size_t CopyStart(grpc::ByteBuffer& buffer, std::span<std::byte> into) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::size_t at = 0;
  const std::size_t limit = std::min(into.size(), kSmall);
  for (const grpc::Slice& slice : slices) {
    const std::size_t count = std::min(slice.size(), limit - at);
    std::memcpy(into.data() + at, slice.begin(), count);
    at += count;
  }
  return buffer.Length();
}

// gRPC borrows the message's bytes and does not copy them.
grpc::ByteBuffer Lend(std::span<const std::byte> message) {
  const grpc::Slice slice(message.data(), message.size(), grpc::Slice::STATIC_SLICE);
  return {&slice, 1};
}

void WaitFor(grpc::CompletionQueue& queue, Completion& completion) {
  void* tag = nullptr;
  bool ok = false;
  while (!completion.done) {
    if (!queue.Next(&tag, &ok)) Die("gRPC: queue closed");
    auto* event = static_cast<Completion*>(tag);
    event->done = true;
    event->ok = ok;
  }
}

class GrpcClient final : public Port {
 public:
  explicit GrpcClient(const Link& link) {
    (void)link.control->Await(0);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        "unix:/tmp/" + link.name + ".grpc", grpc::InsecureChannelCredentials(), arguments));
    context_.set_wait_for_ready(true);
    stream_ = stub_->PrepareCall(&context_, "/onepiece.bench/Stream", &queue_);
    stream_->StartCall(&started_);
    WaitFor(queue_, started_);
    if (!started_.ok) Die("gRPC: no stream");
  }

  ~GrpcClient() override {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;

  void Send(std::span<const std::byte> message) override {
    if (writing_) WaitFor(queue_, written_);
    if (writing_ && !written_.ok) Die("gRPC: write failed");
    written_.Reset();
    writing_ = true;
    stream_->Write(Lend(message), &written_);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    read_.Reset();
    stream_->Read(&buffer_, &read_);
    WaitFor(queue_, read_);
    if (!read_.ok) Die("gRPC: read failed");
    return CopyStart(buffer_, into);
  }

  // The server ends the call once it has everything.
  void Flush() override {
    if (writing_) WaitFor(queue_, written_);
    stream_->WritesDone(&done_);
    WaitFor(queue_, done_);
    grpc::Status status;
    stream_->Finish(&status, &finished_);
    WaitFor(queue_, finished_);
  }

 private:
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  Completion started_, written_, read_, done_, finished_;
  bool writing_ = false;
  grpc::ByteBuffer buffer_;
};

class GrpcServer final : public Port {
 public:
  explicit GrpcServer(const Link& link) : streams_(static_cast<std::size_t>(link.producers)) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    builder.SetMaxSendMessageSize(-1);
    builder.AddListeningPort("unix:/tmp/" + link.name + ".grpc", grpc::InsecureServerCredentials());
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) Die("gRPC: no server");
    for (Stream& stream : streams_) {
      stream.rpc = std::make_unique<grpc::GenericServerAsyncReaderWriter>(&stream.context);
      service_.RequestCall(&stream.context, stream.rpc.get(), queue_.get(), queue_.get(),
                           &stream.accept);
    }
    link.control->Publish(0, "listening");
  }

  ~GrpcServer() override {
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
    }
  }
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  void Send(std::span<const std::byte> message) override {
    Stream& stream = streams_.front();
    while (stream.writing) Pump();
    stream.writing = true;
    stream.rpc->Write(Lend(message), &stream.write);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    while (arrived_.empty()) Pump();
    Stream& stream = *arrived_.front();
    arrived_.pop_front();
    const std::size_t size = CopyStart(stream.buffer, into);
    stream.buffer.Clear();
    stream.rpc->Read(&stream.buffer, &stream.read);
    return size;
  }

 private:
  struct Stream;
  enum class Kind : std::uint8_t { kAccept, kRead, kWrite };
  struct Event {
    Kind kind;
    Stream* stream;
  };
  struct Stream {
    grpc::GenericServerContext context;
    std::unique_ptr<grpc::GenericServerAsyncReaderWriter> rpc;
    grpc::ByteBuffer buffer;
    bool writing = false;
    Event accept{Kind::kAccept, this};
    Event read{Kind::kRead, this};
    Event write{Kind::kWrite, this};
  };

  void Pump() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_->Next(&tag, &ok)) Die("gRPC: queue closed");
    const Event event = *static_cast<Event*>(tag);
    Stream& stream = *event.stream;
    switch (event.kind) {
      case Kind::kAccept:
        if (!ok) Die("gRPC: no call");
        stream.rpc->Read(&stream.buffer, &stream.read);
        break;
      case Kind::kRead:
        if (ok) arrived_.push_back(&stream);  // Otherwise the client has sent everything.
        break;
      case Kind::kWrite:
        stream.writing = false;
        break;
    }
  }

  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<Stream> streams_;
  std::deque<Stream*> arrived_;
};

}  // namespace

std::unique_ptr<Port> OpenGrpcPort(const Link& link) {
  if (link.role == Role::kConsumer || link.role == Role::kPong) {
    return std::make_unique<GrpcServer>(link);
  }
  return std::make_unique<GrpcClient>(link);
}

}  // namespace onepiece::bench
