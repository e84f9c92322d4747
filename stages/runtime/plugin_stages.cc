#include "stages/runtime/plugin_stages.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
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

absl::Status Unsafe(const std::string& path, const std::string& why, const std::string& mend) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "UNSAFE_PLUGIN",
                         path + " " + why +
                             ", and whoever changes a plug-in runs in this process: " + mend + " " +
                             path,
                         {{"path", path}});
}

// `way`: a folder above the plug-in's. Where the sticky bit is set, others cannot rename it.
absl::Status CheckUnchangeable(const std::string& path, bool way) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) {
    return base::MakeError(absl::StatusCode::kNotFound, "PLUGIN_NOT_FOUND",
                           "stage plug-ins: " + path + ": " + std::strerror(errno));
  }
  if (about.st_uid != 0 && about.st_uid != geteuid())
    return Unsafe(path, "belongs to another user", "chown root");
  const bool sticky = way && (about.st_mode & S_ISVTX) != 0;
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky)
    return Unsafe(path, "can be written by other users", "chmod go-w");
  return absl::OkStatus();
}

// Only root and the user of this process may be able to change the file, or put another in its
// place.
absl::Status CheckPlugin(const std::string& directory, const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A link is as safe as what it leads to, and as the folder that it is in.
  const fs::path folder = fs::canonical(directory, error);
  if (error) {
    return base::MakeError(absl::StatusCode::kNotFound, "PLUGIN_NOT_FOUND",
                           "stage plug-ins in " + directory + ": " + error.message());
  }
  ONEPIECE_RETURN_IF_ERROR(CheckUnchangeable(folder.string(), /*way=*/false));
  for (fs::path above = folder; above.has_relative_path();) {
    above = above.parent_path();
    ONEPIECE_RETURN_IF_ERROR(CheckUnchangeable(above.string(), /*way=*/true));
  }
  const std::string path = (folder / file).string();
  if (!fs::exists(path, error)) return absl::OkStatus();  // The loader says so.
  if (fs::is_symlink(path, error)) {
    const fs::path target = fs::canonical(path, error);
    if (error) return absl::OkStatus();
    if (target.parent_path() != folder)
      return CheckPlugin(target.parent_path().string(), target.filename().string());
  }
  return CheckUnchangeable(path, /*way=*/false);
}

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
      ONEPIECE_RETURN_IF_ERROR(CheckPlugin(directory, plugin + ".so"));
      ONEPIECE_RETURN_IF_ERROR(plugins->loader.LoadFile(directory + "/" + plugin + ".so"));
      plugins->loaded.insert(plugin);
    }
    return plugins->loader.Create(stage);
  };
}

}  // namespace onepiece::runtime
