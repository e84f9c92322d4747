#include "stages/instance/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "cluster/base/status.h"

namespace onepiece::instance {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownBytes = 200;

// Both are absolute and normal. A trailing slash leaves an empty last component.
bool IsBelow(const fs::path& path, const fs::path& root) {
  auto part = path.begin();
  for (const fs::path& above : root) {
    if (above.empty()) break;
    if (part == path.end() || *part != above) return false;
    ++part;
  }
  return true;
}

std::vector<fs::path> RootsOf(const v1::InstanceConfig& config) {
  std::vector<fs::path> roots{
      fs::absolute(config.model_root().empty() ? "." : config.model_root()).lexically_normal()};
  for (const std::string& root : config.model_roots())
    roots.push_back(fs::absolute(root).lexically_normal());
  return roots;
}

absl::Status Refuse(const std::string& model, std::string_view why,
                    const std::vector<fs::path>& roots) {
  std::string known;
  for (const fs::path& root : roots) known += (known.empty() ? "" : ", ") + root.string();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_MODEL_PATH",
                         "model \"" + model.substr(0, kShownBytes) + "\" " + std::string(why) +
                             " the folders of models (" + known +
                             "): move it there, or add its folder to model_roots of this instance",
                         {{"model", model.substr(0, kShownBytes)}});
}

// What the links on the way lead to. A folder that does not exist stays as it is.
bool IsReallyBelow(const fs::path& folder, const std::vector<fs::path>& roots) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(folder, error);
  if (error) return false;
  return std::ranges::any_of(roots, [&](const fs::path& root) {
    const fs::path real_root = fs::weakly_canonical(root, error);
    return !error && IsBelow(real, real_root);
  });
}

fs::path Locate(const std::string& model, const std::vector<fs::path>& roots) {
  for (const fs::path& root : roots) {
    const fs::path folder = (root / model).lexically_normal();
    std::error_code error;
    if (IsBelow(folder, root) && fs::exists(folder, error)) return folder;
  }
  return (roots.front() / model).lexically_normal();
}

}  // namespace

absl::StatusOr<std::string> FindModel(const v1::InstanceConfig& config, const std::string& model) {
  if (model.empty()) return std::string();
  const std::vector<fs::path> roots = RootsOf(config);
  const fs::path folder = Locate(model, roots);
  if (std::ranges::none_of(roots, [&](const fs::path& root) { return IsBelow(folder, root); }))
    return Refuse(model, "is outside of", roots);
  if (!IsReallyBelow(folder, roots)) return Refuse(model, "leads by a symbolic link out of", roots);
  return folder.string();
}

}  // namespace onepiece::instance
