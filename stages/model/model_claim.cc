#include "stages/model/model_claim.h"

#include <algorithm>

#include "nlohmann/json.hpp"
#include "stages/model/weights.h"

namespace onepiece::model {
namespace {

using sdk::ModelClaim;

bool IsIn(std::span<const std::string_view> classes, const std::string& name) {
  return std::ranges::find(classes, name) != classes.end();
}

ModelClaim ClaimComponent(const nlohmann::json& config, const FamilyClasses& family) {
  const std::string name = ClassName(config);
  if (name.empty()) return ModelClaim::kUnclear;
  return IsIn(family.own, name) || IsIn(family.shared, name) ? ModelClaim::kMine
                                                             : ModelClaim::kNotMine;
}

/// In model_index.json each folder name has a pair [library, class].
ModelClaim ClaimModel(const nlohmann::json& index, const FamilyClasses& family) {
  bool others = false, shared = false;
  for (const auto& [name, value] : index.items()) {
    if (!value.is_array() || value.size() != 2 || !value[1].is_string()) continue;
    const std::string component = value[1].get<std::string>();
    if (IsIn(family.own, component)) return ModelClaim::kMine;
    (IsIn(family.shared, component) ? shared : others) = true;
  }
  return others && !shared ? ModelClaim::kNotMine : ModelClaim::kUnclear;
}

}  // namespace

sdk::ModelClaim ClaimByClasses(const std::string& dir, const std::string& expect,
                               const FamilyClasses& family) {
  if (dir.empty()) {
    const auto table = ReadJsonObject(expect);
    if (!table.ok()) return ModelClaim::kUnclear;
    const auto config = table->find("config");
    if (config == table->end() || !config->is_object()) return ModelClaim::kUnclear;
    return ClaimComponent(*config, family);
  }
  const auto index = ReadJsonObject(dir + "/model_index.json");
  if (index.ok()) return ClaimModel(*index, family);
  if (!absl::IsNotFound(index.status())) return ModelClaim::kUnclear;
  const auto config = ReadJsonObject(dir + "/config.json");
  return config.ok() ? ClaimComponent(*config, family) : ModelClaim::kUnclear;
}

}  // namespace onepiece::model
