#include "cluster/proxy/proxy_service.h"

#include <QtTest>
#include <set>

#include "cluster/base/status.h"
#include "cluster/node/inbox.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/repeat.h"
#include "onepiece/v1/instance.grpc.pb.h"
#include "tests/database/database_cluster.h"

namespace onepiece::proxy {
namespace {

using database::DatabaseCluster;
using database::Eventually;
using database::Require;
using v1::Job;
using namespace std::chrono_literals;

std::string Reason(const absl::Status& status) { return base::GetReason(status).reason; }

/// Takes messages like an instance of one stage, and computes nothing.
class FakeInstance final : public v1::InstanceService::Service {
 public:
  explicit FakeInstance(DatabaseCluster& cluster, const std::string& app = "app",
                        const std::string& stage = "encode", const std::string& node = "inst-1")
      : cluster_(cluster) {
    auto inbox = node::Inbox::Open(
        cluster.fabric(),
        {.label = "inst", .capacity_bytes = 1 << 20, .slots = 16, .incarnation = [] {
           return std::uint64_t{77};
         }});
    Require(inbox.status());
    inbox_ = *std::move(inbox);
    server_.AddService(*this);
    server_.AddService(*inbox_->service());
    Require(server_.Start().status());
    cluster.ChangeTable([&](v1::RoutingTable& table) {
      v1::Endpoint self;
      self.set_node_id(node);
      self.set_incarnation(77);
      self.set_address(server_.address());
      *table.add_alive() = self;
      v1::Route& route = *table.add_routes();
      route.set_app_id(app);
      route.set_stage(stage);
      *route.add_instances() = self;
    });
  }
  ~FakeInstance() override {
    inbox_->Close();
    server_.Shutdown(base::Duration::zero());
  }
  absl::StatusOr<node::Received> Receive(base::Duration limit = 10s) {
    return inbox_->Receive(base::SystemClock().Now() + limit);
  }
  grpc::Status CancelWork(grpc::ServerContext*, const v1::CancelWorkRequest* request,
                          google::protobuf::Empty*) override {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(request->uid());
    return grpc::Status::OK;
  }
  /// Refuses producers, as one does that has just died.
  void Close() { inbox_->Close(); }
  bool WasCancelled(const std::string& uid) {
    const std::lock_guard lock(mutex_);
    return cancelled_.contains(uid);
  }
  v1::UpdateJobRequest Progress(const std::string& uid, int step) {
    v1::UpdateJobRequest update;
    update.set_uid(uid);
    v1::WorkHolder& holder = *update.mutable_progress()->mutable_holder();
    holder.set_node_id("inst-1");
    holder.set_incarnation(77);
    holder.set_stage("encode");
    update.mutable_progress()->set_step(step);
    update.mutable_progress()->set_steps(9);
    return update;
  }

 private:
  DatabaseCluster& cluster_;
  std::unique_ptr<node::Inbox> inbox_;
  rpc::Server server_{rpc::ServerOptions{}};
  std::mutex mutex_;
  std::set<std::string> cancelled_;
};

/// A proxy with its server, and a client of it.
struct Proxy {
  Proxy(DatabaseCluster& cluster, const std::string& id, int max_jobs = 256)
      : metrics("proxy", id),
        spans(id),
        records({.routing = cluster.RoutingSource()}),
        outbox(node::Outbox::Create(cluster.fabric(),
                                    {.node_id = id, .routing = cluster.RoutingSource()})),
        service({.workflow_set = "set",
                 .max_jobs_in_flight = max_jobs,
                 .routing = cluster.RoutingSource(),
                 .cluster_secret = [] { return std::string("secret"); }},
                records, *outbox, metrics, spans),
        span_service(spans) {
    server.AddService(service);
    server.AddService(span_service);
    Require(server.Start().status());
    stub = std::make_unique<v1::GenerationService::Stub>(rpc::MakeChannel(server.address()));
    cluster.ChangeTable([&](v1::RoutingTable& table) {
      v1::Endpoint self;
      self.set_node_id(id);
      self.set_incarnation(1);
      self.set_address(server.address());
      *table.add_proxies() = self;
      *table.add_alive() = self;
    });
  }
  ~Proxy() {
    outbox->Close();
    service.Stop();
    server.Shutdown(base::Duration::zero());
  }
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::GenerationService::Stub::*method)(
                                    grpc::ClientContext*, const Request&, Response*),
                                const Request& request) {
    return rpc::Call(*stub, method, request, 15s);
  }
  absl::StatusOr<Job> Submit(const v1::SubmitJobRequest& request) {
    return Call(&v1::GenerationService::Stub::SubmitJob, request);
  }
  /// As a client that may have asked before.
  absl::StatusOr<Job> SubmitAgain(const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, 15s);
    context.AddMetadata(rpc::kRepeated, "1");
    Job job;
    const grpc::Status status = stub->SubmitJob(&context, request, &job);
    if (!status.ok()) return rpc::FromGrpc(status);
    return job;
  }
  absl::StatusOr<Job> Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    return Call(&v1::GenerationService::Stub::GetJob, request);
  }
  absl::StatusOr<std::string> Fetch(const std::string& name) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, 15s);
    v1::FetchResultRequest request;
    request.set_name(name);
    const auto stream = stub->FetchResult(&context, request);
    std::string bytes;
    v1::FetchResultResponse part;
    while (stream->Read(&part)) bytes += part.chunk();
    if (const grpc::Status status = stream->Finish(); !status.ok()) return rpc::FromGrpc(status);
    return bytes;
  }

  telemetry::Metrics metrics;
  telemetry::Spans spans;
  node::JobRecords records;
  std::unique_ptr<node::Outbox> outbox;
  ProxyService service;
  telemetry::SpanService span_service;
  rpc::Server server{rpc::ServerOptions{}};
  std::unique_ptr<v1::GenerationService::Stub> stub;
};

