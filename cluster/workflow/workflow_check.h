// Decides whether a workflow is acceptable.
#pragma once

#include <string_view>

#include "cluster/base/status.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::workflow {

/// Checks everything about a workflow that can be known without its plug-ins.
///
/// Errors: INVALID_ARGUMENT (BAD_WORKFLOW) with the metadata "field", a path such as
/// "parameters[2].default_value".
absl::Status CheckWorkflow(const v1::Workflow& workflow);

/// True for a kind of device that a stage or a pool may ask for, and for none.
bool IsDeviceKind(std::string_view kind);

}  // namespace onepiece::workflow
