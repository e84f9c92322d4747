// Jobs on the command line: as JSON, as text, and their results as files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/cli/context.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::cli {

/// "QUEUED"
std::string StateName(v1::Job::State state);
/// The document of `get --json`; `files` are what was written here.
Json JobDocument(const v1::Job& job, const std::vector<std::string>& files = {});
/// A few lines for people.
std::string JobText(const v1::Job& job);
/// How far a job is, 0 to 1, and in words.
double JobShare(const v1::Job& job);
std::string JobProgressText(const v1::Job& job);
/// Exit code that a job's final state means for a verb that waited for it.
int ExitCodeOfJob(const v1::Job& job);

/// Accepts a UID or "jobs/UID". Errors: NOT_FOUND when it cannot be one.
absl::StatusOr<std::string> ParseUid(const std::string& text);

/// Where artifact `index` of `count` goes: "out.png" → "out_0003.png" when there are several.
std::string NumberedPath(const std::string& path, std::size_t index, std::size_t count);

/// Fetches a SUCCEEDED job's result (all artifacts of the main one's media type), then acknowledges
/// it. Returns the files written. Errors: FAILED_PRECONDITION (not SUCCEEDED), those of
/// Client::FetchToFile.
absl::StatusOr<std::vector<std::string>> SaveResult(client::Client& client, const v1::Job& job,
                                                    const std::string& path);

}  // namespace onepiece::cli
