#include "cluster/cli/job_list.h"

#include <algorithm>

#include "cluster/base/status.h"

namespace onepiece::cli {

absl::Status NarrowList(const std::string& app, const std::string& state,
                        const std::vector<std::string>& labels, v1::ListJobsRequest& request) {
  request.set_app_id(app);
  if (!state.empty()) {
    v1::Job::State parsed{};
    if (!v1::Job::State_Parse(state, &parsed)) {
      return absl::InvalidArgumentError(
          "--state: QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED or EXPIRED");
    }
    request.add_states(parsed);
  }
  for (const std::string& label : labels) {
    const std::size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError("--label: KEY=VALUE, not \"" + label + "\"");
    }
    (*request.mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return absl::OkStatus();
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
