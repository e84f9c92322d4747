#include "stages/wan/inspect.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/model/weights.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/model_folder.h"
#include "stages/wan/published_component.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::wan {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kTextTokens = 512;
constexpr std::int64_t kAttentionSliceBytes =
    64 << 20;  // The slices of scores in stages/model/layers.cc.

/// The job for which activations are estimated.
struct JobSize {
  std::int64_t frames = 81, height = 480, width = 832;  // What Wan2.1 is published for.
};

/// The reach of the position embedding tells toy models from published ones.
JobSize DefaultJob(const std::optional<TransformerConfig>& transformer) {
  if (transformer && transformer->rope_max_seq_len < 1024) return {9, 64, 64};
  return {};
}

struct Component {
  sdk::ComponentReport report;
  std::optional<model::ComponentFiles> files;
  std::optional<UMT5Config> encoder;
  std::optional<ClipVisionConfig> image_encoder;
  std::optional<TransformerConfig> transformer;
  std::optional<VaeConfig> vae;
};

std::string StageOf(const std::string& name, const std::string& class_name) {
  for (const char* folder : {"tokenizer", "image_encoder", "image_processor"}) {
    if (name == folder) return "text_encode";
  }
  if (class_name == "UMT5EncoderModel" || class_name == "CLIPVisionModel") return "text_encode";
  if (class_name == "WanTransformer3DModel" || name == "scheduler") return "diffusion";
  if (class_name == "AutoencoderKLWan") return "vae_decode";
  return "";
}

std::vector<sdk::TensorGroup> GroupByType(const model::ComponentFiles& files) {
  std::map<std::string, sdk::TensorGroup> groups;
  for (const auto& [name, location] : files.tensors()) {
    const tensor::TensorEntry& entry = *location.entry;
    const std::string dtype(tensor::ElementTypeName(entry.type));
    sdk::TensorGroup& group = groups[dtype];
    group.dtype = dtype;
    group.tensors += 1;
    group.parameters +=
        static_cast<std::int64_t>(entry.bytes) / tensor::ElementTypeBytes(entry.type);
    group.bytes += static_cast<std::int64_t>(entry.bytes);
  }
  std::vector<sdk::TensorGroup> result;
  for (auto& [dtype, group] : groups) result.push_back(std::move(group));
  return result;
}

/// Parses the configuration with `parse`, keeps it in `config`, and checks the files against its
/// tensors.
template <typename Config, typename Parse, typename Tensors>
absl::Status Check(const model::ComponentFiles& files, std::optional<Config>& config, Parse parse,
                   Tensors tensors, const std::vector<std::string>& ignored = {}) {
  auto parsed = parse(files.config());
  if (!parsed.ok()) return base::Annotate(parsed.status(), files.dir() + "/config.json");
  config = *parsed;
  return model::CheckFit(files, tensors(*parsed), ignored);
}

absl::Status CheckComponent(const model::ComponentFiles& files, Component& component) {
  const std::string& name = files.class_name();
  if (name == "UMT5EncoderModel") {
    return Check(files, component.encoder, UMT5Encoder::ParseConfig, UMT5Encoder::Tensors,
                 {"encoder.embed_tokens.weight"});
  }
  if (name == "WanTransformer3DModel") {
    return Check(files, component.transformer, WanTransformer::ParseConfig,
                 WanTransformer::Tensors);
  }
  if (name == "CLIPVisionModel") {
    return Check(files, component.image_encoder, ClipVision::ParseConfig, ClipVision::Tensors,
                 ClipVision::IgnoredTensors());
  }
  if (name == "AutoencoderKLWan")
    return Check(files, component.vae, WanVae::ParseConfig, WanVae::Tensors);
  return absl::OkStatus();
}

absl::StatusOr<Component> InspectComponent(const std::string& dir, const std::string& name,
                                           std::vector<std::string>& problems) {
  ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
  Component component;
  component.report.name = name;
  component.report.class_name = files.class_name();
  component.report.stage = StageOf(name, files.class_name());
  component.report.weights = GroupByType(files);
  component.files = files;
  if (const absl::Status fit = CheckComponent(files, component); !fit.ok())
    problems.push_back(base::Message(fit));
  return component;
}

