#include "stages/model/weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/tensor/torch_convert.h"

namespace onepiece::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxIndexBytes = 64 << 20;
constexpr std::size_t kMaxShards = 1000;
constexpr std::size_t kProblemsShown = 5;

absl::Status BadWeights(const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_WEIGHTS", message);
}

absl::Status BadConfig(const std::string& path, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", path + ": " + what,
                         {{"file", path}});
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

struct FolderListing {
  std::vector<std::string> indexes, weights;
};

absl::StatusOr<FolderListing> ListFolder(const std::string& dir) {
  std::error_code error;
  FolderListing listing;
  if (fs::is_symlink(dir, error)) {
    return BadWeights(dir + " is a symbolic link: put the folder itself there");
  }
  fs::directory_iterator entries(dir, error);
  if (error) {
    return base::MakeError(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                           dir + ": " + error.message(), {{"file", dir}});
  }
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    if (error) break;
    const std::string name = entries->path().filename().string();
    if (name.ends_with(".safetensors.index.json")) listing.indexes.push_back(name);
    if (name.ends_with(".safetensors") && name != "io.safetensors") listing.weights.push_back(name);
  }
  return listing;
}

/// Reads the index of a sharded model: tensor name → file name.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonObject(path, kMaxIndexBytes));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object())
    return BadConfig(path, "there is no weight_map");
  std::map<std::string, std::string> result;
  for (const auto& [name, file] : weight_map->items()) {
    // A shard lies beside its index. A path would let a hostile index reach other folders.
    if (!file.is_string() ||
        fs::path(file.get<std::string>()).filename() != file.get<std::string>() ||
        !file.get<std::string>().ends_with(".safetensors")) {
      return BadConfig(path, "weight_map of \"" + name.substr(0, 200) +
                                 "\" is not the name of a .safetensors file");
    }
    result.emplace(name, file.get<std::string>());
  }
  return result;
}

}  // namespace

std::string ClassName(const nlohmann::json& config) {
  if (const auto name = config.find("_class_name"); name != config.end() && name->is_string())
    return *name;
  const auto list = config.find("architectures");
  if (list != config.end() && list->is_array() && !list->empty() && list->front().is_string())
    return list->front();
  return "";
}

absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path, std::int64_t max_bytes) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) {
    return base::MakeError(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                           path + ": " + error.message(), {{"file", path}});
  }
  if (size > static_cast<std::uint64_t>(max_bytes)) return BadConfig(path, "the file is too large");
  std::ifstream stream(path, std::ios::binary);
  std::string text(size, '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(size)))
    return BadConfig(path, "cannot be read");
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return BadConfig(path, "not a JSON object");
  return json;
}

absl::StatusOr<ComponentFiles> ComponentFiles::Open(const std::string& dir) {
  ComponentFiles files;
  files.dir_ = dir;
  ONEPIECE_ASSIGN_OR_RETURN(const FolderListing listing, ListFolder(dir));
  ONEPIECE_ASSIGN_OR_RETURN(nlohmann::json config, ReadJsonObject(dir + "/config.json"));
  files.class_name_ = ClassName(config);
  files.config_ = std::make_shared<const nlohmann::json>(std::move(config));
  if (files.class_name_.empty())
    return BadConfig(dir + "/config.json", "neither _class_name nor architectures");

  files.paths_ = {dir + "/config.json"};
  std::map<std::string, std::string> weight_map;
  std::set<std::string> names;
  if (listing.indexes.size() == 1) {
    ONEPIECE_ASSIGN_OR_RETURN(weight_map, ReadWeightMap(dir + "/" + listing.indexes.front()));
    for (const auto& [tensor, file] : weight_map) names.insert(file);
    files.paths_.push_back(dir + "/" + listing.indexes.front());
    if (names.size() > kMaxShards) return BadWeights(dir + ": more than 1000 shards");
  } else if (listing.indexes.empty() && listing.weights.size() == 1) {
    names.insert(listing.weights.front());
  } else {
    return BadWeights(dir + ": needs one .safetensors file or one .safetensors.index.json, has " +
                      std::to_string(listing.weights.size()) + " and " +
                      std::to_string(listing.indexes.size()));
  }
  for (const std::string& name : names) {
    files.paths_.push_back(dir + "/" + name);
    ONEPIECE_ASSIGN_OR_RETURN(const auto file, tensor::SafetensorsFile::Open(dir + "/" + name));
    for (const tensor::TensorEntry& entry : file->index().tensors) {
      const auto mapped = weight_map.find(entry.name);
      if (!weight_map.empty() && (mapped == weight_map.end() || mapped->second != name)) {
        return BadWeights(file->path() + ": tensor \"" + entry.name +
                          "\" is not where the index says");
      }
      files.tensors_.emplace(entry.name, Location{file, &entry});
    }
  }
  for (const auto& [tensor, name] : weight_map) {
    if (!files.tensors_.contains(tensor)) {
      return BadWeights(dir + "/" + name + ": tensor \"" + tensor + "\" of the index is missing");
    }
  }
  return files;
}

