// Fetching through a proxy: what it asks of the databases, databases that die meanwhile, clients
// that do not read.

#include <QtTest>
#include <atomic>
#include <vector>

#include "absl/strings/str_format.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/telemetry/metrics.h"
#include "tests/proxy/proxy_cluster.h"
#include "tests/stream_watcher.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Stands before a database, and remembers the requests.
class Front final : public v1::DatabaseService::Service {
 public:
  explicit Front(const std::string& database)
      : stub_(v1::DatabaseService::NewStub(rpc::MakeChannel(database))) {
    server_.AddService(*this);
    Require(server_.Start().status());
  }
  ~Front() override { server_.Shutdown(base::Duration::zero()); }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  [[nodiscard]] int records() const { return records_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  std::vector<v1::FetchResultRequest> fetches() {
    const base::MutexLock lock(mutex_);
    return fetches_;
  }
  /// Fetches that have not ended.
  [[nodiscard]] int open() const { return open_; }
  /// It claims to have other bytes from now on.
  void ChangeResult() { changed_ = true; }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRecordRequest* request,
                      v1::JobRecord* response) override {
    ++records_;
    grpc::ClientContext context;
    rpc::SetTimeout(context, 10s);
    return stub_->GetJob(&context, *request, response);
  }
  grpc::Status OpenSegment(grpc::ServerContext*, const v1::OpenSegmentRequest* request,
                           v1::OpenSegmentResponse* response) override {
    grpc::ClientContext context;
    rpc::SetTimeout(context, 10s);
    return stub_->OpenSegment(&context, *request, response);
  }
  grpc::Status FetchResult(grpc::ServerContext*, const v1::FetchResultRequest* request,
                           grpc::ServerWriter<v1::FetchResultResponse>* writer) override {
    {
      const base::MutexLock lock(mutex_);
      fetches_.push_back(*request);
    }
    ++open_;
    grpc::ClientContext context;
    const auto stream = stub_->FetchResult(&context, *request);
    v1::FetchResultResponse part;
    while (stream->Read(&part)) {
      bytes_ += static_cast<std::int64_t>(part.chunk().size());
      if (changed_ && part.has_artifact()) part.mutable_artifact()->set_sha256("another");
      if (!writer->Write(part)) context.TryCancel();
    }
    const grpc::Status status = stream->Finish();
    --open_;
    return status;
  }

 private:
  const std::unique_ptr<v1::DatabaseService::Stub> stub_;
  std::atomic<int> open_ = 0;
  std::atomic<int> records_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
  std::atomic<bool> changed_ = false;
  base::Mutex mutex_;
  std::vector<v1::FetchResultRequest> fetches_ ABSL_GUARDED_BY(mutex_);
  rpc::Server server_{
      rpc::ServerOptions{}};  // Last: it ends before the members that its handlers use.
};

/// Puts a Front into the routing in place of the database.
std::unique_ptr<Front> PutFront(DatabaseCluster& cluster, const std::string& id) {
  auto front = std::make_unique<Front>(cluster.at(id).server->address());
  cluster.ChangeTable([&](v1::RoutingTable& table) {
    for (auto* list : {table.mutable_databases(), table.mutable_alive()}) {
      for (v1::Endpoint& endpoint : *list) {
        if (endpoint.node_id() == id) endpoint.set_address(front->address());
      }
    }
  });
  return front;
}

std::string Pattern(std::size_t bytes) {
  std::string content(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * 7 + i / 251);
  return content;
}

/// A job whose result lies in the databases' heap. Returns its name.
std::string KeepInHeap(DatabaseCluster& cluster, const std::vector<std::string>& databases,
                       const message::Buffer& content) {
  const v1::JobRecord record = database::NewRecord();
  database::ResultBundle bundle;
  bundle.uid = *base::Uid::Parse(record.job().uid());
  bundle.total_bytes = static_cast<std::int64_t>(content.size());
  database::StoredArtifact& artifact = bundle.artifacts.emplace_back();
  artifact.info.set_artifact("video");
  artifact.info.set_media_type("video/mp4");
  artifact.info.set_size_bytes(bundle.total_bytes);
  artifact.info.set_sha256(base::Sha256Hex(content.text()));
  artifact.data = content;
  for (const std::string& id : databases) {
    database::JobStore& store = cluster.at(id).node->store();
    Require(store.Create(record).status());
    Require(store.StoreResult(bundle, message::Kind::kReplica).status());
  }
  // The databases tell each other before either says that the job has succeeded.
  for (const std::string& id : databases) {
    database::JobStore& store = cluster.at(id).node->store();
    const bool succeeded =
        Eventually([&] { return store.Get(record.job().uid())->job().state() == Job::SUCCEEDED; });
    Require(succeeded ? absl::OkStatus() : absl::InternalError("the job has not succeeded"));
  }
  return record.job().name();
}

