#include "stages/sdk/plugin_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "cluster/base/status.h"

namespace onepiece::sdk {
namespace {

namespace fs = std::filesystem;

absl::Status Refuse(const std::string& path, std::string_view why) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "BAD_PLUGIN",
                         "stage plug-in " + path + ": " + std::string(why), {{"path", path}});
}

absl::Status NotFound(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kNotFound, reason, message);
}

std::string LastDlError() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

}  // namespace

std::string PluginLoader::DefaultDirectory() {
  if (const char* directory = std::getenv("ONEPIECE_PLUGIN_DIR");
      directory != nullptr && *directory != '\0') {
    return directory;
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "../lib/onepiece/stages").lexically_normal().string();
}

absl::Status PluginLoader::LoadFile(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return NotFound("PLUGIN_NOT_FOUND", "there is no stage plug-in " + path);
  }
  // An absolute path: dlopen searches the library path for a bare name.
  // RTLD_NOW finds a missing symbol here, not in the middle of a job. RTLD_LOCAL hides the symbols
  // of one plug-in from the others.
  void* handle = dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) return Refuse(path, LastDlError());
  const auto entry_point = reinterpret_cast<PluginEntry (*)()>(dlsym(handle, kPluginEntryPoint));
  if (entry_point == nullptr) {
    return Refuse(path, std::string("it does not export ") + kPluginEntryPoint);
  }
  const PluginEntry entry = entry_point();
  if (entry.abi != kPluginAbi) {
    return Refuse(path, "it was built for plug-in ABI " + std::to_string(entry.abi) +
                            ", this program has " + std::to_string(kPluginAbi));
  }
  if (entry.plugin == nullptr) return Refuse(path, "its entry point returned no plug-in");

  std::set<std::string> names;
  for (const LoadedPlugin& loaded : plugins_) {
    for (const StageInfo& info : loaded.plugin->Stages()) names.insert(info.name);
  }
  for (const StageInfo& info : entry.plugin->Stages()) {
    if (!names.insert(info.name).second) {
      return base::MakeError(
          absl::StatusCode::kAlreadyExists, "DUPLICATE_STAGE",
          "stage plug-in " + path + ": stage " + info.name + " is loaded already",
          {{"stage", info.name}});
    }
  }
  plugins_.push_back({path, entry.plugin});
  return absl::OkStatus();
}

absl::Status PluginLoader::LoadDirectory(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> paths;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".so") paths.push_back(entry->path().string());
  }
  if (error)
    return NotFound("PLUGIN_NOT_FOUND", "stage plug-ins in " + directory + ": " + error.message());
  if (paths.empty())
    return NotFound("PLUGIN_NOT_FOUND", "there are no stage plug-ins in " + directory);
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) ONEPIECE_RETURN_IF_ERROR(LoadFile(path));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Stage>> PluginLoader::Create(std::string_view stage) const {
  std::string known;
  for (const LoadedPlugin& loaded : plugins_) {
    if (auto created = loaded.plugin->Create(stage); created != nullptr) return created;
    for (const StageInfo& info : loaded.plugin->Stages())
      known += (known.empty() ? "" : ", ") + info.name;
  }
  return NotFound("STAGE_NOT_FOUND", "no plug-in has a stage \"" + std::string(stage) +
                                         "\"; there are: " + (known.empty() ? "none" : known));
}

absl::StatusOr<const ModelTools*> PluginLoader::ToolsFor(const std::string& dir,
                                                         const std::string& expect) const {
  const ModelTools* unclear = nullptr;
  int unclear_count = 0;
  std::string asked;
  for (const LoadedPlugin& loaded : plugins_) {
    const ModelTools* tools = loaded.plugin->model_tools();
    if (tools == nullptr) continue;
    const ModelClaim claim = tools->Claim(dir, expect);
    if (claim == ModelClaim::kMine) return tools;
    if (claim == ModelClaim::kUnclear) {
      unclear = tools;
      ++unclear_count;
    }
    asked += (asked.empty() ? "" : ", ") + fs::path(loaded.path).stem().string();
  }
  if (unclear_count == 1) return unclear;
  if (asked.empty())
    return NotFound("TOOLS_NOT_FOUND", "no stage plug-in has tools for model files");
  const std::string& model = dir.empty() ? expect : dir;
  return base::MakeError(absl::StatusCode::kUnimplemented, "UNKNOWN_MODEL",
                         model + ": no stage plug-in knows this model; asked: " + asked,
                         {{"file", model}});
}

}  // namespace onepiece::sdk
