#include "cluster/database/database_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "cluster/base/status.h"
#include "cluster/database/purge.h"
#include "cluster/database/storage_quotas.h"
#include "cluster/job/job_record.h"
#include "cluster/node/job_records.h"
#include "cluster/rpc/part_stream.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/result_part.h"
#include "cluster/rpc/state_stream.h"
#include "cluster/rpc/status.h"

namespace onepiece::database {
namespace {

using WatchStream = rpc::StateStream<v1::Job>;

/// Passes a state on, and ends the stream with the job.
void Show(const absl::StatusOr<JobRevision>& now, bool repeat, WatchStream& stream) {
  if (!now.ok()) return stream.End(now.status());
  stream.Offer(now->job, now->revision, repeat);
  if (job::IsTerminal(now->job->state())) stream.End(absl::OkStatus());
}

absl::StatusOr<std::string> UidOfResult(const std::string& name) {
  const auto uid = node::UidOfName(name);
  if (!uid.has_value()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_NAME",
                           "a job's name is \"jobs/\" and its uid", {{"field", "name"}});
  }
  return uid->ToString();
}

absl::StatusOr<std::span<const std::byte>> RangeOf(std::span<const std::byte> bytes,
                                                   const v1::FetchResultRequest& request) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (request.offset_bytes() < 0 || request.offset_bytes() > size) {
    return base::MakeError(absl::StatusCode::kOutOfRange, "BAD_OFFSET",
                           "offset_bytes must be 0 to the artifact's size, " + std::to_string(size),
                           {{"field", "offset_bytes"}});
  }
  if (request.limit_bytes() < 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_LIMIT",
                           "limit_bytes must not be negative", {{"field", "limit_bytes"}});
  }
  const auto rest = bytes.subspan(static_cast<std::size_t>(request.offset_bytes()));
  const auto limit = static_cast<std::size_t>(request.limit_bytes());
  return limit == 0 ? rest : rest.first(std::min(limit, rest.size()));
}

/// Sends a range of an artifact. The bytes are sent without a copy: the transport shares the
/// artifact until it has sent them.
///
/// Threading: as PartFeeder.
class ArtifactFeeder final : public rpc::PartFeeder {
 public:
  ArtifactFeeder(JobStore& store, std::string uid, StoredArtifact artifact,
                 std::span<const std::byte> range, std::stop_token stopping)
      : store_(store),
        uid_(std::move(uid)),
        info_(std::move(artifact.info)),
        owner_(std::make_shared<const message::Buffer>(std::move(artifact.data))),
        rest_(range),
        stopping_(std::move(stopping)) {}

  /// The stream is borrowed, because it keeps this feeder.
  void Start(rpc::PartStream& stream) {
    stream_ = &stream;
    // The first part is sent even for an artifact of no bytes, because it describes the artifact.
    SendNext(info_);
  }
  void OnTaken() override { SendNext(std::nullopt); }
  // Not before: a result that nobody has received must not give way to others as one that was sent.
  void OnComplete() override {
    // After a partial fetch the client may want the rest, so only a fetch to the end counts.
    const std::span<const std::byte> whole = owner_->bytes();
    if (rest_.data() == whole.data() + whole.size()) store_.MarkStreamed(uid_, info_.artifact());
  }

 private:
  void SendNext(std::optional<v1::ResultArtifact> artifact) {
    if (stopping_.stop_requested()) {
      return stream_->End(base::MakeError(absl::StatusCode::kUnavailable, "STOPPING",
                                          "this database is stopping: ask another one"));
    }
    const auto chunk = rest_.first(std::min(DatabaseService::kChunkBytes, rest_.size()));
    rest_ = rest_.subspan(chunk.size());
    const rpc::ResultPart part{.artifact = std::move(artifact),
                               .chunk = {rpc::BorrowedSlice(owner_, chunk)}};
    rest_.empty() ? stream_->SendLast(part) : stream_->Send(part);
  }

