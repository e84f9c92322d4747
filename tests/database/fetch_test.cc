// Fetching a result from a database over gRPC: parts of it, and clients that do not read.

#include <QtTest>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/rpc/status.h"
#include "cluster/telemetry/metrics.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/database/served_store.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;
using testing::Eventually;

// A call that has begun and whose client does not read.
struct Call {
  explicit Call(v1::DatabaseService::Stub& stub, const v1::FetchResultRequest& request,
                std::optional<base::Duration> timeout = std::nullopt) {
    if (timeout.has_value()) rpc::SetTimeout(context, *timeout);
    reader = stub.FetchResult(&context, request);
  }
  ~Call() { context.TryCancel(); }

  absl::StatusOr<std::string> ReadAll() {
    std::string bytes;
    v1::FetchResultResponse part;
    while (reader->Read(&part)) bytes += part.chunk();
    const absl::Status status = rpc::FromGrpc(reader->Finish());
    if (!status.ok()) return status;
    return bytes;
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::FetchResultResponse>> reader;
};

std::unique_ptr<Call> Fetch(ServedStore& s, const std::string& uid, std::int64_t offset = 0,
                            std::int64_t limit = 0) {
  v1::FetchResultRequest request;
  request.set_name("jobs/" + uid);
  request.set_offset_bytes(offset);
  request.set_limit_bytes(limit);
  return std::make_unique<Call>(*s.stub, request);
}

/// Returns a client whose transport takes in 64 KiB of what nobody reads. It would grow otherwise.
std::unique_ptr<v1::DatabaseService::Stub> NarrowStub(const ServedStore& s) {
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 65535);
  return v1::DatabaseService::NewStub(
      grpc::CreateCustomChannel(s.server.address(), grpc::InsecureChannelCredentials(), narrow));
}

}  // namespace

class FetchTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Fetch_GivesThePartThatIsAskedFor() {
    ServedStore s;
    std::string bytes(3 << 20, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    const std::string uid = s.Keep(bytes);
    const auto size = static_cast<std::int64_t>(bytes.size());
    QVERIFY(*Fetch(s, uid)->ReadAll() == bytes);
    const std::vector<std::pair<std::int64_t, std::int64_t>> ranges{{0, 1},
                                                                    {5, 10},
                                                                    {1 << 20, 1 << 20},
                                                                    {(1 << 20) - 1, (1 << 20) + 2},
                                                                    {size - 1, 0},
                                                                    {size, 0},
                                                                    {size, 5},
                                                                    {size - 3, 100},
                                                                    {17, size},
                                                                    {0, size},
                                                                    {9, 0}};
    for (const auto& [offset, limit] : ranges) {
      const auto part = Fetch(s, uid, offset, limit)->ReadAll();
      QVERIFY2(part.ok(), part.status().ToString().c_str());
      QVERIFY(*part ==
              bytes.substr(static_cast<std::size_t>(offset),
                           limit == 0 ? std::string::npos : static_cast<std::size_t>(limit)));
    }
    QVERIFY(Fetch(s, s.Keep(""))->ReadAll()->empty());
  }

  void Fetch_OutOfBoundsSaysSo() {
    ServedStore s;
    const std::string uid = s.Keep("video");
    for (const std::int64_t offset :
         {std::int64_t{-1}, std::int64_t{6}, std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min()}) {
      const auto part = Fetch(s, uid, offset)->ReadAll();
      QCOMPARE(part.status().code(), absl::StatusCode::kOutOfRange);
      QCOMPARE(Reason(part.status()), std::string("BAD_OFFSET"));
    }
    QCOMPARE(Reason(Fetch(s, uid, 0, -1)->ReadAll().status()), std::string("BAD_LIMIT"));
    const auto all = Fetch(s, uid, 2, std::numeric_limits<std::int64_t>::max())->ReadAll();
    QCOMPARE(*all, std::string("deo"));
  }