std::int64_t EncoderActivations(const UMT5Config& c) {
  const std::int64_t scores = c.num_heads * kTextTokens * kTextTokens;
  return kFloatBytes * (3 * scores + kTextTokens * (3 * c.d_ff + 6 * c.d_model));
}

std::int64_t ImageEncoderActivations(const ClipVisionConfig& c) {
  const std::int64_t scores = c.num_heads * c.tokens() * c.tokens();
  return kFloatBytes * (3 * scores + c.tokens() * (2 * c.ffn + 6 * c.hidden));
}

std::int64_t TransformerActivations(const TransformerConfig& c, const JobSize& job) {
  const std::int64_t frames = (1 + (job.frames - 1) / 4) / c.patch_t;
  const std::int64_t tokens = frames * (job.height / 8 / c.patch_h) * (job.width / 8 / c.patch_w);
  // Keys and values of the prompt and of the negative prompt, in every layer.
  const std::int64_t text = 2 * 2 * c.num_layers * kTextTokens * c.dim();
  const std::int64_t scores =
      std::min(2 * c.num_heads * tokens * tokens * kFloatBytes, 3 * kAttentionSliceBytes);
  return kFloatBytes * (tokens * (2 * c.ffn_dim + 8 * c.dim()) + text) + scores;
}

std::int64_t DecoderActivations(const VaeConfig& c, const JobSize& job) {
  const std::int64_t pixels = job.height * job.width;
  // Counts the outermost level. Its input has half the channels of the next level, and every
  // convolution keeps two frames.
  const std::int64_t channels = c.decoder_base_dim * std::max(c.dim_mult[0], c.dim_mult[1] / 2);
  const std::int64_t working = 5 * channels * c.temporal_scale() * pixels;
  const std::int64_t kept =
      2 * 2 * (c.num_res_blocks + 1) * channels * pixels * 2;  // Inner levels add as much.
  return kFloatBytes * (working + kept + 2 * 3 * job.frames * pixels);
}

std::int64_t VaeEncoderActivations(const VaeConfig& c, const JobSize& job) {
  const std::int64_t pixels = job.height * job.width;
  // Like the decoder in reverse order. The whole video is in memory, as zeros after its images.
  const std::int64_t working = 5 * c.base_dim * c.temporal_scale() * pixels;
  const std::int64_t kept = 2 * 2 * c.num_res_blocks * c.base_dim * pixels * 2;
  return kFloatBytes * (working + kept + 3 * job.frames * pixels);
}

std::int64_t Parameters(const sdk::ComponentReport& report) {
  std::int64_t parameters = 0;
  for (const sdk::TensorGroup& group : report.weights) parameters += group.parameters;
  return parameters;
}

/// Adds to the stage of that name. The components of one stage hold their weights at the same time
/// and compute one after the other.
void AddMemory(std::vector<sdk::StageMemory>& stages, const std::string& stage,
               std::int64_t weight_bytes, std::int64_t activation_bytes) {
  for (sdk::StageMemory& memory : stages) {
    if (memory.stage != stage) continue;
    memory.weight_bytes += weight_bytes;
    memory.activation_bytes = std::max(memory.activation_bytes, activation_bytes);
    return;
  }
  stages.push_back({stage, weight_bytes, activation_bytes});
}

std::vector<sdk::StageMemory> EstimateStages(const std::vector<Component>& components) {
  std::optional<TransformerConfig> transformer;
  for (const Component& component : components) {
    if (component.transformer) transformer = component.transformer;
  }
  const bool image_to_video = transformer && transformer->in_channels > transformer->out_channels;
  const JobSize job = DefaultJob(transformer);
  std::vector<sdk::StageMemory> stages;
  for (const Component& component : components) {
    // Computed in F32, whatever type is stored.
    const std::int64_t weights = Parameters(component.report) * kFloatBytes;
    std::int64_t activations = 0;
    if (component.encoder) activations = EncoderActivations(*component.encoder);
    if (component.image_encoder) activations = ImageEncoderActivations(*component.image_encoder);
    if (component.transformer) activations = TransformerActivations(*component.transformer, job);
    if (component.vae) activations = DecoderActivations(*component.vae, job);
    if (activations > 0) AddMemory(stages, component.report.stage, weights, activations);
    if (component.vae && image_to_video)
      AddMemory(stages, "vae_encode", weights, VaeEncoderActivations(*component.vae, job));
  }
  return stages;
}