  JobStore& store_;
  const std::string uid_;
  const v1::ResultArtifact info_;
  const std::shared_ptr<const message::Buffer> owner_;
  std::span<const std::byte> rest_;
  const std::stop_token stopping_;
  rpc::PartStream* stream_ = nullptr;
};

}  // namespace

DatabaseService::DatabaseService(std::string node_id, JobStore& store, Replicator& replicator,
                                 AntiEntropy& anti_entropy, ValueAccess& values,
                                 ValueAccess::Store value_store, base::Clock& clock,
                                 rpc::StreamGuardOptions fetches, bool read_only,
                                 std::size_t watches)
    : node_id_(std::move(node_id)),
      store_(store),
      replicator_(replicator),
      anti_entropy_(anti_entropy),
      values_(values),
      value_store_(std::move(value_store)),
      read_only_(read_only),
      fetches_(fetches, clock),
      watches_({.places = watches,
                .reason = "TOO_MANY_WATCHERS",
                .what = "watches of jobs",
                .advice = "end some watches, ask again later, or ask for the job with GetJob"}) {}

absl::Status DatabaseService::CheckOpen() const {
  if (open_) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kUnavailable, "RECOVERING",
                         node_id_ +
                             " is taking in what it kept on disk: ask another database, or "
                             "ask again",
                         {{rpc::kRetryAfterMs, "500"}});
}

absl::Status DatabaseService::CheckCaller(const grpc::ServerContext& context,
                                          const std::string& node_id,
                                          std::optional<identity::Role> role) const {
  ONEPIECE_RETURN_IF_ERROR(CheckOpen());
  return rpc::CallerOf(door_, context).CheckNode(node_id, role);
}

absl::Status DatabaseService::CheckReservation(const grpc::ServerContext& context,
                                               std::uint64_t reservation) const {
  ONEPIECE_RETURN_IF_ERROR(CheckOpen());
  const rpc::Caller caller = rpc::CallerOf(door_, context);
  if (caller.insecure()) return absl::OkStatus();
  const std::optional<std::string> owner = values_.SenderOf(reservation);
  if (!owner || caller.CheckNode(*owner).ok()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kPermissionDenied, "FOREIGN_RESERVATION",
                         caller.name() + " may not use the reservation of another node");
}

template <typename T, typename Work>
grpc::Status DatabaseService::Answer(T* response, const Work& work) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return rpc::ToGrpc(open);
  absl::StatusOr<T> result = work();
  if (!result.ok()) return rpc::ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

grpc::Status DatabaseService::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                        v1::CreateJobResponse* response) {
  return Answer(response, [&] { return Create(request->record()); });
}

absl::StatusOr<v1::CreateJobResponse> DatabaseService::Create(const v1::JobRecord& record) {
  if (quotas_ != nullptr) {
    const std::string& tenant = record.job().tenant();
    const absl::Status room = quotas_->Check(tenant, store_.BytesOf(tenant));
    // Whoever repeats a call is told of the job that it has, whatever is stored since.
    if (!room.ok() && !store_.Get(record.job().uid()).ok()) return room;
  }
  return store_.Create(record);
}

grpc::Status DatabaseService::UpdateJob(grpc::ServerContext* context,
                                        const v1::UpdateJobRequest* request,
                                        v1::JobRecord* response) {
  // Other fields name those to whom the sender gave work, or of whose death it tells.
  if (request->has_progress()) {
    const absl::Status own = CheckCaller(*context, request->progress().holder().node_id());
    if (!own.ok()) return rpc::ToGrpc(own);
  }
  return Answer(response, [&] { return store_.Update(*request); });
}

grpc::Status DatabaseService::ClaimStart(grpc::ServerContext* context,
                                         const v1::ClaimStartRequest* request,
                                         v1::ClaimStartResponse* response) {
  const absl::Status own = CheckCaller(*context, request->claimant());
  if (!own.ok()) return rpc::ToGrpc(own);
  return Answer(response, [&] { return store_.Claim(*request); });
}

