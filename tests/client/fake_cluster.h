// An in-process NodeManager and proxies whose answers a test scripts.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/client/client.h"
#include "cluster/rpc/repeat.h"
#include "cluster/rpc/replicas.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"

namespace onepiece::client {

/// Makes a status with ErrorInfo, and with RetryInfo unless `retry_ms` is negative.
inline grpc::Status Refusal(grpc::StatusCode code, const std::string& reason, int retry_ms = -1,
                            std::map<std::string, std::string> metadata = {}) {
  if (retry_ms >= 0) metadata[rpc::kRetryAfterMs] = std::to_string(retry_ms);
  return rpc::ToGrpc(
      base::MakeError(static_cast<absl::StatusCode>(code), reason, reason, metadata));
}

inline grpc::Status Accept(const v1::SubmitJobRequest& request, v1::Job& job) {
  job.set_uid("uid");
  job.set_request_id(request.request_id());
  job.set_state(v1::Job::QUEUED);
  return grpc::Status::OK;
}

/// One proxy. Handlers run on gRPC's threads; set them before the first call.
class FakeProxy final : public v1::GenerationService::Service {
 public:
  explicit FakeProxy(std::string set) : workflow_set(std::move(set)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(rpc::kMaxMessageBytes);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeProxy() override { Stop(); }
  void Stop() { server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC)); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::Job* job) override {
    {
      const base::MutexLock lock(mutex);
      request_ids.push_back(request->request_id());
      repeated.push_back(context->client_metadata().contains(rpc::kRepeated));
    }
    return submit ? submit(*request, *job) : grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::Job* job) override {
    return get ? get(request->name(), *job) : grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::Job>* writer) override {
    return watch(*context, *writer);
  }
  grpc::Status FetchResult(grpc::ServerContext*, const v1::FetchResultRequest* request,
                           grpc::ServerWriter<v1::FetchResultResponse>* writer) override {
    return fetch(*request, *writer);
  }

  /// Lets the proxy make a job for every id that it does not know. Call it instead of setting
  /// `submit` and `get`.
  void Remember() {
    submit = [this](const v1::SubmitJobRequest& request, v1::Job& job) {
      const base::MutexLock lock(mutex);
      made.insert(request.request_id());
      return Accept(request, job);
    };
    get = [this](const std::string& name, v1::Job&) {
      const base::MutexLock lock(mutex);
      asked_for.push_back(name);
      for (const std::string& id : made) {
        if (name == std::string(rpc::kRequestNamePrefix) + id) return grpc::Status::OK;
      }
      return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
    };
  }

  const std::string workflow_set;
  std::function<grpc::Status(const v1::SubmitJobRequest&, v1::Job&)> submit;
  std::function<grpc::Status(const std::string&, v1::Job&)> get;
  std::function<grpc::Status(grpc::ServerContext&, grpc::ServerWriter<v1::Job>&)> watch;
  std::function<grpc::Status(const v1::FetchResultRequest&,
                             grpc::ServerWriter<v1::FetchResultResponse>&)>
      fetch;
  base::Mutex mutex;
  // Tests read these without the mutex once no call is under way.
  std::vector<std::string> request_ids;
  std::vector<bool> repeated;  // Whether the client said so.
  std::set<std::string> made;  // Of Remember, as is the next.
  std::vector<std::string> asked_for;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

/// One replica of a NodeManager. It leads until told otherwise.
///
/// Threading: may be used from any thread.
class FakeNodeManager final : public v1::NodeManagerService::Service {
 public:
  FakeNodeManager() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeNodeManager() override { Stop(); }
  void Stop() { server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC)); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Serve(const std::vector<const FakeProxy*>& proxies) {
    const base::MutexLock lock(mutex_);
    response_.Clear();
    for (const FakeProxy* proxy : proxies) {
      auto* added = response_.add_proxies();
      added->mutable_endpoint()->set_address(proxy->address());
      added->set_workflow_set(proxy->workflow_set);
    }
  }
  /// Refuses every call from now on and ends its streams. `leader` may be empty.
  void Follow(const std::string& leader) {
    const base::MutexLock lock(mutex_);
    follows_ = true;
    leader_ = leader;
  }
  void Lead() {
    const base::MutexLock lock(mutex_);
    follows_ = false;
  }
  /// Sets its revision. It has one change for each revision, and streams those after
  /// start_revision.
  void SetRevision(std::uint64_t revision) {
    const base::MutexLock lock(mutex_);
    revision_ = revision;
  }
  std::vector<std::string> request_ids() {
    const base::MutexLock lock(mutex_);
    return request_ids_;
  }
  /// Returns the user agent of the last call for the cluster.
  std::string user_agent() {
    const base::MutexLock lock(mutex_);
    return user_agent_;
  }
  /// Sets the replicas that its cluster names.
  void ListManagers(const std::vector<std::string>& addresses) {
    const base::MutexLock lock(mutex_);
    cluster_.Clear();
    for (const std::string& address : addresses) {
      cluster_.add_nodes()->set_address(address);
      cluster_.mutable_nodes()->rbegin()->set_role(v1::NODE_MANAGER);
    }
  }

