// Files that a job brings, from the command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::cli {

using JobInputs = google::protobuf::RepeatedPtrField<v1::JobInput>;

/// Reads "NAME=FILE" pairs; together they stay within workflow::kMaxInputBytes. Errors:
/// INVALID_ARGUMENT BAD_INPUT_FILE (not such a pair; missing, unreadable, empty, a folder, too
/// large).
absl::StatusOr<JobInputs> ReadInputs(const std::vector<std::string>& pairs);

}  // namespace onepiece::cli
