#include "cluster/proxy/proxy_service.h"

#include <algorithm>
#include <limits>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/proxy/cancel_work.h"
#include "cluster/proxy/result_relay.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/repeat.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/telemetry.grpc.pb.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

constexpr base::Duration kTraceTimeout = 3s;
// How long an answer waits until the databases agree on the end of a job. It looks soon, and then
// less and less often.
constexpr base::Duration kAgreeLimit = 4s;
constexpr base::Duration kFirstAgreePause = 2ms;
constexpr base::Duration kLongestAgreePause = 50ms;
constexpr base::Duration kFollowInterval = 500ms;
constexpr std::size_t kFollowAtOnce = 64;
/// A fetch holds up to two parts of a result.
constexpr std::size_t kFetchPlaces = 128;
/// Threads that read results out of the databases' memory. While all of them do, further results
/// come by message.
constexpr std::size_t kReadThreads = 8;

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

absl::Status ForeignApp(const std::string& app_id) {
  return base::MakeError(absl::StatusCode::kPermissionDenied, "FOREIGN_APP",
                         "this token is for jobs of application \"" + app_id + "\" only",
                         {{"app_id", app_id}});
}

/// Gives "no such job" one reason, whichever database said it.
absl::Status Unified(absl::Status status) {
  if (status.code() == absl::StatusCode::kNotFound &&
      base::GetReason(status).reason == "JOB_NOT_FOUND") {
    base::SetReason(status, {"JOB_UNKNOWN", base::GetReason(status).metadata});
  }
  return status;
}

template <typename T>
grpc::Status Answer(absl::StatusOr<T> result, T* response) {
  if (!result.ok()) return rpc::ToGrpc(Unified(result.status()));
  *response = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace

ProxyService::ProxyService(const node::ClusterView& view, ProxyOptions options,
                           node::JobRecords& records, node::Outbox& outbox,
                           telemetry::Metrics& metrics, telemetry::Spans& spans, base::Clock& clock)
    : view_(view),
      options_(std::move(options)),
      records_(records),
      metrics_(metrics),
      spans_(spans),
      clock_(clock),
      monitor_({.max_jobs_in_flight = options_.max_jobs_in_flight,
                .admission_share = options_.admission_share},
               clock),
      accounts_(clock),
      submission_(view,
                  {.workflow_set = options_.workflow_set,
                   .max_input_bytes = options_.max_input_bytes,
                   .kept = options_.kept},
                  records, outbox, monitor_, accounts_, channels_, metrics, spans, clock),
      fetches_({.max_streams = kFetchPlaces}, clock),
      results_(records),
      owners_(records),
      read_threads_(kReadThreads),
      watch_places_({.places = options_.watches,
                     .reason = "TOO_MANY_WATCHERS",
                     .what = "watches of jobs",
                     .advice = "end some watches, ask another proxy, or ask with GetJob"}),
      watches_(
          records, [this](v1::Job job) { return Present(std::move(job)); }, Unified) {
  metrics_.OnScrape([this] {
    metrics_.Gauge("onepiece_jobs_in_flight", "Jobs admitted here that have not ended")
        .Set(monitor_.in_flight());
    ShowLevels();
  });
  follower_ = std::jthread([this](const std::stop_token& stop) { FollowJobs(stop); });
}

ProxyService::~ProxyService() { Stop(); }

void ProxyService::Follow(const v1::ProxyLimits& limits) {
  monitor_.SetLimits(
      limits.max_jobs_in_flight() > 0 ? limits.max_jobs_in_flight() : options_.max_jobs_in_flight,
      limits.admission_share() > 0 ? limits.admission_share() : options_.admission_share);
  if (options_.kept != nullptr) options_.kept->SetMaxBytes(limits.kept_bytes());
}

void ProxyService::Stop() {
  stopping_.request_stop();
  owners_.Stop();
  watches_.Stop();
  submission_.Stop();
  if (follower_.joinable()) {
    follower_.request_stop();
    follower_.join();
  }
}

grpc::Status ProxyService::SubmitJob(grpc::ServerContext* context,
                                     const v1::SubmitJobRequest* request, v1::Job* response) {
  if (options_.read_only && !request->validate_only()) return rpc::RefuseReadOnly();
  const bool repeated = context->client_metadata().contains(rpc::kRepeated);
  const rpc::Caller caller = rpc::CallerOf(options_.door, *context);
  if (!caller.app_id().empty() && caller.app_id() != request->app_id())
    return rpc::ToGrpc(ForeignApp(caller.app_id()));
  FollowQuotas();
  absl::StatusOr<v1::Job> job =
      submission_.StartJob(*request, SubmitterOf(caller, *request), repeated);
  if (job.ok()) job = Present(*std::move(job));
  return Answer(std::move(job), response);
}

grpc::Status ProxyService::GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                                  v1::Job* response) {
  const rpc::Caller caller = rpc::CallerOf(options_.door, *context);
  if (request->name().starts_with(rpc::kRequestNamePrefix)) {
    const std::string request_id = request->name().substr(rpc::kRequestNamePrefix.size());
    if (!base::Uid::Parse(request_id).has_value()) return rpc::ToGrpc(BadName());
    return Answer(submission_.LookUp(caller.tenant(), request_id), response);
  }
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  // A program that may only submit learns of a request id whether it is taken, and nothing else.
  if (!caller.Has(identity::Scope::kReadOwn)) {
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kPermissionDenied, "MISSING_SCOPE",
                                       caller.name() + " lacks scope read-own",
                                       {{"scope", "read-own"}}));
  }
  const absl::StatusOr<v1::JobRecord> record = records_.Get(*uid);
  if (!record.ok()) return rpc::ToGrpc(Unified(record.status()));
  owners_.Note(*uid, record->job());
  if (!MayKnow(caller, record->job(), Intent::kSee)) return rpc::ToGrpc(JobUnknown(*uid));
  *response = Present(job::PublicJob(*record));
  return grpc::Status::OK;
}

