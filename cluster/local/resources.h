// Finds the programs and the shipped files, such as models and example workflows.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::local {

/// Returns the path of the running program.
std::string SelfPath();
/// Returns the path of one of our programs, in $ONEPIECE_BIN_DIR, else beside the running program.
///
/// Errors: NOT_FOUND.
absl::StatusOr<std::string> ProgramPath(std::string_view name);
/// Returns the folder of the stage plug-ins: $ONEPIECE_PLUGIN_DIR, else ../lib/onepiece/stages from
/// the programs' folder.
///
/// Errors: NOT_FOUND.
absl::StatusOr<std::string> PluginDir();
/// Returns the path of a shipped file or folder ("models", "workflows/tiny-wan-t2v.yaml"). It is in
/// $ONEPIECE_RESOURCE_DIR if that is set, else in ../share/onepiece from the programs' folder or in
/// the source tree of this build.
///
/// Errors: NOT_FOUND.
absl::StatusOr<std::string> ResourcePath(std::string_view name);

}  // namespace onepiece::local
