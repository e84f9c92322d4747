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

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

/// Returns true when `a` is further in the life of the same job than `b`.
bool IsFurther(const v1::Job& a, const v1::Job& b) {
  return std::tuple(job::IsTerminal(a.state()), !IsLost(a), a.state(), a.stage_index(), a.step()) >
         std::tuple(job::IsTerminal(b.state()), !IsLost(b), b.state(), b.stage_index(), b.step());
}

}  // namespace

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
    heal.set_cluster_id(view.cluster_id());
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
  return std::make_unique<RecordCopy>(impl_->StubFor(address), record, impl_->view.cluster_id(),
                                      impl_->options.copy_timeout,
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

std::optional<base::Uid> UidOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "jobs/";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return base::Uid::Parse(name.substr(kPrefix.size()));
}

std::string NameOfUid(const base::Uid& uid) { return "jobs/" + uid.ToString(); }

}  // namespace onepiece::node
