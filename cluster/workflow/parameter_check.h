// A job's parameters against its application's schema: what a proxy does before it admits a job,
// and fused mode before it runs one.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/message/artifact.h"
#include "google/protobuf/struct.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Checks every parameter and fills in defaults. Integers travel as doubles in a Struct: one that
/// is not whole, or beyond 2^53, is refused. Thread-safe, no I/O. Errors: INVALID_ARGUMENT with
/// reason INVALID_PARAMETERS; all violations are named at once, in the message and as metadata
/// {parameter, why}.
absl::StatusOr<message::Parameters> CheckParameters(const v1::Workflow& workflow,
                                                    const google::protobuf::Struct& given);

}  // namespace onepiece::workflow