/// Returns the components of a model_index.json: [library, class] pairs by folder name. A pair of
/// null means that the model lacks the component.
absl::StatusOr<std::vector<Component>> InspectFolders(const std::string& dir,
                                                      const nlohmann::json& index,
                                                      std::vector<std::string>& problems) {
  std::vector<Component> components;
  for (const auto& [name, value] : index.items()) {
    if (!value.is_array() || value.size() != 2 || !value[1].is_string()) continue;
    if (std::filesystem::path(name).filename() != name || name == "..") {
      problems.push_back("model_index.json names a component outside of the folder");
      continue;
    }
    const std::string path = dir + "/" + name;
    if (std::filesystem::exists(path + "/config.json")) {
      ONEPIECE_ASSIGN_OR_RETURN(components.emplace_back(), InspectComponent(path, name, problems));
      continue;
    }
    if (!std::filesystem::is_directory(path)) problems.push_back(path + " is missing");
    Component component;
    component.report.name = name;
    component.report.class_name = value[1].get<std::string>();
    component.report.stage = StageOf(name, component.report.class_name);
    components.push_back(std::move(component));
  }
  return components;
}

/// Compares the tensors that this build asks for, given the published config, with the published
/// ones.
absl::StatusOr<sdk::InspectReport> InspectPublished(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const PublishedComponent published, PublishedComponent::Read(path));
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<model::TensorSpec> asked, TensorsOf(published));
  sdk::InspectReport report{.model = std::filesystem::path(path).stem().string()};
  report.problems = published.Compare(asked, "this build");
  sdk::ComponentReport component{.name = report.model, .class_name = published.class_name};
  component.stage = StageOf(report.model, published.class_name);
  component.weights.push_back(published.Totals());
  report.components.push_back(std::move(component));
  return report;
}

/// Compares the component of the published one's class with it.
absl::Status CompareWithPublished(const std::vector<Component>& components, const std::string& path,
                                  sdk::InspectReport& report) {
  ONEPIECE_ASSIGN_OR_RETURN(const PublishedComponent published, PublishedComponent::Read(path));
  for (const Component& component : components) {
    if (!component.files || component.files->class_name() != published.class_name) continue;
    std::vector<model::TensorSpec> held;
    for (const auto& [name, location] : component.files->tensors())
      held.push_back({name, location.entry->shape});
    for (std::string& problem : published.Compare(held, component.files->dir()))
      report.problems.push_back(std::move(problem));
    return absl::OkStatus();
  }
  report.problems.push_back("there is no " + published.class_name + " to hold against " + path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<sdk::InspectReport> InspectModel(const std::string& dir, const std::string& expect) {
  if (dir.empty()) return InspectPublished(expect);
  sdk::InspectReport report;
  std::vector<Component> components;
  const std::filesystem::path path = std::filesystem::path(dir).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  if (std::filesystem::exists(dir + "/model_index.json")) {
    ONEPIECE_ASSIGN_OR_RETURN(const nlohmann::json index,
                              model::ReadJsonObject(dir + "/model_index.json"));
    ONEPIECE_ASSIGN_OR_RETURN(components, InspectFolders(dir, index, report.problems));
    if (const absl::Status status = CheckModelFolder(dir); !status.ok())
      report.problems.push_back(base::Message(status));
  } else {
    ONEPIECE_ASSIGN_OR_RETURN(components.emplace_back(),
                              InspectComponent(dir, name, report.problems));
  }
  report.model = name;
  report.stages = EstimateStages(components);
  if (!expect.empty()) ONEPIECE_RETURN_IF_ERROR(CompareWithPublished(components, expect, report));
  for (Component& component : components) report.components.push_back(std::move(component.report));
  return report;
}

}  // namespace onepiece::wan