grpc::Status ProxyService::ListJobs(grpc::ServerContext* context,
                                    const v1::ListJobsRequest* request,
                                    v1::ListJobsResponse* response) {
  const rpc::Caller caller = rpc::CallerOf(options_.door, *context);
  v1::ListJobsRequest asked = *request;
  if (!caller.Has(identity::Scope::kRead)) asked.set_tenant(caller.tenant());
  if (!caller.app_id().empty()) asked.set_app_id(caller.app_id());
  absl::StatusOr<v1::ListJobsResponse> page = records_.List(asked);
  if (page.ok()) {
    for (v1::Job& job : *page->mutable_jobs()) job = Present(std::move(job));
  }
  return Answer(std::move(page), response);
}

absl::StatusOr<v1::Job> ProxyService::Cancel(const base::Uid& uid) {
  v1::UpdateJobRequest update;
  update.set_uid(uid.ToString());
  update.set_cancelled(true);
  const base::MonotonicTime until = clock_.Now() + base::Scaled(kAgreeLimit);
  ONEPIECE_ASSIGN_OR_RETURN(v1::JobRecord record, records_.Update(update));
  // The databases agree on the end first. One that is silent is waited for as long as they do.
  base::Duration pause = kFirstAgreePause;
  while (!job::IsTerminal(record.job().state()) && clock_.Now() < until &&
         clock_.Pause(stopping_.get_token(), pause)) {
    pause = std::min(2 * pause, kLongestAgreePause);
    ONEPIECE_ASSIGN_OR_RETURN(record, records_.Get(uid));
    // A proposal dies with the only database that knew it.
    if (job::EndOf(record) == v1::Job::STATE_UNSPECIFIED) {
      ONEPIECE_ASSIGN_OR_RETURN(record, records_.Update(update));
    }
  }
  // Not before the end is final: work that was dropped for an end that never came would leave the
  // job to its deadline.
  if (record.job().state() == v1::Job::CANCELLED)
    CancelWork(record.job(), *view_.routing(), channels_);
  return Present(job::PublicJob(record));
}

absl::Status ProxyService::CheckOwner(const grpc::ServerContext& context, const base::Uid& uid,
                                      Intent intent) {
  const rpc::Caller caller = rpc::CallerOf(options_.door, context);
  if (const auto known = owners_.Known(caller, uid, intent); known) return *known;
  ONEPIECE_ASSIGN_OR_RETURN(const v1::JobRecord record, records_.Get(uid));
  owners_.Note(uid, record.job());
  return MayKnow(caller, record.job(), intent) ? absl::OkStatus() : JobUnknown(uid);
}

grpc::Status ProxyService::CancelJob(grpc::ServerContext* context,
                                     const v1::CancelJobRequest* request, v1::Job* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  if (const absl::Status own = CheckOwner(*context, *uid, Intent::kChange); !own.ok())
    return rpc::ToGrpc(Unified(own));
  return Answer(Cancel(*uid), response);
}

