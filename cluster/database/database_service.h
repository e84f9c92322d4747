// DatabaseService over a JobStore.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/database/anti_entropy.h"
#include "cluster/database/job_store.h"
#include "cluster/database/replicator.h"
#include "cluster/database/value_access.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/stream_guard.h"
#include "cluster/rpc/stream_shares.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::database {

class StorageQuotas;

/// Serves a JobStore over gRPC. Until Open every call fails with UNAVAILABLE (RECOVERING), so that
/// a job that has not been read from disk yet does not look as if it did not exist.
///
/// Fetches and watches cost no thread. There are places for `fetches` and `watches` of them, shared
/// out among the clients (RESOURCE_EXHAUSTED TOO_MANY_FETCHES, TOO_MANY_WATCHERS). A fetch whose
/// client does not read is ended. A slow watcher sees the latest state, not every state. An
/// unchanged state comes again every Watches::kRepeat.
///
/// Ownership: borrows the store, the replicator, the anti-entropy and the values.
/// Threading: thread-safe.
/// Blocking: WatchJob and FetchResult never block.
class DatabaseService final
    : public v1::DatabaseService::WithRawCallbackMethod_FetchResult<
          v1::DatabaseService::WithCallbackMethod_WatchJob<v1::DatabaseService::Service>> {
 public:
  /// A proxy holds one watch for each job that its clients watch. It may hold half of these.
  static constexpr std::size_t kWatchPlaces = 20'480;
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  /// Committed results go to `value_store`. With `read_only`, purges by people are refused.
  DatabaseService(std::string node_id, JobStore& store, Replicator& replicator,
                  AntiEntropy& anti_entropy, ValueAccess& values, ValueAccess::Store value_store,
                  base::Clock& clock = base::SystemClock(), rpc::StreamGuardOptions fetches = {},
                  bool read_only = false, std::size_t watches = kWatchPlaces);
  /// Sets the function that adds to GetDatabase's answer. Call it before the first call arrives.
  void OnDescribe(std::function<void(v1::Database&)> describe) { describe_ = std::move(describe); }
  /// `door` says who calls, and outlives the last call. Nodes then speak for themselves alone.
  /// Null, and at first: the database is insecure. Call it before the first call arrives.
  void SetDoor(const rpc::Door* door) { door_ = door; }
  /// Borrowed. Null, and at first: no tenant has a quota. Call it before the first call arrives.
  void SetQuotas(const StorageQuotas* quotas) { quotas_ = quotas; }
  /// Begins to answer. The store must hold what earlier runs left on disk.
  void Open() { open_ = true; }
  /// Ends the streams. Idempotent.
  void Stop() { stopping_.request_stop(); }
  [[nodiscard]] std::size_t fetches() const { return fetches_.streams(); }
  [[nodiscard]] std::size_t watches() const { return watches_.taken(); }

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override;
  grpc::Status UpdateJob(grpc::ServerContext* context, const v1::UpdateJobRequest* request,
                         v1::JobRecord* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRecordRequest* request,
                      v1::JobRecord* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext* context,
                                              const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchResult(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* bytes) override;
  grpc::Status AcknowledgeResult(grpc::ServerContext* context,
                                 const v1::AcknowledgeResultRequest* request,
                                 v1::Job* response) override;
  grpc::Status DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty* response) override;
  grpc::Status PurgeResults(grpc::ServerContext* context, const v1::PurgeResultsRequest* request,
                            v1::PurgeResultsResponse* response) override;
  grpc::Status ClaimStart(grpc::ServerContext* context, const v1::ClaimStartRequest* request,
                          v1::ClaimStartResponse* response) override;
  grpc::Status ReplicateJobs(grpc::ServerContext* context, const v1::ReplicateJobsRequest* request,
                             v1::ReplicateJobsResponse* response) override;
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
  /// Answers with the result of `work`, which is a T or a status.
  template <typename T, typename Work>
  grpc::Status Answer(T* response, const Work& work);
  absl::Status CheckOpen() const;
  /// CheckOpen(), and that the caller is the node that it names.
  absl::Status CheckCaller(const grpc::ServerContext& context, const std::string& node_id,
                           std::optional<identity::Role> role = {}) const;
  absl::Status CheckReservation(const grpc::ServerContext& context,
                                std::uint64_t reservation) const;

  const std::string node_id_;
  JobStore& store_;
  Replicator& replicator_;
  AntiEntropy& anti_entropy_;
  ValueAccess& values_;
  const ValueAccess::Store value_store_;
  const bool read_only_;
  absl::StatusOr<v1::CreateJobResponse> Create(const v1::JobRecord& record);

  // Constant while the service is served.
  const rpc::Door* door_ = nullptr;
  const StorageQuotas* quotas_ = nullptr;
  std::function<void(v1::Database&)> describe_ = [](v1::Database&) {};
  std::atomic<bool> open_{false};
  std::stop_source stopping_;
  rpc::StreamGuard fetches_;
  rpc::StreamShares watches_;
};

}  // namespace onepiece::database