  // After a partial fetch the client may want the rest, and one that has gone may come again, so
  // the result is not evicted first.
  void Fetch_OnlyTheEndMarksAResultAsTaken() {
    ServedStore s({}, 2 << 20);
    const std::string uid = s.Keep(std::string(1 << 20, 'x'));
    const auto evicts = [&] {
      const std::string big = s.f.Create();
      s.f.Store(big, std::string((1 << 20) + 1, 'y'));
      const bool gone = !s.f.store.FindArtifact(uid, "").ok();
      (void)s.f.store.Delete(big);
      return gone;
    };
    QVERIFY(Fetch(s, uid, 0, 100)->ReadAll().ok());
    QVERIFY(!evicts());
    // The last part is on its way to a client that takes only its first bytes and then goes.
    const auto stub = NarrowStub(s);
    v1::FetchResultRequest request;
    request.set_name("jobs/" + uid);
    auto gone = std::make_unique<Call>(*stub, request);
    QVERIFY(Eventually([&] { return s.service->fetches() == 1; }));
    gone.reset();
    QVERIFY(Eventually([&] { return s.service->fetches() == 0; }));
    QVERIFY(!evicts());
    QVERIFY(Fetch(s, uid, 100, 0)->ReadAll().ok());
    QVERIFY(Eventually(evicts));
  }

  // The transport sends from the store's own memory, and releases it when it gives the client up.
  void Fetch_AClientThatDoesNotReadHoldsTheBytesUntilItIsEnded() {
    ServedStore s({.max_streams = 4, .stall_limit = 30s});
    const std::string uid = s.f.Create();
    ResultBundle bundle = s.f.Bundle(uid, std::string(std::size_t{32} << 20, 'x'));
    auto tracked = std::make_shared<const message::Buffer>(bundle.artifacts[0].data);
    const std::weak_ptr<const message::Buffer> alive = tracked;
    bundle.artifacts[0].data = {tracked, tracked->bytes()};
    tracked.reset();
    StoreFixture::RequireOk(s.f.store.StoreResult(bundle, message::Kind::kResult, {}));
    bundle = {};
    const auto call = Fetch(s, uid);
    v1::FetchResultResponse part;
    QVERIFY(call->reader->Read(&part));
    QVERIFY(s.f.store.Delete(uid).ok());
    QVERIFY(s.service->fetches() == 1 && !alive.expired());
    // Bytes that the transport has buffered may let the handler go on after the first advance. Its
    // keepalive gives up a socket that nobody empties 10 s later.
    QVERIFY(Eventually([&] {
      s.f.clock.Advance(base::Scaled(31s));
      return s.service->fetches() == 0 && alive.expired();
    }));
    QCOMPARE(call->ReadAll().status().code(), absl::StatusCode::kCancelled);
  }

