// Which jobs a proxy refuses, and what admitted jobs pay.
#include <QtTest>
#include <atomic>
#include <thread>
#include <vector>

#include "cluster/base/mutex.h"
#include "tests/proxy/proxy_cluster.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

/// Answers no call before its caller has given up.
class SilentDatabase final : public v1::DatabaseService::Service {
 public:
  SilentDatabase() {
    server_.AddService(*this);
    Require(server_.Start().status());
  }
  ~SilentDatabase() override { server_.Shutdown(base::Duration::zero()); }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  void CountUntil(base::MonotonicTime until) { until_ = until; }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] int early_calls() const { return early_calls_; }
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRecordRequest*,
                      v1::JobRecord*) override {
    ++calls_;
    if (base::SystemClock().Now() < until_.load()) ++early_calls_;
    (void)Eventually([&] { return context->IsCancelled(); });
    return grpc::Status::CANCELLED;
  }

 private:
  std::atomic<int> calls_ = 0, early_calls_ = 0;
  std::atomic<base::MonotonicTime> until_{};
  rpc::Server server_{rpc::ServerOptions{}};
};

/// Takes one job slowly: until the proxy asks for that job, or has followed its jobs twice.
class SlowDatabase final : public v1::DatabaseService::Service {
 public:
  SlowDatabase() {
    server_.AddService(*this);
    Require(server_.Start().status());
  }
  ~SlowDatabase() override { server_.Shutdown(base::Duration::zero()); }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override {
    base::MutexLock lock(mutex_);
    asked_.WaitFor(lock, base::Scaled(1200ms),
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return was_asked_; });
    record_ = request->record();
    record_.mutable_lease()->mutable_time_left()->set_seconds(60);
    *response->mutable_record() = record_;
    response->set_created(true);
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRecordRequest*,
                      v1::JobRecord* response) override {
    const base::MutexLock lock(mutex_);
    was_asked_ = true;
    asked_.NotifyAll();
    if (!record_.has_job())
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "no job"));
    *response = record_;
    return grpc::Status::OK;
  }
  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                         v1::JobRecord* response) override {
    const base::MutexLock lock(mutex_);
    *record_.mutable_holders() = request->placed();
    *response = record_;
    return grpc::Status::OK;
  }

 private:
  base::Mutex mutex_;
  base::CondVar asked_;
  bool was_asked_ ABSL_GUARDED_BY(mutex_) = false;
  v1::JobRecord record_ ABSL_GUARDED_BY(mutex_);
  rpc::Server server_{rpc::ServerOptions{}};
};

/// The cluster's only database is the one at `address`.
void UseDatabase(Cluster& cluster, const std::string& address) {
  for (const char* id : {"db-1", "db-2"}) {
    cluster.Kill(id);
    cluster.Forget(id);
  }
  cluster.ChangeTable([&](v1::RoutingTable& table) {
    v1::Endpoint& self = *table.add_databases();
    self.set_node_id("db-3");
    self.set_incarnation(1);
    self.set_address(address);
    *table.add_alive() = self;
  });
}

/// A job of "app" costs `seconds` in a pool of one worker, which saves up a second.
v1::Capacity Costs(double seconds) {
  v1::Capacity capacity;
  capacity.set_share(1);
  capacity.add_pools()->set_pool("encode/wan/");
  capacity.mutable_pools(0)->set_workers(1);
  v1::StageCost& cost = *capacity.add_costs();
  cost.set_app_id("app");
  cost.set_stage("encode");
  cost.set_pool("encode/wan/");
  cost.set_seconds_per_unit(seconds);
  cost.set_units_per_job(1);
  cost.set_samples(10);
  v1::SetHeadroom& other = *capacity.add_sets();
  other.set_workflow_set("set-2");
  other.set_headroom(0.5);
  return capacity;
}

}  // namespace

class OverloadTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Overload_IsRefusedWithAdviceBeforeAnythingIsTouched() {
    ServedCluster cluster;
    cluster.proxy.service.UpdateCapacity(Costs(5));
    QVERIFY(cluster.proxy.Submit(Request()).ok());
    v1::SubmitJobRequest broken = Request("");  // Would be INVALID_ARGUMENT.
    broken.add_inputs()->set_name("mask");
    for (const auto& request : {Request(), broken}) {
      const auto refused = cluster.proxy.Submit(request);
      QCOMPARE(refused.status().code(), absl::StatusCode::kResourceExhausted);
      QCOMPARE(Reason(refused.status()), std::string("OVERLOADED"));
      auto metadata = base::GetReason(refused.status()).metadata;
      QCOMPARE(metadata["pool"], std::string("encode/wan/"));
      QCOMPARE(metadata["headroom"], std::string("set-2=0.50"));
      const int retry_ms = std::stoi(metadata[rpc::kRetryAfterMs]);
      QVERIFY2(retry_ms > 1000 && retry_ms < 4500, metadata[rpc::kRetryAfterMs].c_str());
    }
    v1::SubmitJobRequest hasty = Request();
    hasty.mutable_deadline()->set_seconds(1);
    const auto refused = cluster.proxy.Submit(hasty);
    QCOMPARE(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    QCOMPARE(Reason(refused.status()), std::string("DEADLINE_TOO_SHORT"));
    QVERIFY(base::GetReason(refused.status()).metadata.contains("estimate_ms"));
    QCOMPARE(cluster.proxy.service.jobs_in_flight(), 1);
    QCOMPARE(cluster.records().List({})->jobs_size(), 1);
    const auto demands = cluster.proxy.service.demands();
    QCOMPARE(demands.size(), std::size_t{1});
    QCOMPARE(demands[0].admitted(), std::uint64_t{1});
    QCOMPARE(demands[0].rejected(), std::uint64_t{2});  // No time can be given to the third.
  }

