#include "stages/wan/verify_reference.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/status.h"
#include "stages/model/generation_settings.h"
#include "stages/model/image_processor.h"
#include "stages/model/prepare_load.h"
#include "stages/model/tokenizer.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/device_copy.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/family.h"
#include "stages/wan/generation.h"
#include "stages/wan/model_folder.h"

namespace onepiece::wan {
namespace {

constexpr double kRelativeTolerance = 1e-3, kPixelTolerance = 2;
constexpr std::string_view kInitialNoise = "latents_init";
constexpr std::string_view kImages[] = {"image", "last_image"};

using TensorMap = std::map<std::string, at::Tensor, std::less<>>;

/// The model, and where to load it.
struct Source {
  std::string dir;
  at::Device device;
};

absl::Status BadReference(std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_REFERENCE", message);
}

/// Reads the recorded settings as if they were a job's parameters, so that they pass the same
/// checks.
class Recording {
 public:
  static absl::StatusOr<Recording> Open(const std::string& path) {
    Recording recording;
    ONEPIECE_ASSIGN_OR_RETURN(recording.file_, tensor::SafetensorsFile::Open(path));
    ONEPIECE_RETURN_IF_ERROR(recording.ReadMetadata());
    ONEPIECE_ASSIGN_OR_RETURN(recording.settings_,
                              model::ReadSettings(recording.parameters_, kGeometry));
    return recording;
  }

  [[nodiscard]] const tensor::SafetensorsIndex& index() const { return file_->index(); }
  [[nodiscard]] absl::StatusOr<at::Tensor> Read(const tensor::TensorEntry& entry) const {
    return tensor::ViewTensor(file_, entry);
  }
  [[nodiscard]] const model::GenerationSettings& settings() const { return settings_; }
  [[nodiscard]] const std::string& prompt() const { return prompt_; }
  [[nodiscard]] const std::string& negative_prompt() const { return negative_prompt_; }
  [[nodiscard]] int max_sequence_length() const { return max_sequence_length_; }
  [[nodiscard]] double flow_shift() const { return flow_shift_; }
  [[nodiscard]] model::SchedulerConfig::Kind scheduler() const { return scheduler_; }

 private:
  absl::StatusOr<std::string> Text(std::string_view key) const {
    const auto found = index().metadata.find(std::string(key));
    if (found == index().metadata.end())
      return BadReference("metadata " + std::string(key) + ": missing");
    return found->second;
  }

  template <typename Number>
  absl::StatusOr<Number> Value(std::string_view key) const {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string text, Text(key));
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
      return BadReference("metadata " + std::string(key) + ": not a number: " + text);
    }
    return number;
  }

  absl::Status ReadMetadata() {
    ONEPIECE_ASSIGN_OR_RETURN(prompt_, Text("prompt"));
    ONEPIECE_ASSIGN_OR_RETURN(negative_prompt_, Text("negative_prompt"));
    const std::pair<const char*, const char*> integers[] = {{"seed", "seed"},
                                                            {"num_inference_steps", "steps"},
                                                            {"height", "height"},
                                                            {"width", "width"},
                                                            {"num_frames", "num_frames"}};
    for (const auto& [key, parameter] : integers) {
      ONEPIECE_ASSIGN_OR_RETURN(parameters_[parameter], Value<std::int64_t>(key));
    }
    ONEPIECE_ASSIGN_OR_RETURN(parameters_["guidance_scale"], Value<double>("guidance_scale"));
    ONEPIECE_ASSIGN_OR_RETURN(flow_shift_, Value<double>("flow_shift"));
    ONEPIECE_ASSIGN_OR_RETURN(max_sequence_length_, Value<int>("max_sequence_length"));
    if (max_sequence_length_ < 1 || max_sequence_length_ > kMaxSequenceLength) {
      return BadReference("metadata max_sequence_length: not within 1 to " +
                          std::to_string(kMaxSequenceLength));
    }
    ONEPIECE_ASSIGN_OR_RETURN(const std::string scheduler, Text("scheduler"));
    if (scheduler == "UniPCMultistepScheduler") {
      scheduler_ = model::SchedulerConfig::Kind::kUniPC;
    } else if (scheduler == "FlowMatchEulerDiscreteScheduler") {
      scheduler_ = model::SchedulerConfig::Kind::kFlowMatchEuler;
    } else {
      return BadReference("metadata scheduler: unknown: " + scheduler);
    }
    return absl::OkStatus();
  }

  std::shared_ptr<const tensor::SafetensorsFile> file_;
  sdk::Parameters parameters_;
  model::GenerationSettings settings_;
  std::string prompt_, negative_prompt_;
  int max_sequence_length_ = 0;
  double flow_shift_ = 0;
  model::SchedulerConfig::Kind scheduler_ = model::SchedulerConfig::Kind::kUniPC;
};

