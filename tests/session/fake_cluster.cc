#include "tests/session/fake_cluster.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "cluster/base/check.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/elasticity.grpc.pb.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/identity.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/session/fake_state.h"

namespace onepiece::testing {
namespace {

using grpc::ServerContext;
using grpc::Status;
using std::chrono::milliseconds;

constexpr milliseconds kHeartbeat(1000);
constexpr std::size_t kMaxLines = 1000;

std::string UidOf(const std::string& name) { return name.substr(name.find('/') + 1); }

struct Manager final : v1::NodeManagerService::Service {
  explicit Manager(SharedState& the_state) : shared(the_state) {}
  Status GetCluster(ServerContext* context, const v1::GetClusterRequest*,
                    v1::Cluster* response) override {
    BEGIN_CALL("GetCluster");
    *response = state.cluster;
    return Status::OK;
  }
  Status ListProxies(ServerContext* context, const v1::ListProxiesRequest*,
                     v1::ListProxiesResponse* response) override {
    BEGIN_CALL("ListProxies");
    for (const v1::Node& node : state.cluster.nodes()) {
      if (node.role() != v1::PROXY || node.state() != v1::Node::READY) continue;
      auto& proxy = *response->add_proxies();
      proxy.mutable_endpoint()->set_address(node.address());
      proxy.set_workflow_set(node.workflow_set());
    }
    return Status::OK;
  }
  Status ListWorkflows(ServerContext* context, const v1::ListWorkflowsRequest*,
                       v1::ListWorkflowsResponse* response) override {
    BEGIN_CALL("ListWorkflows");
    *response->mutable_workflows() = state.cluster.workflows();
    return Status::OK;
  }
  Status WatchCluster(ServerContext* context, const v1::WatchClusterRequest* request,
                      grpc::ServerWriter<v1::ClusterEvent>* writer) override {
    BEGIN_CALL("WatchCluster");
    const milliseconds interval(request->telemetry_interval_ms());
    std::uint64_t known = 0, telling = ~std::uint64_t{0};
    base::MonotonicTime next;
    for (;;) {
      const bool tells = state.telemetry && interval.count() > 0;
      const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex) {
        return telling != state.telling || known != state.cluster.revision();
      };
      if (!shared.Wait(lock, *context, next, news)) return Status::CANCELLED;
      std::vector<v1::ClusterEvent> events;
      if (telling != state.telling) {
        *events.emplace_back().mutable_snapshot() = state.cluster;
        events.back().set_revision(state.cluster.revision());
      } else if (known != state.cluster.revision()) {
        for (const v1::ClusterEvent& change : state.changes) {
          if (change.revision() > known) events.push_back(change);
        }
      } else {
        events.emplace_back().set_revision(known);
        if (tells) AddTelemetry(state, *events.back().mutable_telemetry());
      }
      telling = state.telling;
      known = state.cluster.revision();
      next = base::SystemClock().Now() + (tells ? interval : kHeartbeat);
      for (v1::ClusterEvent& event : events) {
        event.set_server_unix_ms(state.NowMs());
        lock.Unlock();
        const bool written = writer->Write(event);
        lock.Lock();
        if (!written) return Status::CANCELLED;
      }
    }
  }
  Status ApplyWorkflow(ServerContext* context, const v1::ApplyWorkflowRequest* request,
                       v1::Workflow* response) override {
    BEGIN_CALL("ApplyWorkflow", true);
    *response = request->workflow();
    return Status::OK;
  }
  static void AddTelemetry(const State& state, v1::Telemetry& telemetry) {
    for (const v1::Node& node : state.cluster.nodes()) {
      auto& entry = *telemetry.add_nodes();
      entry.set_node_id(node.node_id());
      entry.set_activity(node.activity());
      entry.set_detail(node.detail());
      if (node.has_load()) *entry.mutable_load() = node.load();
    }
  }
  SharedState& shared;
};

struct IdentityFake final : v1::IdentityService::Service {
  explicit IdentityFake(SharedState& the_state) : shared(the_state) {}
  Status WhoAmI(ServerContext* context, const v1::WhoAmIRequest*,
                v1::WhoAmIResponse* response) override {
    BEGIN_CALL("WhoAmI");
    if (!state.me) return {grpc::StatusCode::UNIMPLEMENTED, "an older server"};
    *response = *state.me;
    return Status::OK;
  }
  SharedState& shared;
};

struct ElasticityFake final : v1::ElasticityService::Service {
  explicit ElasticityFake(SharedState& the_state) : shared(the_state) {}
  Status GetElasticity(ServerContext* context, const v1::GetElasticityRequest*,
                       v1::Elasticity* response) override {
    BEGIN_CALL("GetElasticity");
    *response = state.plans.elasticity;
    return Status::OK;
  }
  Status ListPlans(ServerContext* context, const v1::ListPlansRequest*,
                   v1::ListPlansResponse* response) override {
    BEGIN_CALL("ListPlans");
    *response = state.plans.plans;
    return Status::OK;
  }
  Status ListAudit(ServerContext* context, const v1::ListAuditRequest* request,
                   v1::ListAuditResponse* response) override {
    BEGIN_CALL("ListAudit");
    std::size_t at = 0;
    if (!request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &at))
      return Error(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN", "not a token");
    const auto size = static_cast<std::size_t>(std::max(request->page_size(), 1));
    for (; at < state.audit.size() && response->entries_size() < static_cast<int>(size); ++at)
      *response->add_entries() = state.audit[at];
    if (at < state.audit.size()) response->set_next_page_token(std::to_string(at));
    return Status::OK;
  }
  Status SetHold(ServerContext* context, const v1::SetHoldRequest* request,
                 v1::Hold* response) override {
    BEGIN_CALL("SetHold", true);
    *response = state.plans.SetHold(*request, state.NowMs());
    return Status::OK;
  }
  Status SetPoolLimits(ServerContext* context, const v1::SetPoolLimitsRequest* request,
                       v1::PoolLimits* response) override {
    BEGIN_CALL("SetPoolLimits", true);
    *response = state.plans.SetLimits(request->limits());
    return Status::OK;
  }
  Status ProposePlan(ServerContext* context, const v1::ProposePlanRequest* request,
                     v1::Plan* response) override {
    BEGIN_CALL("ProposePlan");
    return Answer(state.plans.Propose(*request, state.cluster), response);
  }
  Status ApplyPlan(ServerContext* context, const v1::ApplyPlanRequest* request,
                   v1::Plan* response) override {
    BEGIN_CALL("ApplyPlan", true);
    return Answer(state.plans.Apply(*request, state.cluster, state.NowMs()), response);
  }
  Status GetPlan(ServerContext* context, const v1::GetPlanRequest* request,
                 v1::Plan* response) override {
    BEGIN_CALL("GetPlan");
    return Answer(state.plans.Get(request->plan_id()), response);
  }
  Status ConfirmPlan(ServerContext* context, const v1::DecidePlanRequest* request,
                     v1::Plan* response) override {
    BEGIN_CALL("ConfirmPlan", true);
    return Answer(state.plans.Confirm(*request), response);
  }
  Status UndoPlan(ServerContext* context, const v1::DecidePlanRequest* request,
                  v1::Plan* response) override {
    BEGIN_CALL("UndoPlan", true);
    return Answer(state.plans.Undo(*request, state.cluster, state.NowMs()), response);
  }
  static Status Answer(absl::StatusOr<v1::Plan> plan, v1::Plan* response) {
    if (!plan.ok()) return rpc::ToGrpc(plan.status());
    *response = *std::move(plan);
    return Status::OK;
  }
  SharedState& shared;
};

struct Proxy final : v1::GenerationService::Service {
  explicit Proxy(SharedState& the_state) : shared(the_state) {}
  Status ListJobs(ServerContext* context, const v1::ListJobsRequest* request,
                  v1::ListJobsResponse* response) override {
    BEGIN_CALL("ListJobs");
    auto at = state.jobs.begin();
    if (!request->page_token().empty()) {
      const std::string& token = request->page_token();
      JobKey last{0, token.substr(token.find('/') + 1)};
      if (!absl::SimpleAtoi(token.substr(0, token.find('/')), &last.first))
        return Error(absl::StatusCode::kInvalidArgument, "BAD_PAGE_TOKEN", "not a token");
      at = state.jobs.upper_bound(last);
    }
    const int size = request->page_size() == 0 ? 100 : request->page_size();
    for (; at != state.jobs.end(); ++at) {
      const auto& states = request->states();
      if (!states.empty() && std::ranges::find(states, at->second.state()) == states.end())
        continue;
      if (response->jobs_size() == size) {
        const JobKey last = KeyOf(response->jobs(size - 1));
        response->set_next_page_token(std::to_string(last.first) + "/" + last.second);
        break;
      }
      *response->add_jobs() = at->second;
    }
    return Status::OK;
  }
  Status GetJob(ServerContext* context, const v1::GetJobRequest* request,
                v1::Job* response) override {
    BEGIN_CALL("GetJob");
    return Find(state, request->name(), *response);
  }
  Status CancelJob(ServerContext* context, const v1::CancelJobRequest* request,
                   v1::Job* response) override {
    BEGIN_CALL("CancelJob", true);
    if (Status found = Find(state, request->name(), *response); !found.ok()) return found;
    if (response->state() >= v1::Job::SUCCEEDED) return Status::OK;
    response->set_state(v1::Job::CANCELLED);
    state.jobs[KeyOf(*response)] = *response;
    shared.Changed();
    return Status::OK;
  }
  Status DeleteJob(ServerContext* context, const v1::DeleteJobRequest* request,
                   google::protobuf::Empty*) override {
    BEGIN_CALL("DeleteJob", true);
    v1::Job job;
    if (Status found = Find(state, request->name(), job); !found.ok()) return found;
    state.jobs.erase(KeyOf(job));
    state.job_keys.erase(job.uid());
    shared.Changed();
    return Status::OK;
  }
  Status GetJobTrace(ServerContext* context, const v1::GetJobTraceRequest* request,
                     v1::GetJobTraceResponse* response) override {
    BEGIN_CALL("GetJobTrace");
    v1::Job job;
    if (Status found = Find(state, request->name(), job); !found.ok()) return found;
    *response = state.traces[UidOf(request->name())];
    return Status::OK;
  }
  Status SubmitJob(ServerContext* context, const v1::SubmitJobRequest* request,
                   v1::Job* response) override {
    BEGIN_CALL("SubmitJob", !request->validate_only());
    response->set_app_id(request->app_id());
    response->set_request_id(request->request_id());
    response->set_state(v1::Job::QUEUED);
    response->set_workflow_set("default");
    response->mutable_create_time()->set_seconds(state.NowMs() / 1000);
    *response->mutable_parameters() = request->parameters();
    *response->mutable_labels() = request->labels();
    state.submitted.push_back(*request);
    for (v1::JobInput& input : *state.submitted.back().mutable_inputs()) input.clear_data();
    if (request->validate_only()) return Status::OK;
    response->set_uid("submitted-" + request->request_id());
    response->set_name("jobs/" + response->uid());
    if (const auto at = state.job_keys.find(response->uid()); at != state.job_keys.end()) {
      *response = state.jobs.at(at->second);
    } else {
      state.jobs[KeyOf(*response)] = *response;
      state.job_keys[response->uid()] = KeyOf(*response);
      shared.Changed();
    }
    if (state.submit_answers_lost > 0) {
      --state.submit_answers_lost;
      return {grpc::StatusCode::UNAVAILABLE, "the answer is lost"};
    }
    return Status::OK;
  }
  Status WatchJob(ServerContext* context, const v1::WatchJobRequest* request,
                  grpc::ServerWriter<v1::Job>* writer) override {
    BEGIN_CALL("WatchJob");
    v1::Job job, told;
    for (;;) {
      if (Status found = Find(state, request->name(), job); !found.ok()) return found;
      if (told.uid().empty() || told.SerializeAsString() != job.SerializeAsString()) {
        told = job;
        if (!writer->Write(job)) return Status::CANCELLED;
        if (job.state() >= v1::Job::SUCCEEDED) return Status::OK;
      }
      if (!shared.Wait(lock, *context, base::SystemClock().Now() + SharedState::kLook,
                       [] { return false; }))
        return Status::CANCELLED;
    }
  }
  Status FetchResult(ServerContext* context, const v1::FetchResultRequest* request,
                     grpc::ServerWriter<v1::FetchResultResponse>* writer) override {
    BEGIN_CALL("FetchResult");
    v1::Job job;
    if (Status found = Find(state, request->name(), job); !found.ok()) return found;
    if (job.result().artifacts().empty())
      return Error(absl::StatusCode::kFailedPrecondition, "NOT_DONE", "the job has no result");
    const v1::ResultArtifact& artifact = job.result().artifacts(0);
    const auto made = state.results.find(job.uid());
    const std::string bytes =
        made != state.results.end()
            ? made->second
            : std::string(static_cast<std::size_t>(artifact.size_bytes()), 'x');
    auto at = static_cast<std::size_t>(request->offset_bytes());
    for (bool first = true; first || at < bytes.size(); first = false) {
      v1::FetchResultResponse response;
      if (first) *response.mutable_artifact() = artifact;
      response.set_chunk(bytes.substr(at, 1 << 20));
      at += response.chunk().size();
      if (!writer->Write(response)) return Status::CANCELLED;
    }
    return Status::OK;
  }
  static Status Find(const State& state, const std::string& name, v1::Job& job) {
    const auto at = state.job_keys.find(UidOf(name));
    if (at == state.job_keys.end())
      return Error(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "no job " + name);
    job = state.jobs.at(at->second);
    return Status::OK;
  }
  SharedState& shared;
};

struct Ring final : v1::RingService::Service {
  explicit Ring(SharedState& the_state) : shared(the_state) {}
  Status GetRingHealth(ServerContext* context, const v1::GetRingHealthRequest*,
                       v1::RingHealth* response) override {
    BEGIN_CALL("GetRingHealth");
    *response = state.ring;
    return Status::OK;
  }
  SharedState& shared;
};

struct DatabaseFake final : v1::DatabaseService::Service {
  explicit DatabaseFake(SharedState& the_state) : shared(the_state) {}
  Status GetDatabase(ServerContext* context, const v1::GetDatabaseRequest*,
                     v1::Database* response) override {
    BEGIN_CALL("GetDatabase");
    *response = state.database;
    return Status::OK;
  }
  SharedState& shared;
};

struct Consensus final : v1::ConsensusService::Service {
  explicit Consensus(SharedState& the_state) : shared(the_state) {}
  Status GetReplica(ServerContext* context, const v1::GetReplicaRequest*,
                    v1::ReplicaStatus* response) override {
    BEGIN_CALL("GetReplica");
    *response = state.replica;
    return Status::OK;
  }
  Status StepDown(ServerContext* context, const v1::StepDownRequest*,
                  google::protobuf::Empty*) override {
    BEGIN_CALL("StepDown", true);
    return Status::OK;
  }
  Status TakeSnapshot(ServerContext* context, const v1::TakeSnapshotRequest*,
                      v1::TakeSnapshotResponse* response) override {
    BEGIN_CALL("TakeSnapshot", true);
    response->set_index(state.replica.applied());
    response->set_bytes(4096);
    return Status::OK;
  }
  SharedState& shared;
};

struct Telemetry final : v1::TelemetryService::Service {
  explicit Telemetry(SharedState& the_state) : shared(the_state) {}
  Status TailLogs(ServerContext* context, const v1::TailLogsRequest* request,
                  grpc::ServerWriter<v1::TailLogsResponse>* writer) override {
    BEGIN_CALL("TailLogs");
    const std::uint64_t newest = state.lines.empty() ? 0 : state.lines.back().number();
    const auto backlog = static_cast<std::uint64_t>(request->backlog());
    std::uint64_t told = newest - std::min(newest, backlog);
    for (bool first = true;; first = false) {
      const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex) {
        return !state.lines.empty() && state.lines.back().number() > told;
      };
      const auto until = base::SystemClock().Now() + kHeartbeat;
      if (!first && !shared.Wait(lock, *context, until, news)) return Status::CANCELLED;
      v1::TailLogsResponse response;
      for (const v1::LogLine& line : state.lines) {
        if (line.number() <= told || response.lines_size() == 256) continue;
        told = line.number();
        if (line.level() >= request->min_level()) *response.add_lines() = line;
      }
      lock.Unlock();
      const bool written = writer->Write(response);
      lock.Lock();
      if (!written) return Status::CANCELLED;
    }
  }
  SharedState& shared;
};

