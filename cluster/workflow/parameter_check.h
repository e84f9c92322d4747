// Checks a job's parameters against its application's schema. A proxy does this before it admits a
// job, and fused mode before it runs one.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/message/artifact.h"
#include "google/protobuf/struct.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Checks every parameter and fills in the defaults. Integers travel as doubles in a Struct, so an
/// integer that is not whole or lies beyond 2^53 is refused.
///
/// Threading: may be called from any thread.
/// Blocking: no I/O.
/// Errors: INVALID_ARGUMENT (INVALID_PARAMETERS), which names all violations at once in its message
/// and as metadata {parameter, why}.
absl::StatusOr<message::Parameters> CheckParameters(const v1::Workflow& workflow,
                                                    const google::protobuf::Struct& given);

}  // namespace onepiece::workflow
