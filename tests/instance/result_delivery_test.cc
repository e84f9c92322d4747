// Sends results into a real database.
#include "stages/instance/result_delivery.h"

#include <QtTest>
#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "tests/database/database_cluster.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

using namespace std::chrono_literals;

message::Message Result(std::size_t bytes) {
  message::Message message;
  message.header.kind = message::Kind::kResult;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "app";
  message.header.attempt = 3;
  message.header.ingress_time = base::SystemClock().WallNow();
  message.header.deadline = base::SystemClock().Now() + 60s;
  message.artifacts.push_back(
      message::BytesArtifact("video", "video/mp4", std::string(bytes, 'v')));
  AddSha256(message.artifacts);
  return message;
}

}  // namespace

class ResultDeliveryTest : public QObject {
  Q_OBJECT

  std::unique_ptr<database::DatabaseCluster> cluster_;
  telemetry::Spans spans_{"inst"};

  absl::StatusOr<node::Delivered> Deliver(const message::Message& message,
                                          base::Duration limit = 10s) {
    values::ValuePeers peers(cluster_->fabric(), "inst");
    const auto deadline = base::SystemClock().Now() + base::Scaled(limit);
    const ResultWays ways{.send =
                              [&](node::Destination target) {
                                target.patience = base::Scaled(1s);
                                return cluster_->outbox().Deliver(message, target, deadline);
                              },
                          .values = peers,
                          .spans = spans_,
                          .clock = base::SystemClock()};
    return DeliverResult(message, *cluster_->view().routing(), ways, base::Scaled(1s), deadline);
  }
  std::size_t Written(const message::Message& message) const {
    const auto spans = spans_.Find(message.header.uid);
    return static_cast<std::size_t>(std::ranges::count_if(
        spans, [](const auto& span) { return span.attributes().at("outcome") == "written"; }));
  }
  bool HasResult(const std::string& database, const message::Message& message) {
    return database::Eventually([&] {
      const auto artifact =
          cluster_->at(database).node->store().FindArtifact(message.header.uid.ToString(), "video");
      return artifact.ok() && artifact->data.text() == message.artifacts[0].data.text();
    });
  }
  void AddDatabase(const std::string& id, std::uint64_t ring_bytes = 16 << 20,
                   std::int64_t budget_bytes = 64 << 20) {
    cluster_->AddDatabase(id, {}, {.options = [=](database::DatabaseNodeOptions& options) {
                            options.inbox.capacity_bytes = ring_bytes;
                            options.store.budget_bytes = budget_bytes;
                          }});
  }

  /// A result of a job that the databases know, and that `first` keeps first.
  message::Message ResultOfAJob(const std::string& first) {
    v1::JobRecord record = database::NewRecord();
    while (cluster_->Order(record.job().uid())[0] != first) record = database::NewRecord();
    database::Require(cluster_->records().Create(record).status());
    message::Message message = Result(2'000'000);
    message.header.uid = *base::Uid::Parse(record.job().uid());
    return message;
  }

  /// Leaves the database no room for results that are written straight into its memory.
  void ReserveAll(const std::string& id) {
    v1::DatabaseService::Stub stub(rpc::MakeChannel(cluster_->at(id).server->address()));
    while (true) {
      v1::ReserveResultRequest request;
      request.set_uid(base::Uid::GenerateRandom().ToString());
      request.set_sender("another");
      v1::ResultArtifact& artifact = *request.add_artifacts();
      artifact.set_artifact("video");
      artifact.set_size_bytes(1);
      artifact.set_sha256(std::string(64, 'a'));
      const auto reserved = rpc::Call(stub, &v1::DatabaseService::Stub::ReserveResult, request, 5s);
      if (absl::IsResourceExhausted(reserved.status())) return;
      database::Require(reserved.status());
    }
  }

 private Q_SLOTS:
  void init() { cluster_ = std::make_unique<database::DatabaseCluster>(); }
  void cleanup() { cluster_.reset(); }