#undef BEGIN_CALL

}  // namespace

class FakeCluster::Impl {
 public:
  SharedState shared;

  void Listen(const std::string& where) {
    server = std::make_unique<rpc::Server>(rpc::ServerOptions{.listen = where});
    for (grpc::Service* service : std::initializer_list<grpc::Service*>{
             &manager, &identity, &elasticity, &proxy, &ring, &database, &consensus, &telemetry})
      server->AddService(*service);
    const auto port = server->Start();
    ONEPIECE_CHECK(port.ok());
    address = server->address();
  }
  /// Makes a change of the cluster and tells it to the watchers.
  template <typename Change>
  void Tell(const Change& change) {
    const base::MutexLock lock(shared.mutex);
    State& state = shared.state;
    const std::uint64_t revision = state.cluster.revision() + 1;
    state.cluster.set_revision(revision);
    v1::ClusterEvent& event = state.changes.emplace_back();
    event.set_revision(revision);
    change(state.cluster, event);
    shared.Changed();
  }
  template <typename Change>
  void Set(const Change& change) {
    const base::MutexLock lock(shared.mutex);
    change(shared.state);
    shared.Changed();
  }
  static v1::Node* Find(v1::Cluster& cluster, const std::string& id) {
    for (v1::Node& node : *cluster.mutable_nodes()) {
      if (node.node_id() == id) return &node;
    }
    return nullptr;
  }