void ComponentFiles::Forget() const {
  for (const auto& [name, location] : tensors_) location.file->Forget(*location.entry);
}

at::Tensor WeightBinder::GetAs(const std::string& name, std::vector<std::int64_t> shape,
                               at::ScalarType type) {
  specs_.push_back({name, std::move(shape)});
  if (files_ == nullptr || !status_.ok()) return {};
  const auto found = files_->tensors().find(name);
  if (found == files_->tensors().end()) {
    status_ = BadWeights(files_->dir() + ": tensor \"" + name + "\" is missing");
    return {};
  }
  auto loaded = tensor::LoadTensor(found->second.file, *found->second.entry, type, device_);
  if (!loaded.ok()) {
    status_ = loaded.status();
    return {};
  }
  // The sum reads the weights once, at the speed of memory. It may overflow although all weights
  // are finite.
  if (!std::isfinite(loaded->sum().item<float>()) && !at::isfinite(*loaded).all().item<bool>()) {
    status_ =
        BadWeights(files_->dir() + ": tensor \"" + name + "\" holds values that are not finite");
    return {};
  }
  if (change_) *loaded = change_(name, *loaded);
  bytes_ += static_cast<std::int64_t>(loaded->nbytes());
  // The tensor is a copy, so the file's pages would take memory in addition.
  const auto data = found->second.file->Data(*found->second.entry);
  if (loaded->data_ptr() != static_cast<const void*>(data.data()))
    found->second.file->Forget(*found->second.entry);
  return *std::move(loaded);
}

absl::StatusOr<at::ScalarType> ParsePrecision(std::string_view precision, at::Device device) {
  const auto bad = [&](const std::string& what) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PRECISION",
                           "precision \"" + std::string(precision.substr(0, 20)) + "\": " + what,
                           {{"precision", std::string(precision.substr(0, 20))}});
  };
  if (precision == "f32") return at::kFloat;
  if (precision == "bf16") return at::kBFloat16;
  if (precision != "f16") return bad("use f32, bf16 or, on a GPU, f16");
  // LibTorch has no F16 products on the CPU.
  if (device.is_cpu()) return bad("the CPU does not compute in it; use f32 or bf16");
  return at::kHalf;
}

absl::Status CheckFit(const ComponentFiles& files, const std::vector<TensorSpec>& specs,
                      const std::vector<std::string>& ignored) {
  std::vector<std::string> problems;
  std::set<std::string_view> known(ignored.begin(), ignored.end());
  for (const TensorSpec& spec : specs) {
    known.insert(spec.name);
    const auto found = files.tensors().find(spec.name);
    if (found == files.tensors().end()) {
      problems.push_back("tensor \"" + spec.name + "\" is missing");
      continue;
    }
    const tensor::TensorEntry& entry = *found->second.entry;
    if (entry.shape != spec.shape) {
      problems.push_back("tensor \"" + spec.name + "\" has shape " + ShapeText(entry.shape) +
                         ", config.json calls for " + ShapeText(spec.shape));
    }
    const bool floating = entry.type == tensor::ElementType::kF32 ||
                          entry.type == tensor::ElementType::kF16 ||
                          entry.type == tensor::ElementType::kBF16;
    if (!floating) {
      problems.push_back("tensor \"" + spec.name + "\" has dtype " +
                         std::string(tensor::ElementTypeName(entry.type)) +
                         ", weights are F32, F16 or BF16");
    }
  }
  for (const auto& [name, location] : files.tensors()) {
    if (!known.contains(name))
      problems.push_back("tensor \"" + name.substr(0, 200) + "\" is unknown");
  }
  if (problems.empty()) return absl::OkStatus();
  std::string message = files.dir() + ": the weights do not fit config.json: ";
  for (std::size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i) {
    message += (i == 0 ? "" : "; ") + problems[i];
  }
  if (problems.size() > kProblemsShown) {
    message += "; and " + std::to_string(problems.size() - kProblemsShown) + " more";
  }
  return BadWeights(message);
}

}  // namespace onepiece::model
