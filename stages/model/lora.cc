#include "stages/model/lora.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/sdk/parameters.h"
#include "stages/tensor/safetensors.h"
#include "stages/tensor/torch_convert.h"

namespace onepiece::model {
namespace {

constexpr std::size_t kLoraProblemsShown = 5;
constexpr std::size_t kMaxNameBytes = 64;
constexpr char kMetadata[] = "lora_adapter_metadata";

enum class Part { kDown, kUp, kAlpha };

struct Key {
  std::string module;
  Part part = Part::kDown;
};

std::string_view WithoutPrefix(std::string_view name) {
  for (const std::string_view prefix : {"base_model.model.", "transformer."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return name;
}

std::optional<Key> ParseKey(std::string_view name) {
  static constexpr std::pair<std::string_view, Part> kSuffixes[] = {
      {".lora_A.weight", Part::kDown},
      {".lora_A.default.weight", Part::kDown},
      {".lora_down.weight", Part::kDown},
      {".lora_B.weight", Part::kUp},
      {".lora_B.default.weight", Part::kUp},
      {".lora_up.weight", Part::kUp},
      {".alpha", Part::kAlpha}};
  name = WithoutPrefix(name);
  for (const auto& [suffix, part] : kSuffixes) {
    if (name.ends_with(suffix) && name.size() > suffix.size()) {
      return Key{std::string(name.substr(0, name.size() - suffix.size())), part};
    }
  }
  return std::nullopt;
}

std::string Quoted(std::string_view name) {
  return absl::StrCat("\"", std::string(name.substr(0, 200)), "\"");
}

std::string ShapeOf(const at::Tensor& b, const at::Tensor& a) {
  return absl::StrCat("[", b.size(0), ", ", a.size(1), "]");
}

/// Returns the first problems in one message.
absl::Status BadLora(const std::string& path, const std::string& what,
                     const std::vector<std::string>& problems) {
  std::string text = path + ": " + what;
  for (std::size_t i = 0; i < std::min(problems.size(), kLoraProblemsShown); ++i) {
    absl::StrAppend(&text, i == 0 ? ": " : "; ", problems[i]);
  }
  if (problems.size() > kLoraProblemsShown) {
    absl::StrAppend(&text, "; and ", problems.size() - kLoraProblemsShown, " more");
  }
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_LORA", text, {{"file", path}});
}

bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace

/// Reads a file into an adapter and collects its problems.
class LoraAdapter::Reader {
 public:
  Reader(std::shared_ptr<const tensor::SafetensorsFile> file, LoraAdapter& adapter)
      : file_(std::move(file)), adapter_(adapter) {}

  absl::Status Read() {
    for (const tensor::TensorEntry& entry : file_->index().tensors) {
      ONEPIECE_RETURN_IF_ERROR(ReadTensor(entry));
    }
    if (file_->index().tensors.empty()) problems_.emplace_back("it holds no tensors");
    ReadMetadata();
    for (auto& [weight, target] : adapter_.targets_) Finish(weight, target);
    if (problems_.empty()) return absl::OkStatus();
    return BadLora(file_->path(), "not a LoRA adapter that can be used", problems_);
  }

 private:
  absl::Status ReadTensor(const tensor::TensorEntry& entry) {
    const auto key = ParseKey(entry.name);
    if (!key.has_value()) {
      problems_.push_back("unknown key " + Quoted(entry.name));
      return absl::OkStatus();
    }
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor value,
                              tensor::LoadTensor(file_, entry, at::kFloat, at::kCPU));
    if (!at::isfinite(value).all().item<bool>()) {
      problems_.push_back(Quoted(entry.name) + " holds values that are not finite");
    }
    Target& target = adapter_.targets_[key->module + ".weight"];
    if (key->part == Part::kAlpha) {
      if (value.numel() != 1) problems_.push_back(Quoted(entry.name) + " is not one number");
      if (value.numel() == 1) target.alpha = value.item<double>();
      target.has_alpha = true;
      return absl::OkStatus();
    }
    at::Tensor& slot = key->part == Part::kDown ? target.a : target.b;
    if (slot.defined()) problems_.push_back(Quoted(entry.name) + " is there under two names");
    if (value.dim() != 2) problems_.push_back(Quoted(entry.name) + " is not a matrix");
    slot = value;
    return absl::OkStatus();
  }

  /// Reads lora_alpha and alpha_pattern of PEFT's configuration.
  void ReadMetadata() {
    const auto found = file_->index().metadata.find(kMetadata);
    if (found == file_->index().metadata.end()) return;
    const auto json = nlohmann::json::parse(found->second, nullptr, false);
    if (!json.is_object()) {
      problems_.push_back(std::string("metadata ") + kMetadata + " is not a JSON object");
      return;
    }
    for (const auto& [name, value] : json.items()) {
      const std::string_view field = WithoutPrefix(name);
      if (field == "lora_alpha" && value.is_number()) default_alpha_ = value.get<double>();
      if (field == "alpha_pattern" && value.is_object()) alphas_ = value;
      if ((field == "use_rslora" || field == "use_dora") && value == true) {
        problems_.push_back(std::string(field) + " is not supported");
      }
    }
  }

  void Finish(const std::string& weight, Target& target) {
    const std::string module = weight.substr(0, weight.size() - std::string_view(".weight").size());
    if (!target.a.defined() || !target.b.defined()) {
      problems_.push_back(
          absl::StrCat("module ", Quoted(module), " lacks ",
                       target.a.defined() ? "its up (B) half" : "its down (A) half"));
      return;
    }
    if (target.a.dim() != 2 || target.b.dim() != 2) return;  // Reported already.
    const std::int64_t rank = target.a.size(0);
    if (rank < 1 || target.b.size(1) != rank) {
      problems_.push_back(absl::StrCat("the halves of module ", Quoted(module), " have ranks ",
                                       rank, " and ", target.b.size(1)));
      return;
    }
    if (target.has_alpha) return;
    target.alpha = default_alpha_.value_or(static_cast<double>(rank));
    // PEFT's patterns match the end of a module's name.
    for (const auto& [pattern, alpha] : alphas_.items()) {
      const std::string end(WithoutPrefix(pattern));
      const bool fits = module == end || module.ends_with(absl::StrCat(".", end));
      if (fits && alpha.is_number()) target.alpha = alpha.get<double>();
    }
  }

  const std::shared_ptr<const tensor::SafetensorsFile> file_;
  LoraAdapter& adapter_;
  std::vector<std::string> problems_;
  std::optional<double> default_alpha_;
  nlohmann::json alphas_ = nlohmann::json::object();
};

absl::StatusOr<std::shared_ptr<const LoraAdapter>> LoraAdapter::Open(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(auto file, tensor::SafetensorsFile::Open(path));
  auto adapter = std::make_shared<LoraAdapter>();
  adapter->path_ = path;
  ONEPIECE_RETURN_IF_ERROR(Reader(std::move(file), *adapter).Read());
  return adapter;
}

absl::Status LoraAdapter::CheckFit(const std::vector<TensorSpec>& tensors) const {
  std::map<std::string_view, const TensorSpec*> known;
  for (const TensorSpec& spec : tensors) known.emplace(spec.name, &spec);
  std::vector<std::string> problems;
  for (const auto& [weight, target] : targets_) {
    const auto found = known.find(weight);
    if (found == known.end()) {
      problems.push_back("it has no " + Quoted(weight));
    } else if (found->second->shape !=
               std::vector<std::int64_t>{target.b.size(0), target.a.size(1)}) {
      std::string shape;
      for (const std::int64_t extent : found->second->shape) {
        absl::StrAppend(&shape, shape.empty() ? "" : ", ", extent);
      }
      problems.push_back(absl::StrCat(Quoted(weight), " is [", shape, "] there and ",
                                      ShapeOf(target.b, target.a), " here"));
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return BadLora(path_, "an adapter of another model than this one", problems);
}

bool LoraAdapter::Changes(std::string_view weight) const { return targets_.contains(weight); }

at::Tensor LoraAdapter::Delta(std::string_view weight, at::Device device) const {
  const auto found = targets_.find(weight);
  ONEPIECE_CHECK(found != targets_.end());
  const Target& target = found->second;
  const double scale = target.alpha / static_cast<double>(target.a.size(0));
  return at::matmul(target.b.to(device), target.a.to(device)) * scale;
}

absl::StatusOr<std::vector<LoraChoice>> ParseLoras(std::string_view parameter,
                                                   std::string_view text) {
  std::vector<LoraChoice> choices;
  if (text.empty()) return choices;
  std::set<std::string> names;
  const std::vector<std::string> items = absl::StrSplit(std::string(text), ',');
  for (const std::string& item : items) {
    const std::vector<std::string> parts = absl::StrSplit(item, ':');
    LoraChoice choice{.name = parts[0]};
    if (!IsName(choice.name)) {
      return sdk::BadParameter(parameter, Quoted(choice.name) +
                                              " is not the name of an adapter (letters, digits, "
                                              "'.', '_', '-')");
    }
    const bool number =
        parts.size() == 1 || (parts.size() == 2 && absl::SimpleAtod(parts[1], &choice.scale));
    if (!number || !(std::abs(choice.scale) <= kMaxLoraScale)) {
      return sdk::BadParameter(
          parameter, absl::StrCat(Quoted(item), " is not NAME or NAME:SCALE with a scale within ±",
                                  kMaxLoraScale));
    }
    if (!names.insert(choice.name).second) {
      return sdk::BadParameter(parameter, Quoted(choice.name) + " is named twice");
    }
    choices.push_back(std::move(choice));
  }
  if (choices.size() > kMaxLoras) {
    return sdk::BadParameter(parameter, absl::StrCat("at most ", kMaxLoras, " adapters"));
  }
  return choices;
}

WeightChange MergeLoras(std::vector<ScaledLora> loras) {
  return [loras = std::move(loras)](const std::string& name, const at::Tensor& weight) {
    at::Tensor changed = weight;
    for (const ScaledLora& lora : loras) {
      if (!lora.adapter->Changes(name)) continue;
      changed = changed.to(at::kFloat) + lora.adapter->Delta(name, weight.device()) * lora.scale;
    }
    // Rounds once, however many adapters there are.
    return changed.to(weight.scalar_type());
  };
}

}  // namespace onepiece::model