  std::string address;
  std::unique_ptr<rpc::Server> server;

 private:
  Manager manager{shared};
  IdentityFake identity{shared};
  ElasticityFake elasticity{shared};
  Proxy proxy{shared};
  Ring ring{shared};
  DatabaseFake database{shared};
  Consensus consensus{shared};
  Telemetry telemetry{shared};
};

FakeCluster::FakeCluster() : impl_(std::make_unique<Impl>()) {
  impl_->Set([](State& state) {
    state.cluster.set_cluster_id("test");
    state.cluster.set_revision(1);
    state.cluster.set_api_version(1);
  });
  impl_->Listen("127.0.0.1:0");
}
FakeCluster::~FakeCluster() { Stop(); }

std::string FakeCluster::address() const { return impl_->address; }

void FakeCluster::SetUp(int instances) {
  const auto node = [this](const std::string& id, v1::Role role) {
    v1::Node made;
    made.set_name("nodes/" + id);
    made.set_node_id(id);
    made.set_role(role);
    made.set_incarnation(1);
    made.set_workflow_set(role == v1::NODE_MANAGER ? "" : "default");
    made.set_state(v1::Node::READY);
    SetNode(made);
  };
  node("nodemanager-1", v1::NODE_MANAGER);
  node("proxy-1", v1::PROXY);
  node("database-1", v1::DATABASE);
  for (int i = 1; i <= instances; ++i) node("instance-" + std::to_string(i), v1::INSTANCE);
}