grpc::ServerWriteReactor<v1::Job>* ProxyService::WatchJob(grpc::CallbackServerContext* context,
                                                          const v1::WatchJobRequest* request) {
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::RefuseStream<v1::Job>(uid.status());
  auto place = watch_places_.Take(rpc::ShareHolder::Of(*context));
  if (!place.ok()) return rpc::RefuseStream<v1::Job>(place.status());
  const auto stream = JobWatches::Stream::Begin(stopping_.get_token());
  struct Held {
    rpc::StreamShares::Place place;
    std::shared_ptr<void> part;
  };
  const auto held = std::make_shared<Held>(Held{*std::move(place), nullptr});
  stream->Keep(held);
  owners_.Check(rpc::CallerOf(options_.door, *context), *uid, Intent::kSee,
                [this, uid = *uid, stream, held](const absl::Status& may) {
                  if (may.ok()) {
                    held->part = watches_.Add(uid, stream);
                  } else {
                    stream->End(Unified(may));
                  }
                });
  return stream.get();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ProxyService::FetchResult(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
  const auto refuse = [](const absl::Status& why) {
    return rpc::RefuseStream<grpc::ByteBuffer>(why);
  };
  const absl::StatusOr<v1::FetchResultRequest> request = rpc::DecodeFetch(*bytes);
  if (!request.ok()) return refuse(request.status());
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return refuse(uid.status());
  auto place = std::make_unique<rpc::StreamGuard::Stream>(fetches_, *context);
  if (!place->admitted().ok()) return refuse(place->admitted());
  const auto relay = std::make_shared<ResultRelay>(
      ResultRelay::Sources{.fetches = results_,
                           .direct = options_.direct_fetch,
                           .read_threads = read_threads_,
                           .spans = spans_,
                           .present = Unified},
      node::ResultFetches::Wanted{.uid = *uid,
                                  .artifact = request->artifact(),
                                  .offset_bytes = request->offset_bytes(),
                                  .limit_bytes = request->limit_bytes()});
  const auto stream = rpc::PartStream::Begin(std::move(place), relay);
  owners_.Check(rpc::CallerOf(options_.door, *context), *uid, Intent::kSee,
                [this, relay, stream](const absl::Status& may) {
                  if (may.ok()) {
                    relay->Start(stream, stopping_.get_token());
                  } else {
                    stream->End(Unified(may));
                  }
                });
  return stream->reactor();
}

grpc::Status ProxyService::AcknowledgeResult(grpc::ServerContext* context,
                                             const v1::AcknowledgeResultRequest* request,
                                             v1::Job* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  if (const absl::Status own = CheckOwner(*context, *uid, Intent::kChange); !own.ok())
    return rpc::ToGrpc(Unified(own));
  absl::StatusOr<v1::Job> job = records_.Acknowledge(*uid);
  if (job.ok()) *job = Present(*std::move(job));
  return Answer(std::move(job), response);
}

grpc::Status ProxyService::DeleteJob(grpc::ServerContext* context,
                                     const v1::DeleteJobRequest* request,
                                     google::protobuf::Empty*) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  if (const absl::Status own = CheckOwner(*context, *uid, Intent::kChange); !own.ok())
    return rpc::ToGrpc(Unified(own));
  // Delete() would end the job in the record only, and the instances would compute on for nobody.
  const absl::StatusOr<v1::JobRecord> record = records_.Get(*uid);
  if (record.ok() && !job::IsTerminal(record->job().state())) {
    if (const auto cancelled = Cancel(*uid); !cancelled.ok())
      return rpc::ToGrpc(Unified(cancelled.status()));
  }
  monitor_.End(*uid, Price::kTime);
  accounts_.Forget(*uid);
  if (options_.direct_fetch != nullptr) options_.direct_fetch->Forget(*uid);
  return rpc::ToGrpc(Unified(records_.Delete(*uid)));
}

grpc::Status ProxyService::GetJobTrace(grpc::ServerContext* context,
                                       const v1::GetJobTraceRequest* request,
                                       v1::GetJobTraceResponse* response) {
  const absl::StatusOr<base::Uid> uid = UidOf(request->name());
  if (!uid.ok()) return rpc::ToGrpc(uid.status());
  if (const absl::Status own = CheckOwner(*context, *uid, Intent::kSee); !own.ok())
    return rpc::ToGrpc(Unified(own));
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
  job::SortTimings(view_.routing()->FindWorkflow(job.app_id()), job);
  const auto uid = base::Uid::Parse(job.uid());
  if (uid.has_value()) owners_.Note(*uid, job);
  if (!uid.has_value() || !job::IsTerminal(job.state())) return job;
  NoteEnd(*uid, job);
  if (options_.direct_fetch != nullptr) options_.direct_fetch->Note(*uid, job);
  return job;
}

void ProxyService::NoteEnd(const base::Uid& uid, const v1::Job& job) {
  monitor_.End(uid, PriceOf(job));
  accounts_.End(uid, job);
}

void ProxyService::FollowQuotas() {
  if (options_.door == nullptr) return;
  const int proxies = view_.routing()->table().proxies_size();
  const std::pair<std::uint64_t, int> now{options_.door->epoch(), proxies};
  const base::MutexLock lock(quotas_mutex_);
  if (now == quotas_of_) return;
  quotas_of_ = now;
  accounts_.SetQuotas(options_.door->Tenants(), proxies);
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
  // A pool that is gone shows NaN, because 0 is a level that a pool can have.
  for (const std::string& pool : gone) show(pool, std::numeric_limits<double>::quiet_NaN());
}

void ProxyService::FollowJobs(const std::stop_token& stop) {
  while (clock_.Pause(stop, base::Scaled(kFollowInterval))) {
    for (const base::Uid& uid : monitor_.NextToCheck(kFollowAtOnce)) {
      if (stop.stop_requested()) return;
      const absl::StatusOr<v1::JobRecord> record = records_.Get(uid);
      const bool gone = record.status().code() == absl::StatusCode::kNotFound;
      if (gone) {
        monitor_.End(uid, Price::kTime);
        accounts_.Forget(uid);
      } else if (record.ok() && job::IsTerminal(record->job().state())) {
        NoteEnd(uid, record->job());
      } else if (record.ok()) {
        monitor_.Passed(uid, PassedStages(record->job()));
      }
      if (!record.ok() && !gone) break;  // No database answers now. The next round retries.
    }
  }
}

}  // namespace onepiece::proxy