  grpc::Status ListProxies(grpc::ServerContext*, const v1::ListProxiesRequest*,
                           v1::ListProxiesResponse* response) override {
    ++list_calls;
    const base::MutexLock lock(mutex_);
    if (follows_) return NotLeader();
    *response = response_;
    return grpc::Status::OK;
  }
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    const base::MutexLock lock(mutex_);
    const auto agent = context->client_metadata().find("user-agent");
    if (agent != context->client_metadata().end())
      user_agent_ = {agent->second.data(), agent->second.size()};
    if (follows_) return NotLeader();
    *response = cluster_;
    response->set_cluster_id("test");
    response->set_revision(revision_);
    return grpc::Status::OK;
  }
  grpc::Status ApplyWorkflow(grpc::ServerContext*, const v1::ApplyWorkflowRequest* request,
                             v1::Workflow* response) override {
    const base::MutexLock lock(mutex_);
    request_ids_.push_back(request->request_id());
    if (follows_) return NotLeader();
    *response = request->workflow();
    if (request_ids_.size() > 2) return grpc::Status::OK;
    return {grpc::StatusCode::UNAVAILABLE, "the answer was lost"};
  }
  grpc::Status WatchCluster(grpc::ServerContext* context, const v1::WatchClusterRequest* request,
                            grpc::ServerWriter<v1::ClusterEvent>* writer) override {
    std::uint64_t known = request->start_revision();
    while (!context->IsCancelled()) {
      v1::ClusterEvent event;
      {
        const base::MutexLock lock(mutex_);
        if (follows_) return NotLeader();
        if (known == 0 || known > revision_) {
          known = revision_;
          *event.mutable_snapshot() = cluster_;
          event.mutable_snapshot()->set_cluster_id("test");
        } else if (known < revision_) {
          ++known;
          event.mutable_node()->set_node_id(std::to_string(known));
        } else if (request->telemetry_interval_ms() > 0) {
          event.mutable_telemetry()->add_nodes()->mutable_load()->set_utilization(
              request->telemetry_interval_ms());
        }
        event.set_revision(known);
      }
      if (!writer->Write(event)) break;
      testing::Pause(std::chrono::milliseconds(2));  // The time between heartbeats.
    }
    return grpc::Status::CANCELLED;
  }
  std::atomic<int> list_calls{0};

 private:
  grpc::Status NotLeader() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::map<std::string, std::string> metadata;
    if (!leader_.empty()) metadata[rpc::kLeader] = leader_;
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kUnavailable, rpc::kNotLeader, "follows", metadata));
  }

  base::Mutex mutex_;
  v1::ListProxiesResponse response_ ABSL_GUARDED_BY(mutex_);
  v1::Cluster cluster_ ABSL_GUARDED_BY(mutex_);
  bool follows_ ABSL_GUARDED_BY(mutex_) = false;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<std::string> request_ids_ ABSL_GUARDED_BY(mutex_);
  std::string user_agent_ ABSL_GUARDED_BY(mutex_);

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

/// Returns options that retry quickly.
inline ClientOptions To(const std::vector<std::string>& nodemanagers,
                        const std::vector<std::string>& proxies = {}) {
  ClientOptions options;
  options.nodemanagers = nodemanagers;
  options.proxies = proxies;
  options.timeout = std::chrono::seconds(10);
  options.first_pause = std::chrono::milliseconds(5);
  options.max_pause = std::chrono::milliseconds(50);
  return options;
}
inline ClientOptions To(const FakeNodeManager& manager) {
  return To(std::vector<std::string>{manager.address()});
}

/// The service of a replica for operators. It gives the same answer to every change.
class FakeConsensus final : public v1::ConsensusService::Service {
 public:
  FakeConsensus() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeConsensus() override { server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC)); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status AddSeat(grpc::ServerContext*, const v1::AddSeatRequest*,
                       v1::ConsensusMembers*) override {
    ++calls;
    return answer;
  }
  grpc::Status StepDown(grpc::ServerContext*, const v1::StepDownRequest*,
                        google::protobuf::Empty*) override {
    ++calls;
    return answer;
  }

  grpc::Status answer;  // Set while no call is under way.
  std::atomic<int> calls{0};

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

/// Describes `bytes` as a proxy does.
inline v1::ResultArtifact Describe(const std::string& bytes) {
  v1::ResultArtifact artifact;
  artifact.set_artifact("video");
  artifact.set_media_type("video/mp4");
  artifact.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
  artifact.set_sha256(base::Sha256Hex(bytes));
  return artifact;
}

}  // namespace onepiece::client
