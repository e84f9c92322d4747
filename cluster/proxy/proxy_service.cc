#include "cluster/proxy/proxy_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "absl/cleanup/cleanup.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/proxy/submission.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/repeat.h"
#include "cluster/rpc/status.h"
#include "cluster/workflow/input_check.h"
#include "cluster/workflow/parameter_check.h"
#include "onepiece/v1/instance.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

/// Delivery into an entrance ring, and how long a record without holder may be another proxy's work
/// in progress: the second must be longer, or two proxies would start the same job.
constexpr base::Duration kDeliverTimeout = 1500ms;
constexpr base::Duration kHolderTimeout = 2s;
constexpr base::Duration kCancelTimeout = 500ms;
constexpr base::Duration kTraceTimeout = 3s;
constexpr base::Duration kFollowInterval = 500ms;
constexpr std::size_t kFollowAtOnce = 64;
/// Of refused jobs, at the databases: an overload must not become theirs.
constexpr std::ptrdiff_t kLookUpsAtOnce = 8;
constexpr base::Duration kLookUpTimeout = 300ms;
/// Of a response that carries bytes.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

using Price = admission::RequestMonitor::Price;

Price PriceOf(const v1::Job& job) {
  return job.state() == v1::Job::SUCCEEDED ? Price::kWhole : Price::kTime;
}

std::set<std::string> PassedStages(const v1::Job& job) {
  std::set<std::string> stages;
  for (const v1::StageTiming& timing : job.timings()) stages.insert(timing.stage());
  return stages;
}

absl::Status BadName() {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_NAME",
                         "a job's name is \"jobs/\" and its uid; GetJob also takes \"requests/\" "
                         "and a request id, which is a UUID",
                         {{"field", "name"}});
}

absl::StatusOr<base::Uid> UidOf(const std::string& name) {
  const auto uid = node::UidOfName(name);
  if (!uid.has_value()) return BadName();
  return *uid;
}

/// What the cluster says of a job that it does not know has one name, whoever said it.
absl::Status Unified(absl::Status status) {
  if (status.code() == absl::StatusCode::kNotFound &&
      base::GetReason(status).reason == "JOB_NOT_FOUND") {
    base::SetReason(status, {"JOB_UNKNOWN", base::GetReason(status).metadata});
  }
  return status;
}

absl::Status CheckEntrances(const node::Routing& routing, const std::string& app) {
  for (const std::string& stage : routing.GraphOf(app).Entrances()) {
    if (!routing.Instances(app, stage).empty()) continue;
    return base::MakeError(absl::StatusCode::kUnavailable, "NO_INSTANCE",
                           "no instance of stage " + stage + " is ready for " + app,
                           {{"app_id", app}, {"stage", stage}, {rpc::kRetryAfterMs, "500"}});
  }
  return absl::OkStatus();
}

bool IsPlaced(const v1::JobRecord& record, const std::string& entrance) {
  return std::ranges::any_of(record.holders(), [&](const v1::WorkHolder& holder) {
    return (holder.from().empty() && holder.stage() == entrance) || holder.from() == entrance;
  });
}

/// The entrances of the job's workflow that nobody is known to have been given.
std::vector<std::string> Unplaced(const node::Routing& routing, const v1::JobRecord& record) {
  std::vector<std::string> stages;
  if (record.deleted() || job::IsTerminal(record.job().state())) return stages;
  const auto entrances = routing.GraphOf(record.job().app_id()).Entrances();
  // With one entrance every sign of life is its own, whatever a database has forgotten.
  if (entrances.size() == 1 &&
      (record.job().state() != v1::Job::QUEUED || !record.holders().empty())) {
    return stages;
  }
  for (const std::string& stage : entrances) {
    if (!IsPlaced(record, stage)) stages.push_back(stage);
  }
  return stages;
}

/// Its proxy died, or found nobody to send it to: whether it goes on is up to who submits it again.
bool IsOrphan(const v1::JobRecord& record) {
  return !record.deleted() && record.job().state() == v1::Job::QUEUED && record.holders().empty();
}

std::int64_t InputBytes(const v1::SubmitJobRequest& request) {
  std::int64_t bytes = 0;
  for (const v1::JobInput& input : request.inputs())
    bytes += static_cast<std::int64_t>(input.data().size());
  return bytes;
}

