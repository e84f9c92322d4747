// DatabaseService over a JobStore.
#pragma once

#include <atomic>
#include <functional>
#include <stop_token>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/database/anti_entropy.h"
#include "cluster/database/job_store.h"
#include "cluster/database/replicator.h"
#include "cluster/database/value_access.h"
#include "cluster/rpc/result_part.h"
#include "cluster/rpc/stream_guard.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::database {

/// Until Open every call is answered with UNAVAILABLE (RECOVERING): what is not known yet must not
/// look as if it were not there.
///
/// Ownership: Borrows the store, what replicates it, and the values.
/// Threading: Thread-safe.
/// Bounds: As many fetches as `fetches` says (RESOURCE_EXHAUSTED TOO_MANY_FETCHES); one whose
/// client does not read is ended.
/// Blocking: WatchJob until the job or the client ends, or Stop(). At most kMaxWatchers watch at a
/// time (RESOURCE_EXHAUSTED TOO_MANY_WATCHERS); a slow watcher sees the latest state, not every
/// one.
class DatabaseService final : public v1::DatabaseService::Service {
 public:
  static constexpr int kMaxWatchers = 128;
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  /// `value_store` is what committed results go to. `read_only`: people purge nothing here.
  DatabaseService(std::string node_id, JobStore& store, Replicator& replicator,
                  AntiEntropy& anti_entropy, ValueAccess& values, ValueAccess::Store value_store,
                  base::Clock& clock = base::SystemClock(), rpc::StreamGuardOptions fetches = {},
                  bool read_only = false);
  /// What GetDatabase says beyond the store's numbers. Before the first call.
  void OnDescribe(std::function<void(v1::Database&)> describe) { describe_ = std::move(describe); }
  /// Begins to answer: what earlier runs left is in the store.
  void Open() { open_ = true; }
  /// Ends the streams. Idempotent.
  void Stop() { stopping_.request_stop(); }
  [[nodiscard]] std::size_t fetches() const { return fetches_.streams(); }

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override;
  grpc::Status UpdateJob(grpc::ServerContext* context, const v1::UpdateJobRequest* request,
                         v1::JobRecord* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRecordRequest* request,
                      v1::JobRecord* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override;
  grpc::Status AcknowledgeResult(grpc::ServerContext* context,
                                 const v1::AcknowledgeResultRequest* request,
                                 v1::Job* response) override;
  grpc::Status DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty* response) override;
  grpc::Status PurgeResults(grpc::ServerContext* context, const v1::PurgeResultsRequest* request,
                            v1::PurgeResultsResponse* response) override;
  grpc::Status ReplicateJobs(grpc::ServerContext* context, const v1::ReplicateJobsRequest* request,
                             google::protobuf::Empty* response) override;
  grpc::Status CompareJobs(grpc::ServerContext* context, const v1::CompareJobsRequest* request,
                           v1::CompareJobsResponse* response) override;
  grpc::Status SendJobs(grpc::ServerContext* context, const v1::SendJobsRequest* request,
                        google::protobuf::Empty* response) override;
  grpc::Status OpenSegment(grpc::ServerContext* context, const v1::OpenSegmentRequest* request,
                           v1::OpenSegmentResponse* response) override;
  grpc::Status ReserveResult(grpc::ServerContext* context, const v1::ReserveResultRequest* request,
                             v1::ReserveResultResponse* response) override;
  grpc::Status CommitResult(grpc::ServerContext* context, const v1::CommitResultRequest* request,
                            v1::CommitResultResponse* response) override;
  grpc::Status GetDatabase(grpc::ServerContext* context, const v1::GetDatabaseRequest* request,
                           v1::Database* response) override;

 private:
  /// Answers with what `work` says: a T, or why there is none.
  template <typename T, typename Work>
  grpc::Status Answer(T* response, const Work& work);
  absl::Status CheckOpen() const;
  absl::Status Watch(const grpc::ServerContext& context, const std::string& uid,
                     grpc::ServerWriter<v1::Job>& writer);
  grpc::Status Fetch(grpc::ServerContext& context, const v1::FetchResultRequest& request,
                     rpc::ResultStream& stream);

  const std::string node_id_;
  JobStore& store_;
  Replicator& replicator_;
  AntiEntropy& anti_entropy_;
  ValueAccess& values_;
  const ValueAccess::Store value_store_;
  base::Clock& clock_;
  const bool read_only_;
  std::function<void(v1::Database&)> describe_ = [](v1::Database&) {};
  std::atomic<bool> open_{false};
  std::stop_source stopping_;
  rpc::StreamGuard fetches_;
  std::atomic<int> watchers_{0};
};

}  // namespace onepiece::database