  // While costs are unknown, each worker has two jobs. However they end, others follow.
  void SlowStart_GoesOnWhenJobsAreLostCancelledOrForgotten() {
    ServedCluster cluster;
    v1::Capacity unknown = Costs(0);
    unknown.mutable_costs(0)->set_samples(0);
    cluster.proxy.service.UpdateCapacity(unknown);
    std::vector<Job> jobs;
    const auto fill = [&] {
      jobs.clear();
      return Eventually([&] {
        v1::SubmitJobRequest request = Request();
        if (auto job = cluster.proxy.Submit(request); job.ok()) jobs.push_back(*job);
        return jobs.size() == 2;
      });
    };
    QVERIFY(fill());
    QCOMPARE(Reason(cluster.proxy.Submit(Request()).status()), std::string("OVERLOADED"));
    v1::UpdateJobRequest lost;
    lost.set_uid(jobs[0].uid());
    lost.mutable_failed()->set_reason("LOST");
    QVERIFY(cluster.records().Update(lost).ok());
    v1::CancelJobRequest cancel;
    cancel.set_name(jobs[1].name());
    QVERIFY(cluster.proxy.Call(&v1::GenerationService::Stub::CancelJob, cancel).ok());
    QVERIFY(fill());
    QCOMPARE(Reason(cluster.proxy.Submit(Request()).status()), std::string("OVERLOADED"));
    // The databases die, and with them the records of those two jobs.
    for (const char* id : {"db-1", "db-2"}) {
      cluster.Kill(id);
      cluster.Forget(id);
    }
    cluster.AddDatabase("db-3");
    QVERIFY(fill());
  }

  // The proxy never learns how they ended.
  void SlowStart_EndsWithTheJobsDeadlines() {
    ServedCluster cluster;
    v1::Capacity unknown = Costs(0);
    unknown.mutable_costs(0)->set_samples(0);
    cluster.proxy.service.UpdateCapacity(unknown);
    v1::SubmitJobRequest request = Request();
    request.mutable_deadline()->set_seconds(6);
    QVERIFY(cluster.proxy.Submit(request).ok() && cluster.proxy.Submit(request).ok());
    for (const char* id : {"db-1", "db-2"}) cluster.Kill(id);
    QVERIFY(Reason(cluster.proxy.Submit(request).status()) == "OVERLOADED");
    QVERIFY(Eventually([&] { return cluster.proxy.service.jobs_in_flight() == 0; }));
    QVERIFY(Reason(cluster.proxy.Submit(Request()).status()) != "OVERLOADED");
  }

