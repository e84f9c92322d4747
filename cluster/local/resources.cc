#include "cluster/local/resources.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "cluster/base/status.h"

namespace onepiece::local {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path BinDir() {
  const std::string given = Variable("ONEPIECE_BIN_DIR");
  return given.empty() ? fs::path(SelfPath()).parent_path() : fs::path(given);
}

absl::Status NotFound(const std::string& what) {
  return base::MakeError(absl::StatusCode::kNotFound, "NOT_INSTALLED", what);
}

}  // namespace

std::string SelfPath() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).string();
}

absl::StatusOr<std::string> ProgramPath(std::string_view name) {
  std::error_code error;
  const fs::path path = fs::absolute(BinDir() / name, error);
  if (fs::is_regular_file(path, error)) return path.string();
  return NotFound("no program " + std::string(name) + " in " + BinDir().string() +
                  ": build it, or set ONEPIECE_BIN_DIR");
}

absl::StatusOr<std::string> PluginDir() {
  std::error_code error;
  const std::string given = Variable("ONEPIECE_PLUGIN_DIR");
  const fs::path wanted = given.empty() ? BinDir() / ".." / "lib/onepiece/stages" : fs::path(given);
  const fs::path path = fs::absolute(wanted, error).lexically_normal();
  if (fs::is_directory(path, error)) return path.string();
  return NotFound("no stage plug-ins in " + path.string());
}

absl::StatusOr<std::string> ResourcePath(std::string_view name) {
  std::error_code error;
  std::vector<fs::path> roots;
  if (const std::string given = Variable("ONEPIECE_RESOURCE_DIR"); !given.empty()) {
    roots.emplace_back(given);
  } else {
    roots = {BinDir() / ".." / "share/onepiece", ONEPIECE_SOURCE_RESOURCES};
  }
  for (const auto& root : roots) {
    const fs::path path = fs::absolute(root / name, error).lexically_normal();
    if (fs::exists(path, error)) return path.string();
  }
  return NotFound("no " + std::string(name) + " in " + roots.back().string() +
                  ": set ONEPIECE_RESOURCE_DIR");
}

}  // namespace onepiece::local
