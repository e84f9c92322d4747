// Lists of jobs on the command line: the filters, and the pages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cluster/cli/time_arguments.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::cli {

/// The filters of a list of jobs. An empty filter takes every job.
struct JobFilter {
  std::string app, state, since, until;
  std::vector<std::string> labels;  ///< "key=value"

  void AddTo(CLI::App& verb);
  /// Errors: INVALID_ARGUMENT.
  [[nodiscard]] absl::StatusOr<v1::ListJobsRequest> Request() const;
};

/// Calls `visit` with the first `limit` jobs, page by page.
///
/// Errors: those of `list`.
absl::Status ForEachJob(
    v1::ListJobsRequest request, int limit,
    absl::FunctionRef<absl::StatusOr<v1::ListJobsResponse>(const v1::ListJobsRequest&)> list,
    absl::FunctionRef<void(const v1::Job&)> visit);

}  // namespace onepiece::cli
