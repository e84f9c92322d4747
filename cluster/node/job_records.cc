#include "cluster/node/job_records.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/job_position.h"
#include "cluster/node/job_records_impl.h"

namespace onepiece::node {
namespace {

// A fetch that brings nothing for this long has lost its database.
constexpr base::Duration kFetchIdleLimit = std::chrono::seconds(10);
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

/// Returns true when `a` is further in the life of the same job than `b`.
bool IsFurther(const v1::Job& a, const v1::Job& b) {
  return std::tuple(job::IsTerminal(a.state()), !IsLost(a), a.state(), a.stage_index(), a.step()) >
         std::tuple(job::IsTerminal(b.state()), !IsLost(b), b.state(), b.stage_index(), b.step());
}

}  // namespace

template <typename Item>
absl::Status JobRecords::Impl::ReadStream(const v1::Endpoint& database,
                                          const PrepareStream<Item>& prepare,
                                          base::Duration idle_limit, const Sink<Item>& sink,
                                          const KeepGoing& keep_going) {
  const std::shared_ptr<DatabaseStub> stub = StubFor(database.address());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto reader = prepare(*stub, &context, &queue);
  absl::Status ended;  // The reason why this side ended the stream, if it did.
  base::MonotonicTime idle_since = clock.Now();

  // Waits for the one operation under way, and polls the caller meanwhile.
  const auto completes = [&]() -> bool {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const auto event =
          queue.AsyncNext(&tag, &ok, gpr_time_from_nanos(kPollInterval.count(), GPR_TIMESPAN));
      if (event == grpc::CompletionQueue::GOT_EVENT) return ok;
      // gRPC uses `item` or `status` until the operation completes, even after a cancellation.
      if (!ended.ok()) continue;
      if (!keep_going()) ended = Cancelled();
      if (clock.Now() - idle_since > idle_limit) {
        ended = base::MakeError(absl::StatusCode::kDeadlineExceeded, "STREAM_STALLED",
                                "the database went silent");
      }
      if (!ended.ok()) context.TryCancel();
    }
  };

  Item item;
  // Any pointer serves as the tag, because one operation is under way at a time.
  reader->StartCall(&item);
  bool alive = completes();
  while (alive) {
    reader->Read(&item, &item);
    alive = completes();
    if (!alive) break;
    if (ended.ok() && !sink(item)) {
      ended = Cancelled();
      context.TryCancel();
    }
    // After the sink: a client that takes its time does not make the database silent.
    idle_since = clock.Now();
  }
  grpc::Status status;
  reader->Finish(&status, &status);
  completes();
  queue.Shutdown();
  if (!ended.ok()) return ended;
  absl::Status result = rpc::FromGrpc(status);
  // A server that shuts down cancels its streams. Our caller gets CANCELLED only when it asked for
  // the cancellation.
  return absl::IsCancelled(result) ? absl::UnavailableError(result.message()) : result;
}

v1::CreateJobResponse JobRecords::Impl::PreferElsewhere(const base::Uid& uid,
                                                        v1::CreateJobResponse created) {
  v1::GetJobRecordRequest ask;
  ask.set_uid(uid.ToString());
  const std::vector<v1::Endpoint> databases = view.routing()->DatabasesFor(uid);
  for (const v1::Endpoint& database : databases) {
    const auto known =
        rpc::Call(*StubFor(database.address()), &DatabaseStub::GetJob, ask, options.call_timeout);
    const bool deleted = base::GetReason(known.status()).metadata.contains("deleted");
    // The record that was just made answers here too. An older one has another create_time.
    const bool older = known.ok() && JobPosition::Of(known->job()).create_unix_ns !=
                                         JobPosition::Of(created.record().job()).create_unix_ns;
    if (!deleted && !older) continue;
    if (deleted) {
      created.mutable_record()->set_deleted(true);
    } else {
      *created.mutable_record() = *known;
    }
    created.set_created(false);
    v1::ReplicateJobsRequest heal;
    *heal.add_records() = created.record();
    for (const v1::Endpoint& other : databases) {
      if (other.node_id() == database.node_id()) continue;
      (void)rpc::Call(*StubFor(other.address()), &DatabaseStub::ReplicateJobs, heal,
                      options.call_timeout);
    }
    break;
  }
  return created;
}