  void Overload_ARepeatedSubmitFindsItsJob() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy first(cluster, "proxy-1");
    Proxy full(cluster, "proxy-2");
    full.service.UpdateCapacity(Costs(20));
    const v1::SubmitJobRequest request = RequestWithId();
    const auto job = first.Submit(request);
    QVERIFY(job.ok());
    // The job is known, and costs nothing at a proxy that did not admit it.
    const auto known = full.Submit(request);
    QVERIFY2(known.ok(), known.status().ToString().c_str());
    QCOMPARE(known->uid(), job->uid());
    QCOMPARE(full.service.jobs_in_flight(), 0);
    QVERIFY(full.Submit(Request()).ok());
    QCOMPARE(Reason(full.Submit(request).status()), std::string("OVERLOADED"));
    const auto found = full.SubmitAgain(request);
    QVERIFY2(found.ok(), found.status().ToString().c_str());
    QCOMPARE(found->uid(), job->uid());
    v1::SubmitJobRequest other = request;
    (*other.mutable_parameters()->mutable_fields())["prompt"].set_string_value("another");
    QCOMPARE(Reason(full.SubmitAgain(other).status()), std::string("REQUEST_ID_REUSED"));
    QCOMPARE(Reason(full.SubmitAgain(RequestWithId()).status()), std::string("OVERLOADED"));
  }

  void Overload_AsksAFewAtATimeForKnownJobs() {
    Cluster cluster;
    SilentDatabase database;
    UseDatabase(cluster, database.address());
    Proxy proxy(cluster, "proxy-1");
    v1::Capacity full = Costs(1);
    full.mutable_pools(0)->set_workers(0);
    proxy.service.UpdateCapacity(full);
    std::vector<std::thread> clients;
    std::atomic<int> refused = 0;
    // After 300 ms the proxy gives up an unanswered look-up and makes the next one.
    database.CountUntil(base::SystemClock().Now() + base::Scaled(250ms));
    for (int i = 0; i < 24; ++i) {
      clients.emplace_back([&] {
        const auto job = proxy.SubmitAgain(RequestWithId());
        refused += Reason(job.status()) == "STAGE_UNSERVED";
      });
    }
    for (std::thread& client : clients) client.join();
    QCOMPARE(refused.load(), 24);
    QVERIFY(database.calls() > 0);
    QVERIFY2(database.early_calls() <= 8, std::to_string(database.early_calls()).c_str());
  }

  // A job without a record may still get one, so it is not gone.
  void SlowDatabase_AJobStaysInWhileItIsAdmitted() {
    Cluster cluster;
    SlowDatabase database;
    UseDatabase(cluster, database.address());
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(proxy.service.jobs_in_flight(), 1);
  }

  void Overload_ForWantOfAnInstanceNamesTheStage() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    v1::Capacity capacity = Costs(0.001);
    capacity.mutable_pools(0)->set_workers(0);
    proxy.service.UpdateCapacity(capacity);
    const absl::Status refused = proxy.Submit(Request()).status();
    // As for a full set, so that clients ask the other sets, the one with most room first.
    QCOMPARE(refused.code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(refused), std::string("STAGE_UNSERVED"));
    QVERIFY(base::Message(refused).find("no instance serves stage encode of application app") !=
            std::string::npos);
    const auto metadata = base::GetReason(refused).metadata;
    QCOMPARE(metadata.at("stage"), std::string("encode"));
    QCOMPARE(metadata.at("headroom"), std::string("set-2=0.50"));
    QVERIFY(metadata.contains("retry_after_ms"));
    // The demand counts all the same: it may make the NodeManager move an instance here.
    QCOMPARE(proxy.service.demands().at(0).rejected(), std::uint64_t{1});
    // With an instance the pool is merely full.
    FakeInstance instance(cluster);
    QCOMPARE(Reason(proxy.Submit(Request()).status()), std::string("OVERLOADED"));
  }

  void Overload_WhatNeverBeganIsRefunded() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    proxy.service.UpdateCapacity(Costs(20));
    v1::SubmitJobRequest request = RequestWithId();
    for (int i = 0; i < 3; ++i)
      QCOMPARE(Reason(proxy.Submit(request).status()), std::string("STAGE_UNSERVED"));
    FakeInstance instance(cluster);
    QCOMPARE(Reason(proxy.Submit(Request("")).status()), std::string("INVALID_PARAMETERS"));
    QVERIFY(proxy.Submit(request).ok());
    // A failed attempt to use the id of a job that runs does not give its tokens back.
    (*request.mutable_parameters()->mutable_fields())["prompt"].set_string_value("another");
    QCOMPARE(Reason(proxy.Submit(request).status()), std::string("REQUEST_ID_REUSED"));
    QCOMPARE(proxy.service.jobs_in_flight(), 1);
    QCOMPARE(Reason(proxy.Submit(Request()).status()), std::string("OVERLOADED"));
  }

  void Overload_TheTenantIsALabel() {
    ServedCluster cluster;
    cluster.proxy.service.UpdateCapacity(Costs(3));
    v1::SubmitJobRequest greedy = Request(), modest = Request();
    (*greedy.mutable_labels())["tenant"] = "greedy";
    (*modest.mutable_labels())["tenant"] = "modest";
    QVERIFY(Eventually([&] { return !cluster.proxy.Submit(greedy).ok(); }));
    QCOMPARE(Reason(cluster.proxy.Submit(modest).status()), std::string("OVERLOADED"));
    QVERIFY(Eventually(
        [&] { return Reason(cluster.proxy.Submit(greedy).status()) == "TENANT_SHARE"; }));
    QVERIFY(cluster.proxy.Submit(modest).ok());
  }

  void Submit_AtTheSameTimeThroughOneProxyPaysOnce() {
    ServedCluster cluster;
    cluster.proxy.service.UpdateCapacity(Costs(0.001));
    for (int round = 1; round <= 20; ++round) {
      const v1::SubmitJobRequest request = RequestWithId();
      absl::StatusOr<Job> a;
      std::thread other([&] { a = cluster.proxy.Submit(request); });
      const auto b = cluster.proxy.Submit(request);
      other.join();
      QVERIFY(a.ok() && b.ok());
      QCOMPARE(cluster.proxy.service.jobs_in_flight(), round);
      QCOMPARE(cluster.proxy.service.demands()[0].admitted(), static_cast<std::uint64_t>(round));
      QVERIFY(cluster.instance.Receive().ok());
    }
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::OverloadTest)
#include "overload_test.moc"