template <typename T>
grpc::Status Answer(absl::StatusOr<T> result, T* response) {
  if (!result.ok()) return rpc::ToGrpc(Unified(result.status()));
  *response = *std::move(result);
  return grpc::Status::OK;
}

absl::Status RequestIdReused(const v1::SubmitJobRequest& request) {
  return base::MakeError(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                         "another job was submitted under this request_id",
                         {{"request_id", request.request_id()}});
}

void CountAnswer(telemetry::Metrics& metrics, const std::string& result) {
  metrics.Counter("onepiece_jobs_total", "Answers to SubmitJob", {{"result", result}}).Increment();
}

prometheus::Histogram& DecisionSeconds(telemetry::Metrics& metrics, const char* outcome) {
  // A rejection takes microseconds, an admission some round trips.
  return metrics.Histogram("onepiece_admission_seconds", "Time to admit or reject a job",
                           {1e-5, 2e-5, 3e-5, 5e-5, 7.5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4,
                            1e-3, 2e-3, 5e-3, 1e-2, 2.5e-2, 0.1,  0.25,   0.5,  1,    2.5},
                           {{"outcome", outcome}});
}

absl::Status NotRegistered() {
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_REGISTERED",
                         "this proxy has not joined its cluster yet",
                         {{rpc::kRetryAfterMs, "500"}});
}

}  // namespace

ProxyService::ProxyService(const node::ClusterView& view, ProxyOptions options,
                           node::JobRecords& records, node::Outbox& outbox,
                           telemetry::Metrics& metrics, telemetry::Spans& spans, base::Clock& clock)
    : view_(view),
      options_(std::move(options)),
      records_(records),
      outbox_(outbox),
      metrics_(metrics),
      spans_(spans),
      clock_(clock),
      monitor_({.max_jobs_in_flight = options_.max_jobs_in_flight,
                .admission_share = options_.admission_share},
               clock),
      admitted_seconds_(DecisionSeconds(metrics, "admitted")),
      rejected_seconds_(DecisionSeconds(metrics, "rejected")),
      failed_seconds_(DecisionSeconds(metrics, "failed")),
      inputs_(options_.max_input_bytes),
      fetches_({}, clock),
      look_ups_(kLookUpsAtOnce) {
  metrics_.OnScrape([this] {
    metrics_.Gauge("onepiece_jobs_in_flight", "Jobs admitted here that have not ended")
        .Set(monitor_.in_flight());
    ShowLevels();
  });
  follower_ = std::jthread([this](const std::stop_token& stop) { FollowJobs(stop); });
}

ProxyService::~ProxyService() { Stop(); }

void ProxyService::Stop() {
  stopping_.request_stop();
  if (follower_.joinable()) {
    follower_.request_stop();
    follower_.join();
  }
}

grpc::Status ProxyService::SubmitJob(grpc::ServerContext* context,
                                     const v1::SubmitJobRequest* request, v1::Job* response) {
  if (options_.read_only && !request->validate_only()) return rpc::RefuseReadOnly();
  const base::MonotonicTime start = clock_.Now();
  const bool repeated = context->client_metadata().contains(rpc::kRepeated);
  absl::StatusOr<v1::Job> job = Submit(*request, repeated);
  const absl::Status decision = job.status();
  grpc::Status answer = Answer(std::move(job), response);
  CountDecision(decision, clock_.Now() - start);
  return answer;
}

absl::StatusOr<v1::Job> ProxyService::Submit(const v1::SubmitJobRequest& request, bool repeated) {
  const base::WallTime start = clock_.WallNow();
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  const v1::Workflow* workflow = routing->FindWorkflow(request.app_id());
  if (workflow == nullptr || workflow->stages_size() == 0) {
    if (routing->epoch() == 0) return NotRegistered();  // Not one application is known yet.
    return base::MakeError(absl::StatusCode::kNotFound, "APP_UNKNOWN",
                           "no application \"" + request.app_id() + "\"",
                           {{"app_id", request.app_id()}});
  }
  ONEPIECE_RETURN_IF_ERROR(CheckEnvelope(request));
  if (request.validate_only()) return Validate(request, *workflow, start);
  const std::string secret = view_.cluster_secret();
  if (secret.empty()) return NotRegistered();
  const base::Uid uid = MakeUid(secret, request.request_id(), start);
  // The job's inputs are still untouched, its parameters unchecked.
  const absl::Status admitted = monitor_.Admit(
      AdmissionOf(request, *workflow, routing->GraphOf(workflow->app_id()), uid, start));
  if (!admitted.ok()) return repeated ? FindKnown(request, uid, admitted) : admitted;
  bool begun = false;
  absl::StatusOr<v1::Job> job = Admit(request, *workflow, uid, start, begun);
  if (begun) {
    monitor_.Keep(uid);
  } else {
    monitor_.Withdraw(uid);
  }
  if (job.ok()) return Present(*std::move(job));
  return job;
}