absl::Status ReplayText(const Source& model, const Recording& recording, TensorMap& made) {
  ONEPIECE_ASSIGN_OR_RETURN(const model::Tokenizer tokenizer,
                            model::Tokenizer::Load(model.dir + "/tokenizer"));
  ONEPIECE_ASSIGN_OR_RETURN(const UMT5Encoder encoder,
                            UMT5Encoder::Load(model.dir + "/text_encoder", model.device));
  for (const std::string prefix : {"", "negative_"}) {
    const std::string& text = prefix.empty() ? recording.prompt() : recording.negative_prompt();
    ONEPIECE_ASSIGN_OR_RETURN(const auto ids,
                              PromptIds(tokenizer, text, recording.max_sequence_length()));
    made[prefix + "input_ids"] = at::tensor(ids, at::kLong).unsqueeze(0);
    ONEPIECE_ASSIGN_OR_RETURN(made[prefix + "prompt_embeds"],
                              EncodeIds(encoder, ids, model.device));
  }
  return absl::OkStatus();
}

/// Returns the recorded images: none, `image`, or `image` and `last_image`, U8 [height, width, 3]
/// each.
absl::StatusOr<std::vector<media::Image>> ReadImages(const Recording& recording) {
  std::vector<media::Image> images;
  for (const std::string_view name : kImages) {
    const tensor::TensorEntry* entry = recording.index().Find(name);
    if (entry == nullptr) break;
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor pixels, recording.Read(*entry));
    if (pixels.scalar_type() != at::kByte || pixels.dim() != 3 || pixels.size(2) != 3 ||
        pixels.numel() == 0) {
      return BadReference(std::string(name) + ": not U8 [height, width, 3]");
    }
    const auto* bytes = static_cast<const std::byte*>(pixels.data_ptr());
    images.push_back({pixels.size(1), pixels.size(0), {bytes, bytes + pixels.numel()}});
  }
  return images;
}

absl::Status ReplayImages(const Source& model, const Recording& recording, TensorMap& made) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<media::Image> images, ReadImages(recording));
  if (images.empty()) return absl::OkStatus();
  const model::GenerationSettings& settings = recording.settings();
  if (std::filesystem::exists(model.dir + "/image_encoder")) {
    ONEPIECE_ASSIGN_OR_RETURN(const model::ImageProcessor processor,
                              model::ImageProcessor::Load(model.dir + "/image_processor"));
    ONEPIECE_ASSIGN_OR_RETURN(const ClipVision encoder,
                              ClipVision::Load(model.dir + "/image_encoder", model.device));
    ONEPIECE_ASSIGN_OR_RETURN(made["pixel_values"], model::PixelValues(processor, images));
    ONEPIECE_ASSIGN_OR_RETURN(made["image_embeds"], encoder.Forward(made["pixel_values"]));
  }
  std::vector<at::Tensor> frames;
  for (const media::Image& image : images) {
    ONEPIECE_ASSIGN_OR_RETURN(frames.emplace_back(),
                              model::FrameOfImage(image, settings.width, settings.height));
  }
  if (frames.size() > 1 && settings.frames == 1)
    return BadReference("a first and a last image need more than one frame");
  ONEPIECE_ASSIGN_OR_RETURN(const WanVae vae, WanVae::Load(model.dir + "/vae", model.device));
  ONEPIECE_ASSIGN_OR_RETURN(
      made["condition"],
      EncodeCondition(vae, frames[0], frames.size() > 1 ? frames[1] : at::Tensor(),
                      settings.frames));
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> ReadNoise(const Recording& recording, std::int64_t channels) {
  const tensor::TensorEntry* entry = recording.index().Find(kInitialNoise);
  if (entry == nullptr) return BadReference(std::string(kInitialNoise) + ": missing");
  ONEPIECE_ASSIGN_OR_RETURN(at::Tensor noise, recording.Read(*entry));
  if (noise.scalar_type() != at::kFloat ||
      noise.sizes() != recording.settings().LatentShape(kGeometry, channels)) {
    return BadReference(std::string(kInitialNoise) +
                        ": its type or shape does not fit the recorded settings");
  }
  return noise;
}

