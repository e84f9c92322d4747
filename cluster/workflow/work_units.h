// How much work a job is in a stage, before anything of it has been checked or decoded.
#pragma once

#include "cluster/message/artifact.h"
#include "google/protobuf/struct.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Product of the parameters that `stage.cost` names; 1 without any. Never fails and never throws:
/// what is missing or no number counts with the schema's default, values are kept within the
/// schema's bounds, the result within [1e-9, 1e18]. No I/O, no copies of parameters.
double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const google::protobuf::Struct& given);
/// The same for the checked parameters of a message, in an instance.
double WorkUnits(const v1::Workflow& workflow, const v1::StageSpec& stage,
                 const message::Parameters& parameters);

}  // namespace onepiece::workflow