absl::StatusOr<v1::Job> ProxyService::Validate(const v1::SubmitJobRequest& request,
                                               const v1::Workflow& workflow, base::WallTime start) {
  ONEPIECE_RETURN_IF_ERROR(workflow::CheckInputs(workflow, request.inputs()));
  const InputBudget::Share share(inputs_, InputBytes(request));
  ONEPIECE_RETURN_IF_ERROR(share.status());
  ONEPIECE_RETURN_IF_ERROR(workflow::CheckParameters(workflow, request.parameters()).status());
  v1::Job job = MakeRecord(request, workflow, base::Uid(), start, options_.workflow_set).job();
  job.clear_uid();
  job.clear_name();
  return job;
}

/// `begun`: this call has begun it.
absl::StatusOr<v1::Job> ProxyService::Admit(const v1::SubmitJobRequest& request,
                                            const v1::Workflow& workflow, const base::Uid& uid,
                                            base::WallTime start, bool& begun) {
  telemetry::ScopedSpan span(spans_, uid, "admit");
  ONEPIECE_RETURN_IF_ERROR(workflow::CheckInputs(workflow, request.inputs()));
  const InputBudget::Share share(inputs_, InputBytes(request));
  ONEPIECE_RETURN_IF_ERROR(share.status());
  ONEPIECE_RETURN_IF_ERROR(CheckEntrances(*view_.routing(), workflow.app_id()));
  ONEPIECE_ASSIGN_OR_RETURN(message::Parameters parameters,
                            workflow::CheckParameters(workflow, request.parameters()));
  const v1::JobRecord wanted = MakeRecord(request, workflow, uid, start, options_.workflow_set);
  ONEPIECE_ASSIGN_OR_RETURN(v1::CreateJobResponse created, records_.Create(wanted));
  v1::JobRecord record = std::move(*created.mutable_record());
  if (!created.created()) {
    if (record.fingerprint() != wanted.fingerprint()) return RequestIdReused(request);
    ONEPIECE_ASSIGN_OR_RETURN(record, AwaitHolder(std::move(record)));
    if (record.deleted()) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "JOB_DELETED",
                             "the job of this request_id was deleted",
                             {{"request_id", request.request_id()}});
    }
    span.Set("known", "true");
    if (Unplaced(*view_.routing(), record).empty()) {
      // It has been paid for by the call that began it.
      CountAnswer(metrics_, "known");
      return job::PublicJob(record);
    }
  }
  absl::StatusOr<v1::JobRecord> started = Start(record, std::move(parameters), request);
  if (!started.ok()) {
    // Nothing is under way. With a request_id the client's retry finds the job and starts it, or
    // learns that it failed; but not when the message cannot be sent at all. Nobody could ask for
    // the other kind.
    const bool hopeless = absl::IsInvalidArgument(started.status());
    if (hopeless || request.request_id().empty()) (void)records_.Delete(uid);
    return started.status();
  }
  begun = true;
  CountAnswer(metrics_, "admitted");
  return job::PublicJob(*started);
}

