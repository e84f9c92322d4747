// Finds and loads stage plug-ins: shared objects that export kPluginEntryPoint.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/sdk/model_tools.h"
#include "stages/sdk/stage.h"

namespace onepiece::sdk {

/// The plug-ins that a process has loaded.
///
/// Ownership: Plug-ins are never unloaded: libraries below them keep thread-local state. Stages
/// made by Create and pointers from here may therefore outlive the loader.
/// Threading: Load on one thread; then the const methods are thread-safe.
/// Blocking: Loading reads files and runs the plug-ins' static initialisers.
class PluginLoader {
 public:
  struct LoadedPlugin {
    std::string path;
    const Plugin* plugin = nullptr;
  };

  /// $ONEPIECE_PLUGIN_DIR, else ../lib/onepiece/stages beside the folder of the running program.
  static std::string DefaultDirectory();

  /// Loads one file.
  /// Errors: NOT_FOUND (no such file), FAILED_PRECONDITION (not loadable, no entry point, another
  /// ABI), ALREADY_EXISTS (one of its stages is loaded already).
  absl::Status LoadFile(const std::string& path);
  /// Loads every *.so of a folder in the order of their names and stops at the first error.
  /// Errors: as LoadFile; NOT_FOUND also when there is no plug-in in the folder.
  absl::Status LoadDirectory(const std::string& directory);

  [[nodiscard]] const std::vector<LoadedPlugin>& plugins() const { return plugins_; }
  /// Errors: NOT_FOUND (names the stages that there are).
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Stage>> Create(std::string_view stage) const;
  /// Asks every plug-in that has tools (ModelTools::Claim, whose arguments these are) and returns
  /// the tools of the first one whose family the model is of, or else of the first one to which it
  /// is unclear.
  ///
  /// Errors: NOT_FOUND TOOLS_NOT_FOUND (no plug-in has any); UNIMPLEMENTED UNKNOWN_MODEL (all
  /// answer kNotMine; names those asked).
  [[nodiscard]] absl::StatusOr<const ModelTools*> ToolsFor(const std::string& dir,
                                                           const std::string& expect) const;

 private:
  std::vector<LoadedPlugin> plugins_;
};

}  // namespace onepiece::sdk
