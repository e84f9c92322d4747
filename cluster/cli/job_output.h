// Writes jobs as JSON and as text, and their results as files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/cli/context.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::cli {

/// Returns the name of a state: "QUEUED".
std::string StateName(v1::Job::State state);
/// Returns the document of `get --json`. `files` are the files that were written here.
Json JobDocument(const v1::Job& job, const std::vector<std::string>& files = {});
/// Describes a job in a few lines for people.
std::string JobText(const v1::Job& job);
/// Prints the job, or in text the `files` that its result was written to.
void PrintJob(const Context& context, const v1::Job& job,
              const std::vector<std::string>& files = {});
/// These return how far a job is, as a share (0 to 1) and as text.
double JobShare(const v1::Job& job);
std::string JobProgressText(const v1::Job& job);
/// Returns the exit code of a verb that waited for the job, by its final state.
int ExitCodeOfJob(const v1::Job& job);

/// Parses a UID or "jobs/UID".
///
/// Errors: NOT_FOUND when it cannot be one.
absl::StatusOr<std::string> ParseUid(const std::string& text);

/// Fetches the result of a SUCCEEDED job, which is all artifacts with the media type of the main
/// one, and then acknowledges it. Returns the files that it wrote.
///
/// Errors: FAILED_PRECONDITION (not SUCCEEDED), those of Client::FetchToFile and
/// Client::Acknowledge.
absl::StatusOr<std::vector<std::string>> SaveResult(client::Client& client, const v1::Job& job,
                                                    const std::string& path);

}  // namespace onepiece::cli
