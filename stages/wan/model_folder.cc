#include "stages/wan/model_folder.h"

#include <algorithm>
#include <filesystem>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/model/config_reader.h"
#include "stages/model/weights.h"

namespace onepiece::wan {
namespace {

constexpr char kSecondTransformer[] = "transformer_2";

/// In model_index.json a component is a pair [library, class], of nulls when the model lacks it.
bool NamesComponent(const nlohmann::json& index, const std::string& name) {
  const auto found = index.find(name);
  return found != index.end() && found->is_array() &&
         std::ranges::any_of(*found, [](const nlohmann::json& part) { return !part.is_null(); });
}

}  // namespace

absl::Status CheckModelFolder(const std::string& dir) {
  const auto index = model::ReadJsonObject(dir + "/model_index.json");
  if (!index.ok() && !absl::IsNotFound(index.status())) return index.status();
  const nlohmann::json settings = index.ok() ? *index : nlohmann::json::object();
  model::ConfigReader reader(settings);
  std::error_code ignored;
  if (NamesComponent(settings, kSecondTransformer) ||
      std::filesystem::exists(dir + "/" + kSecondTransformer, ignored)) {
    reader.Unimplemented(kSecondTransformer,
                         "models with two transformers (Wan2.2 A14B) are not supported yet");
  }
  if (reader.Has("boundary_ratio")) {
    reader.Unimplemented("boundary_ratio",
                         "models with two transformers (Wan2.2 A14B) are not supported yet");
  }
  if (reader.BoolOr("expand_timesteps", false)) {
    reader.Unimplemented("expand_timesteps",
                         "a timestep for each token (Wan2.2 5B) is not supported yet");
  }
  if (!reader.status().ok()) return base::Annotate(reader.status(), dir + "/model_index.json");
  return absl::OkStatus();
}

}  // namespace onepiece::wan