/// Two databases and the application "app" of one stage.
struct Cluster : DatabaseCluster {
  explicit Cluster(int result_ttl_s = 60) {
    AddDatabase("db-1");
    AddDatabase("db-2");
    ChangeTable([&](v1::RoutingTable& table) {
      v1::Workflow& workflow = *table.add_workflows();
      workflow.set_app_id("app");
      workflow.add_stages()->set_stage("encode");
      workflow.set_default_deadline_s(60);
      workflow.set_result_ttl_s(result_ttl_s);
      workflow.add_inputs()->set_name("image");
      workflow.mutable_inputs(0)->add_media_types("image/png");
      v1::ParameterSpec& prompt = *workflow.add_parameters();
      prompt.set_name("prompt");
      prompt.set_type(v1::ParameterSpec::STRING);
      prompt.set_required(true);
    });
  }
};

/// Two databases and the application "app" whose entrances "text" and "image" meet in "paint".
struct BranchedCluster : DatabaseCluster {
  BranchedCluster() {
    AddDatabase("db-1");
    AddDatabase("db-2");
    ChangeTable([&](v1::RoutingTable& table) {
      v1::Workflow& workflow = *table.add_workflows();
      workflow.set_app_id("app");
      workflow.add_stages()->set_stage("text");
      workflow.add_stages()->set_stage("image");
      v1::StageSpec& paint = *workflow.add_stages();
      paint.set_stage("paint");
      paint.add_after("text");
      paint.add_after("image");
      workflow.set_default_deadline_s(60);
      v1::ParameterSpec& prompt = *workflow.add_parameters();
      prompt.set_name("prompt");
      prompt.set_type(v1::ParameterSpec::STRING);
      prompt.set_required(true);
    });
  }
};

v1::SubmitJobRequest Request(const std::string& prompt = "a red ball") {
  v1::SubmitJobRequest request;
  request.set_app_id("app");
  (*request.mutable_parameters()->mutable_fields())["prompt"].set_string_value(prompt);
  return request;
}