void FakeCluster::SetNode(v1::Node node) {
  if (node.address().empty()) node.set_address(address());
  impl_->Tell([&](v1::Cluster& cluster, v1::ClusterEvent& event) {
    v1::Node* known = Impl::Find(cluster, node.node_id());
    (known != nullptr ? *known : *cluster.add_nodes()) = node;
    *event.mutable_node() = node;
  });
}

void FakeCluster::SetWorkflow(const v1::Workflow& workflow) {
  impl_->Tell([&](v1::Cluster& cluster, v1::ClusterEvent& event) {
    *cluster.add_workflows() = workflow;
    *event.mutable_workflow() = workflow;
  });
}

void FakeCluster::SetLoad(const std::string& node_id, const v1::NodeLoad& load,
                          v1::Activity activity) {
  impl_->Set([&](State& state) {
    v1::Node* const node = Impl::Find(state.cluster, node_id);
    ONEPIECE_CHECK(node != nullptr);
    *node->mutable_load() = load;
    node->set_activity(activity);
  });
}

void FakeCluster::SetClusterId(const std::string& id) {
  impl_->Set([&](State& state) {
    state.cluster.set_cluster_id(id);
    ++state.telling;
  });
}

void FakeCluster::SetJob(const v1::Job& job) {
  impl_->Set([&](State& state) {
    v1::Job named = job;
    named.set_name("jobs/" + job.uid());
    state.jobs[KeyOf(job)] = named;
    state.job_keys[job.uid()] = KeyOf(job);
  });
}