  void AddSha256_KnowsTheAnswer_AndKeepsWhatIsThere() {
    // FIPS 180-4's example "abc".
    std::vector<message::Artifact> artifacts = {message::BytesArtifact("a", "", "abc"),
                                                message::BytesArtifact("b", "", "abc"),
                                                {"t", message::DType::kU8, {0}, "", {}}};
    artifacts[1].sha256 = "known";
    AddSha256(artifacts);
    QCOMPARE(QByteArray::fromStdString(artifacts[0].sha256).toHex(),
             QByteArray("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    QCOMPARE(artifacts[1].sha256, std::string("known"));
    QVERIFY(artifacts[2].sha256.empty());
  }

  void WithoutADatabase_NobodyTakesIt() {
    QVERIFY(absl::IsUnavailable(Deliver(Result(2'000'000)).status()));
    QVERIFY(absl::IsUnavailable(Deliver(Result(1000)).status()));
  }

  void LargeResult_IsWritten_AndItsHolderIsTheFirstDatabase() {
    AddDatabase("db-1");
    AddDatabase("db-2");
    const message::Message message = Result(2'000'000);
    const auto delivered = Deliver(message);
    QVERIFY2(delivered.ok(), delivered.status().ToString().c_str());
    QCOMPARE(delivered->endpoint.node_id(), cluster_->Order(message.header.uid.ToString())[0]);
    QVERIFY(delivered->endpoint.incarnation() > 0);
    QCOMPARE(delivered->attempt, 3u);
    QVERIFY(HasResult(delivered->endpoint.node_id(), message));
    QCOMPARE(Written(message), std::size_t{1});
  }

  void SmallResult_GoesByMessage() {
    AddDatabase("db-1");
    const message::Message small = Result(1000);
    const auto delivered = Deliver(small);
    QVERIFY2(delivered.ok(), delivered.status().ToString().c_str());
    QVERIFY(HasResult("db-1", small));
    QCOMPARE(Written(small), std::size_t{0});
  }

  void FirstDatabaseDead_TheNextOneGetsIt() {
    AddDatabase("db-1", 1 << 20);
    AddDatabase("db-2", 1 << 20);
    const message::Message message = Result(2'000'000);
    const auto order = cluster_->Order(message.header.uid.ToString());
    cluster_->Kill(order[0]);
    const auto delivered = Deliver(message);
    QVERIFY2(delivered.ok(), delivered.status().ToString().c_str());
    QCOMPARE(delivered->endpoint.node_id(), order[1]);
    QVERIFY(HasResult(order[1], message));
  }

  // It is too small for a reservation by itself.
  void SmallResultThatNoRingHolds_IsWritten() {
    AddDatabase("db-1", 1 << 20);
    const message::Message message = Result(700'000);
    const auto delivered = Deliver(message);
    QVERIFY2(delivered.ok(), delivered.status().ToString().c_str());
    QVERIFY(HasResult("db-1", message));
    QCOMPARE(Written(message), std::size_t{1});
  }

  // The caller retries it until the job's deadline.
  void ResultThatNobodyTakes_IsUnavailable() {
    AddDatabase("db-1", 1 << 20);
    ReserveAll("db-1");
    for (const std::size_t bytes : {700'000, 2'000'000}) {
      const auto delivered = Deliver(Result(bytes));
      QCOMPARE(delivered.status().code(), absl::StatusCode::kUnavailable);
      QCOMPARE(Reason(delivered.status()), std::string("RESULT_NOT_TAKEN"));
    }
  }

  // Its ring would hold it, but a full database ends the job of a result that comes so.
  void ResultForWhichTheFirstDatabaseHasNoRoom_GoesToTheNext() {
    AddDatabase("db-1", 16 << 20, 3'000'000);
    AddDatabase("db-2");
    const message::Message before = ResultOfAJob("db-1"), message = ResultOfAJob("db-1");
    QVERIFY(Deliver(before).ok());
    QVERIFY(HasResult("db-1", before));
    const auto delivered = Deliver(message);
    QVERIFY2(delivered.ok(), delivered.status().ToString().c_str());
    QCOMPARE(delivered->endpoint.node_id(), std::string("db-2"));
    QVERIFY(HasResult("db-2", message));
  }

  void ResultForWhichNobodyHasRoom_EndsNoJob_AndIsTakenLater() {
    AddDatabase("db-1", 16 << 20, 3'000'000);
    database::JobStore& store = cluster_->at("db-1").node->store();
    const message::Message before = ResultOfAJob("db-1"), message = ResultOfAJob("db-1");
    const std::string uid = message.header.uid.ToString();
    QVERIFY(Deliver(before).ok());
    QVERIFY(HasResult("db-1", before));
    QCOMPARE(Reason(Deliver(message).status()), std::string("RESULT_NOT_TAKEN"));
    QCOMPARE(store.Get(uid)->job().state(), v1::Job::QUEUED);
    QVERIFY(store.Delete(before.header.uid.ToString()).ok());
    QVERIFY(Deliver(message).ok());
    QVERIFY(HasResult("db-1", message));
  }

  // Nothing that happens before the deadline makes room for it.
  void ResultAboveEveryBudget_FailsAtOnceAndNamesTheSetting_data() {
    QTest::addColumn<std::uint64_t>("ring");
    QTest::newRow("and above every ring") << std::uint64_t{1 << 20};
    QTest::newRow("in rings that would hold it") << std::uint64_t{16 << 20};
  }
  void ResultAboveEveryBudget_FailsAtOnceAndNamesTheSetting() {
    QFETCH(const std::uint64_t, ring);
    AddDatabase("db-1", ring, 3'000'000);
    AddDatabase("db-2", ring, 2'000'000);
    const message::Message message = Result(2'500'000);
    const auto fits = Deliver(message);
    QVERIFY2(fits.ok(), fits.status().ToString().c_str());
    QCOMPARE(fits->endpoint.node_id(), std::string("db-1"));
    const auto refused = Deliver(Result(4'000'000));
    QCOMPARE(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    QCOMPARE(Reason(refused.status()), std::string("RESULT_BUDGET_EXCEEDED"));
    const std::string said = base::Message(refused.status());
    QVERIFY2(said.find("a result of 4000000 bytes never fits") != std::string::npos &&
                 said.find("budget_bytes, ") != std::string::npos,
             said.c_str());
  }

  void ResultAboveTheBudgetOfTheOnlyDatabaseThatAnswers_IsTriedAgain() {
    AddDatabase("db-1", 1 << 20, 3'000'000);
    AddDatabase("db-2", 1 << 20);
    cluster_->Kill("db-2");
    const auto delivered = Deliver(Result(4'000'000));
    QCOMPARE(Reason(delivered.status()), std::string("RESULT_NOT_TAKEN"));
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::ResultDeliveryTest)
#include "result_delivery_test.moc"