grpc::Status DatabaseService::GetJob(grpc::ServerContext*, const v1::GetJobRecordRequest* request,
                                     v1::JobRecord* response) {
  return Answer(response, [&] { return store_.Get(request->uid()); });
}

grpc::Status DatabaseService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                       v1::ListJobsResponse* response) {
  return Answer(response, [&] { return store_.List(*request); });
}

grpc::ServerWriteReactor<v1::Job>* DatabaseService::WatchJob(grpc::CallbackServerContext* context,
                                                             const v1::WatchJobRequest* request) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return rpc::RefuseStream<v1::Job>(open);
  const absl::StatusOr<std::string> uid = UidOfResult(request->name());
  if (!uid.ok()) return rpc::RefuseStream<v1::Job>(uid.status());
  auto place = watches_.Take(rpc::ShareHolder::Of(*context));
  if (!place.ok()) return rpc::RefuseStream<v1::Job>(place.status());
  const auto stream = WatchStream::Begin(stopping_.get_token());
  auto subscribed = store_.Subscribe(
      *uid, [watch = std::weak_ptr(stream)](const absl::StatusOr<JobRevision>& now, bool repeat) {
        if (const auto alive = watch.lock(); alive != nullptr) Show(now, repeat, *alive);
      });
  if (!subscribed.ok()) {
    stream->End(subscribed.status());
    return stream.get();
  }
  struct Held {
    rpc::StreamShares::Place place;
    std::unique_ptr<Watches::Subscription> subscription;
  };
  stream->Keep(
      std::make_shared<Held>(Held{*std::move(place), std::move(subscribed->subscription)}));
  Show(subscribed->now, /*repeat=*/false, *stream);
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DatabaseService::FetchResult(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  const auto refuse = [](const absl::Status& why) {
    return rpc::RefuseStream<grpc::ByteBuffer>(why);
  };
  if (const absl::Status open = CheckOpen(); !open.ok()) return refuse(open);
  const absl::StatusOr<v1::FetchResultRequest> request = rpc::DecodeFetch(*bytes);
  if (!request.ok()) return refuse(request.status());
  const absl::StatusOr<std::string> uid = UidOfResult(request->name());
  if (!uid.ok()) return refuse(uid.status());
  absl::StatusOr<StoredArtifact> artifact = store_.FindArtifact(*uid, request->artifact());
  if (!artifact.ok()) return refuse(artifact.status());
  const auto range = RangeOf(artifact->data.bytes(), *request);
  if (!range.ok()) return refuse(range.status());
  auto place = std::make_unique<rpc::StreamGuard::Stream>(fetches_, *context);
  if (!place->admitted().ok()) return refuse(place->admitted());
  const auto sending = std::make_shared<ArtifactFeeder>(store_, *uid, *std::move(artifact), *range,
                                                        stopping_.get_token());
  const auto stream = rpc::PartStream::Begin(std::move(place), sending);
  sending->Start(*stream);
  return stream->reactor();
}

grpc::Status DatabaseService::AcknowledgeResult(grpc::ServerContext*,
                                                const v1::AcknowledgeResultRequest* request,
                                                v1::Job* response) {
  const absl::StatusOr<std::string> uid = UidOfResult(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  return Answer(response, [&] { return store_.Acknowledge(*uid); });
}

grpc::Status DatabaseService::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                        google::protobuf::Empty*) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return rpc::ToGrpc(open);
  const absl::StatusOr<std::string> uid = UidOfResult(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  return rpc::ToGrpc(store_.Delete(*uid));
}

grpc::Status DatabaseService::PurgeResults(grpc::ServerContext*,
                                           const v1::PurgeResultsRequest* request,
                                           v1::PurgeResultsResponse* response) {
  if (read_only_ && !request->dry_run()) return rpc::RefuseReadOnly();
  return Answer(response, [&] { return database::PurgeResults(store_, *request); });
}

