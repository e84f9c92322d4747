// Stages from plug-in files, loaded when first asked for.
#pragma once

#include <string>

#include "stages/runtime/task_manager.h"

namespace onepiece::runtime {

/// A source that looks for `directory`/PLUGIN.so; an empty directory means the default one.
/// Thread-safe; copies share what they have loaded.
TaskManager::StageSource StagesFromPlugins(std::string directory);

}  // namespace onepiece::runtime