/// A call that has begun.
struct Call {
  Call(Proxy& proxy, const std::string& name, std::int64_t offset = 0, std::int64_t limit = 0) {
    v1::FetchResultRequest request;
    request.set_name(name);
    request.set_offset_bytes(offset);
    request.set_limit_bytes(limit);
    reader = proxy.stub->FetchResult(&context, request);
  }
  ~Call() { context.TryCancel(); }
  bool ReadPart() {
    v1::FetchResultResponse part;
    if (!reader->Read(&part)) return false;
    if (part.has_artifact()) sha256 = part.artifact().sha256();
    bytes += part.chunk();
    return true;
  }
  absl::Status ReadAll() {
    while (ReadPart()) {
    }
    return rpc::FromGrpc(reader->Finish());
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::FetchResultResponse>> reader;
  std::string bytes, sha256;
};

}  // namespace

class FetchTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void LargeResult_IsReadOutOfADatabasesMemory() {
    ServedCluster cluster;
    const auto direct = [&](const std::string& uid) {
      std::string last = "no fetch";
      for (const v1::Span& span : cluster.proxy.spans.Find(*base::Uid::Parse(uid))) {
        if (span.operation() == "fetch") last = span.attributes().at("direct");
      }
      return last;
    };
    for (const std::size_t bytes : {std::size_t{1'000'000}, std::size_t{3'000'000}}) {
      const auto job = cluster.proxy.Submit(Request());
      QVERIFY2(job.ok(), job.status().ToString().c_str());
      const std::string video(bytes, 'v');
      QVERIFY(cluster.SendResult(job->uid(), video).ok());
      QVERIFY(
          Eventually([&] { return cluster.proxy.Get(job->name())->state() == Job::SUCCEEDED; }));
      QVERIFY(*cluster.proxy.Fetch(job->name()) == video);
      QCOMPARE(direct(job->uid()), std::string(bytes < values::kDirectBytes ? "false" : "true"));
      v1::AcknowledgeResultRequest acknowledge;
      acknowledge.set_name(job->name());
      QVERIFY(
          cluster.proxy.Call(&v1::GenerationService::Stub::AcknowledgeResult, acknowledge).ok());
      QCOMPARE(Reason(cluster.proxy.Fetch(job->name()).status()), std::string("RESULT_FETCHED"));
    }
  }

  // Neither a small result nor one that the client has been shown costs a look at the record.
  void Fetch_AsksForNoRecord_data() {
    QTest::addColumn<qint64>("bytes");
    QTest::newRow("small") << qint64{1000};
    QTest::newRow("large") << qint64{3 * kMiB};
  }
  void Fetch_AsksForNoRecord() {
    QFETCH(qint64, bytes);
    const bool large = bytes >= qint64{values::kDirectBytes};
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1"), other(cluster, "proxy-2");
    const v1::JobRecord record = database::NewRecord();
    const std::string &uid = record.job().uid(), &name = record.job().name();
    const std::string video = Pattern(std::size_t(bytes));
    const std::string first = cluster.Order(uid).front();
    QVERIFY(cluster.records().Create(record).ok());
    QVERIFY(cluster.SendResult(uid, video).ok());
    const auto& store = cluster.at(first).node->store();
    QVERIFY(Eventually([&] { return store.FindArtifact(uid, "").ok(); }));
    const auto front = PutFront(cluster, first);
    QCOMPARE(proxy.Get(name)->state(), Job::SUCCEEDED);
    QCOMPARE(front->records(), 1);
    QVERIFY(*proxy.Fetch(name) == video);
    QCOMPARE(front->fetches().size(), std::size_t{1});
    QCOMPARE(front->bytes(), large ? 0 : bytes);
    // This proxy has not shown the job to any client.
    QVERIFY(*other.Fetch(name) == video);
    QCOMPARE(front->fetches().size(), std::size_t{2});
    QCOMPARE(front->bytes(), large ? bytes : 2 * bytes);
    QCOMPARE(front->records(), 1);
    // The proxy does not pass an old result off as the current one.
    front->ChangeResult();
    Call stale(proxy, name);
    QCOMPARE(Reason(stale.ReadAll()), std::string(large ? "RESULT_CHANGED" : ""));
    Call next(proxy, name);
    QVERIFY(next.ReadAll().ok());
    QCOMPARE(next.sha256, std::string("another"));
  }

  void Fetch_GoesOnAtTheNextDatabase_WhenTheFirstIsKilled_data() {
    QTest::addColumn<qint64>("offset");
    QTest::addColumn<qint64>("limit");
    QTest::newRow("a part") << qint64{1'500'003} << qint64{50'000'001};
    QTest::newRow("the rest") << qint64{77} << qint64{0};
  }
  void Fetch_GoesOnAtTheNextDatabase_WhenTheFirstIsKilled() {
    QFETCH(qint64, offset);
    QFETCH(qint64, limit);
    constexpr qint64 kBytes = 52 * kMiB;
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    const auto content = message::Buffer::FromString(Pattern(kBytes));
    const std::string name = KeepInHeap(cluster, {"db-1", "db-2"}, content);
    const std::vector<std::string> order = cluster.Order(name.substr(5));
    auto first = PutFront(cluster, order[0]);
    const auto second = PutFront(cluster, order[1]);
    Call call(proxy, name, offset, limit);
    QVERIFY(call.ReadPart());
    // Less than half of it is under way now.
    QVERIFY(second->fetches().empty());
    first.reset();
    cluster.Kill(order[0]);
    QVERIFY(call.ReadPart());
    const absl::Status status = call.ReadAll();
    QVERIFY2(status.ok(), status.ToString().c_str());
    const qint64 bytes = limit == 0 ? kBytes - offset : limit;
    QCOMPARE(qint64(call.bytes.size()), bytes);
    const std::string_view part = content.text().substr(std::size_t(offset), std::size_t(bytes));
    QVERIFY(call.bytes == part);
    QCOMPARE(call.sha256, base::Sha256Hex(content.text()));
    const auto fetches = second->fetches();
    QCOMPARE(fetches.size(), std::size_t{1});
    QVERIFY(fetches[0].offset_bytes() > offset);
    if (limit > 0) QCOMPARE(fetches[0].offset_bytes() + fetches[0].limit_bytes(), offset + limit);
    QCOMPARE(second->bytes(), offset + bytes - fetches[0].offset_bytes());
  }

  void Clients_ThatDoNotRead_HarmNobody_AndEnd() {
    constexpr std::size_t kStalled = 3, kBytes = 192 * kMiB;
    Cluster cluster;
    base::ManualClock clock;
    Proxy proxy(cluster, "proxy-1", 256, clock);
    const std::string large = KeepInHeap(cluster, {"db-1", "db-2"},
                                         message::Buffer::FromString(std::string(kBytes, 'x')));
    const std::string small =
        KeepInHeap(cluster, {"db-1", "db-2"}, message::Buffer::FromString("video"));
    const double before = telemetry::ResidentBytes();
    std::vector<std::unique_ptr<Call>> stalled;
    for (std::size_t i = 0; i < kStalled; ++i) {
      QVERIFY(stalled.emplace_back(std::make_unique<Call>(proxy, large))->ReadPart());
    }
    for (int i = 0; i < 20; ++i) QCOMPARE(*proxy.Fetch(small), std::string("video"));
    Call other(proxy, large, 0, 4 * kMiB);
    QVERIFY(other.ReadAll().ok());
    QVERIFY(other.bytes == std::string(4 * kMiB, 'x'));
    // Three transports buffer a part each, and nothing holds a whole copy.
    const double grown = telemetry::ResidentBytes() - before;
    QVERIFY2(grown < std::int64_t{kStalled * kBytes / 2}, std::to_string(grown).c_str());
    // Bytes that the transport has buffered may let a handler move after the first advance.
    QVERIFY(Eventually([&] {
      clock.Advance(base::Scaled(31s));
      return proxy.service.fetches() == 0;
    }));
    for (const auto& call : stalled) QCOMPARE(call->ReadAll().code(), absl::StatusCode::kCancelled);
    QCOMPARE(*proxy.Fetch(small), std::string("video"));
  }

  // Its clients do not read, so nothing moves, and unary calls have all threads.
  void Fetches_CostNoThread_AndAFewParts() {
    // A transport that finds the way fast lets 40 MiB of each be on it.
    constexpr std::size_t kFetches = 40, kBytes = 160 * kMiB;
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    const std::string name = KeepInHeap(cluster, {"db-1", "db-2"},
                                        message::Buffer::FromString(std::string(kBytes, 'x')));
    const auto front = PutFront(cluster, cluster.Order(name.substr(5))[0]);
    std::vector<std::unique_ptr<Call>> calls;
    QVERIFY(calls.emplace_back(std::make_unique<Call>(proxy, name))->ReadPart());
    const int threads = testing::Threads();
    for (std::size_t i = 1; i < kFetches; ++i)
      QVERIFY(calls.emplace_back(std::make_unique<Call>(proxy, name))->ReadPart());
    QCOMPARE(proxy.service.fetches(), kFetches);
    // The Front has a thread for each, and so had a proxy.
    const int grown = testing::Threads() - threads;
    QVERIFY2(grown < int(kFetches) + 20, std::to_string(grown).c_str());
    const double each = double(front->bytes()) / kFetches;
    QVERIFY2(each < double(kBytes) / 2, std::to_string(each).c_str());
  }

  void ClientsThatLeave_LeaveTheDatabaseToo_data() {
    QTest::addColumn<bool>("stop");
    QTest::newRow("the client leaves") << false;
    QTest::newRow("the proxy stops") << true;
  }
  void ClientsThatLeave_LeaveTheDatabaseToo() {
    QFETCH(bool, stop);
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    const std::string name = KeepInHeap(cluster, {"db-1", "db-2"},
                                        message::Buffer::FromString(std::string(64 * kMiB, 'x')));
    const auto front = PutFront(cluster, cluster.Order(name.substr(5))[0]);
    auto call = std::make_unique<Call>(proxy, name);
    QVERIFY(call->ReadPart());
    QCOMPARE(front->open(), 1);
    if (stop) {
      proxy.service.Stop();
      QVERIFY(Eventually([&] { return front->open() == 0; }));
      QCOMPARE(call->ReadAll().code(), absl::StatusCode::kCancelled);
    } else {
      call.reset();
      QVERIFY(Eventually([&] { return front->open() == 0; }));
    }
    QVERIFY(Eventually([&] { return proxy.service.fetches() == 0; }));
  }

  void DirectFetch_ReadsSoMuchAtATime_AndForgetsWhatIsGone() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    const v1::JobRecord record = database::NewRecord();
    QVERIFY(cluster.records().Create(record).ok());
    const auto uid = *base::Uid::Parse(record.job().uid());
    const std::string video = Pattern(DirectFetch::kMaxBytes / 4);
    message::Message result;
    result.header.kind = message::Kind::kResult;
    result.header.uid = uid;
    result.header.app = "app";
    result.header.sender = "test";
    result.header.ingress_time = base::SystemClock().WallNow();
    result.header.deadline = base::SystemClock().Now() + 60s;
    result.artifacts.push_back(message::BytesArtifact("video", "video/mp4", video));
    result.artifacts[0].sha256 = base::Sha256Digest(std::as_bytes(std::span(video)));
    const std::string first = cluster.Order(record.job().uid()).front();
    const auto values = values::RemoteValues::Create(
        cluster.fabric(), {.node_id = "test", .address = cluster.at(first).server->address()});
    const auto put = values->Put(result, base::SystemClock().Now() + base::Scaled(10s));
    QVERIFY2(put.ok(), put.status().ToString().c_str());
    const std::string& name = record.job().name();
    QVERIFY(!proxy.direct_fetch.Get(uid, "").has_value());
    QVERIFY(Eventually([&] { return proxy.Get(name)->state() == Job::SUCCEEDED; }));
    // It forgets the jobs that were noted the longest ago, whatever their uids.
    const Job shown = *proxy.Get(name);
    for (std::size_t i = 0; i < DirectFetch::kMaxKnown; ++i) {
      const std::string other = absl::StrFormat("ffffffff-ffff-4fff-bfff-%012x", i);
      proxy.direct_fetch.Note(*base::Uid::Parse(other), shown);
    }
    QVERIFY(!proxy.direct_fetch.Get(uid, "").has_value());
    proxy.direct_fetch.Note(uid, shown);
    std::vector<DirectFetch::Value> taken;
    for (auto value = proxy.direct_fetch.Get(uid, ""); value.has_value();
         value = proxy.direct_fetch.Get(uid, "")) {
      QVERIFY(value->bytes.text() == video);
      taken.push_back(*std::move(value));
    }
    QCOMPARE(taken.size(), std::size_t{4});
    QVERIFY(*proxy.Fetch(name) == video);  // By message.
    taken.clear();
    QVERIFY(proxy.direct_fetch.Get(uid, "video").has_value());
    QVERIFY(!proxy.direct_fetch.Get(uid, "other").has_value());
    v1::AcknowledgeResultRequest acknowledge;
    acknowledge.set_name(name);
    QVERIFY(proxy.Call(&v1::GenerationService::Stub::AcknowledgeResult, acknowledge).ok());
    QVERIFY(!proxy.direct_fetch.Get(uid, "").has_value());
    QCOMPARE(Reason(proxy.Fetch(name).status()), std::string("RESULT_FETCHED"));
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::FetchTest)
#include "fetch_test.moc"
