// Proxies, databases and instances that compute nothing, in one process.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/node/inbox.h"
#include "cluster/proxy/proxy_service.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/repeat.h"
#include "cluster/telemetry/telemetry_service.h"
#include "onepiece/v1/instance.grpc.pb.h"
#include "tests/database/database_cluster.h"
#include "tests/reason.h"

namespace onepiece::proxy {
using database::DatabaseCluster;
using database::Eventually;
using database::Require;
using v1::Job;
using namespace std::chrono_literals;

/// Returns the run in which the job is; 0 when no instance has it.
inline std::uint64_t RunOf(DatabaseCluster& cluster, const std::string& uid) {
  const auto record = cluster.records().Get(*base::Uid::Parse(uid));
  return record.ok() ? record->run() : 0;
}

/// Takes messages like an instance of one stage, and computes nothing.
class FakeInstance final : public v1::InstanceService::Service {
 public:
  explicit FakeInstance(DatabaseCluster& cluster, const std::string& app = "app",
                        const std::string& stage = "encode", const std::string& node = "inst-1")
      : cluster_(cluster) {
    v1::Endpoint self;
    self.set_node_id(node);
    self.set_incarnation(77);
    view_.SetSelf(self);
    auto inbox = node::Inbox::Open(
        cluster.fabric(), view_,
        {.label = "inst", .capacity_bytes = 1 << 20, .slots = 16, .value_bytes = 512 << 10});
    Require(inbox.status());
    inbox_ = *std::move(inbox);
    server_.AddService(*this);
    server_.AddService(*inbox_->service());
    Require(server_.Start().status());
    self.set_address(server_.address());
    cluster.ChangeTable([&](v1::RoutingTable& table) {
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
    const base::MutexLock lock(mutex_);
    cancelled_.insert(request->uid());
    return grpc::Status::OK;
  }
  /// Refuses producers, like an instance that has just died.
  void Close() { inbox_->Close(); }
  bool WasCancelled(const std::string& uid) {
    const base::MutexLock lock(mutex_);
    return cancelled_.contains(uid);
  }
  v1::UpdateJobRequest Progress(const std::string& uid, int step) {
    v1::UpdateJobRequest update;
    update.set_uid(uid);
    v1::WorkHolder& holder = *update.mutable_progress()->mutable_holder();
    holder.set_node_id("inst-1");
    holder.set_incarnation(77);
    holder.set_stage("encode");
    holder.set_run(RunOf(cluster_, uid));
    update.mutable_progress()->set_step(step);
    update.mutable_progress()->set_steps(9);
    return update;
  }

 private:
  DatabaseCluster& cluster_;
  node::ClusterView view_;
  std::unique_ptr<node::Inbox> inbox_;
  rpc::Server server_{rpc::ServerOptions{}};
  base::Mutex mutex_;
  std::set<std::string> cancelled_ ABSL_GUARDED_BY(mutex_);
};

/// A proxy with its server, and a client of it. `secured` has its door and the server's
/// credentials; none: it is insecure.
struct Proxy {
  Proxy(DatabaseCluster& cluster, const std::string& id, int max_jobs = 256,
        base::Clock& clock = base::SystemClock(), const rpc::ServerOptions& secured = {})
      : metrics("proxy", id),
        spans(id),
        records(cluster.view()),
        outbox(node::Outbox::Create(cluster.fabric(), cluster.view(), {.node_id = id})),
        kept(cluster.view(), {}),
        direct_fetch(cluster.view(), id, cluster.fabric()),
        service(cluster.view(),
                {.workflow_set = "set",
                 .max_jobs_in_flight = max_jobs,
                 .direct_fetch = &direct_fetch,
                 .kept = &kept,
                 .door = secured.door},
                records, *outbox, metrics, spans, clock),
        telemetry_service(spans, logs, {}, {}),
        server(secured) {
    server.AddService(service);
    server.AddService(telemetry_service);
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
  /// Submits a job that must be taken.
  Job Begin(const v1::SubmitJobRequest& request) {
    const absl::StatusOr<Job> job = Submit(request);
    Require(job.status());
    return *job;
  }
  absl::Status Delete(const std::string& name) {
    v1::DeleteJobRequest request;
    request.set_name(name);
    return Call(&v1::GenerationService::Stub::DeleteJob, request).status();
  }
  /// Submits like a client that may have asked before.
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
  node::KeptWork kept;  ///< Not started: it only keeps.
  DirectFetch direct_fetch;
  ProxyService service;
  telemetry::LogRing logs;
  telemetry::TelemetryService telemetry_service;
  rpc::Server server;
  std::unique_ptr<v1::GenerationService::Stub> stub;
};

/// Two databases and the application "app", which takes a prompt and has the stages that `add`
/// gives it.
struct AppCluster : DatabaseCluster {
  template <typename Add>
  explicit AppCluster(const Add& add) {
    AddDatabase("db-1");
    AddDatabase("db-2");
    ChangeTable([&](v1::RoutingTable& table) {
      v1::Workflow& workflow = *table.add_workflows();
      workflow.set_app_id("app");
      workflow.set_default_deadline_s(60);
      v1::ParameterSpec& prompt = *workflow.add_parameters();
      prompt.set_name("prompt");
      prompt.set_type(v1::ParameterSpec::STRING);
      prompt.set_required(true);
      add(workflow);
    });
  }
  /// Sends a result of the run in which the job is.
  absl::StatusOr<node::Delivered> SendResult(const std::string& uid, const std::string& bytes) {
    return DatabaseCluster::SendResult(uid, bytes, RunOf(*this, uid));
  }
};

/// The application has one stage, and takes an image.
struct Cluster : AppCluster {
  explicit Cluster(int result_ttl_s = 60)
      : AppCluster([&](v1::Workflow& workflow) {
          workflow.add_stages()->set_stage("encode");
          workflow.set_result_ttl_s(result_ttl_s);
          workflow.add_inputs()->set_name("image");
          workflow.mutable_inputs(0)->add_media_types("image/png");
        }) {}
};

/// The application's entrances "text" and "image" meet in "paint".
struct BranchedCluster : AppCluster {
  BranchedCluster()
      : AppCluster([](v1::Workflow& workflow) {
          workflow.add_stages()->set_stage("text");
          workflow.add_stages()->set_stage("image");
          v1::StageSpec& paint = *workflow.add_stages();
          paint.set_stage("paint");
          paint.add_after("text");
          paint.add_after("image");
        }) {}
};

/// A BranchedCluster with an instance of each entrance and one proxy.
struct ServedBranches : BranchedCluster {
  FakeInstance text{*this, "app", "text", "inst-text"};
  FakeInstance image{*this, "app", "image", "inst-image"};
  Proxy proxy{*this, "proxy-1"};
};

/// A Cluster with one instance and one proxy.
struct ServedCluster : Cluster {
  using Cluster::Cluster;
  FakeInstance instance{*this};
  Proxy proxy{*this, "proxy-1"};
};

/// A Cluster with one instance and two proxies.
struct TwoProxies : Cluster {
  FakeInstance instance{*this};
  Proxy first{*this, "proxy-1"};
  Proxy second{*this, "proxy-2"};
};

inline v1::SubmitJobRequest Request(const std::string& prompt = "a red ball") {
  v1::SubmitJobRequest request;
  request.set_app_id("app");
  (*request.mutable_parameters()->mutable_fields())["prompt"].set_string_value(prompt);
  return request;
}

/// Gives the request an image of so many bytes.
inline v1::JobInput& AddImage(v1::SubmitJobRequest& request, std::size_t bytes) {
  v1::JobInput& image = *request.add_inputs();
  image.set_name("image");
  image.set_media_type("image/png");
  image.set_data(std::string(bytes, 'x'));
  return image;
}

inline v1::SubmitJobRequest RequestWithId(const std::string& prompt = "a red ball") {
  v1::SubmitJobRequest request = Request(prompt);
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  return request;
}

}  // namespace onepiece::proxy
