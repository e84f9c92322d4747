// Lists of jobs on the command line: what narrows them, and their pages.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::cli {

/// --app, --state and --label, as they were given (empty: any). Errors: INVALID_ARGUMENT.
absl::Status NarrowList(const std::string& app, const std::string& state,
                        const std::vector<std::string>& labels, v1::ListJobsRequest& request);

/// Tells `visit` of the first `limit` jobs, page by page. Errors: those of `list`.
absl::Status ForEachJob(
    v1::ListJobsRequest request, int limit,
    absl::FunctionRef<absl::StatusOr<v1::ListJobsResponse>(const v1::ListJobsRequest&)> list,
    absl::FunctionRef<void(const v1::Job&)> visit);

}  // namespace onepiece::cli
