#include "cluster/cli/job_list.h"

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/cli/context.h"
#include "cluster/terminal/exit_code.h"

namespace onepiece::cli {

void JobFilter::AddTo(CLI::App& verb) {
  verb.add_option("--app", app, "Only of this application");
  verb.add_option("--state", state, "Only in this state");
  verb.add_option("--label", labels, "Only with this label (may be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb.add_option("--since", since, "Created then or later: 2026-01-31T12:00:00Z, or 15m for ago")
      ->type_name("TIME");
  verb.add_option("--until", until, "Created before: 2026-01-31T12:00:00Z, or 15m for ago")
      ->type_name("TIME");
}

absl::StatusOr<v1::ListJobsRequest> JobFilter::Request() const {
  v1::ListJobsRequest request;
  request.set_app_id(app);
  if (!state.empty()) {
    v1::Job::State parsed{};
    if (!v1::Job::State_Parse(state, &parsed))
      return terminal::UsageError(
          "--state: QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED or EXPIRED");
    request.add_states(parsed);
  }
  for (const std::string& label : labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return terminal::UsageError("--label: KEY=VALUE, not \"" + label + "\"");
    (*request.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  if (!since.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(*request.mutable_created_from(), ParseTime("--since", since));
  }
  if (!until.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(*request.mutable_created_before(), ParseTime("--until", until));
  }
  return request;
}

absl::Status ForEachJob(
    v1::ListJobsRequest request, int limit,
    absl::FunctionRef<absl::StatusOr<v1::ListJobsResponse>(const v1::ListJobsRequest&)> list,
    absl::FunctionRef<void(const v1::Job&)> visit) {
  do {
    request.set_page_size(std::min(limit, 1000));
    ONEPIECE_ASSIGN_OR_RETURN(const v1::ListJobsResponse page, list(request));
    for (const v1::Job& job : page.jobs()) visit(job);
    limit -= page.jobs_size();
    request.set_page_token(page.next_page_token());
  } while (limit > 0 && !request.page_token().empty());
  return absl::OkStatus();
}

}  // namespace onepiece::cli