/// A job that was refused may be one that another proxy, or an earlier life of this one, has let
/// in. Asks a database: only for calls that say that they are repeated, and few at a time. The
/// others are refused unseen; they come back.
absl::StatusOr<v1::Job> ProxyService::FindKnown(const v1::SubmitJobRequest& request,
                                                const base::Uid& uid, const absl::Status& refused) {
  if (request.request_id().empty() || !look_ups_.try_acquire()) return refused;
  const absl::Cleanup done = [this] { look_ups_.release(); };
  const absl::StatusOr<v1::JobRecord> record = records_.Get(uid, kLookUpTimeout);
  if (!record.ok() || record->deleted()) return refused;
  if (!Unplaced(*view_.routing(), *record).empty()) return refused;  // Nobody computes it yet.
  if (record->fingerprint() != Fingerprint(request, DigestInputs(request)))
    return RequestIdReused(request);
  CountAnswer(metrics_, "known");
  return Present(job::PublicJob(*record));
}

absl::StatusOr<v1::JobRecord> ProxyService::Start(const v1::JobRecord& record,
                                                  message::Parameters parameters,
                                                  const v1::SubmitJobRequest& request) {
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  message::Message message = MakeMessage(record, std::move(parameters), request, routing->epoch());
  const base::MonotonicTime deadline = clock_.Now() + base::Scaled(kDeliverTimeout);
  v1::UpdateJobRequest update;
  update.set_uid(record.job().uid());
  bool begun = !record.holders().empty();
  for (const std::string& stage : Unplaced(*routing, record)) {
    message.header.stage = stage;
    absl::StatusOr<v1::WorkHolder> holder = SendTo(*routing, message, deadline);
    if (!holder.ok()) {
      // What went out before is out whether its outcome is known or not.
      return GiveUp(record, begun, stage, holder.status());
    }
    begun = true;
    if (!holder->node_id().empty()) *update.add_placed() = *std::move(holder);
  }
  if (update.placed().empty()) return record;
  absl::StatusOr<v1::JobRecord> updated = records_.Update(update);
  if (!updated.ok()) {
    // The job runs; its instances write the record too.
    spdlog::warn("op=admit uid={} the record does not say where the job is: {}", update.uid(),
                 base::View(updated.status().message()));
    return record;
  }
  return updated;
}

/// Sends a new job's message to an entrance. The holder names no node when nobody knows who has it.
absl::StatusOr<v1::WorkHolder> ProxyService::SendTo(const node::Routing& routing,
                                                    const message::Message& message,
                                                    base::MonotonicTime deadline) {
  const message::Header& header = message.header;
  const absl::StatusOr<node::Delivered> sent =
      outbox_.Deliver(message, node::Target::Stage(header.app, header.stage, header.uid), deadline);
  v1::WorkHolder holder;
  holder.set_stage(header.stage);
  holder.set_stage_index(routing.StageIndex(header.app, header.stage).value_or(0));
  const auto next = routing.GraphOf(header.app).Successors(header.stage).size();
  holder.set_successors(std::max(1, static_cast<int>(next)));
  if (sent.ok()) {
    holder.set_node_id(sent->endpoint.node_id());
    holder.set_incarnation(sent->endpoint.incarnation());
    holder.set_attempt(sent->attempt);
    return holder;
  }
  const base::ErrorReason reason = base::GetReason(sent.status());
  if (reason.reason != "OUTCOME_UNKNOWN") return sent.status();
  // It may have arrived: then that instance says so, and else its death or the deadline ends the
  // job.
  const auto named = reason.metadata.find("node_id");
  for (const v1::Endpoint& endpoint : routing.Instances(header.app, header.stage)) {
    if (named == reason.metadata.end() || endpoint.node_id() != named->second) continue;
    holder.set_node_id(endpoint.node_id());
    holder.set_incarnation(endpoint.incarnation());
  }
  spdlog::warn("op=admit uid={} {}", header.uid.ToString(), base::View(sent.status().message()));
  return holder;
}

/// No instance of entrance `stage` took a new job. When another entrance has it already, the job
/// fails and that work is called back: it would be computed for nothing. Whatever `status` says,
/// the job has a record here: the answer must not send its client to another set (RING_FULL would),
/// nor be one that is also given before there is a record (as NO_INSTANCE is).
absl::Status ProxyService::GiveUp(const v1::JobRecord& record, bool begun, const std::string& stage,
                                  const absl::Status& status) {
  if (begun) {
    v1::UpdateJobRequest update;
    update.set_uid(record.job().uid());
    update.mutable_failed()->set_reason("NOT_STARTED");
    update.mutable_failed()->set_message("stage " + stage +
                                         " did not take the job: " + base::Message(status));
    if (const auto failed = records_.Update(update); !failed.ok()) {
      spdlog::warn("op=admit uid={} the record does not say that the job failed: {}", update.uid(),
                   base::View(failed.status().message()));
    }
    CancelWork(record.job());
  }
  if (absl::IsInvalidArgument(status)) return status;  // Nor will anybody; Admit() deletes it.
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_STARTED",
                         "stage " + stage + " does not take the job now: " + base::Message(status),
                         {{"stage", stage}, {rpc::kRetryAfterMs, "500"}});
}

