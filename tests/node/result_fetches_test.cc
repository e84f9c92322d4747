// Fetching results without a thread: at the taker's pace, and from the next database when one is
// lost.
#include "cluster/node/result_fetches.h"

#include <QtTest>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/node/job_records.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using testing::Eventually;

/// Sends a result in chunks of 100 bytes, and does not when the test says so.
class ChunkDatabase final : public v1::DatabaseService::Service {
 public:
  explicit ChunkDatabase(std::string id) : id_(std::move(id)) {
    server_.AddService(*this);
    started_ = server_.Start().ok();
  }
  ~ChunkDatabase() override { server_.Shutdown(base::Duration(0)); }
  [[nodiscard]] v1::Endpoint endpoint() const {
    v1::Endpoint endpoint;
    endpoint.set_node_id(id_);
    endpoint.set_address(server_.address());
    return endpoint;
  }
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] int calls() const { return calls_; }
  /// Calls that the database has not answered to the end.
  [[nodiscard]] int open() const { return open_; }

  grpc::Status FetchResult(grpc::ServerContext* context, const v1::FetchResultRequest* request,
                           grpc::ServerWriter<v1::FetchResultResponse>* writer) override {
    ++calls_;
    ++open_;
    const grpc::Status status = Send(context, *request, writer);
    --open_;
    return status;
  }

  // Set them before the first call.
  std::string result, sha256 = "abc";
  std::size_t die_at = ~std::size_t{0};     ///< It says UNAVAILABLE in place of this byte.
  std::size_t silent_at = ~std::size_t{0};  ///< It says nothing more in place of this byte.
  absl::Status refuses;

 private:
  grpc::Status Send(grpc::ServerContext* context, const v1::FetchResultRequest& request,
                    grpc::ServerWriter<v1::FetchResultResponse>* writer) {
    if (!refuses.ok()) return rpc::ToGrpc(refuses);
    const auto begin = static_cast<std::size_t>(request.offset_bytes());
    const std::size_t end = request.limit_bytes() > 0
                                ? begin + static_cast<std::size_t>(request.limit_bytes())
                                : result.size();
    for (std::size_t at = begin; at < end; at += 100) {
      if (at >= die_at) return {grpc::StatusCode::UNAVAILABLE, "died"};
      if (at >= silent_at) {
        // Longer than any test waits for the next database.
        (void)Eventually(base::Scaled(std::chrono::seconds(60)),
                         [&] { return context->IsCancelled(); });
        return grpc::Status::CANCELLED;
      }
      v1::FetchResultResponse response;
      if (at == begin) response.mutable_artifact()->set_sha256(sha256);
      response.set_chunk(result.substr(at, std::min<std::size_t>(100, end - at)));
      writer->Write(response);
    }
    if (end >= die_at) return {grpc::StatusCode::UNAVAILABLE, "died"};
    return grpc::Status::OK;
  }

  const std::string id_;
  bool started_ = false;
  std::atomic<int> calls_ = 0, open_ = 0;
  rpc::Server server_{rpc::ServerOptions{}};  // Last: it ends before what its handlers use.
};

/// Keeps what comes. It asks for the next part at once, or leaves that to the test.
class Keeper final : public PartTaker {
 public:
  explicit Keeper(bool greedy) : greedy_(greedy) {}
  void OnPart(rpc::ResultPart part) override {
    {
      const base::MutexLock lock(mutex_);
      ++parts_;
      described_ += part.artifact.has_value() ? 1 : 0;
      for (const grpc::Slice& piece : part.chunk) bytes_ += rpc::ViewOf(piece);
    }
    if (greedy_) fetch->Next();
  }
  void OnEnd(const absl::Status& status) override {
    const base::MutexLock lock(mutex_);
    ++ends_;
    status_ = status;
  }
  absl::Status Wait() {
    const bool ended = Eventually([this] {
      const base::MutexLock lock(mutex_);
      return ends_ > 0;
    });
    const base::MutexLock lock(mutex_);
    return ended && ends_ == 1 ? status_ : absl::UnknownError("it has not ended, or twice");
  }
  std::string bytes() {
    const base::MutexLock lock(mutex_);
    return bytes_;
  }
  int parts() {
    const base::MutexLock lock(mutex_);
    return parts_;
  }
  int described() {
    const base::MutexLock lock(mutex_);
    return described_;
  }

