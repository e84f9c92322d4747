// Gets and puts against a real database over real memory: shared, and UCX where it is built.
#include "cluster/values/remote_values.h"

#include <QtTest>
#include <atomic>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "tests/database/database_cluster.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::values {
namespace {

using namespace std::chrono_literals;
using database::DatabaseCluster;
using database::Eventually;

base::MonotonicTime Soon() { return base::SystemClock().Now() + base::Scaled(20s); }

message::Message Result(const std::vector<std::string>& values) {
  message::Message message;
  message.header.kind = message::Kind::kResult;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "app";
  message.header.ingress_time = base::SystemClock().WallNow();
  message.header.deadline = base::SystemClock().Now() + 60s;
  for (const std::string& value : values) {
    const std::string name = "v" + std::to_string(message.artifacts.size());
    message.artifacts.push_back(message::BytesArtifact(name, "video/mp4", value));
    message.artifacts.back().sha256 = base::Sha256Digest(message.artifacts.back().data.bytes());
  }
  return message;
}

// Bytes in which every 8 tell the seed, so that the test notices a mixture of two values.
std::string Pattern(std::uint64_t seed, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) std::memcpy(text.data() + i, &seed, 8);
  return text;
}

/// A database's values behind gRPC. Every commit is lost, and so is every 100th give-up: half of
/// the commits on their way to the database, and the answers of the others.
class LossyDatabase final : public v1::DatabaseService::Service {
 public:
  explicit LossyDatabase(fabric::Fabric& fabric)
      : values_(*database::ValueAccess::Create(fabric, {.budget_bytes = 1 << 20}, clock_)) {
    server_.AddService(*this);
    database::Require(server_.Start().status());
  }
  ~LossyDatabase() override { server_.Shutdown(base::Duration::zero()); }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  [[nodiscard]] std::size_t reservations() const { return values_->reservations(); }
  [[nodiscard]] int lost_commits() const { return lost_commits_; }
  [[nodiscard]] int lost_abandons() const { return lost_abandons_; }

  grpc::Status OpenSegment(grpc::ServerContext*, const v1::OpenSegmentRequest* request,
                           v1::OpenSegmentResponse* response) override {
    return Answer(values_->OpenSegment(*request), response);
  }
  grpc::Status ReserveResult(grpc::ServerContext*, const v1::ReserveResultRequest* request,
                             v1::ReserveResultResponse* response) override {
    return Answer(values_->Reserve(*request, store_), response);
  }
  grpc::Status CommitResult(grpc::ServerContext*, const v1::CommitResultRequest* request,
                            v1::CommitResultResponse* response) override {
    const grpc::Status lost(grpc::StatusCode::UNAVAILABLE, "lost");
    if (request->abandon()) {
      if (++abandons_ % 100 != 0) return Answer(values_->Commit(*request, store_), response);
      ++lost_abandons_;
      return lost;
    }
    if (++lost_commits_ % 2 == 0) (void)values_->Commit(*request, store_);
    return lost;
  }

 private:
  template <typename T>
  static grpc::Status Answer(absl::StatusOr<T> result, T* response) {
    if (!result.ok()) return rpc::ToGrpc(result.status());
    *response = *std::move(result);
    return grpc::Status::OK;
  }

  base::ManualClock clock_;  // It stands still, so no reservation expires.
  const std::unique_ptr<database::ValueAccess> values_;
  const database::ValueAccess::Store store_ = {
      .wants = [](const base::Uid&) { return true; },
      .has_room = [](std::int64_t) { return true; },
      .keep = [](const database::ResultBundle&, message::Kind,
                 const std::string&) { return true; }};
  std::atomic<int> lost_commits_{0}, abandons_{0}, lost_abandons_{0};
  rpc::Server server_{rpc::ServerOptions{}};
};

void Fabrics() {
  QTest::addColumn<QString>("uri");
  QTest::newRow("shm") << "";
// ThreadSanitizer does not instrument UCX, so it would report its locks and copies as races.
#if defined(ONEPIECE_HAVE_UCX) && !defined(__SANITIZE_THREAD__)
  QTest::newRow("ucx") << "ucx://lo";
#endif
}

}  // namespace

class RemoteValuesTest : public QObject {
  Q_OBJECT

  static std::unique_ptr<RemoteValues> ClientOf(DatabaseCluster& cluster) {
    return RemoteValues::Create(
        cluster.fabric(), {.node_id = "reader", .address = cluster.at("db").server->address()});
  }