void FakeCluster::EraseJob(const std::string& uid) {
  impl_->Set([&](State& state) {
    state.jobs.erase(state.job_keys.at(uid));
    state.job_keys.erase(uid);
  });
}

void FakeCluster::FillJobs(int count) {
  v1::Job job;
  job.set_app_id("wan-t2v");
  job.set_workflow_set("default");
  job.set_state(v1::Job::SUCCEEDED);
  auto& parameters = *job.mutable_parameters()->mutable_fields();
  parameters["prompt"].set_string_value("a lighthouse in a storm, seen from the sea, at dusk");
  parameters["steps"].set_number_value(30);
  parameters["width"].set_number_value(832);
  parameters["height"].set_number_value(480);
  for (const char* stage : {"text_encode", "diffusion", "vae_decode"}) {
    auto& timing = *job.add_timings();
    timing.set_stage(stage);
    timing.set_node("instance-1");
    timing.mutable_compute()->set_seconds(3);
  }
  auto& artifact = *job.mutable_result()->add_artifacts();
  artifact.set_artifact("video");
  artifact.set_media_type("video/mp4");
  artifact.set_size_bytes(1000);
  artifact.set_sha256(std::string(64, 'a'));
  const std::int64_t begin = base::ToUnixMs(base::SystemClock().WallNow()) / 1000 - count;
  impl_->Set([&](State& state) {
    for (int i = 0; i < count; ++i) {
      job.set_uid(absl::StrFormat("job-%06d", i));
      job.set_name("jobs/" + job.uid());
      job.mutable_create_time()->set_seconds(begin + i);
      job.mutable_end_time()->set_seconds(begin + i + 9);
      state.jobs[KeyOf(job)] = job;
      state.job_keys[job.uid()] = KeyOf(job);
    }
  });
}

