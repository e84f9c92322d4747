#include "cluster/database/purge.h"

#include <spdlog/spdlog.h>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

constexpr int kPageSize = 1000;

bool Matches(const v1::Job& job, const v1::PurgeResultsRequest& request) {
  if (job.state() != v1::Job::SUCCEEDED || job.result().fetched() || job.result().evicted())
    return false;
  if (!request.app_id().empty() && job.app_id() != request.app_id()) return false;
  return !request.has_ended_before() ||
         job::FromTimestamp(job.end_time()) < job::FromTimestamp(request.ended_before());
}

class Purger {
 public:
  Purger(JobStore& store, const v1::PurgeResultsRequest& request)
      : store_(store), request_(request) {}

  void Try(const std::string& uid) {
    const auto record = store_.Get(uid);
    if (!record.ok() || !Matches(record->job(), request_)) return;
    // A result whose bytes lie elsewhere is acknowledged too, because the tombstone makes the other
    // keepers drop it. Only bytes that lie here count.
    if (!request_.dry_run() && !store_.Acknowledge(uid).ok()) return;
    if (!record->has_bytes()) return;
    response_.set_results(response_.results() + 1);
    for (const v1::ResultArtifact& artifact : record->job().result().artifacts())
      response_.set_bytes(response_.bytes() + artifact.size_bytes());
  }
  [[nodiscard]] const v1::PurgeResultsResponse& response() const { return response_; }

 private:
  JobStore& store_;
  const v1::PurgeResultsRequest& request_;
  v1::PurgeResultsResponse response_;
};

absl::Status TryAll(JobStore& store, const v1::PurgeResultsRequest& request, Purger& purger) {
  v1::ListJobsRequest list;
  list.set_page_size(kPageSize);
  list.set_app_id(request.app_id());
  list.add_states(v1::Job::SUCCEEDED);
  do {
    ONEPIECE_ASSIGN_OR_RETURN(const v1::ListJobsResponse page, store.List(list));
    for (const v1::Job& job : page.jobs()) {
      if (Matches(job, request)) purger.Try(job.uid());
    }
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PurgeResultsResponse> PurgeResults(JobStore& store,
                                                      const v1::PurgeResultsRequest& request) {
  if (request.uids().empty() && request.app_id().empty() && !request.has_ended_before() &&
      !request.all()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NOTHING_NAMED",
                           "name what to purge: uids, app_id, ended_before, or all");
  }
  for (const std::string& uid : request.uids()) {
    if (base::Uid::Parse(uid).has_value()) continue;
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID",
                           "not a UID: \"" + uid + "\"", {{"field", "uids"}});
  }
  Purger purger(store, request);
  for (const std::string& uid : request.uids()) purger.Try(uid);
  if (request.uids().empty()) ONEPIECE_RETURN_IF_ERROR(TryAll(store, request, purger));
  const v1::PurgeResultsResponse& response = purger.response();
  spdlog::info("op=purge results={} bytes={} dry_run={}", response.results(), response.bytes(),
               request.dry_run());
  return response;
}

}  // namespace onepiece::database