v1::SubmitJobRequest RequestWithId(const std::string& prompt = "a red ball") {
  v1::SubmitJobRequest request = Request(prompt);
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  return request;
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

class ProxyServiceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Job_GoesFromSubmissionToAcknowledgedResult() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy first(cluster, "proxy-1");
    Proxy second(cluster, "proxy-2");
    const auto job = first.Submit(Request());
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(job->state(), Job::QUEUED);
    QCOMPARE(job->name(), "jobs/" + job->uid());
    const auto received = instance.Receive();
    QVERIFY(received.ok());
    QCOMPARE(received->message.header.uid.ToString(), job->uid());
    QCOMPARE(std::get<std::string>(received->message.parameters.at("prompt")),
             std::string("a red ball"));
    QVERIFY(cluster.records().Update(instance.Progress(job->uid(), 3)).ok());
    const auto running = second.Get(job->name());
    QCOMPARE(running->state(), Job::RUNNING);
    QCOMPARE(running->step(), 3);
    QCOMPARE(Reason(second.Fetch(job->name()).status()), std::string("JOB_NOT_DONE"));
    QVERIFY(cluster.SendResult(job->uid(), "video").ok());
    QVERIFY(Eventually([&] { return second.Get(job->name())->state() == Job::SUCCEEDED; }));
    QCOMPARE(*second.Fetch(job->name()), std::string("video"));
    v1::AcknowledgeResultRequest acknowledge;
    acknowledge.set_name(job->name());
    const auto done = first.Call(&v1::GenerationService::Stub::AcknowledgeResult, acknowledge);
    QVERIFY(done.ok() && done->result().fetched());
    QCOMPARE(Reason(second.Fetch(job->name()).status()), std::string("RESULT_FETCHED"));
    QCOMPARE(first.service.jobs_in_flight(), 0);
  }

  void Submit_IsIdempotentOverProxies() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy first(cluster, "proxy-1");
    Proxy second(cluster, "proxy-2");
    v1::SubmitJobRequest request = RequestWithId();
    const auto a = first.Submit(request);
    const auto b = second.Submit(request);
    QVERIFY2(a.ok() && b.ok(), (a.status().ToString() + b.status().ToString()).c_str());
    QCOMPARE(a->uid(), b->uid());
    QVERIFY(instance.Receive().ok());
    QCOMPARE(instance.Receive(300ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    request.mutable_parameters()->mutable_fields()->at("prompt").set_string_value("another");
    const auto reused = second.Submit(request);
    QCOMPARE(reused.status().code(), absl::StatusCode::kAlreadyExists);
    QCOMPARE(Reason(reused.status()), std::string("REQUEST_ID_REUSED"));
  }

  void Submit_AtTheSameTimeThroughTwoProxiesStartsOneJob() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy first(cluster, "proxy-1");
    Proxy second(cluster, "proxy-2");
    for (int round = 0; round < 10; ++round) {
      const v1::SubmitJobRequest request = RequestWithId();
      absl::StatusOr<Job> a;
      std::thread other([&] { a = first.Submit(request); });
      const auto b = second.Submit(request);
      other.join();
      QVERIFY(a.ok() && b.ok());
      QVERIFY(instance.Receive().ok());
    }
    QCOMPARE(instance.Receive(300ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  }

  void Submit_StartsAJobWhoseFirstProxyDiedBeforeItWasSent() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy first(cluster, "proxy-1");
    Proxy second(cluster, "proxy-2");
    const v1::SubmitJobRequest request = RequestWithId();
    const auto job = first.Submit(request);
    QVERIFY(job.ok() && instance.Receive().ok());
    // The same record without a holder is what a proxy leaves that dies between its two steps.
    v1::JobRecord orphan = *cluster.records().Get(*base::Uid::Parse(job->uid()));
    Cluster fresh;
    FakeInstance other(fresh);
    Proxy third(fresh, "proxy-3");
    orphan.clear_holders();
    QVERIFY(fresh.records().Create(orphan).ok());
    const auto again = third.Submit(request);
    QVERIFY2(again.ok(), again.status().ToString().c_str());
    QCOMPARE(again->uid(), job->uid());
    QVERIFY(other.Receive().ok());
  }

  void Submit_SendsTheJobToEveryEntrance() {
    BranchedCluster cluster;
    FakeInstance text(cluster, "app", "text", "inst-text");
    FakeInstance image(cluster, "app", "image", "inst-image");
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(RequestWithId());
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(job->state(), Job::QUEUED);
    const auto to_text = text.Receive();
    const auto to_image = image.Receive();
    QVERIFY(to_text.ok() && to_image.ok());
    QCOMPARE(to_text->message.header.stage, std::string("text"));
    QCOMPARE(to_image->message.header.stage, std::string("image"));
    for (const auto& received : {*to_text, *to_image}) {
      QCOMPARE(received.message.header.uid.ToString(), job->uid());
      QVERIFY(received.message.header.from.empty());
      QCOMPARE(std::get<std::string>(received.message.parameters.at("prompt")),
               std::string("a red ball"));
    }
    const auto record = cluster.records().Get(*base::Uid::Parse(job->uid()));
    QCOMPARE(record->holders_size(), 2);
    QCOMPARE(job::LiveHolders(*record).size(), std::size_t{2});
  }

  void Submit_NeedsAnInstanceOfEveryEntrance() {
    BranchedCluster cluster;
    FakeInstance text(cluster, "app", "text", "inst-text");
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(RequestWithId());
    QCOMPARE(Reason(job.status()), std::string("NO_INSTANCE"));
    QCOMPARE(base::GetReason(job.status()).metadata.at("stage"), std::string("image"));
    QCOMPARE(text.Receive(100ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  }

  // The job that began must not go on for nothing, nor be started twice.
  void Submit_WhenOneEntranceTakesNothing_FailsTheJobAndCallsTheOtherBack() {
    BranchedCluster cluster;
    FakeInstance text(cluster, "app", "text", "inst-text");
    FakeInstance image(cluster, "app", "image", "inst-image");
    Proxy proxy(cluster, "proxy-1");
    image.Close();
    const v1::SubmitJobRequest request = RequestWithId();
    const auto refused = proxy.Submit(request);
    QCOMPARE(refused.status().code(), absl::StatusCode::kUnavailable);
    const auto received = text.Receive();
    QVERIFY(received.ok());
    const std::string uid = received->message.header.uid.ToString();
    QVERIFY(text.WasCancelled(uid));
    const auto again = proxy.Submit(request);
    QVERIFY2(again.ok(), again.status().ToString().c_str());
    QCOMPARE(again->state(), Job::FAILED);
    QCOMPARE(again->error().reason(), std::string("NOT_STARTED"));
    QVERIFY(again->error().message().find("stage image") != std::string::npos);
    QCOMPARE(text.Receive(100ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  }

  void Submit_AgainSendsOnlyToTheEntranceThatHasNothing() {
    BranchedCluster cluster;
    FakeInstance text(cluster, "app", "text", "inst-text");
    FakeInstance image(cluster, "app", "image", "inst-image");
    Proxy first(cluster, "proxy-1");
    const v1::SubmitJobRequest request = RequestWithId();
    const auto job = first.Submit(request);
    QVERIFY(job.ok() && text.Receive().ok() && image.Receive().ok());
    // What a proxy leaves that dies after the first of its two messages; "text" is computing.
    v1::JobRecord orphan = *cluster.records().Get(*base::Uid::Parse(job->uid()));
    orphan.clear_holders();
    v1::WorkHolder holder;
    holder.set_node_id("inst-text");
    holder.set_incarnation(77);
    holder.set_stage("text");
    holder.set_successors(1);
    *orphan.add_holders() = holder;
    BranchedCluster fresh;
    FakeInstance other_text(fresh, "app", "text", "inst-text");
    FakeInstance other_image(fresh, "app", "image", "inst-image");
    Proxy second(fresh, "proxy-2");
    QVERIFY(fresh.records().Create(orphan).ok());
    v1::UpdateJobRequest progress;
    progress.set_uid(job->uid());
    *progress.mutable_progress()->mutable_holder() = holder;
    QVERIFY(fresh.records().Update(progress).ok());
    const auto again = second.Submit(request);
    QVERIFY2(again.ok(), again.status().ToString().c_str());
    QVERIFY(other_image.Receive().ok());
    QCOMPARE(other_text.Receive(100ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    QCOMPARE(fresh.records().Get(*base::Uid::Parse(job->uid()))->holders_size(), 2);
  }

  void Submit_RefusesBadInput_data() {
    QTest::addColumn<QString>("app");
    QTest::addColumn<QString>("parameter");
    QTest::addColumn<QString>("value");
    QTest::addColumn<int>("code");
    QTest::addColumn<QString>("reason");
    const int invalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
    QTest::newRow("unknown application")
        << "nope"
        << "prompt"
        << "x" << static_cast<int>(absl::StatusCode::kNotFound) << "APP_UNKNOWN";
    QTest::newRow("unknown parameter") << "app"
                                       << "colour"
                                       << "x" << invalid << "INVALID_PARAMETERS";
    QTest::newRow("empty prompt") << "app"
                                  << "prompt"
                                  << "" << invalid << "INVALID_PARAMETERS";
    QTest::newRow("blank prompt") << "app"
                                  << "prompt"
                                  << " \n"
                                  << invalid << "INVALID_PARAMETERS";
    QTest::newRow("prompt of 100 kB")
        << "app"
        << "prompt" << QString(100'000, 'x') << invalid << "INVALID_PARAMETERS";
  }
  void Submit_RefusesBadInput() {
    QFETCH(QString, app);
    QFETCH(QString, parameter);
    QFETCH(QString, value);
    QFETCH(int, code);
    QFETCH(QString, reason);
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    v1::SubmitJobRequest request;
    request.set_app_id(app.toStdString());
    (*request.mutable_parameters()->mutable_fields())[parameter.toStdString()].set_string_value(
        value.toStdString());
    for (const bool validate_only : {true, false}) {
      request.set_validate_only(validate_only);
      const auto job = proxy.Submit(request);
      QCOMPARE(static_cast<int>(job.status().code()), code);
      QCOMPARE(QString::fromStdString(Reason(job.status())), reason);
    }
    QCOMPARE(proxy.service.jobs_in_flight(), 0);
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Inputs_ReachTheEntranceAndTheRecordKeepsTheirDigest() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    v1::SubmitJobRequest request = RequestWithId();
    v1::JobInput& image = *request.add_inputs();
    image.set_name("image");
    image.set_media_type("image/png");
    image.set_data(std::string(100'000, 'x'));
    const auto job = proxy.Submit(request);
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    const auto received = instance.Receive();
    QVERIFY(received.ok());
    const auto* artifact = message::FindArtifact(received->message.artifacts, "image");
    QVERIFY(artifact != nullptr);
    QCOMPARE(artifact->media_type, std::string("image/png"));
    QVERIFY(artifact->data.text() == image.data());
    const auto later = proxy.Get(job->name());
    QVERIFY(later.ok());
    QCOMPARE(later->inputs_size(), 1);
    QCOMPARE(later->inputs(0).size_bytes(), 100'000);
    QVERIFY(later->ByteSizeLong() < 2000);
    // The same request id with other bytes is another job.
    image.mutable_data()->back() = 'y';
    QCOMPARE(Reason(proxy.Submit(request).status()), std::string("REQUEST_ID_REUSED"));
  }

  void Inputs_ThatTheApplicationDoesNotTakeAreRefused() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    v1::SubmitJobRequest request = Request();
    request.add_inputs()->set_name("mask");
    for (const bool validate_only : {true, false}) {
      request.set_validate_only(validate_only);
      const auto job = proxy.Submit(request);
      QCOMPARE(job.status().code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(Reason(job.status()), std::string("INVALID_INPUTS"));
    }
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Inputs_TooLargeForTheRingAreAClearErrorAndLeaveNoJob() {
    Cluster cluster;
    FakeInstance instance(cluster);  // Its ring has 1 MiB and takes half of that.
    Proxy proxy(cluster, "proxy-1");
    v1::SubmitJobRequest request = RequestWithId();
    v1::JobInput& image = *request.add_inputs();
    image.set_name("image");
    image.set_media_type("image/png");
    image.set_data(std::string(1 << 20, 'x'));
    const auto job = proxy.Submit(request);
    QCOMPARE(job.status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(Reason(job.status()), std::string("MESSAGE_TOO_LARGE"));
    QCOMPARE(proxy.service.jobs_in_flight(), 0);
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void InputBudget_RefusesWhatDoesNotFitAndTakesItLater() {
    InputBudget budget(100);
    {
      const InputBudget::Share first(budget, 60);
      QVERIFY(first.status().ok());
      const InputBudget::Share second(budget, 50);
      QCOMPARE(second.status().code(), absl::StatusCode::kResourceExhausted);
      QCOMPARE(Reason(second.status()), std::string("INPUTS_BUSY"));
      const InputBudget::Share third(budget, 40);
      QVERIFY(third.status().ok());
    }
    QVERIFY(InputBudget::Share(budget, 100).status().ok());
    QVERIFY(InputBudget::Share(budget, 0).status().ok());
  }

  void Submit_ValidateOnlyStartsNothing() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    v1::SubmitJobRequest request = Request("ein roter Ball 🔴 赤い玉");
    request.set_validate_only(true);
    const auto job = proxy.Submit(request);
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QVERIFY(job->uid().empty() && job->name().empty());
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Submit_IsRefusedAtTheQuotaAndTakenAgainAfterAnEnd() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1", 1);
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    const auto refused = proxy.Submit(Request());
    QCOMPARE(refused.status().code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(refused.status()), std::string("QUOTA"));
    QVERIFY(base::GetReason(refused.status()).metadata.contains("retry_after_ms"));
    // Nobody asks this proxy for the job: it finds out by itself.
    v1::UpdateJobRequest failed;
    failed.set_uid(job->uid());
    failed.mutable_failed()->set_reason("STAGE_FAILED");
    QVERIFY(cluster.records().Update(failed).ok());
    QVERIFY(Eventually([&] { return proxy.service.jobs_in_flight() == 0; }));
    QVERIFY(proxy.Submit(Request()).ok());
  }

  void Overload_IsRefusedWithAdviceBeforeAnythingIsTouched() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    proxy.service.UpdateCapacity(Costs(5));
    QVERIFY(proxy.Submit(Request()).ok());
    v1::SubmitJobRequest broken = Request("");  // Would be INVALID_ARGUMENT.
    broken.add_inputs()->set_name("mask");
    for (const auto& request : {Request(), broken}) {
      const auto refused = proxy.Submit(request);
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
    const auto refused = proxy.Submit(hasty);
    QCOMPARE(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    QCOMPARE(Reason(refused.status()), std::string("DEADLINE_TOO_SHORT"));
    QVERIFY(base::GetReason(refused.status()).metadata.contains("estimate_ms"));
    QCOMPARE(proxy.service.jobs_in_flight(), 1);
    QCOMPARE(cluster.records().List({})->jobs_size(), 1);
    const auto demands = proxy.service.demands();
    QCOMPARE(demands.size(), std::size_t{1});
    QCOMPARE(demands[0].admitted(), std::uint64_t{1});
    QCOMPARE(demands[0].rejected(), std::uint64_t{3});
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
    // It is known, and costs nothing where it was not let in.
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

  /// An id that can be guessed must not give a job's uid away.
  void Get_ByRequestId_SaysOnlyWhetherItIsKnown() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy first(cluster, "proxy-1"), second(cluster, "proxy-2");
    const v1::SubmitJobRequest request = RequestWithId();
    const std::string name = std::string(rpc::kRequestName) + request.request_id();
    QCOMPARE(Reason(second.Get(name).status()), std::string("JOB_UNKNOWN"));
    const auto job = first.Submit(request);
    QVERIFY(job.ok());
    const auto known = second.Get(name);
    QVERIFY2(known.ok(), known.status().ToString().c_str());
    Job expected;
    expected.set_request_id(request.request_id());
    expected.set_workflow_set(job->workflow_set());
    QCOMPARE(known->SerializeAsString(), expected.SerializeAsString());
    // A deleted one is known: elsewhere it would be made again.
    v1::DeleteJobRequest forget;
    forget.set_name(job->name());
    QVERIFY(first.Call(&v1::GenerationService::Stub::DeleteJob, forget).ok());
    QVERIFY(second.Get(name).ok());
    QCOMPARE(Reason(second.Get("requests/mine").status()), std::string("BAD_NAME"));
  }

  void Overload_WhatNeverBeganIsRefunded() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    proxy.service.UpdateCapacity(Costs(20));
    v1::SubmitJobRequest request = RequestWithId();
    for (int i = 0; i < 3; ++i)
      QCOMPARE(Reason(proxy.Submit(request).status()), std::string("NO_INSTANCE"));
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
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    proxy.service.UpdateCapacity(Costs(0.4));
    v1::SubmitJobRequest greedy = Request(), modest = Request();
    (*greedy.mutable_labels())["tenant"] = "greedy";
    (*modest.mutable_labels())["tenant"] = "modest";
    QVERIFY(Eventually([&] { return !proxy.Submit(greedy).ok(); }));
    QCOMPARE(Reason(proxy.Submit(modest).status()), std::string("OVERLOADED"));
    QVERIFY(Eventually([&] { return Reason(proxy.Submit(greedy).status()) == "TENANT_SHARE"; }));
    QVERIFY(proxy.Submit(modest).ok());
  }

  void Submit_WithoutInstanceIsUnavailable() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QCOMPARE(job.status().code(), absl::StatusCode::kUnavailable);
    QCOMPARE(Reason(job.status()), std::string("NO_INSTANCE"));
    QCOMPARE(proxy.service.jobs_in_flight(), 0);
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Cancel_TellsTheInstances() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    v1::CancelJobRequest request;
    request.set_name(job->name());
    const auto cancelled = proxy.Call(&v1::GenerationService::Stub::CancelJob, request);
    QVERIFY(cancelled.ok());
    QCOMPARE(cancelled->state(), Job::CANCELLED);
    QVERIFY(instance.WasCancelled(job->uid()));
    QVERIFY(cluster.SendResult(job->uid(), "late").ok());
    QCOMPARE(Reason(proxy.Fetch(job->name()).status()), std::string("JOB_CANCELLED"));
  }

  void Watch_EndsWithTheJob() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    grpc::ClientContext context;
    rpc::SetTimeout(context, 15s);
    v1::WatchJobRequest request;
    request.set_name(job->name());
    const auto stream = proxy.stub->WatchJob(&context, request);
    Job seen;
    QVERIFY(stream->Read(&seen));
    QVERIFY(cluster.SendResult(job->uid(), "video").ok());
    while (stream->Read(&seen)) {
    }
    const grpc::Status status = stream->Finish();
    QVERIFY2(status.ok(), status.error_message().c_str());
    QCOMPARE(seen.state(), Job::SUCCEEDED);
  }

  void Everything_WorksWithOneDatabaseDead() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    const auto sent = cluster.SendResult(job->uid(), "video");
    QVERIFY(sent.ok());
    const std::string first = sent->endpoint.node_id();
    const std::string second = first == "db-1" ? "db-2" : "db-1";
    QVERIFY(Eventually(
        [&] { return cluster.at(second).node->store().FindArtifact(job->uid(), "").ok(); }));
    cluster.Kill(first);
    QCOMPARE(proxy.Get(job->name())->state(), Job::SUCCEEDED);
    QCOMPARE(*proxy.Fetch(job->name()), std::string("video"));
    cluster.Forget(first);
    const auto next = proxy.Submit(Request());
    QVERIFY2(next.ok(), next.status().ToString().c_str());
    QCOMPARE(proxy.Get(next->name())->state(), Job::QUEUED);
    v1::ListJobsRequest list;
    QCOMPARE(proxy.Call(&v1::GenerationService::Stub::ListJobs, list)->jobs_size(), 2);
  }

  void Result_ExpiresUnfetched() {
    Cluster cluster(1);
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    QVERIFY(cluster.SendResult(job->uid(), "video").ok());
    QVERIFY(Eventually([&] { return proxy.Get(job->name())->state() == Job::EXPIRED; }));
    QCOMPARE(Reason(proxy.Fetch(job->name()).status()), std::string("RESULT_EXPIRED"));
  }

  void Delete_CancelsAndForgets() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    v1::DeleteJobRequest request;
    request.set_name(job->name());
    QVERIFY(proxy.Call(&v1::GenerationService::Stub::DeleteJob, request).ok());
    QVERIFY(instance.WasCancelled(job->uid()));
    const auto gone = proxy.Get(job->name());
    QCOMPARE(gone.status().code(), absl::StatusCode::kNotFound);
    QCOMPARE(Reason(gone.status()), std::string("JOB_UNKNOWN"));
    QCOMPARE(proxy.service.jobs_in_flight(), 0);
  }

  void Names_ThatAreMalformedAreRefused() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    for (const char* name : {"", "jobs/", "jobs/x", "job/018f2b1c-0000-4000-8000-0123456789ab",
                             "018f2b1c-0000-4000-8000-0123456789ab"}) {
      QCOMPARE(proxy.Get(name).status().code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(proxy.Fetch(name).status().code(), absl::StatusCode::kInvalidArgument);
    }
    QCOMPARE(Reason(proxy.Get("jobs/018f2b1c-0000-4000-8000-0123456789ab").status()),
             std::string("JOB_UNKNOWN"));
  }

  void GetJobTrace_JoinsSpansAndNamesWhoIsAway() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    v1::GetJobTraceRequest request;
    request.set_name(job->name());
    const auto trace = proxy.Call(&v1::GenerationService::Stub::GetJobTrace, request);
    QVERIFY(trace.ok());
    bool admitted = false;
    for (const v1::Span& span : trace->spans()) admitted = admitted || span.operation() == "admit";
    QVERIFY(admitted);
    // The instance and the databases of this test serve no telemetry.
    QCOMPARE(trace->unreachable_nodes_size(), 3);
    QCOMPARE(trace->unreachable_nodes(0), std::string("db-1"));
  }
};

}  // namespace onepiece::proxy

QTEST_GUILESS_MAIN(onepiece::proxy::ProxyServiceTest)
#include "proxy_service_test.moc"