void FakeCluster::SetResult(const std::string& uid, const std::string& media_type,
                            const std::string& bytes) {
  impl_->Set([&](State& state) {
    v1::Job& job = state.jobs.at(state.job_keys.at(uid));
    job.clear_result();
    v1::ResultArtifact& artifact = *job.mutable_result()->add_artifacts();
    artifact.set_artifact("video");
    artifact.set_media_type(media_type);
    artifact.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
    artifact.set_sha256(base::Sha256Hex(bytes));
    state.results[uid] = bytes;
  });
}
void FakeCluster::SetTrace(const std::string& uid, const v1::GetJobTraceResponse& trace) {
  impl_->Set([&](State& state) { state.traces[uid] = trace; });
}
std::vector<v1::SubmitJobRequest> FakeCluster::submitted() const {
  const base::MutexLock lock(impl_->shared.mutex);
  return impl_->shared.state.submitted;
}

v1::Job FakeCluster::job(const std::string& uid) const {
  const base::MutexLock lock(impl_->shared.mutex);
  return impl_->shared.state.jobs.at(impl_->shared.state.job_keys.at(uid));
}

void FakeCluster::SetElasticity(const v1::Elasticity& elasticity) {
  impl_->Set([&](State& state) { state.plans.elasticity = elasticity; });
}
void FakeCluster::SetPrediction(const v1::Prediction& prediction) {
  impl_->Set([&](State& state) { state.plans.prediction = prediction; });
}
void FakeCluster::SetPolicyPlan(const v1::Plan& plan) {
  impl_->Set([&](State& state) { state.plans.policy_plan = plan; });
}
void FakeCluster::StartPlan(const v1::Plan& plan) {
  impl_->Set([&](State& state) { state.plans.Add(plan); });
}
void FakeCluster::FinishPlan(const std::string& plan_id) {
  std::vector<v1::Node> moved;
  impl_->Set(
      [&](State& state) { moved = state.plans.Finish(plan_id, state.cluster, state.NowMs()); });
  for (const v1::Node& node : moved) SetNode(node);
}
FakePlans FakeCluster::plans() const {
  const base::MutexLock lock(impl_->shared.mutex);
  return impl_->shared.state.plans;
}
void FakeCluster::AddAudit(const v1::AuditEntry& entry) {
  impl_->Set([&](State& state) { state.audit.push_front(entry); });
}
void FakeCluster::SetRing(const v1::RingHealth& health) {
  impl_->Set([&](State& state) { state.ring = health; });
}
void FakeCluster::SetDatabase(const v1::Database& database) {
  impl_->Set([&](State& state) { state.database = database; });
}
void FakeCluster::SetReplica(const v1::ReplicaStatus& status) {
  impl_->Set([&](State& state) { state.replica = status; });
}

