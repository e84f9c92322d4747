// Reads the files that a job brings, as the command line names them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::terminal {

using JobInputs = google::protobuf::RepeatedPtrField<v1::JobInput>;

/// Reads the files of "NAME=FILE" pairs. Together they may have workflow::kMaxInputBytes.
///
/// Errors: INVALID_ARGUMENT (BAD_INPUT_FILE: not such a pair, missing, unreadable, empty, a folder,
/// or too large).
absl::StatusOr<JobInputs> ReadInputs(const std::vector<std::string>& pairs);

}  // namespace onepiece::terminal