absl::StatusOr<v1::JobRecord> ProxyService::AwaitHolder(v1::JobRecord record) {
  const base::WallTime until =
      job::FromTimestamp(record.job().create_time()) + base::Scaled(kHolderTimeout);
  const auto uid = base::Uid::Parse(record.job().uid());
  while (!Unplaced(*view_.routing(), record).empty() && uid.has_value() &&
         clock_.WallNow() < until && !stopping_.stop_requested()) {
    std::this_thread::sleep_for(20ms);
    ONEPIECE_ASSIGN_OR_RETURN(record, records_.Get(*uid));
  }
  return record;
}

absl::StatusOr<v1::Job> ProxyService::LookUp(const std::string& request_id) {
  if (!base::Uid::Parse(request_id).has_value()) return BadName();
  const std::string secret = view_.cluster_secret();
  if (secret.empty()) return NotRegistered();
  absl::StatusOr<v1::JobRecord> record =
      records_.Get(MakeUid(secret, request_id, clock_.WallNow()));
  if (record.ok()) record = AwaitHolder(*std::move(record));
  // A deleted job is known: elsewhere it would be made again.
  if (!record.ok() && !base::GetReason(record.status()).metadata.contains("deleted"))
    return record.status();
  // One that nobody has may be made anywhere, and be with another set already.
  if (record.ok() && IsOrphan(*record)) {
    return base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN",
                           "the job of this request_id has begun nowhere here",
                           {{"request_id", request_id}});
  }
  v1::Job job;
  job.set_request_id(request_id);
  job.set_workflow_set(options_.workflow_set);
  return job;
}

grpc::Status ProxyService::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                  v1::Job* response) {
  if (request->name().starts_with(rpc::kRequestName))
    return Answer(LookUp(request->name().substr(rpc::kRequestName.size())), response);
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  const absl::StatusOr<v1::JobRecord> record = records_.Get(*uid);
  if (!record.ok()) return rpc::ToGrpc(Unified(record.status()));
  *response = Present(job::PublicJob(*record));
  return grpc::Status::OK;
}

grpc::Status ProxyService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                    v1::ListJobsResponse* response) {
  absl::StatusOr<v1::ListJobsResponse> page = records_.List(*request);
  if (page.ok()) {
    for (v1::Job& job : *page->mutable_jobs()) job = Present(std::move(job));
  }
  return Answer(std::move(page), response);
}

absl::StatusOr<v1::Job> ProxyService::Cancel(const base::Uid& uid) {
  v1::UpdateJobRequest update;
  update.set_uid(uid.ToString());
  update.set_cancelled(true);
  // The record first: whoever looks afterwards sees that there is nothing left to do.
  ONEPIECE_ASSIGN_OR_RETURN(const v1::JobRecord record, records_.Update(update));
  if (record.job().state() == v1::Job::CANCELLED) CancelWork(record.job());
  return Present(job::PublicJob(record));
}

void ProxyService::CancelWork(const v1::Job& job) {
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  std::map<std::string, v1::Endpoint> instances;
  if (const v1::Workflow* workflow = routing->FindWorkflow(job.app_id())) {
    for (const v1::StageSpec& stage : workflow->stages()) {
      for (const v1::Endpoint& endpoint : routing->Instances(workflow->app_id(), stage.stage())) {
        instances.emplace(endpoint.address(), endpoint);
      }
    }
  }
  std::vector<v1::Endpoint> endpoints;
  for (auto& [address, endpoint] : instances) endpoints.push_back(std::move(endpoint));
  ForEachEndpoint(endpoints, [&](const v1::Endpoint& endpoint) {
    v1::InstanceService::Stub stub(channels_.Get(endpoint.address()));
    v1::CancelWorkRequest request;
    request.set_uid(job.uid());
    // Missing one costs computing time only: what it delivers comes too late.
    (void)rpc::Call(stub, &v1::InstanceService::Stub::CancelWork, request, kCancelTimeout);
  });
}