  std::shared_ptr<ResultFetch> fetch;

 private:
  const bool greedy_;
  base::Mutex mutex_;
  std::string bytes_ ABSL_GUARDED_BY(mutex_);
  int parts_ ABSL_GUARDED_BY(mutex_) = 0;
  int described_ ABSL_GUARDED_BY(mutex_) = 0;
  int ends_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

std::string Bytes(std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i * 7 + i / 251));
  return bytes;
}

}  // namespace

class ResultFetchesTest : public QObject {
  Q_OBJECT

  const base::Uid uid_ = base::Uid::GenerateRandom();
  std::unique_ptr<ChunkDatabase> a_, b_;
  ChunkDatabase* first_ = nullptr;
  ChunkDatabase* second_ = nullptr;
  ClusterView view_;
  base::ManualClock clock_;
  std::unique_ptr<JobRecords> records_;
  std::unique_ptr<ResultFetches> fetches_;

  std::shared_ptr<Keeper> Begin(std::int64_t offset = 0, std::int64_t limit = 0,
                                bool greedy = true) {
    auto keeper = std::make_shared<Keeper>(greedy);
    keeper->fetch =
        fetches_->Make({.uid = uid_, .offset_bytes = offset, .limit_bytes = limit}, keeper);
    keeper->fetch->Begin();
    return keeper;
  }

 private Q_SLOTS:
  void init() {
    a_ = std::make_unique<ChunkDatabase>("a");
    b_ = std::make_unique<ChunkDatabase>("b");
    QVERIFY(a_->started() && b_->started());
    v1::RoutingTable table;
    for (const auto* database : {a_.get(), b_.get()}) {
      *table.add_databases() = database->endpoint();
      *table.add_alive() = database->endpoint();
    }
    view_.SetRouting(std::make_shared<const Routing>(table));
    first_ = view_.routing()->DatabasesFor(uid_).front().node_id() == "a" ? a_.get() : b_.get();
    second_ = first_ == a_.get() ? b_.get() : a_.get();
    records_ = std::make_unique<JobRecords>(view_, JobRecordsOptions{}, clock_);
    fetches_ = std::make_unique<ResultFetches>(*records_);
  }
  void cleanup() {
    fetches_.reset();
    records_.reset();
    a_.reset();
    b_.reset();
  }

  void DatabaseDiesHalfWay_TheNextGoesOnFromThatByte_data() {
    QTest::addColumn<qint64>("limit");
    QTest::newRow("to the end") << qint64{0};
    QTest::newRow("a part") << qint64{777};
    QTest::newRow("all that is wanted has come") << qint64{250};
  }
  void DatabaseDiesHalfWay_TheNextGoesOnFromThatByte() {
    QFETCH(qint64, limit);
    first_->result = second_->result = Bytes(1000);
    first_->die_at = 300;
    const auto keeper = Begin(50, limit);
    const absl::Status status = keeper->Wait();
    QVERIFY2(status.ok(), base::Message(status).c_str());
    QVERIFY(keeper->bytes() ==
            Bytes(1000).substr(50, limit > 0 ? std::size_t(limit) : std::string::npos));
    QCOMPARE(keeper->described(), 1);
    QCOMPARE(second_->calls(), limit == 250 ? 0 : 1);
  }

  void TheNextHasOtherBytes_IsAborted() {
    first_->result = second_->result = Bytes(1000);
    first_->die_at = 300;
    second_->sha256 = "def";
    const auto keeper = Begin();
    QCOMPARE(Reason(keeper->Wait()), std::string("RESULT_CHANGED"));
    QVERIFY(keeper->bytes() == Bytes(300));
  }