absl::Status ReplayDiffusion(const Source& model, const Recording& recording, TensorMap& made) {
  ONEPIECE_ASSIGN_OR_RETURN(auto config, model::LoadSchedulerConfig(model.dir + "/scheduler"));
  config.kind = recording.scheduler();
  config.shift = recording.flow_shift();
  ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                            model::MakeScheduler(config, recording.settings().steps));
  made["timesteps"] = at::tensor(scheduler->timesteps(), at::kDouble);
  made["sigmas"] = at::tensor(scheduler->sigmas(), at::kDouble);
  ONEPIECE_ASSIGN_OR_RETURN(const auto transformer,
                            WanTransformer::Load(model.dir + "/transformer", model.device));
  DenoiseInputs inputs{.prompt_embeds = made["prompt_embeds"],
                       .negative_prompt_embeds = made["negative_prompt_embeds"],
                       .condition = made["condition"],
                       .image_embeds = made["image_embeds"],
                       .padded_tokens = recording.max_sequence_length(),
                       .guidance_scale = recording.settings().guidance_scale};
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor noise,
                            ReadNoise(recording, transformer.config().out_channels));
  ONEPIECE_ASSIGN_OR_RETURN(inputs.latents, tensor::ToDevice(noise, model.device));
  const auto observe = [&](const DenoiseStep& step) {
    if (step.index == 0) {
      made["noise_pred_cond_0"] = step.conditional;
      if (step.unconditional.defined()) made["noise_pred_uncond_0"] = step.unconditional;
      made["latents_after_step_0"] = step.latents;
    }
    return absl::OkStatus();
  };
  ONEPIECE_ASSIGN_OR_RETURN(made["latents_final"],
                            Denoise(transformer, *scheduler, inputs, observe));
  return absl::OkStatus();
}

absl::Status ReplayVideo(const Source& model, TensorMap& made) {
  ONEPIECE_ASSIGN_OR_RETURN(const WanVae vae, WanVae::Load(model.dir + "/vae", model.device));
  ONEPIECE_ASSIGN_OR_RETURN(made["video"], DecodeFrames(vae, made["latents_final"]));
  return absl::OkStatus();
}

sdk::OutputError Compare(const std::string& name, const at::Tensor& made,
                         const at::Tensor& recorded) {
  sdk::OutputError output{.name = name, .error = std::numeric_limits<double>::infinity()};
  const bool ids = name == "input_ids" || name == "negative_input_ids";
  output.metric = ids ? "mismatches" : name == "video" ? "mean_abs_255" : "relative_error";
  output.tolerance = ids ? 0 : name == "video" ? kPixelTolerance : kRelativeTolerance;
  if (made.sizes() != recorded.sizes()) return output;  // Counts as an infinite error.
  const at::Tensor difference = made.to(at::kCPU, at::kDouble) - recorded.to(at::kDouble);
  if (ids) {
    output.error = static_cast<double>(at::count_nonzero(difference).item<std::int64_t>());
  } else if (name == "video") {
    output.error = difference.abs().mean().item<double>();
  } else {
    output.error = (difference.norm() / recorded.to(at::kDouble).norm()).item<double>();
  }
  return output;
}

absl::StatusOr<sdk::VerifyReport> Replay(const Source& model, const std::string& reference) {
  ONEPIECE_ASSIGN_OR_RETURN(const Recording recording, Recording::Open(reference));
  TensorMap made;
  ONEPIECE_RETURN_IF_ERROR(ReplayText(model, recording, made));
  ONEPIECE_RETURN_IF_ERROR(ReplayImages(model, recording, made));
  ONEPIECE_RETURN_IF_ERROR(ReplayDiffusion(model, recording, made));
  ONEPIECE_RETURN_IF_ERROR(ReplayVideo(model, made));
  sdk::VerifyReport report{.component = "reference"};
  for (const tensor::TensorEntry& entry : recording.index().tensors) {
    if (entry.name == kInitialNoise || std::ranges::find(kImages, entry.name) != std::end(kImages))
      continue;  // This one is an input.
    ++report.total;
    const auto found = made.find(entry.name);
    if (found == made.end() || !found->second.defined()) {
      report.skipped.push_back(entry.name);
      continue;
    }
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor recorded, recording.Read(entry));
    report.outputs.push_back(Compare(entry.name, found->second, recorded));
  }
  return report;
}

}  // namespace

absl::StatusOr<sdk::VerifyReport> VerifyReference(const std::string& model_dir,
                                                  const std::string& reference, int threads,
                                                  const std::string& device_name) {
  return tensor::Guarded([&]() -> absl::StatusOr<sdk::VerifyReport> {
    ONEPIECE_ASSIGN_OR_RETURN(
        const at::Device device,
        model::PrepareLoad({.device = device_name, .model_dir = model_dir, .threads = threads}));
    ONEPIECE_RETURN_IF_ERROR(CheckModelFolder(model_dir));
    return Replay({model_dir, device}, reference);
  });
}

}  // namespace onepiece::wan