  // No keepalive, no clock and no thread for each fetch: what a fetch or a watch waits for must
  // come by itself.
  void Fetch_BesideStalledOnes_GoesOnAtOnce_AndSoDoesAWatch_data() {
    QTest::addColumn<int>("fetches");
    QTest::newRow("3") << 3;
    QTest::newRow("30") << 30;
  }
  void Fetch_BesideStalledOnes_GoesOnAtOnce_AndSoDoesAWatch() {
    QFETCH(int, fetches);
    ServedStore s({.max_streams = 64}, std::int64_t{1} << 30, DatabaseService::kWatchPlaces,
                  {.max_threads = 8, .keepalive = 24h});
    const auto connect = [&s] {
      return v1::DatabaseService::NewStub(rpc::MakeChannel(s.server.address(), {.keepalive = 24h}));
    };
    const std::string large = s.Keep(std::string(std::size_t{32} << 20, 'x'));
    const std::string small = s.Keep("video"), running = s.f.Create();
    const auto ask = [](const std::string& uid) {
      v1::FetchResultRequest request;
      request.set_name("jobs/" + uid);
      return request;
    };
    std::vector<std::unique_ptr<v1::DatabaseService::Stub>> stubs;
    std::vector<std::unique_ptr<Call>> stalled;
    for (int i = 0; i < fetches; ++i) {
      stubs.push_back(connect());
      stalled.push_back(std::make_unique<Call>(*stubs.back(), ask(large)));
      // Half of them take a part and stop then.
      v1::FetchResultResponse part;
      if (i % 2 == 0) QVERIFY(stalled.back()->reader->Read(&part));
    }
    const auto all = static_cast<std::size_t>(fetches);
    QVERIFY(Eventually([&] { return s.service->fetches() == all; }));
    const auto stub = connect();
    grpc::ClientContext watching;
    rpc::SetTimeout(watching, 20s);
    v1::WatchJobRequest watch;
    watch.set_name("jobs/" + running);
    const auto states = stub->WatchJob(&watching, watch);
    v1::Job state;
    QVERIFY(states->Read(&state));
    for (int i = 0; i < 20; ++i) {
      Call call(*stub, ask(small), 20s);
      const auto bytes = call.ReadAll();
      QVERIFY2(bytes.ok(), bytes.status().ToString().c_str());
      QCOMPARE(*bytes, std::string("video"));
    }
    s.f.Store(running, "done");
    while (state.state() != v1::Job::SUCCEEDED) QVERIFY(states->Read(&state));
    QVERIFY(states->Finish().ok());
    v1::GetJobRecordRequest get;
    get.set_uid(running);
    QVERIFY(rpc::Call(*stub, &v1::DatabaseService::Stub::GetJob, get, 20s).ok());
    // The stalled ones are still where they were.
    QVERIFY(Eventually([&] { return s.service->fetches() == all; }));
    QVERIFY(stalled.front()->ReadAll().ok());
  }

  void Fetch_ClientsThatDoNotReadHarmNobody() {
    constexpr std::size_t kStreams = 4;
    constexpr std::size_t kBytes = std::size_t{128} << 20;
    // One client gets half of the places.
    ServedStore s({.max_streams = 2 * kStreams, .stall_limit = 30s});
    const std::string large = s.Keep(std::string(kBytes, 'x'));
    const std::string small = s.Keep("video");
    const double before = telemetry::ResidentBytes();
    std::vector<std::unique_ptr<Call>> stalled;
    for (std::size_t i = 1; i < kStreams; ++i) {
      stalled.push_back(Fetch(s, large));
      QVERIFY(Eventually([&] { return s.service->fetches() == i; }));
    }
    QCOMPARE(*Fetch(s, small)->ReadAll(), std::string("video"));
    QVERIFY(Eventually([&] { return s.service->fetches() == kStreams - 1; }));
    stalled.push_back(Fetch(s, large));
    QVERIFY(Eventually([&] { return s.service->fetches() == kStreams; }));
    const auto refused = Fetch(s, small)->ReadAll();
    QCOMPARE(refused.status().code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(refused.status()), std::string("TOO_MANY_FETCHES"));
    // Another client has a share of its own.
    const auto other = v1::DatabaseService::NewStub(rpc::MakeChannel(s.server.address()));
    v1::FetchResultRequest request;
    request.set_name("jobs/" + small);
    QCOMPARE(*Call(*other, request).ReadAll(), std::string("video"));
    // No fetch copies the artifact: memory grows by the transport's buffers and one part per fetch.
    const double grown = telemetry::ResidentBytes() - before;
    QVERIFY2(grown < (std::int64_t{64} << 20), std::to_string(grown).c_str());

    // Bytes that the transport has buffered may let a handler go on after the first advance.
    QVERIFY(Eventually([&] {
      s.f.clock.Advance(base::Scaled(31s));
      return s.service->fetches() == 0;
    }));
    QCOMPARE(*Fetch(s, small)->ReadAll(), std::string("video"));
    for (const auto& call : stalled) {
      QCOMPARE(call->ReadAll().status().code(), absl::StatusCode::kCancelled);
    }
    QVERIFY(s.f.store.FindArtifact(large, "").ok());
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::FetchTest)
#include "fetch_test.moc"
