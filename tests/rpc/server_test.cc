#include "cluster/rpc/server.h"

#include <QtTest>
#include <atomic>
#include <optional>

#include "cluster/base/clock.h"
#include "cluster/rpc/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/health.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using std::chrono::seconds;

class Echo final : public v1::TelemetryService::Service {
 public:
  grpc::Status ListSpans(grpc::ServerContext*, const v1::ListSpansRequest* request,
                         v1::ListSpansResponse* response) override {
    if (request->uid() == "bad") {
      return ToGrpc(base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID", "'bad' is bad"));
    }
    response->add_spans()->set_uid(request->uid());
    return grpc::Status::OK;
  }
};

// Streams one job. It then stays until it is told to stop or its caller leaves.
class Watcher final : public v1::GenerationService::Service {
 public:
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::Job>* writer) override {
    writer->Write(v1::Job());
    while (!context->IsCancelled()) {
      if (!base::SystemClock().Pause(stopping, std::chrono::milliseconds(20))) break;
    }
    cancelled = context->IsCancelled();
    return ToGrpc(absl::UnavailableError("going away"));
  }
  std::stop_token stopping;
  std::atomic<bool> cancelled = false;
};

absl::StatusOr<v1::ListSpansResponse> Ask(const std::string& address, const std::string& uid) {
  const auto stub = v1::TelemetryService::NewStub(MakeChannel(address));
  v1::ListSpansRequest request;
  request.set_uid(uid);
  return Call(*stub, &v1::TelemetryService::Stub::ListSpans, request, seconds(10));
}

}  // namespace

class ServerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Call_ReturnsTheAnswerOrTheServersReason() {
    Echo echo;
    Server server({});
    server.AddService(echo);
    const auto port = server.Start();
    QVERIFY(port.ok());
    QCOMPARE(server.address(), "127.0.0.1:" + std::to_string(*port));
    const auto answer = Ask(server.address(), "u");
    QVERIFY(answer.ok());
    QCOMPARE(answer->spans(0).uid(), std::string("u"));
    const auto refused = Ask(server.address(), "bad");
    QVERIFY(absl::IsInvalidArgument(refused.status()));
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("BAD_UID"));
  }

  void Call_IsUnavailable_WhenNobodyListens() {
    std::string address;
    {
      Server server({});
      QVERIFY(server.Start().ok());
      address = server.address();
    }
    QVERIFY(absl::IsUnavailable(Ask(address, "u").status()));
  }

  void Start_NamesTheAddress_WhenThePortIsTaken() {
    Server first({});
    QVERIFY(first.Start().ok());
    Server second({.listen = first.address()});
    const auto status = second.Start().status();
    QVERIFY(absl::IsUnavailable(status));
    QCOMPARE(base::GetReason(status).reason, std::string("CANNOT_LISTEN"));
    QCOMPARE(base::Message(status),
             "cannot listen on " + first.address() + ": Address already in use");
  }

  void Start_RefusesAnAddressWithoutPort() {
    for (const char* address : {"", "127.0.0.1", "127.0.0.1:", ":80"}) {
      const auto status = Server({.listen = address}).Start().status();
      QVERIFY2(absl::IsInvalidArgument(status), address);
    }
  }

  void Health_IsWhatSetHealthSaid() {
    Server server({});
    QVERIFY(server.Start().ok());
    QCOMPARE(testing::AskHealth(server.address()), std::optional(testing::kNotServing));
    server.SetHealth(ServingStatus::kServing);
    QCOMPARE(testing::AskHealth(server.address()), std::optional(testing::kServing));
  }

  void Health_OfOneServiceIsItsOwn() {
    Server server({});
    QVERIFY(server.Start().ok());
    const auto ask = [&](const char* service) {
      return testing::AskHealth(server.address(), service);
    };
    QCOMPARE(ask("onepiece.v1.ProxyService"), std::optional<int>());
    server.SetHealth("onepiece.v1.ProxyService", ServingStatus::kServing);
    QCOMPARE(ask("onepiece.v1.ProxyService"), std::optional(testing::kServing));
    QCOMPARE(ask(""), std::optional(testing::kNotServing));
    server.SetHealth("", ServingStatus::kServing);
    server.SetHealth("onepiece.v1.ProxyService", ServingStatus::kNotServing);
    QCOMPARE(ask("onepiece.v1.ProxyService"), std::optional(testing::kNotServing));
    QCOMPARE(ask(""), std::optional(testing::kServing));
  }

  // The program's threads may tell its health until it ends.
  void Health_StaysBadWhenItHasEnded() {
    Server server({});
    QVERIFY(server.Start().ok());
    server.SetHealth("a", ServingStatus::kServing);
    server.EndHealth();
    for (const char* service : {"", "a", "b"}) {
      server.SetHealth(service, ServingStatus::kServing);
      QCOMPARE(testing::AskHealth(server.address(), service), std::optional(testing::kNotServing));
    }
  }

  void Shutdown_EndsAStreamThatListensToStopping() {
    Watcher watcher;
    Server server({});
    watcher.stopping = server.stopping();
    server.AddService(watcher);
    QVERIFY(server.Start().ok());
    const auto stub = v1::GenerationService::NewStub(MakeChannel(server.address()));
    grpc::ClientContext context;
    SetTimeout(context, seconds(20));
    const auto stream = stub->WatchJob(&context, v1::WatchJobRequest());
    v1::Job job;
    QVERIFY(stream->Read(&job));
    server.Shutdown(seconds(10));
    QVERIFY(!watcher.cancelled);
    QVERIFY(!stream->Read(&job));
    QCOMPARE(stream->Finish().error_message(), std::string("going away"));
  }

  void Shutdown_CancelsAStreamThatStaysBeyondTheGrace() {
    Watcher watcher;  // Its stop token never fires.
    Server server({});
    server.AddService(watcher);
    QVERIFY(server.Start().ok());
    const auto stub = v1::GenerationService::NewStub(MakeChannel(server.address()));
    grpc::ClientContext context;
    SetTimeout(context, seconds(20));
    const auto stream = stub->WatchJob(&context, v1::WatchJobRequest());
    v1::Job job;
    QVERIFY(stream->Read(&job));
    server.Shutdown(std::chrono::milliseconds(50));
    QVERIFY(watcher.cancelled);
    QVERIFY(!stream->Finish().ok());
  }

  void Call_EndsAtItsTimeout() {
    Watcher watcher;
    Server server({});
    watcher.stopping = server.stopping();
    server.AddService(watcher);
    QVERIFY(server.Start().ok());
    const auto stub = v1::GenerationService::NewStub(MakeChannel(server.address()));
    grpc::ClientContext context;
    SetTimeout(context, std::chrono::milliseconds(100));
    const auto stream = stub->WatchJob(&context, v1::WatchJobRequest());
    v1::Job job;
    while (stream->Read(&job)) {
    }
    QVERIFY(stream->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::ServerTest)
#include "server_test.moc"