void FakeCluster::Log(v1::LogLevel level, const std::string& text) {
  impl_->Set([&](State& state) {
    v1::LogLine line;
    line.set_number(state.lines.empty() ? 1 : state.lines.back().number() + 1);
    line.set_unix_ns(state.NowMs() * 1'000'000);
    line.set_level(level);
    line.set_text(text);
    state.lines.push_back(line);
    if (state.lines.size() > kMaxLines) state.lines.pop_front();
  });
}

void FakeCluster::Hang(bool hang) {
  impl_->Set([&](State& state) { state.hang = hang; });
}

void FakeCluster::Stop() {
  if (impl_->server == nullptr) return;
  impl_->Set([](State& state) { state.stopping = true; });
  impl_->server->Shutdown(base::Duration::zero());
  impl_->server.reset();
}

void FakeCluster::Start() {
  impl_->Set([](State& state) { state.stopping = false; });
  impl_->Listen(impl_->address);
}

void FakeCluster::SetRevision(std::uint64_t revision) {
  impl_->Set([&](State& state) {
    state.cluster.set_revision(revision);
    state.changes.clear();
    ++state.telling;
  });
}
void FakeCluster::SetApiVersion(int version) {
  impl_->Set([&](State& state) {
    state.cluster.set_api_version(version);
    ++state.telling;
  });
}
void FakeCluster::SetClockSkew(base::Duration skew) {
  impl_->Set([&](State& state) { state.skew = skew; });
}
void FakeCluster::Refuse(const grpc::Status& refusal) {
  impl_->Set([&](State& state) { state.refusal = refusal; });
}
void FakeCluster::Refuse(const std::string& method, const grpc::Status& refusal) {
  impl_->Set([&](State& state) {
    state.refusals.erase(method);
    if (!refusal.ok()) state.refusals.emplace(method, refusal);
  });
}
void FakeCluster::LoseSubmitAnswers(int count) {
  impl_->Set([&](State& state) { state.submit_answers_lost = count; });
}
void FakeCluster::SetReadOnly(bool read_only) {
  impl_->Set([&](State& state) { state.read_only = read_only; });
}
void FakeCluster::SetMe(const v1::WhoAmIResponse& me) {
  impl_->Set([&](State& state) { state.me = me; });
}
void FakeCluster::LoseAnswers(bool lose) {
  impl_->Set([&](State& state) { state.plans.lose_answers = lose; });
}
void FakeCluster::SetTelemetry(bool telemetry) {
  impl_->Set([&](State& state) { state.telemetry = telemetry; });
}

std::string FakeCluster::user_agent(const std::string& method) const {
  const base::MutexLock lock(impl_->shared.mutex);
  const auto at = impl_->shared.state.user_agents.find(method);
  return at == impl_->shared.state.user_agents.end() ? "" : at->second;
}

int FakeCluster::calls(const std::string& method) const {
  const base::MutexLock lock(impl_->shared.mutex);
  const auto at = impl_->shared.state.calls.find(method);
  return at == impl_->shared.state.calls.end() ? 0 : at->second;
}

}  // namespace onepiece::testing
