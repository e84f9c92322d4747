// Purges by hand: they remove the results that match all filters, every copy of them, and no
// others.
#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "tests/database/database_cluster.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

}  // namespace

class PurgeTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    cluster_ = std::make_unique<DatabaseCluster>();
    cluster_->AddDatabase("db-1");
    cluster_->AddDatabase("db-2");
  }
  void cleanup() { cluster_.reset(); }

  void Uids_ArePurgedOnEveryCopy_OthersStay() {
    const std::string gone = Succeeded("a", 1000), stays = Succeeded("a", 1000);
    v1::PurgeResultsRequest request;
    request.add_uids(gone);
    request.add_uids(base::Uid::GenerateRandom().ToString());  // No job has this uid.
    request.set_dry_run(true);
    for (int again = 0; again < 2; ++again) {
      const auto counted = Purge("db-1", request);
      QVERIFY2(counted.ok(), counted.status().ToString().c_str());
      QCOMPARE(counted->results(), 1);
      QCOMPARE(counted->bytes(), 1000);
    }
    request.set_dry_run(false);
    QCOMPARE(Purge("db-1", request)->results(), 1);
    QCOMPARE(Purge("db-1", request)->results(), 0);
    for (const char* id : {"db-1", "db-2"}) {
      QVERIFY(Eventually([&] { return Fetchable(id, gone) == "RESULT_FETCHED"; }));
      QCOMPARE(Fetchable(id, stays), std::string());
    }
  }

  void Filters_MustAllMatch() {
    const std::string a = Succeeded("a", 100), b = Succeeded("b", 10);
    const std::string running = Create("a");
    v1::PurgeResultsRequest request;
    request.set_dry_run(true);
    const auto bytes = [&] { return Purge("db-1", request)->bytes(); };
    request.set_all(true);
    QCOMPARE(bytes(), 110);
    request.set_app_id("b");
    QCOMPARE(bytes(), 10);
    request.add_uids(a);
    QCOMPARE(bytes(), 0);
    request.clear_app_id();
    QCOMPARE(bytes(), 100);
    const base::WallTime now = base::SystemClock().WallNow();
    *request.mutable_ended_before() = job::ToTimestamp(now - 1h);
    QCOMPARE(bytes(), 0);
    *request.mutable_ended_before() = job::ToTimestamp(now + 1h);
    QCOMPARE(bytes(), 100);
    request.clear_uids();
    request.set_all(false);
    request.set_dry_run(false);
    QCOMPARE(bytes(), 110);
    QCOMPARE(Fetchable("db-1", a), std::string("RESULT_FETCHED"));
    QCOMPARE(Fetchable("db-1", b), std::string("RESULT_FETCHED"));
    QCOMPARE(Fetchable("db-1", running), std::string("JOB_NOT_DONE"));
  }

  void ManyPages_AreAllPurged() {
    v1::JobRecord record;
    JobStore& store = cluster_->at("db-1").node->store();
    for (int i = 0; i < 2500; ++i) {
      ResultBundle bundle;
      bundle.uid = base::Uid::GenerateRandom();
      bundle.app_id = "many";
      bundle.ingress_time = base::SystemClock().WallNow() + std::chrono::microseconds(i);
      bundle.deadline = base::SystemClock().Now() + 60s;
      StoredArtifact& artifact = bundle.artifacts.emplace_back();
      artifact.info.set_artifact("x");
      artifact.info.set_size_bytes(3);
      artifact.data = message::Buffer::FromString("abc");
      bundle.total_bytes = 3;
      QVERIFY(store.StoreResult(bundle, message::Kind::kReplica).ok());
      (void)store.Confirm(bundle.uid);  // False once the databases have settled it.
    }
    v1::PurgeResultsRequest request;
    request.set_app_id("many");
    QCOMPARE(Purge("db-1", request)->results(), 2500);
    QCOMPARE(store.stats().result_bytes, 0);
  }

  void BadRequests_AreNamed() {
    v1::PurgeResultsRequest request;
    QCOMPARE(Reason(Purge("db-1", request).status()), std::string("NOTHING_NAMED"));
    request.add_uids("x");
    const auto bad = Purge("db-1", request);
    QVERIFY(absl::IsInvalidArgument(bad.status()));
    QCOMPARE(Reason(bad.status()), std::string("BAD_UID"));
  }

  void ReadOnly_OnlyCounts() {
    const std::string uid = Succeeded("a", 1000);
    cluster_->AddDatabase(
        "db-3", {},
        {.options = [](DatabaseNodeOptions& options) { options.read_only = true; }, .fill = {}});
    v1::PurgeResultsRequest request;
    request.add_uids(uid);
    const auto refused = Purge("db-3", request);
    QVERIFY(absl::IsPermissionDenied(refused.status()));
    QCOMPARE(Reason(refused.status()), std::string("READ_ONLY"));
    request.set_dry_run(true);
    QVERIFY(Purge("db-3", request).ok());
  }

 private:
  std::string Create(const std::string& app) {
    v1::JobRecord record;
    v1::Job& job = *record.mutable_job();
    const base::WallTime now = base::SystemClock().WallNow();
    job.set_uid(base::Uid::Generate(base::ToUnixMs(now)).ToString());
    job.set_name("jobs/" + job.uid());
    job.set_app_id(app);
    *job.mutable_create_time() = job::ToTimestamp(now);
    job::SetTimeLimit(60s, now, record);
    record.set_fingerprint("f");
    record.set_result_ttl_s(60);
    Require(cluster_->records().Create(record).status());
    for (const char* id : {"db-1", "db-2"}) {
      if (!Eventually([&] { return cluster_->at(id).node->store().Get(job.uid()).ok(); }))
        qFatal("the record did not reach %s", id);
    }
    return job.uid();
  }
  /// A job whose result both databases hold.
  std::string Succeeded(const std::string& app, std::size_t bytes) {
    const std::string uid = Create(app);
    Require(cluster_->SendResult(uid, std::string(bytes, 'v')).status());
    for (const char* id : {"db-1", "db-2"}) {
      if (!Eventually([&] { return Fetchable(id, uid).empty(); }))
        qFatal("the result did not reach %s", id);
    }
    return uid;
  }
  std::string Fetchable(const std::string& node_id, const std::string& uid) {
    return Reason(cluster_->at(node_id).node->store().FindArtifact(uid, "").status());
  }
  absl::StatusOr<v1::PurgeResultsResponse> Purge(const std::string& node_id,
                                                 const v1::PurgeResultsRequest& request) {
    v1::DatabaseService::Stub stub(rpc::MakeChannel(cluster_->at(node_id).server->address()));
    return rpc::Call(stub, &v1::DatabaseService::Stub::PurgeResults, request, 20s);
  }

  std::unique_ptr<DatabaseCluster> cluster_;
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::PurgeTest)
#include "purge_test.moc"