grpc::Status ProxyService::CancelJob(grpc::ServerContext*, const v1::CancelJobRequest* request,
                                     v1::Job* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  return Answer(Cancel(*uid), response);
}

grpc::Status ProxyService::WatchJob(grpc::ServerContext* context,
                                    const v1::WatchJobRequest* request,
                                    grpc::ServerWriter<v1::Job>* writer) {
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  return rpc::ToGrpc(Unified(records_.Watch(
      *uid, [&](const v1::Job& job) { return writer->Write(Present(job)); },
      WhileWanted(context))));
}

grpc::Status ProxyService::FetchResult(grpc::ServerContext* context,
                                       const v1::FetchResultRequest* request,
                                       grpc::ServerWriter<v1::FetchResultResponse>* writer) {
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  rpc::StreamGuard::Stream stream(fetches_, *context);
  if (!stream.admitted()) return rpc::TooManyStreams();
  telemetry::ScopedSpan span(spans_, *uid, "fetch");
  const FetchSink send = [&](const v1::FetchResultResponse& part) {
    const bool written = writer->Write(part);
    stream.Moved();
    return written;
  };
  const bool whole = request->offset_bytes() == 0 && request->limit_bytes() == 0;
  if (whole && options_.direct_fetch != nullptr) {
    const auto value = options_.direct_fetch->Get(*uid, request->artifact());
    span.Set("direct", value.has_value() ? "true" : "false");
    if (value.has_value()) return rpc::ToGrpc(SendDirect(*uid, *value, send, WhileWanted(context)));
  }
  return rpc::ToGrpc(Unified(records_.Fetch(*uid, request->artifact(), request->offset_bytes(),
                                            request->limit_bytes(), send, WhileWanted(context))));
}

absl::Status ProxyService::SendDirect(const base::Uid& uid, const DirectFetch::Value& value,
                                      const FetchSink& send, const std::function<bool()>& wanted) {
  v1::FetchResultResponse part;
  *part.mutable_artifact() = value.info;
  const std::string_view bytes = value.bytes.text();
  for (std::size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const std::string_view chunk = bytes.substr(at, kChunkBytes);
    part.set_chunk(chunk.data(), chunk.size());
    if (!wanted() || !send(part)) {
      return base::MakeError(absl::StatusCode::kCancelled, "STREAM_BROKEN",
                             "the stream ended before the artifact did");
    }
    part.clear_artifact();
  }
  // The database does not see the reads; the empty rest tells it that the client has the artifact.
  bool changed = false;
  (void)records_.Fetch(
      uid, value.info.artifact(), value.info.size_bytes(), 0,
      [&](const v1::FetchResultResponse& rest) {
        changed = changed || rest.artifact().sha256() != value.info.sha256();
        return true;
      },
      wanted);
  if (!changed) return absl::OkStatus();
  options_.direct_fetch->Forget(uid);
  return base::MakeError(absl::StatusCode::kAborted, "RESULT_CHANGED",
                         "the result changed during the fetch");
}

grpc::Status ProxyService::AcknowledgeResult(grpc::ServerContext*,
                                             const v1::AcknowledgeResultRequest* request,
                                             v1::Job* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  absl::StatusOr<v1::Job> job = records_.Acknowledge(*uid);
  if (job.ok()) *job = Present(*std::move(job));
  return Answer(std::move(job), response);
}

grpc::Status ProxyService::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                     google::protobuf::Empty*) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  const absl::StatusOr<v1::JobRecord> record = records_.Get(*uid);
  if (record.ok() && !job::IsTerminal(record->job().state())) {
    if (const auto cancelled = Cancel(*uid); !cancelled.ok())
      return rpc::ToGrpc(Unified(cancelled.status()));
  }
  monitor_.End(*uid, Price::kTime);
  if (options_.direct_fetch != nullptr) options_.direct_fetch->Forget(*uid);
  return rpc::ToGrpc(Unified(records_.Delete(*uid)));
}

