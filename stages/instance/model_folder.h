// Where the models of an instance may lie.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::instance {

/// Returns the folder of a model that a workflow names; empty for stages without weights. A
/// relative path starts at the first of model_root and model_roots that has such a folder, or else
/// at model_root. The workflow's author chooses the path, so it leads out of these folders neither
/// by its words nor by symbolic links.
///
/// Threading: may be called from any thread.
/// Blocking: looks at the file system.
/// Errors: INVALID_ARGUMENT (BAD_MODEL_PATH), whose message names the folders and the setting.
absl::StatusOr<std::string> FindModel(const v1::InstanceConfig& config, const std::string& model);

}  // namespace onepiece::instance
