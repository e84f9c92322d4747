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
/// Ownership: plug-ins are never unloaded, because libraries below them keep thread-local state.
/// Stages that Create made, and pointers from here, may therefore outlive the loader.
/// Threading: load on one thread. Afterwards the const methods are thread-safe.
/// Blocking: loading reads files and runs the plug-ins' static initialisers.
class PluginLoader {
 public:
  struct LoadedPlugin {
    std::string path;
    const Plugin* plugin = nullptr;
  };

  /// Returns $ONEPIECE_PLUGIN_DIR, or else ../lib/onepiece/stages beside the folder of the running
  /// program.
  static std::string DefaultDirectory();

  /// Loads one file.
  ///
  /// Errors: NOT_FOUND (no such file), FAILED_PRECONDITION (not loadable, no entry point, another
  /// ABI), ALREADY_EXISTS (one of its stages is loaded already).
  absl::Status LoadFile(const std::string& path);
  /// Loads every *.so of a folder in the order of their names, and stops at the first error.
  ///
  /// Errors: those of LoadFile; NOT_FOUND also when the folder has no plug-in.
  absl::Status LoadDirectory(const std::string& directory);

  [[nodiscard]] const std::vector<LoadedPlugin>& plugins() const { return plugins_; }
  /// Makes a stage.
  ///
  /// Errors: NOT_FOUND; the message names the stages that exist.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Stage>> Create(std::string_view stage) const;
  /// Returns the tools for a model. It passes its arguments to ModelTools::Claim of every plug-in
  /// that has tools, and returns the first tools that answer kMine. If there are none, it returns
  /// those that answer kUnclear, unless several do.
  ///
  /// Errors: NOT_FOUND (TOOLS_NOT_FOUND: no plug-in has tools), UNIMPLEMENTED (UNKNOWN_MODEL: no
  /// plug-in can say that the model is its own; the message names the plug-ins).
  [[nodiscard]] absl::StatusOr<const ModelTools*> ToolsFor(const std::string& dir,
                                                           const std::string& expect) const;

 private:
  std::vector<LoadedPlugin> plugins_;
};

}  // namespace onepiece::sdk
