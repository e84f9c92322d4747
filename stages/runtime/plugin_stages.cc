#include "stages/runtime/plugin_stages.h"

#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "stages/sdk/plugin_loader.h"

namespace onepiece::runtime {
namespace {

struct Plugins {
  base::Mutex mutex;
  sdk::PluginLoader loader ABSL_GUARDED_BY(mutex);
  std::set<std::string> loaded ABSL_GUARDED_BY(mutex);
};

}  // namespace

TaskManager::StageSource StagesFromPlugins(std::string directory) {
  if (directory.empty()) directory = sdk::PluginLoader::DefaultDirectory();
  return [plugins = std::make_shared<Plugins>(), directory = std::move(directory)](
             const std::string& plugin,
             const std::string& stage) -> absl::StatusOr<std::unique_ptr<sdk::Stage>> {
    // The name comes from a workflow, so it may only name a file in the folder.
    if (plugin.empty() || plugin.find('/') != std::string::npos || plugin.front() == '.') {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PLUGIN_NAME",
                             "'" + plugin + "' is not the name of a plug-in");
    }
    // The workers of an instance load at the same time, and PluginLoader loads on one thread only.
    const base::MutexLock lock(plugins->mutex);
    if (!plugins->loaded.contains(plugin)) {
      ONEPIECE_RETURN_IF_ERROR(plugins->loader.LoadFile(directory + "/" + plugin + ".so"));
      plugins->loaded.insert(plugin);
    }
    return plugins->loader.Create(stage);
  };
}

}  // namespace onepiece::runtime