JobRecords::JobRecords(const ClusterView& view, JobRecordsOptions options, base::Clock& clock)
    : impl_(std::make_unique<Impl>(view, std::move(options), clock)) {}

JobRecords::~JobRecords() = default;

absl::StatusOr<v1::CreateJobResponse> JobRecords::Create(const v1::JobRecord& record) {
  const std::optional<base::Uid> uid = base::Uid::Parse(record.job().uid());
  ONEPIECE_CHECK(uid.has_value());
  v1::CreateJobRequest request;
  *request.mutable_record() = record;
  absl::StatusOr<v1::CreateJobResponse> created =
      impl_->Ask(*uid, &DatabaseStub::CreateJob, request);
  // Without a request_id the uid is fresh, so no database can have it.
  if (!created.ok() || !created->created() || record.job().request_id().empty()) return created;
  return impl_->PreferElsewhere(*uid, *std::move(created));
}

std::unique_ptr<RecordCopy> JobRecords::Copy(const v1::JobRecord& record) {
  const std::optional<base::Uid> uid = base::Uid::Parse(record.job().uid());
  ONEPIECE_CHECK(uid.has_value());
  const std::optional<v1::Endpoint> database = impl_->OtherDatabase(*uid);
  if (!database.has_value()) return nullptr;
  const std::string address = database->address();
  return std::make_unique<RecordCopy>(impl_->StubFor(address), record, impl_->options.copy_timeout,
                                      [this, address](const absl::Status& status) {
                                        if (IsAway(status)) impl_->NoteSilent(address);
                                      });
}

absl::StatusOr<v1::ClaimStartResponse> JobRecords::Claim(const v1::ClaimStartRequest& request) {
  const std::optional<base::Uid> uid = base::Uid::Parse(request.uid());
  ONEPIECE_CHECK(uid.has_value());
  return impl_->Ask(*uid, &DatabaseStub::ClaimStart, request);
}

absl::StatusOr<v1::JobRecord> JobRecords::Update(const v1::UpdateJobRequest& request) {
  const std::optional<base::Uid> uid = base::Uid::Parse(request.uid());
  ONEPIECE_CHECK(uid.has_value());
  return impl_->Ask(*uid, &DatabaseStub::UpdateJob, request);
}

absl::StatusOr<v1::JobRecord> JobRecords::Get(const base::Uid& uid,
                                              std::optional<base::Duration> timeout) {
  v1::GetJobRecordRequest request;
  request.set_uid(uid.ToString());
  return impl_->Ask(uid, &DatabaseStub::GetJob, request, timeout);
}

absl::StatusOr<v1::Job> JobRecords::Acknowledge(const base::Uid& uid) {
  v1::AcknowledgeResultRequest request;
  request.set_name(NameOfUid(uid));
  absl::StatusOr<v1::Job> job = impl_->Ask(uid, &DatabaseStub::AcknowledgeResult, request);
  if (job.ok()) impl_->AskOther(uid, &DatabaseStub::AcknowledgeResult, request);
  return job;
}

absl::Status JobRecords::Delete(const base::Uid& uid) {
  v1::DeleteJobRequest request;
  request.set_name(NameOfUid(uid));
  absl::Status deleted = impl_->Ask(uid, &DatabaseStub::DeleteJob, request).status();
  if (deleted.ok()) impl_->AskOther(uid, &DatabaseStub::DeleteJob, request);
  return deleted;
}

