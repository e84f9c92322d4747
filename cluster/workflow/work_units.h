// Calculates how much work a job is in a stage, before anything of the job has been checked or
// decoded.
#pragma once

#include "cluster/message/artifact.h"
#include "google/protobuf/struct.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Returns the product of the parameters that `stage.cost` names, or 1 when it names none. A
/// parameter that is missing or is not a number counts with the schema's default. Values are
/// clamped to the schema's bounds, and the result to [1e-9, 1e18].
///
/// Blocking: no I/O. Copies no parameters.
/// Errors: none. Never throws.
double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const google::protobuf::Struct& given);
/// The same for the checked parameters of a message, in an instance.
double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const message::Parameters& parameters);

}  // namespace onepiece::workflow
