// Stages from plug-in files. A file is loaded when one of its stages is first asked for.
#pragma once

#include <string>

#include "stages/runtime/task_manager.h"

namespace onepiece::runtime {

/// Returns a source that loads `directory`/PLUGIN.so. An empty directory means the default one.
///
/// Threading: the source is thread-safe. Its copies share the loaded files.
TaskManager::StageSource StagesFromPlugins(std::string directory);

}  // namespace onepiece::runtime
