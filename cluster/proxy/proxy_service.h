// The public API of the cluster, GenerationService, which clients call.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/admission/request_monitor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/job_records.h"
#include "cluster/node/outbox.h"
#include "cluster/node/result_fetches.h"
#include "cluster/proxy/channel_cache.h"
#include "cluster/proxy/direct_fetch.h"
#include "cluster/proxy/job_owners.h"
#include "cluster/proxy/job_watches.h"
#include "cluster/proxy/read_threads.h"
#include "cluster/proxy/submission.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/stream_guard.h"
#include "cluster/rpc/stream_shares.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "onepiece/v1/cluster_config.pb.h"
#include "onepiece/v1/generation.grpc.pb.h"

namespace onepiece::proxy {

struct ProxyOptions {
  std::string workflow_set;
  int max_jobs_in_flight = 256;
  double admission_share = 0.95;  ///< As in admission::RequestMonitorOptions.
  /// As in SubmissionOptions.
  std::int64_t max_input_bytes = std::int64_t{256} << 20;
  bool read_only = false;               ///< As in NodeConfig.
  DirectFetch* direct_fetch = nullptr;  ///< Borrowed. None: all results come over gRPC.
  node::KeptWork* kept = nullptr;       ///< As in SubmissionOptions.
  /// Borrowed. Says who calls. Null: the proxy is insecure, and all see all jobs.
  const rpc::Door* door = nullptr;
  std::size_t watches = 20'480;  ///< Places for watches, shared out among the clients.
};

/// Serves clients. Any proxy answers for any job, because all state but the jobs in flight is in
/// the databases.
///
/// Ownership: Borrows everything it is given, which must outlive the service.
///
/// Threading: Thread-safe. A thread of its own asks the databases about admitted jobs.
///
/// Blocking: Unary calls answer within about 4 s (scaled). A fetch lasts until the artifact or the
/// client ends, or until Stop(). A watch lasts until the job or the client ends. Neither costs a
/// thread.
class ProxyService final
    : public v1::GenerationService::WithRawCallbackMethod_FetchResult<
          v1::GenerationService::WithCallbackMethod_WatchJob<v1::GenerationService::Service>> {
 public:
  /// No job is admitted before `view` has a cluster secret.
  ProxyService(const node::ClusterView& view, ProxyOptions options, node::JobRecords& records,
               node::Outbox& outbox, telemetry::Metrics& metrics, telemetry::Spans& spans,
               base::Clock& clock = base::SystemClock());
  /// Stop().
  ~ProxyService() override;

  /// Ends streams and the service's thread. Then the gRPC server can be shut down. Idempotent.
  void Stop();
  /// Takes the newest capacity of the workflow set.
  void UpdateCapacity(const v1::Capacity& capacity) { monitor_.Update(capacity); }
  /// Goes by the cluster's limits from now on, and by its own options where they say 0. Jobs that
  /// are in stay in, and what is kept stays.
  void Follow(const v1::ProxyLimits& limits);
  /// For the load report.
  [[nodiscard]] int jobs_in_flight() const { return monitor_.in_flight(); }
  [[nodiscard]] std::size_t watches() const { return watch_places_.taken(); }
  [[nodiscard]] std::size_t watched_jobs() const { return watches_.jobs(); }
  [[nodiscard]] std::size_t fetches() const { return fetches_.streams(); }
  [[nodiscard]] std::vector<v1::Demand> demands() const { return monitor_.demands(); }
  /// What tenants have used since the last call.
  [[nodiscard]] std::vector<v1::TenantUse> TakeUses() { return accounts_.TakeUses(); }
  [[nodiscard]] std::vector<v1::PoolDebt> debts() const { return monitor_.debts(); }

  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::Job* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext* context,
                                              const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchResult(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* bytes) override;
  grpc::Status AcknowledgeResult(grpc::ServerContext* context,
                                 const v1::AcknowledgeResultRequest* request,
                                 v1::Job* response) override;
  grpc::Status DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty* response) override;
  grpc::Status GetJobTrace(grpc::ServerContext* context, const v1::GetJobTraceRequest* request,
                           v1::GetJobTraceResponse* response) override;

 private:
  absl::StatusOr<v1::Job> Cancel(const base::Uid& uid);
  // OK when the caller may know of the job.
  absl::Status CheckOwner(const grpc::ServerContext& context, const base::Uid& uid, Intent intent);
  v1::Job Present(v1::Job job);
  // Takes the door's newest quotas.
  void FollowQuotas();
  void NoteEnd(const base::Uid& uid, const v1::Job& job);
  void ShowLevels();
  void FollowJobs(const std::stop_token& stop);

  const node::ClusterView& view_;
  const ProxyOptions options_;
  node::JobRecords& records_;
  telemetry::Metrics& metrics_;
  telemetry::Spans& spans_;
  base::Clock& clock_;
  admission::RequestMonitor monitor_;
  TenantAccounts accounts_;
  base::Mutex quotas_mutex_;
  // What accounts_ goes by: the epoch of the door's table, and how many proxies share a quota.
  std::pair<std::uint64_t, int> quotas_of_ ABSL_GUARDED_BY(quotas_mutex_){0, 0};
  ChannelCache channels_;
  Submission submission_;
  std::set<std::string> shown_pools_;  // Used by the metrics endpoint's thread only.
  rpc::StreamGuard fetches_;
  node::ResultFetches results_;
  JobOwners owners_;
  ReadThreads read_threads_;  // After what their work uses.
  rpc::StreamShares watch_places_;
  JobWatches watches_;
  std::stop_source stopping_;
  std::jthread follower_;
};

}  // namespace onepiece::proxy
