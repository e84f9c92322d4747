#include "stages/wan/published_component.h"

#include <map>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/wan/autoencoder.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::wan {
namespace {

absl::Status BadTable(const std::string& path, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", path + ": " + what,
                         {{"file", path}});
}

template <typename Model>
absl::StatusOr<std::vector<model::TensorSpec>> Ask(const nlohmann::json& json) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto config, Model::ParseConfig(json));
  return Model::Tensors(config);
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return nlohmann::json(shape).dump();
}

}  // namespace

absl::StatusOr<PublishedComponent> PublishedComponent::Read(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const nlohmann::json json, model::ReadJsonObject(path));
  const auto config = json.find("config"), tensors = json.find("tensors");
  if (config == json.end() || !config->is_object() || tensors == json.end() ||
      !tensors->is_object()) {
    return BadTable(path, "does not list a config and tensors");
  }
  PublishedComponent published;
  published.config = std::make_shared<const nlohmann::json>(*config);
  published.class_name = model::ClassName(*config);
  for (const auto& [name, shape] : tensors->items()) {
    model::TensorSpec spec{name, {}};
    for (const auto& extent : shape) {
      if (!extent.is_number_integer()) return BadTable(path, "the shape of " + name);
      spec.shape.push_back(extent.get<std::int64_t>());
    }
    published.tensors.push_back(std::move(spec));
  }
  return published;
}

std::vector<std::string> PublishedComponent::Compare(const std::vector<model::TensorSpec>& held,
                                                     const std::string& holder) const {
  std::map<std::string_view, const model::TensorSpec*> left;
  for (const model::TensorSpec& spec : held) left.emplace(spec.name, &spec);
  std::vector<std::string> problems;
  for (const model::TensorSpec& spec : tensors) {
    const auto found = left.find(spec.name);
    if (found == left.end()) {
      problems.push_back(holder + ": tensor \"" + spec.name + "\" is missing");
      continue;
    }
    if (found->second->shape != spec.shape) {
      problems.push_back(holder + ": tensor \"" + spec.name + "\" has shape " +
                         ShapeText(found->second->shape) + ", published is " +
                         ShapeText(spec.shape));
    }
    left.erase(found);
  }
  for (const auto& [name, spec] : left)
    problems.push_back(holder + ": tensor \"" + std::string(name.substr(0, 200)) +
                       "\" is unexpected");
  return problems;
}

sdk::TensorGroup PublishedComponent::Totals() const {
  sdk::TensorGroup group{.dtype = "F32", .tensors = static_cast<std::int64_t>(tensors.size())};
  for (const model::TensorSpec& spec : tensors) {
    std::int64_t count = 1;
    for (const std::int64_t extent : spec.shape) count *= extent;
    group.parameters += count;
  }
  group.bytes = 4 * group.parameters;
  return group;
}

absl::StatusOr<std::vector<model::TensorSpec>> TensorsOf(const PublishedComponent& published) {
  const nlohmann::json& config = *published.config;
  if (published.class_name == "UMT5EncoderModel") return Ask<UMT5Encoder>(config);
  if (published.class_name == "CLIPVisionModel") return Ask<ClipVision>(config);
  if (published.class_name == "WanTransformer3DModel") return Ask<WanTransformer>(config);
  if (published.class_name == "AutoencoderKLWan") return Ask<WanVae>(config);
  return base::MakeError(absl::StatusCode::kUnimplemented, "UNSUPPORTED_COMPONENT",
                         published.class_name.substr(0, 100) + " is not supported");
}

}  // namespace onepiece::wan