absl::StatusOr<v1::ListJobsResponse> JobRecords::List(const v1::ListJobsRequest& request) {
  v1::ListJobsRequest bounded = request;
  const int page_size = std::clamp(
      request.page_size() == 0 ? kDefaultPageSize : request.page_size(), 1, kMaxPageSize);
  bounded.set_page_size(page_size);
  const auto before = [](const JobPosition& a, const JobPosition& b) { return a.Before(b); };
  std::map<JobPosition, v1::Job, decltype(before)> merged(before);
  // A database with a full page may have further jobs that come before those of another database.
  // The merged page therefore ends where the first full page ends.
  std::optional<JobPosition> horizon;
  absl::Status last;
  bool any = false;
  for (const v1::Endpoint& database : impl_->view.routing()->Databases()) {
    absl::StatusOr<v1::ListJobsResponse> page =
        rpc::Call(*impl_->StubFor(database.address()), &DatabaseStub::ListJobs, bounded,
                  impl_->options.call_timeout);
    if (!page.ok()) {
      last = page.status();
      if (IsAway(last)) continue;
      return last;
    }
    any = true;
    for (v1::Job& job : *page->mutable_jobs()) {
      v1::Job& known = merged[JobPosition::Of(job)];
      if (known.uid().empty() || IsFurther(job, known)) known = std::move(job);
    }
    if (page->next_page_token().empty()) continue;
    const std::optional<JobPosition> end = JobPosition::Parse(page->next_page_token());
    if (!end.has_value())
      return absl::InternalError("malformed page token from " + database.node_id());
    if (!horizon.has_value() || end->Before(*horizon)) horizon = end;
  }
  if (!any) return NoDatabase(last);
  v1::ListJobsResponse response;
  bool more = horizon.has_value();
  for (auto& [position, job] : merged) {
    if (response.jobs_size() == page_size || (horizon.has_value() && horizon->Before(position))) {
      more = true;
      break;
    }
    *response.add_jobs() = std::move(job);
  }
  if (more && response.jobs_size() > 0) {
    response.set_next_page_token(JobPosition::Of(*response.jobs().rbegin()).ToToken());
  }
  return response;
}

absl::Status JobRecords::Fetch(const base::Uid& uid, std::string_view artifact,
                               std::int64_t offset_bytes, std::int64_t limit_bytes,
                               const Sink<v1::FetchResultResponse>& sink,
                               const KeepGoing& keep_going) {
  v1::FetchResultRequest request;
  request.set_name(NameOfUid(uid));
  request.set_artifact(std::string(artifact));
  request.set_offset_bytes(offset_bytes);
  request.set_limit_bytes(limit_bytes);
  const Impl::PrepareStream<v1::FetchResultResponse> prepare =
      [&](DatabaseStub& stub, grpc::ClientContext* context, auto* queue) {
        return stub.PrepareAsyncFetchResult(context, request, queue);
      };
  std::optional<v1::ResultArtifact> told;
  bool changed = false;
  const Sink<v1::FetchResultResponse> pass_on = [&](const v1::FetchResultResponse& response) {
    const auto came = static_cast<std::int64_t>(response.chunk().size());
    request.set_offset_bytes(request.offset_bytes() + came);
    if (limit_bytes > 0) request.set_limit_bytes(request.limit_bytes() - came);
    if (!told.has_value()) {
      told = response.artifact();
      return sink(response);
    }
    if (!response.has_artifact()) return sink(response);
    // Another database may go on only with the same bytes.
    changed = response.artifact().sha256() != told->sha256();
    v1::FetchResultResponse rest = response;
    rest.clear_artifact();
    return !changed && sink(rest);
  };
  Misses misses;
  // The second round is for a database that restarted during the first one.
  for (int round = 0; round < 2; ++round) {
    for (const v1::Endpoint& database : impl_->DatabasesFor(uid)) {
      const absl::Status status = impl_->ReadStream<v1::FetchResultResponse>(
          database, prepare, base::Scaled(kFetchIdleLimit), pass_on, keep_going);
      if (changed) {
        return base::MakeError(absl::StatusCode::kAborted, "RESULT_CHANGED",
                               "the result changed during the fetch");
      }
      if (status.ok() || !misses.Take(status)) return status;
      // Everything is here. A limit of 0 would ask the next database for all the rest.
      if (limit_bytes > 0 && request.limit_bytes() <= 0) return absl::OkStatus();
    }
    if (!told.has_value()) break;
  }
  return misses.Verdict();
}

std::optional<base::Uid> UidOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "jobs/";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return base::Uid::Parse(name.substr(kPrefix.size()));
}

std::string NameOfUid(const base::Uid& uid) { return "jobs/" + uid.ToString(); }

}  // namespace onepiece::node