grpc::Status ProxyService::GetJobTrace(grpc::ServerContext*, const v1::GetJobTraceRequest* request,
                                       v1::GetJobTraceResponse* response) {
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  const std::shared_ptr<const node::Routing> routing = view_.routing();
  const auto& alive = routing->table().alive();
  const std::vector<v1::Endpoint> endpoints(alive.begin(), alive.end());
  base::Mutex mutex;
  ForEachEndpoint(endpoints, [&](const v1::Endpoint& endpoint) {
    v1::TelemetryService::Stub stub(channels_.Get(endpoint.address()));
    v1::ListSpansRequest ask;
    ask.set_uid(uid->ToString());
    const auto spans = rpc::Call(stub, &v1::TelemetryService::Stub::ListSpans, ask, kTraceTimeout);
    const base::MutexLock lock(mutex);
    if (spans.ok()) {
      response->mutable_spans()->MergeFrom(spans->spans());
    } else {
      response->add_unreachable_nodes(endpoint.node_id());
    }
  });
  std::sort(
      response->mutable_spans()->begin(), response->mutable_spans()->end(),
      [](const v1::Span& a, const v1::Span& b) { return a.start_unix_ns() < b.start_unix_ns(); });
  std::sort(response->mutable_unreachable_nodes()->begin(),
            response->mutable_unreachable_nodes()->end());
  return grpc::Status::OK;
}

v1::Job ProxyService::Present(v1::Job job) {
  SortTimings(view_.routing()->FindWorkflow(job.app_id()), job);
  const auto uid = base::Uid::Parse(job.uid());
  if (!uid.has_value() || !job::IsTerminal(job.state())) return job;
  monitor_.End(*uid, PriceOf(job));
  if (options_.direct_fetch != nullptr) options_.direct_fetch->Note(*uid, job);
  return job;
}

void ProxyService::CountDecision(const absl::Status& status, base::Duration taken) {
  const bool rejected = absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status);
  if (!status.ok()) {
    const std::string reason = base::GetReason(status).reason;
    CountAnswer(metrics_, reason.empty() ? absl::StatusCodeToString(status.code()) : reason);
  }
  (status.ok() ? admitted_seconds_
   : rejected  ? rejected_seconds_
               : failed_seconds_)
      .Observe(base::ToSeconds(taken));
}

void ProxyService::ShowLevels() {
  const auto show = [this](const std::string& pool, double seconds) {
    metrics_
        .Gauge("onepiece_admission_bucket_seconds",
               "Worker seconds that jobs may take at once; below 0 is debt", {{"pool", pool}})
        .Set(seconds);
  };
  std::set<std::string> gone = std::move(shown_pools_);
  shown_pools_.clear();
  for (const admission::PoolLevel& level : monitor_.levels()) {
    show(level.pool, level.seconds);
    gone.erase(level.pool);
    shown_pools_.insert(level.pool);
  }
  for (const std::string& pool : gone) show(pool, std::numeric_limits<double>::quiet_NaN());
}

void ProxyService::FollowJobs(const std::stop_token& stop) {
  base::Mutex mutex;
  base::CondVar never;
  base::MutexLock lock(mutex);
  while (!stop.stop_requested()) {
    // Only `stop` ends this wait early.
    (void)never.WaitFor(lock, stop, base::Scaled(kFollowInterval), [] { return false; });
    for (const base::Uid& uid : monitor_.NextToCheck(kFollowAtOnce)) {
      if (stop.stop_requested()) return;
      const absl::StatusOr<v1::JobRecord> record = records_.Get(uid);
      const bool gone = record.status().code() == absl::StatusCode::kNotFound;
      if (gone) {
        monitor_.End(uid, Price::kTime);
      } else if (record.ok() && job::IsTerminal(record->job().state())) {
        monitor_.End(uid, PriceOf(record->job()));
      } else if (record.ok()) {
        monitor_.Passed(uid, PassedStages(record->job()));
      }
      if (!record.ok() && !gone) break;  // No database answers now: the next round asks again.
    }
  }
}

std::function<bool()> ProxyService::WhileWanted(grpc::ServerContext* context) const {
  return [this, context] { return !context->IsCancelled() && !stopping_.stop_requested(); };
}

}  // namespace onepiece::proxy
