#include "cluster/database/database_node.h"

#include <unistd.h>

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "tests/database/database_cluster.h"
#include "tests/fetch_whole.h"
#include "tests/health.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/values/scarce_fabric.h"
#include "tests/watch_to_end.h"

namespace onepiece::database {
namespace {

using v1::Job;
using namespace std::chrono_literals;

absl::StatusOr<std::string> FetchFrom(const DatabaseCluster::Database& database,
                                      const std::string& uid, std::int64_t offset = 0) {
  v1::DatabaseService::Stub stub(rpc::MakeChannel(database.server->address()));
  grpc::ClientContext context;
  rpc::SetTimeout(context, 10s);
  v1::FetchResultRequest request;
  request.set_name("jobs/" + uid);
  request.set_offset_bytes(offset);
  const auto stream = stub.FetchResult(&context, request);
  std::string bytes;
  v1::FetchResultResponse part;
  while (stream->Read(&part)) bytes += part.chunk();
  if (const grpc::Status status = stream->Finish(); !status.ok()) return rpc::FromGrpc(status);
  return bytes;
}

/// Returns the reason with which each call was refused; "" stands for OK.
std::vector<std::string> ReasonsOfAllCalls(const std::string& address) {
  using Stub = v1::DatabaseService::Stub;
  Stub stub(rpc::MakeChannel(address));
  std::vector<std::string> reasons;
  const std::string uid = base::Uid::GenerateRandom().ToString();
  const auto call = [&](auto method, auto request) {
    if constexpr (requires { request.set_uid(uid); }) request.set_uid(uid);
    if constexpr (requires { request.set_name(uid); }) request.set_name("jobs/" + uid);
    reasons.push_back(Reason(rpc::Call(stub, method, request, 10s).status()));
  };
  const auto read = [&](auto method, auto request, auto item) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, 10s);
    request.set_name("jobs/" + uid);
    const auto stream = (stub.*method)(&context, request);
    while (stream->Read(&item)) {
    }
    reasons.push_back(Reason(rpc::FromGrpc(stream->Finish())));
  };
  call(&Stub::CreateJob, v1::CreateJobRequest());
  call(&Stub::UpdateJob, v1::UpdateJobRequest());
  call(&Stub::GetJob, v1::GetJobRecordRequest());
  call(&Stub::ListJobs, v1::ListJobsRequest());
  read(&Stub::WatchJob, v1::WatchJobRequest(), v1::Job());
  read(&Stub::FetchResult, v1::FetchResultRequest(), v1::FetchResultResponse());
  call(&Stub::AcknowledgeResult, v1::AcknowledgeResultRequest());
  call(&Stub::DeleteJob, v1::DeleteJobRequest());
  call(&Stub::PurgeResults, v1::PurgeResultsRequest());
  call(&Stub::ReplicateJobs, v1::ReplicateJobsRequest());
  call(&Stub::CompareJobs, v1::CompareJobsRequest());
  call(&Stub::SendJobs, v1::SendJobsRequest());
  call(&Stub::OpenSegment, v1::OpenSegmentRequest());
  call(&Stub::ReserveResult, v1::ReserveResultRequest());
  call(&Stub::CommitResult, v1::CommitResultRequest());
  call(&Stub::GetDatabase, v1::GetDatabaseRequest());
  return reasons;
}

/// A port that was free a moment ago.
std::string FreeAddress() {
  rpc::Server server(rpc::ServerOptions{});
  Require(server.Start().status());
  return server.address();
}

}  // namespace

class DatabaseNodeTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Result_ReachesBothDatabases() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1");
    cluster.AddDatabase("db-2");
    const v1::JobRecord record = NewRecord();
    const std::string uid = record.job().uid();
    QVERIFY(cluster.records().Create(record).ok());
    const std::string video(3'500'000, 'v');
    QVERIFY(cluster.SendResult(uid, video).ok());
    for (const char* id : {"db-1", "db-2"}) {
      QVERIFY(Eventually([&] { return cluster.at(id).node->store().FindArtifact(uid, "").ok(); }));
      const auto fetched = FetchFrom(cluster.at(id), uid);
      QVERIFY2(fetched.ok(), fetched.status().ToString().c_str());
      QVERIFY(*fetched == video);
    }
    QVERIFY(*FetchFrom(cluster.at("db-1"), uid, 3'499'998) == "vv");
    QCOMPARE(Reason(FetchFrom(cluster.at("db-1"), uid, 3'500'001).status()),
             std::string("BAD_OFFSET"));
    QCOMPARE(Reason(FetchFrom(cluster.at("db-1"), uid, -1).status()), std::string("BAD_OFFSET"));
  }

  void Result_SurvivesTheDeathOfTheDatabaseThatTookIt() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1");
    cluster.AddDatabase("db-2");
    const v1::JobRecord record = NewRecord();
    const std::string uid = record.job().uid();
    QVERIFY(cluster.records().Create(record).ok());
    const auto sent = cluster.SendResult(uid, "video");
    QVERIFY(sent.ok());
    const std::string first = sent->endpoint.node_id();
    const std::string second = first == "db-1" ? "db-2" : "db-1";
    QVERIFY(
        Eventually([&] { return cluster.at(second).node->store().FindArtifact(uid, "").ok(); }));
    cluster.Kill(first);
    const auto job = cluster.records().Get(*base::Uid::Parse(uid));
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(job->job().state(), Job::SUCCEEDED);
    const auto fetched = testing::FetchWhole(cluster.records(), *base::Uid::Parse(uid));
    QVERIFY2(fetched.ok(), fetched.status().ToString().c_str());
    QCOMPARE(*fetched, std::string("video"));
  }

  void Peer_ThatCameBackEmptyHealsAsJobsMove() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1");
    cluster.AddDatabase("db-2");
    const v1::JobRecord record = NewRecord();
    const std::string uid = record.job().uid();
    QVERIFY(cluster.records().Create(record).ok());
    const std::vector<std::string> order = cluster.Order(uid);
    QVERIFY(Eventually([&] { return cluster.at(order[1]).node->store().Get(uid).ok(); }));
    cluster.Kill(order[1]);
    cluster.Forget(order[1]);
    cluster.AddDatabase(order[1]);
    v1::UpdateJobRequest update;
    update.set_uid(uid);
    v1::WorkHolder& placed = *update.add_placed();
    placed.set_node_id("inst");
    placed.set_stage("encode");
    // No node sees "inst" alive, so the job may be lost meanwhile. That changes the job as well.
    QVERIFY(cluster.records().Update(update).ok());
    QVERIFY(Eventually([&] { return cluster.at(order[1]).node->store().Get(uid).ok(); }));
    QCOMPARE(cluster.at(order[1]).node->store().Get(uid)->fingerprint(), std::string("f"));
  }

  void Acknowledge_PurgesBothCopies() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1");
    cluster.AddDatabase("db-2");
    const v1::JobRecord record = NewRecord();
    const std::string uid = record.job().uid();
    QVERIFY(cluster.records().Create(record).ok());
    QVERIFY(cluster.SendResult(uid, "video").ok());
    for (const char* id : {"db-1", "db-2"}) {
      QVERIFY(Eventually([&] { return cluster.at(id).node->store().FindArtifact(uid, "").ok(); }));
    }
    QVERIFY(cluster.records().Acknowledge(*base::Uid::Parse(uid)).ok());
    for (const char* id : {"db-1", "db-2"}) {
      QVERIFY(Eventually([&] { return cluster.at(id).node->store().stats().result_bytes == 0; }));
      QCOMPARE(Reason(FetchFrom(cluster.at(id), uid).status()), std::string("RESULT_FETCHED"));
    }
  }

  void Job_OfADeadInstanceIsLost() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1", {.holder_grace = 50ms});
    const v1::JobRecord record = NewRecord();
    const std::string uid = record.job().uid();
    QVERIFY(cluster.records().Create(record).ok());
    cluster.ChangeTable([](v1::RoutingTable& table) {
      v1::Endpoint& alive = *table.add_alive();
      alive.set_node_id("inst");
      alive.set_incarnation(9);
    });
    v1::UpdateJobRequest update;
    update.set_uid(uid);
    v1::WorkHolder& holder = *update.mutable_progress()->mutable_holder();
    holder.set_node_id("inst");
    holder.set_incarnation(9);
    holder.set_stage("encode");
    QVERIFY(cluster.records().Update(update).ok());
    QVERIFY(cluster.at("db-1").node->store().Get(uid)->job().state() == Job::RUNNING);
    cluster.Forget("inst");
    Job last;
    const absl::Status watched =
        testing::WatchToEnd(cluster.records(), *base::Uid::Parse(uid), [&](const Job& job) {
          last = job;
          return true;
        });
    QVERIFY2(watched.ok(), watched.ToString().c_str());
    QCOMPARE(last.state(), Job::FAILED);
    QCOMPARE(last.error().reason(), std::string("LOST"));
  }

  // The database's table is older than the one by which the instance was chosen, and does not name
  // it yet. A later table judges.
  void Job_OfAnInstanceThatCameLaterIsNotLost() {
    DatabaseCluster cluster;
    cluster.AddDatabase("db-1", {.holder_grace = 0ms});
    const std::uint64_t epoch = cluster.view().routing()->epoch();
    const auto place = [&](std::uint64_t routing_epoch) {
      const v1::JobRecord record = NewRecord();
      v1::UpdateJobRequest update;
      update.set_uid(record.job().uid());
      v1::WorkHolder& holder = *update.add_placed();
      holder.set_node_id("inst");
      holder.set_incarnation(9);
      holder.set_stage("encode");
      holder.set_routing_epoch(routing_epoch);
      Require(cluster.records().Create(record).status());
      Require(cluster.records().Update(update).status());
      return update.uid();
    };
    const JobStore& store = cluster.at("db-1").node->store();
    const auto is_lost = [&](const std::string& uid) {
      return store.Get(uid)->job().error().reason() == "LOST";
    };
    const std::string late = place(epoch + 1);
    // A sweep that finds such a job has looked at the first too.
    for (int i = 0; i < 2; ++i) {
      const std::string probe = place(epoch);
      QVERIFY(Eventually([&] { return is_lost(probe); }));
    }
    QVERIFY(!is_lost(late));
    cluster.ChangeTable([](v1::RoutingTable&) {});
    QVERIFY(Eventually([&] { return is_lost(late); }));
  }

  void Result_WithoutValueMemory_IsKeptInTheHeapOrEndsItsJob_data() {
    QTest::addColumn<bool>("spill");
    QTest::newRow("reject") << false;
    QTest::newRow("spill") << true;
  }
  void Result_WithoutValueMemory_IsKeptInTheHeapOrEndsItsJob() {
    QFETCH(bool, spill);
    constexpr std::size_t kBytes = 1'500'000;
    const QTemporaryDir folder;
    DatabaseCluster cluster;
    const auto scarce = std::make_shared<values::ScarceFabric>(cluster.fabric());
    cluster.AddDatabase("db-1", {.budget_bytes = 2 * kBytes},
                        {.options =
                             [&](DatabaseNodeOptions& options) {
                               if (spill)
                                 options.disk.folder = folder.filePath("data").toStdString();
                               options.disk.spill = spill;
                               options.disk.spill_budget_bytes = 1;  // A disk that is full.
                             },
                         .fill = [&](JobStore&) { scarce->SetFull(true); },
                         .fabric = scarce});
    JobStore& store = cluster.at("db-1").node->store();
    const auto send = [&](std::size_t bytes) {
      const v1::JobRecord record = NewRecord();
      Require(cluster.records().Create(record).status());
      Require(cluster.SendResult(record.job().uid(), std::string(bytes, 'v')).status());
      return record.job().uid();
    };
    const auto state = [&](const std::string& uid) { return store.Get(uid)->job().state(); };
    const std::string first = send(kBytes), second = send(kBytes);
    for (const std::string& uid : {first, second}) {
      QVERIFY(Eventually([&] { return state(uid) == Job::SUCCEEDED; }));
      QVERIFY(*FetchFrom(cluster.at("db-1"), uid) == std::string(kBytes, 'v'));
    }
    QVERIFY(scarce->refused() > 0);
    // Two results that nobody has fetched use up the budget.
    QVERIFY(store.Delete(second).ok());
    const std::string third = send(kBytes);
    QVERIFY(Eventually([&] { return state(third) == Job::SUCCEEDED; }));
    QVERIFY(cluster.records().Acknowledge(*base::Uid::Parse(first)).ok());
    const std::string fourth = send(kBytes);
    QVERIFY(Eventually([&] { return state(fourth) == Job::SUCCEEDED; }));
    // More messages than the ring has room for.
    for (int i = 0; i < 20; ++i) {
      const std::string refused = send(kBytes);
      QVERIFY(Eventually([&] { return state(refused) == Job::FAILED; }));
      QCOMPARE(store.Get(refused)->job().error().reason(), std::string("RESULT_BUDGET_EXCEEDED"));
    }
    QVERIFY(Eventually([&] { return cluster.at("db-1").node->load().ring_slots_used() == 0; }));
    QCOMPARE(store.stats().result_bytes, std::int64_t{2 * kBytes});
    QVERIFY(store.FindArtifact(third, "").ok() && store.FindArtifact(fourth, "").ok());
    // Make room again, in memory and in the ring.
    scarce->SetFull(false);
    QVERIFY(store.Delete(third).ok());
    const std::string last = send(kBytes);
    QVERIFY(Eventually([&] { return state(last) == Job::SUCCEEDED; }));
    QVERIFY(*FetchFrom(cluster.at("db-1"), last) == std::string(kBytes, 'v'));
  }

  // A job that has not been read from disk yet must not look as if it did not exist.
  void Call_BeforeRecoveryIsDone_SaysSo() {
    DatabaseCluster cluster;
    const auto reasons = [](DatabaseNode& node) {
      rpc::Server server(rpc::ServerOptions{});
      for (grpc::Service* service : node.services()) server.AddService(*service);
      Require(server.Start().status());
      return ReasonsOfAllCalls(server.address());
    };
    telemetry::Metrics metrics("database", "db");
    telemetry::Spans spans("db");
    DatabaseNodeOptions options;
    options.node_id = "db";
    auto node =
        DatabaseNode::Open(cluster.view(), std::move(options), cluster.fabric(), metrics, spans);
    QVERIFY(node.ok());
    for (const std::string& reason : reasons(**node)) QCOMPARE(reason, std::string("RECOVERING"));
    Require((*node)->Recover("test"));
    for (const std::string& reason : reasons(**node)) QCOMPARE(reason, std::string("RECOVERING"));
    (*node)->Start();
    for (const std::string& reason : reasons(**node)) QVERIFY(reason != "RECOVERING");
    (*node)->Stop();
  }

  // The database learns its cluster only from the NodeManager, and reads nothing before.
  void Program_ThatHasNotRecovered_IsNotServing() {
    const QTemporaryDir folder;
    const std::string address = FreeAddress();
    QProcess program;
    program.setProcessChannelMode(QProcess::ForwardedErrorChannel);
    program.start(ONEPIECE_BINARY_DIR "/bin/onepiece-database",
                  {"--insecure", "--node-id", "db-1", "--nodemanager", "127.0.0.1:1", "--listen",
                   QString::fromStdString(address), "--data-dir", folder.filePath("data"),
                   "--fabric", "shm://test-" + QString::number(getpid())});
    QVERIFY(program.waitForStarted());
    const auto get = [&] {
      v1::DatabaseService::Stub stub(rpc::MakeChannel(address));
      v1::GetJobRecordRequest request;
      request.set_uid(base::Uid::GenerateRandom().ToString());
      return rpc::Call(stub, &v1::DatabaseService::Stub::GetJob, request, 5s).status();
    };
    QVERIFY(Eventually([&] { return Reason(get()) == "RECOVERING"; }));
    QCOMPARE(get().code(), absl::StatusCode::kUnavailable);
    QCOMPARE(testing::AskHealth(address).value_or(0), testing::kNotServing);
    program.terminate();
    QVERIFY(program.waitForFinished(20'000));
    QCOMPARE(program.exitCode(), 0);
  }

  void Message_ForAStageIsCountedAndDropped() {
    DatabaseCluster cluster;
    auto& database = cluster.AddDatabase("db-1");
    message::Message message;
    message.header.kind = message::Kind::kWork;
    message.header.uid = base::Uid::GenerateRandom();
    message.header.stage = "encode";
    QVERIFY(cluster.outbox()
                .Deliver(message, node::Destination::DatabasesFor(message.header.uid),
                         base::SystemClock().Now() + 10s)
                .ok());
    auto& misdirected = database.metrics->Counter("onepiece_results_total",
                                                  "Results that arrived, by what became of them",
                                                  {{"outcome", "misdirected"}});
    QVERIFY(Eventually([&] { return misdirected.Value() == 1; }));
    QCOMPARE(database.node->store().stats().records, 0);
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::DatabaseNodeTest)
#include "database_node_test.moc"