  // A database that was restarted is asked in the second round.
  void Errors_AreThoseOfJobRecords() {
    first_->refuses = base::MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "no job");
    second_->refuses = absl::UnavailableError("away");
    QCOMPARE(Reason(Begin()->Wait()), std::string("NO_DATABASE"));
    second_->refuses = first_->refuses;
    QCOMPARE(Reason(Begin()->Wait()), std::string("JOB_NOT_FOUND"));
    second_->refuses =
        base::MakeError(absl::StatusCode::kFailedPrecondition, "RESULT_FETCHED", "gone");
    QCOMPARE(Reason(Begin()->Wait()), std::string("RESULT_FETCHED"));
    QCOMPARE(second_->calls(), 3);
    view_.SetRouting(std::make_shared<const Routing>());
    QCOMPARE(Reason(Begin()->Wait()), std::string("NO_DATABASE"));
  }

  // The database has sent all of it, and the rest waits in the transport.
  void ATakerThatWaits_GetsOnePart() {
    first_->result = Bytes(1000);
    const auto keeper = Begin(0, 0, /*greedy=*/false);
    QVERIFY(Eventually([&] { return first_->calls() == 1 && first_->open() == 0; }));
    for (int parts = 1; parts <= 10; ++parts) {
      QVERIFY(Eventually([&] { return keeper->parts() >= parts; }));
      QCOMPARE(keeper->parts(), parts);
      keeper->fetch->Next();
    }
    QVERIFY(keeper->Wait().ok());
    QVERIFY(keeper->bytes() == first_->result);
  }

  void SilentDatabase_IsLeft_AndAWaitingTakerIsNoSilence() {
    first_->result = second_->result = Bytes(1000);
    first_->silent_at = 300;
    const auto keeper = Begin(0, 0, /*greedy=*/false);
    QVERIFY(Eventually([&] { return keeper->parts() == 1; }));
    // The taker takes its time.
    clock_.Advance(base::Scaled(std::chrono::seconds(60)));
    keeper->fetch->Next();
    keeper->fetch->Next();
    QVERIFY(Eventually([&] { return keeper->parts() == 3; }));
    QCOMPARE(second_->calls(), 0);
    keeper->fetch->Next();
    QVERIFY(Eventually([&] {
      clock_.Advance(base::Scaled(std::chrono::seconds(2)));
      return keeper->parts() == 4;
    }));
    QCOMPARE(second_->calls(), 1);
    for (int i = 0; i < 10; ++i) keeper->fetch->Next();
    QVERIFY(keeper->Wait().ok());
    QVERIFY(keeper->bytes() == first_->result);
  }

  void Cancel_EndsIt_data() {
    QTest::addColumn<bool>("reading");
    QTest::newRow("while it reads") << true;
    QTest::newRow("while its taker waits") << false;
  }
  void Cancel_EndsIt() {
    QFETCH(bool, reading);
    first_->result = Bytes(1000);
    first_->silent_at = 100;
    const auto keeper = Begin(0, 0, reading);
    QVERIFY(Eventually([&] { return keeper->parts() == 1; }));
    keeper->fetch->Cancel();
    QCOMPARE(Reason(keeper->Wait()), std::string("CALLER_GONE"));
    QVERIFY(Eventually([&] { return first_->open() == 0; }));
    QCOMPARE(second_->calls(), 0);
    keeper->fetch->Next();
    keeper->fetch->Cancel();
  }

  void Destructor_EndsFetches() {
    first_->result = Bytes(1000);
    first_->silent_at = 100;
    const auto reading = Begin(), waiting = Begin(0, 0, /*greedy=*/false);
    QVERIFY(Eventually([&] { return reading->parts() == 1 && waiting->parts() == 1; }));
    fetches_.reset();
    QCOMPARE(Reason(reading->Wait()), std::string("CALLER_GONE"));
    QCOMPARE(Reason(waiting->Wait()), std::string("CALLER_GONE"));
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::ResultFetchesTest)
#include "result_fetches_test.moc"