 private Q_SLOTS:
  void Put_IsTheJobsResult_ThatGetReads_data() { Fabrics(); }
  void Put_IsTheJobsResult_ThatGetReads() {
    QFETCH(QString, uri);
    DatabaseCluster cluster(uri.toStdString());
    auto& database = cluster.AddDatabase("db");
    const auto client = ClientOf(cluster);
    const std::vector<std::string> values = {Pattern(1, 3'000'000), "small", Pattern(2, 1 << 20)};
    const message::Message message = Result(values);
    const auto stored = client->Put(message, Soon());
    QVERIFY2(stored.ok() && *stored, stored.status().ToString().c_str());
    const base::Uid uid = message.header.uid;
    QCOMPARE(database.node->store().Get(uid.ToString())->job().state(), v1::Job::SUCCEEDED);
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      const auto value = client->Get({uid, i}, Soon());
      QVERIFY2(value.ok(), value.status().ToString().c_str());
      QVERIFY(value->text() == values[i]);
      const auto artifact =
          database.node->store().FindArtifact(uid.ToString(), "v" + std::to_string(i));
      QVERIFY(artifact->data.text() == values[i]);
    }
    QCOMPARE(Reason(client->Get({uid, 3}, Soon()).status()), std::string("NOT_INDEXED"));
    // A second copy of the result is late.
    const auto again = client->Put(message, Soon());
    QVERIFY(again.ok() && !*again);
    QVERIFY(database.node->store().Acknowledge(uid.ToString()).ok());
    QCOMPARE(Reason(client->Get({uid, 0}, Soon()).status()), std::string("NOT_INDEXED"));
  }

  void LargeValue_GoesThereAndBack_data() { Fabrics(); }
  void LargeValue_GoesThereAndBack() {
    QFETCH(QString, uri);
    DatabaseCluster cluster(uri.toStdString());
    auto& database = cluster.AddDatabase("db");
    const auto client = ClientOf(cluster);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const message::Message message = Result({Pattern(seed, 40'000'000)});
      const auto stored = client->Put(message, Soon());
      QVERIFY2(stored.ok() && *stored, stored.status().ToString().c_str());
      const auto value = client->Get({message.header.uid, 0}, Soon());
      QVERIFY2(value.ok(), value.status().ToString().c_str());
      QVERIFY(value->text() == message.artifacts[0].data.text());
      QVERIFY(database.node->store().Acknowledge(message.header.uid.ToString()).ok());
    }
  }

  void ResultFromTheRing_IsReadTheSameWay() {
    DatabaseCluster cluster;
    auto& database = cluster.AddDatabase("db");
    const auto client = ClientOf(cluster);
    const base::Uid uid = base::Uid::GenerateRandom();
    QVERIFY(cluster.SendResult(uid.ToString(), Pattern(7, 100'000)).ok());
    QVERIFY(Eventually([&] { return client->Get({uid, 0}, Soon()).ok(); }));
    QVERIFY(client->Get({uid, 0}, Soon())->text() == Pattern(7, 100'000));
    QVERIFY(database.node->store().Delete(uid.ToString()).ok());
    QCOMPARE(Reason(client->Get({uid, 0}, Soon()).status()), std::string("NOT_INDEXED"));
  }

  // Its connection to the segment is one for reading.
  void Reader_ThatPutsIntoTheSameSegment_ConnectsAnew_data() { Fabrics(); }
  void Reader_ThatPutsIntoTheSameSegment_ConnectsAnew() {
    QFETCH(QString, uri);
    DatabaseCluster cluster(uri.toStdString());
    cluster.AddDatabase("db");
    const auto client = ClientOf(cluster);
    const base::Uid uid = base::Uid::GenerateRandom();
    QVERIFY(cluster.SendResult(uid.ToString(), Pattern(7, 100'000)).ok());
    QVERIFY(Eventually([&] { return client->Get({uid, 0}, Soon()).ok(); }));
    const message::Message message = Result({Pattern(8, 2'000'000)});
    const auto stored = client->Put(message, Soon());
    QVERIFY2(stored.ok() && *stored, stored.status().ToString().c_str());
    QVERIFY(client->Get({uid, 0}, Soon())->text() == Pattern(7, 100'000));
    QVERIFY(client->Get({message.header.uid, 0}, Soon())->text() == Pattern(8, 2'000'000));
  }

  void ReaderAgainstPurge_SeesTheValueOrNone() {
    DatabaseCluster cluster;
    auto& database = cluster.AddDatabase("db");
    const auto writer = ClientOf(cluster);
    struct {
      base::Mutex mutex;
      // Each with the seed of its bytes.
      std::vector<std::pair<base::Uid, std::uint64_t>> values ABSL_GUARDED_BY(mutex);
    } made;
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0}, read{0}, missed{0};
    std::jthread reader([&] {
      const auto client = ClientOf(cluster);
      for (std::size_t i = 0; !stop; ++i) {
        std::pair<base::Uid, std::uint64_t> which;
        {
          const base::MutexLock lock(made.mutex);
          const std::size_t count = made.values.size();
          if (count == 0) continue;
          which = made.values[count - 1 - i % std::min<std::size_t>(count, 3)];
        }
        const auto value = client->Get({which.first, 0}, Soon());
        if (value.ok()) {
          ++read;
          if (value->text() != Pattern(which.second, 1'500'000)) ++wrong;
        } else {
          ++missed;
          if (Reason(value.status()) != "NOT_INDEXED") ++wrong;
        }
      }
    });
    for (std::uint64_t seed = 1; seed <= 60 || read < 20 || missed < 20; ++seed) {
      const message::Message message = Result({Pattern(seed, 1'500'000)});
      const auto stored = writer->Put(message, Soon());
      QVERIFY2(stored.ok() && *stored, stored.status().ToString().c_str());
      base::Uid old;
      {
        const base::MutexLock lock(made.mutex);
        made.values.emplace_back(message.header.uid, seed);
        if (made.values.size() >= 2) old = made.values[made.values.size() - 2].first;
      }
      if (!old.IsNil()) QVERIFY(database.node->store().Delete(old.ToString()).ok());
    }
    stop = true;
    reader.join();
    QCOMPARE(wrong.load(), 0);
  }

  void DatabaseThatRestarts_IsFoundAgain() {
    DatabaseCluster cluster;
    const std::string address = cluster.AddDatabase("db").server->address();
    const auto client = ClientOf(cluster);
    const message::Message first = Result({Pattern(1, 2'000'000)});
    QVERIFY(*client->Put(first, Soon()));
    QVERIFY(client->Get({first.header.uid, 0}, Soon()).ok());
    cluster.Kill("db");
    const auto away = client->Get({first.header.uid, 0}, Soon());
    QVERIFY(absl::IsUnavailable(away.status()));
    QVERIFY(absl::IsUnavailable(client->Put(first, Soon()).status()));
    cluster.Forget("db");
    cluster.AddDatabase("db", {}, {}, address);
    const message::Message second = Result({Pattern(2, 2'000'000)});
    QVERIFY(Eventually([&] { return client->Put(second, Soon()).ok(); }));
    QCOMPARE(Reason(client->Get({first.header.uid, 0}, Soon()).status()),
             std::string("NOT_INDEXED"));
    QVERIFY(client->Get({second.header.uid, 0}, Soon())->text() == Pattern(2, 2'000'000));
  }

  void Put_RefusesWhatIsNoResultOfBytes() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db");
    const auto client = ClientOf(cluster);
    const auto refused = [&](const message::Message& message) {
      return Reason(client->Put(message, Soon()).status()) == "BAD_RESULT" && !IsForPut(message);
    };
    message::Message message = Result({Pattern(1, kDirectBytes)});
    QVERIFY(IsForPut(message));
    message.artifacts[0].sha256.clear();
    QVERIFY(refused(message));
    message = Result({Pattern(1, kDirectBytes)});
    message.header.kind = message::Kind::kWork;
    QVERIFY(refused(message));
    message = Result({Pattern(1, kDirectBytes)});
    message.artifacts[0].dtype = message::DType::kU8;
    QVERIFY(refused(message));
    QVERIFY(refused(Result({})));
    QVERIFY(refused(Result({""})));
    QVERIFY(!IsForPut(Result({Pattern(1, kDirectBytes - 1)})));
  }

  void LostCommits_LeakNoReservation() {
    constexpr int kCommits = 10'000;
    const auto fabric =
        *fabric::Fabric::Open("shm://lossy-" + base::Uid::GenerateRandom().ToString());
    LossyDatabase database(*fabric);
    const auto client =
        RemoteValues::Create(*fabric, {.node_id = "writer", .address = database.address()});
    const message::Message message = Result({"value"});
    const auto limit = base::SystemClock().Now() + base::Scaled(120s);
    while (database.lost_commits() < kCommits) {
      // Now and then there is no room for a moment, because the give-ups come later.
      const absl::Status failed = client->Put(message, Soon()).status();
      QVERIFY(absl::IsUnavailable(failed) || absl::IsResourceExhausted(failed));
      QVERIFY2(base::SystemClock().Now() < limit, "the reservations are all taken");
    }
    QVERIFY(Eventually([&] { return database.reservations() == 0; }));
    QVERIFY(database.lost_abandons() >= kCommits / 100);
  }

  void Deadline_IsKept() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db");
    const auto client = ClientOf(cluster);
    const auto past = base::SystemClock().Now() - 1ms;
    QVERIFY(absl::IsDeadlineExceeded(client->Get({base::Uid(), 0}, past).status()));
    QVERIFY(absl::IsDeadlineExceeded(client->Put(Result({"v"}), past).status()));
  }
};

}  // namespace onepiece::values

ONEPIECE_TEST(onepiece::values::RemoteValuesTest)
#include "remote_values_test.moc"