grpc::Status DatabaseService::ReplicateJobs(grpc::ServerContext* context,
                                            const v1::ReplicateJobsRequest* request,
                                            v1::ReplicateJobsResponse* response) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return rpc::ToGrpc(open);
  absl::Status ours = anti_entropy_.CheckCluster(request->cluster_id());
  // A peer's records settle ends with it, so nobody else may send them in its name.
  if (ours.ok() && !request->node_id().empty())
    ours = CheckCaller(*context, request->node_id(), identity::Role::kDatabase);
  if (!ours.ok()) return rpc::ToGrpc(ours);
  const std::vector<v1::JobRecord> records(request->records().begin(), request->records().end());
  for (v1::JobRecord& answer : replicator_.Receive(request->node_id(), records))
    *response->add_records() = std::move(answer);
  return grpc::Status::OK;
}

grpc::Status DatabaseService::CompareJobs(grpc::ServerContext* context,
                                          const v1::CompareJobsRequest* request,
                                          v1::CompareJobsResponse* response) {
  const absl::Status own = CheckCaller(*context, request->node_id());
  if (!own.ok()) return rpc::ToGrpc(own);
  return Answer(response, [&] { return anti_entropy_.Compare(*request); });
}

grpc::Status DatabaseService::SendJobs(grpc::ServerContext* context,
                                       const v1::SendJobsRequest* request,
                                       google::protobuf::Empty*) {
  const absl::Status own = CheckCaller(*context, request->node_id());
  if (!own.ok()) return rpc::ToGrpc(own);
  return rpc::ToGrpc(anti_entropy_.Send(*request));
}

grpc::Status DatabaseService::OpenSegment(grpc::ServerContext* context,
                                          const v1::OpenSegmentRequest* request,
                                          v1::OpenSegmentResponse* response) {
  const absl::Status own = CheckCaller(*context, request->node_id());
  if (!own.ok()) return rpc::ToGrpc(own);
  return Answer(response, [&] { return values_.OpenSegment(*request); });
}

grpc::Status DatabaseService::ReserveResult(grpc::ServerContext* context,
                                            const v1::ReserveResultRequest* request,
                                            v1::ReserveResultResponse* response) {
  const absl::Status own = CheckCaller(*context, request->sender());
  if (!own.ok()) return rpc::ToGrpc(own);
  return Answer(response, [&] { return values_.Reserve(*request, value_store_); });
}

grpc::Status DatabaseService::CommitResult(grpc::ServerContext* context,
                                           const v1::CommitResultRequest* request,
                                           v1::CommitResultResponse* response) {
  const absl::Status own = CheckReservation(*context, request->reservation());
  if (!own.ok()) return rpc::ToGrpc(own);
  return Answer(response, [&] { return values_.Commit(*request, value_store_); });
}

grpc::Status DatabaseService::GetDatabase(grpc::ServerContext*, const v1::GetDatabaseRequest*,
                                          v1::Database* response) {
  if (const absl::Status open = CheckOpen(); !open.ok()) return rpc::ToGrpc(open);
  const JobStoreStats stats = store_.stats();
  response->set_node_id(node_id_);
  response->set_records(stats.records);
  response->set_results(stats.results);
  response->set_result_bytes(stats.result_bytes);
  response->set_budget_bytes(stats.budget_bytes);
  response->set_spilled_results(stats.spilled_results);
  response->set_spilled_bytes(stats.spilled_bytes);
  response->set_fetched(stats.fetched_tombstones);
  response->set_expired(stats.expired_tombstones);
  response->set_deleted(stats.deleted_tombstones);
  response->set_evicted(static_cast<std::int64_t>(stats.evicted_results));
  response->set_refused(static_cast<std::int64_t>(stats.refused_results));
  response->set_lost_on_restart(static_cast<std::int64_t>(stats.lost_on_restart));
  describe_(*response);
  for (v1::DatabasePeer& peer : replicator_.peers()) {
    const auto compared = anti_entropy_.ComparedTime(peer.node_id());
    if (compared.has_value()) *peer.mutable_compared_time() = job::ToTimestamp(*compared);
    *response->add_peers() = std::move(peer);
  }
  return grpc::Status::OK;
}

}  // namespace onepiece::database
