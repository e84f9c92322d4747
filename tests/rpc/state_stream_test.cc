// A stream of states to clients that read slowly, leave, or are left by their server.
#include "cluster/rpc/state_stream.h"

#include <QtTest>
#include <atomic>
#include <memory>
#include <stop_token>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using JobStream = StateStream<v1::Job>;
using testing::Eventually;

std::shared_ptr<const v1::Job> JobAt(int step, std::size_t bytes = 0) {
  v1::Job job;
  job.set_step(step);
  job.set_app_id(std::string(bytes, 'x'));
  return std::make_shared<const v1::Job>(job);
}

// Hands its streams to the test.
class Shower final
    : public v1::GenerationService::WithCallbackMethod_WatchJob<v1::GenerationService::Service> {
 public:
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext*,
                                              const v1::WatchJobRequest* request) override {
    if (request->name() == "refused") {
      return RefuseStream<v1::Job>(
          base::MakeError(absl::StatusCode::kResourceExhausted, "FULL", "no room"));
    }
    const auto stream = JobStream::Begin(stop.get_token());
    stream->Keep(held);
    stream->Offer(JobAt(1), 1);
    const base::MutexLock lock(mutex);
    latest = stream;
    return stream.get();
  }
  std::shared_ptr<JobStream> stream() {
    const base::MutexLock lock(mutex);
    return latest.lock();
  }
  std::stop_source stop;
  std::shared_ptr<int> held = std::make_shared<int>(1);
  base::Mutex mutex;
  std::weak_ptr<JobStream> latest ABSL_GUARDED_BY(mutex);
};

struct ShownState {
  ShownState() {
    server.AddService(shower);
    if (!server.Start().ok()) qFatal("cannot listen");
    stub = v1::GenerationService::NewStub(MakeChannel(server.address()));
    SetTimeout(context, std::chrono::seconds(20));
  }
  ~ShownState() { server.Shutdown(base::Duration::zero()); }
  std::unique_ptr<grpc::ClientReader<v1::Job>> Watch(const std::string& name = "") {
    v1::WatchJobRequest request;
    request.set_name(name);
    return stub->WatchJob(&context, request);
  }

  Shower shower;
  Server server{ServerOptions{}};
  std::unique_ptr<v1::GenerationService::Stub> stub;
  grpc::ClientContext context;
  v1::Job job;
};

}  // namespace

class StateStreamTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Refusal_CarriesTheReason() {
    ShownState s;
    const auto stream = s.Watch("refused");
    QVERIFY(!stream->Read(&s.job));
    QCOMPARE(base::GetReason(FromGrpc(stream->Finish())).reason, std::string("FULL"));
  }

  // The transport buffers some states of a client that does not read. The stream holds two.
  void SlowReader_SkipsToTheLatestState() {
    constexpr int kLast = 300;
    ShownState s;
    const auto stream = s.Watch();
    QVERIFY(stream->Read(&s.job));
    std::vector<std::weak_ptr<const v1::Job>> offered;
    for (int step = 2; step <= kLast; ++step) {
      const auto job = JobAt(step, 1 << 20);
      offered.push_back(job);
      s.shower.stream()->Offer(job, static_cast<std::uint64_t>(step));
    }
    const auto alive =
        std::ranges::count_if(offered, [](const auto& job) { return !job.expired(); });
    QVERIFY2(alive <= 2, std::to_string(alive).c_str());
    s.shower.stream()->End(absl::OkStatus());
    int read = 0;
    while (stream->Read(&s.job)) ++read;
    QVERIFY(stream->Finish().ok());
    QCOMPARE(s.job.step(), kLast);
    QVERIFY2(read < kLast / 2, std::to_string(read).c_str());
  }

  void LateStates_AreLeftOut() {
    ShownState s;
    const auto stream = s.Watch();
    QVERIFY(stream->Read(&s.job));
    const auto server_stream = s.shower.stream();
    server_stream->Offer(JobAt(5), 5);
    QVERIFY(stream->Read(&s.job));
    server_stream->Offer(JobAt(4), 4);
    server_stream->Offer(JobAt(6), 5);
    server_stream->Offer(JobAt(5), 5, /*repeat=*/true);
    QVERIFY(stream->Read(&s.job));
    QCOMPARE(s.job.step(), 5);
    server_stream->End(absl::OkStatus());
    server_stream->Offer(JobAt(7), 7);
    QVERIFY(!stream->Read(&s.job));
    QVERIFY(stream->Finish().ok());
  }

  void Stop_EndsTheStream() {
    ShownState s;
    const auto stream = s.Watch();
    QVERIFY(stream->Read(&s.job));
    s.shower.stop.request_stop();
    QVERIFY(!stream->Read(&s.job));
    QCOMPARE(base::GetReason(FromGrpc(stream->Finish())).reason, std::string("STOPPING"));
  }

  void ClientLeaves_WhatTheStreamHeldIsReleased() {
    ShownState s;
    const auto stream = s.Watch();
    QVERIFY(stream->Read(&s.job));
    const auto server_stream = s.shower.stream();
    QCOMPARE(s.shower.held.use_count(), 2L);
    s.context.TryCancel();
    // Whoever still offers states keeps the stream, and not what it held.
    QVERIFY(Eventually([&] { return s.shower.held.use_count() == 1; }));
    server_stream->Offer(JobAt(9), 9);
    server_stream->End(absl::OkStatus());
    QVERIFY(!stream->Finish().ok());
  }

  void Shutdown_DoesNotWaitForAStreamThatStays() {
    ShownState s;
    const auto stream = s.Watch();
    QVERIFY(stream->Read(&s.job));
    s.server.Shutdown(std::chrono::milliseconds(10));
    QCOMPARE(s.shower.held.use_count(), 1L);
    QVERIFY(!stream->Finish().ok());
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::StateStreamTest)
#include "state_stream_test.moc"
