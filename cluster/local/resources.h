// Where the programs and the shipped files (models, example workflows) are.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::local {

/// The running program's own path.
std::string SelfPath();
/// A program of ours: in $ONEPIECE_BIN_DIR, else beside the running program. Errors: NOT_FOUND.
absl::StatusOr<std::string> ProgramPath(std::string_view name);
/// Stage plug-ins: ../lib/onepiece/stages from the programs' folder. Errors: NOT_FOUND.
absl::StatusOr<std::string> PluginDir();
/// A shipped file or folder ("models", "workflows/tiny-wan-t2v.yaml"): in $ONEPIECE_RESOURCE_DIR,
/// in
/// ../share/onepiece from the programs' folder, or in the source tree of this build. Errors:
/// NOT_FOUND.
absl::StatusOr<std::string> ResourcePath(std::string_view name);

}  // namespace onepiece::local
